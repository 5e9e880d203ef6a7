"""The state of a cursor with groups is that of as many cursors, each over the rows of one group alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_scope.sources.cursor import state as cursor_state
from airflow_provider_scope.sources.cursor import values as cursor_values
from airflow_provider_scope.sources.cursor.bounds import Bound
from airflow_provider_scope.sources.cursor.spec import Cursor
from airflow_provider_scope.sources.cursor.state import CursorState, Group

KEYS = st.sampled_from(["", "=", "==", "=a", "=a ", "=A", "=\"'\\", "=ä\n", "=\0"])
VALUES = {
    "int": (st.integers(-20, 20).map(str), st.none() | st.integers(0, 9)),
    "decimal(9,2)": (st.decimals(-9, 9, places=2).map(str), st.none() | st.floats(0, 3)),
    "date": (st.dates().map(str), st.none() | st.integers(0, 9)),
    "string": (st.text(max_size=3), st.none()),
}


@given(data=st.data(), kind=st.sampled_from([*VALUES]))
def test_each_group_goes_on_as_a_cursor_of_its_own(data: Any, kind: str) -> None:
    values, lags = VALUES[kind]
    func = data.draw(st.sampled_from(["max", "min"]))
    first = data.draw(values) if kind in ("int", "string") and data.draw(st.booleans()) else None
    initial = first if first is None else Bound("text" if kind == "string" else "number", first)
    state = CursorState(column="c", per="g")
    alone: dict[str, CursorState] = {}
    for _ in range(data.draw(st.integers(1, 6))):
        lag = data.draw(lags)  # which a user may change between two loads
        cursor = Cursor(column="c", per="g", last_value_func=func, lag=lag)
        newest = data.draw(st.dictionaries(KEYS, values, max_size=4))
        state = cursor_state.moved(cursor, state, newest, kind, initial)
        state = cursor_state.decode(replace(state, kind=kind).encode(), "the test") or state
        for key in alone.keys() | newest.keys():
            before = alone.get(key, CursorState(column="c"))
            of_key = {"": newest[key]} if key in newest else {}
            alone[key] = cursor_state.moved(replace(cursor, per=None), before, of_key, kind, initial)

        assert state.groups == tuple(
            Group(key, str(after.last), after.since) for key, after in sorted(alone.items())
        )
        starts = {key: cursor_state.start_of(cursor, after, kind, initial) for key, after in alone.items()}
        assert cursor_state.starts_of(cursor, state, kind, initial) == starts
        # Whoever does not look at the groups reads too much, and never too little.
        earliest = cursor_state.earliest_start(cursor, state, kind, initial)
        assert state.last is None
        assert initial is not None or earliest is None
        assert earliest is None or not any(
            cursor_values.is_beyond(earliest, str(start), kind, func) for start in [first, *starts.values()]
        )
