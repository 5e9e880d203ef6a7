"""Ranges beside loads without an end, in one log: what one has loaded, the other does not add."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_scope.exceptions import CursorError
from airflow_provider_scope.protocol.log import CheckpointLog
from airflow_provider_scope.protocol.report import RunReport
from airflow_provider_scope.sources.cursor.bounds import Bound
from airflow_provider_scope.sources.cursor.source import CursorRows
from airflow_provider_scope.sources.cursor.state import CursorState
from airflow_provider_scope.specs import Cursor, TableSource
from airflow_provider_scope.values import CursorSlice
from tests.support.memory_engine import MemoryStorage
from tests.support.values import a_commit, an_entry

STATE = CursorState(column="n", func="max", kind="bigint", last="5").encode()


def slices(*loads: dict[str, Any]) -> CheckpointLog:
    """Write a log in which each load but the first goes on after the state of those before."""
    log = CheckpointLog(MemoryStorage(), "file:///t/_checkpoint")
    before = None
    for seq, load in enumerate(loads):
        cursor = Cursor(column="n", **load)
        first, end = (bound and bound.encode() for bound in cursor.bounds)
        log.put_offset(an_entry(seq, slice=CursorSlice(before, "n", first, end, None, None)))
        before = before if end else STATE
    return log


def refusal(log: CheckpointLog, load: dict[str, Any], *, state: str | None = None, **more: Any) -> str:
    """Return what is said of a load that comes next; empty if it is not refused."""
    spec = TableSource(table="/s", cursor=Cursor(column="n", **load))
    view: Any = SimpleNamespace(next_seq=len(log.logged()), state=state, overwrite_start=None)
    try:
        CursorRows(spec=spec, log=log, **more).pending(view, RunReport(roots=(), now_ms=0), refresh=False)
    except CursorError as err:
        return f"{err} {err.do}"
    return ""


def ends(first: Any, end: Any, **more: Any) -> dict[str, Any]:
    return {"initial_value": first, "end_value": end, **more}


@pytest.mark.parametrize(
    ("loaded", "load", "expected"),
    [
        ([{}], ends(2, 4), "from 2 to 4 overlaps that of all rows, which batch 0 loads"),
        ([{"initial_value": 3}], ends(2, 4), "from 2 to 4 overlaps that from 3 on, which batch 0 loads"),
        ([{"initial_value": 3}], ends(1, 3), ""),
        ([{"initial_value": 3}], ends(1, 3, range_end="closed"), "overlaps that from 3 on"),
        ([{"initial_value": 3, "range_start": "open"}], ends(1, 3, range_end="closed"), ""),
        # The initial value of a later batch says nothing: it went on after the last value.
        ([{"initial_value": 3}, {}], ends(1, 3), ""),
        ([{"initial_value": "b"}], ends("a", "c"), "from a to c overlaps that from b on"),
        ([{"initial_value": 3, "last_value_func": "min"}], ends(4, 2, last_value_func="min"), "from 3 on"),
        ([{"initial_value": 3, "last_value_func": "min"}], ends(6, 3, last_value_func="min"), ""),
    ],
)
def test_a_range_is_not_added_to_a_load_that_has_its_rows(
    loaded: list[dict[str, Any]], load: dict[str, Any], expected: str
) -> None:
    message = refusal(slices(*loaded), load)

    assert expected in message
    assert bool(message) is bool(expected)
    assert refusal(slices(*loaded), load, loads_once=False) == ""


@pytest.mark.parametrize(
    ("loaded", "load", "expected"),
    [
        (ends(2, 4), {}, "with cursor.initial_value=4;"),
        (ends("2026-01-01", "2026-01-04"), {}, "with cursor.initial_value='2026-01-04';"),
        (ends(2, 4, range_end="closed"), {}, 'with cursor.initial_value=4, range_start="open";'),
        (ends(4, 2, last_value_func="min"), {}, 'with cursor.initial_value=4, range_start="open";'),
        (ends(4, 2, last_value_func="min"), {"last_value_func": "min"}, "with cursor.initial_value=2;"),
        (ends(2, 4), {"initial_value": 4}, ""),
        (ends(2, 4), {"initial_value": 1}, "with cursor.initial_value=4;"),
        (ends(2, 4), {"last_value_func": "min", "initial_value": 1}, ""),
    ],
)
def test_a_load_without_an_end_does_not_begin_before_a_range(
    loaded: dict[str, Any], load: dict[str, Any], expected: str
) -> None:
    log = slices(loaded)
    message = refusal(log, load)

    assert expected in message
    assert bool(message) is bool(expected)
    assert refusal(log, load, loads_once=False) == ""
    assert not refusal(log, load, state=CursorState(column="n", kind="bigint", last="9").encode())


def test_what_was_abandoned_has_no_rows() -> None:
    for loaded, load in (({}, ends(2, 4)), (ends(2, 4), {})):
        log = slices(loaded)
        log.put_commit(a_commit(0, abandoned=True))
        assert not refusal(log, load)


def test_a_range_within_a_load_that_goes_downwards_is_refused_whatever_its_own_direction() -> None:
    log = CheckpointLog(MemoryStorage(), "file:///t/_checkpoint")
    log.put_offset(
        an_entry(0, slice=CursorSlice(None, "n", Bound("number", "100").encode(), None, None, None))
    )
    log.put_commit(a_commit(0, state=CursorState(column="n", func="min", kind="bigint", last="1").encode()))

    assert "which batch 0 loads" in refusal(log, ends(0, 50))
