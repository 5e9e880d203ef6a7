"""Bounds of a cursor as values of its column, how far back a load looks, and the state as text."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_scope.exceptions import CheckpointCorruptError, CursorError, InputError
from airflow_provider_scope.sources.cursor import state as cursor_state
from airflow_provider_scope.sources.cursor import values as cursor_values
from airflow_provider_scope.sources.cursor.bounds import Bound, check_times, overlap, window_bounds
from airflow_provider_scope.sources.cursor.spec import bound_of
from airflow_provider_scope.sources.cursor.state import CursorState, Group
from airflow_provider_scope.spark import plan as plans
from airflow_provider_scope.spark.plan import Plan
from airflow_provider_scope.specs import Cursor, Scd2, TableSource
from airflow_provider_scope.specs.ingest import ingest_from, source_from
from airflow_provider_scope.values import Window
from tests.support import values as shared

BERLIN = timezone(timedelta(hours=2))
NAIVE = datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC).replace(tzinfo=None)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (0, "int", "0"),
        (-3, "bigint", "-3"),
        (2**63 - 1, "bigint", "9223372036854775807"),
        (1.5, "double", "1.5"),
        (1e300, "double", f"{Decimal('1e300'):f}"),
        (Decimal("1.10"), "decimal(10,2)", "1.10"),
        ("12", "int", "12"),
        (1_767_225_600.0, "bigint", "1767225600"),  # as datetime.timestamp() gives it: Spark takes no 1.0
        ("1.0", "smallint", "1"),
        (-2.5, "decimal(10,2)", "-2.50"),
        (datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN), "timestamp", "2024-10-27 00:30:00.000000Z"),
        ("2024-10-27T02:30:00+02:00", "timestamp", "2024-10-27 00:30:00.000000Z"),
        ("2024-10-27", "timestamp", "2024-10-27 00:00:00Z"),
        (NAIVE, "timestamp_ntz", "2024-01-02 03:04:05.000006"),
        ("0001-01-01", "date", "0001-01-01"),
        (date(2024, 2, 29), "date", "2024-02-29"),
        ("Ä", "string", "Ä"),
        ("10", "string", "10"),
    ],
)
def test_a_bound_is_a_value_of_the_column(value: Any, kind: str, text: str) -> None:
    assert cursor_values.value_of("initial_value", bound_of("v", value) or Bound("", ""), kind) == text


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (3, "timestamp"),
        (3, "string"),
        ("x", "int"),
        (1.5, "int"),
        ("1.4", "decimal(5,0)"),  # Spark would take 1, and PostgreSQL 1.4: neither range would have row 1
        (Decimal("0.001"), "decimal(38,2)"),
        (date(2024, 1, 1), "timestamp"),
        (datetime(2024, 1, 1, tzinfo=UTC), "date"),
        (NAIVE, "timestamp"),
        (datetime(2024, 1, 1, tzinfo=UTC), "timestamp_ntz"),
        ("2024-01-01T00:00:00", "timestamp"),
        ("yesterday", "date"),
        ("NaN", "double"),
        (100_000, "smallint"),
        (-(2**63) - 1, "bigint"),
        (10**36, "decimal(38,2)"),
        # What is cut off of an end would leave a row out of the range, and of the next one.
        ("2026-01-31T23:59:59.9999999", "timestamp_ntz"),
        ("2026-01-31T23:59:59.999999001+00:00", "timestamp"),
        ("0001-01-01T00:00:00+01:00", "timestamp"),
    ],
)
def test_a_bound_of_another_type_is_refused_and_both_types_are_named(value: Any, kind: str) -> None:
    with pytest.raises(CursorError) as caught:
        cursor_values.value_of("end_value", bound_of("v", value) or Bound("", ""), kind)

    assert "cursor.end_value" in caught.value.what
    assert f"the type {kind}" in caught.value.what


NO_BOUNDS = [
    *(True, [1], float("inf"), float("nan"), b"x", pd.NaT),
    datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))),
    datetime.min.replace(tzinfo=BERLIN),
]


@pytest.mark.parametrize("value", NO_BOUNDS)
def test_a_bound_that_no_column_has_is_refused_when_the_dag_is_parsed(value: Any) -> None:
    with pytest.raises(InputError):
        Cursor(column="n", initial_value=value)


class WithoutOffset(tzinfo):
    def utcoffset(self, moment: datetime | None) -> None:
        return None


def test_a_time_whose_zone_has_no_offset_is_one_without_zone() -> None:
    odd = NAIVE.replace(tzinfo=WithoutOffset())

    assert bound_of("v", odd) == bound_of("v", NAIVE)
    Cursor(column="n", initial_value=odd, end_value=odd)


@pytest.mark.parametrize(
    ("kind", "first", "end"),
    [
        ("timestamp", "2024-10-26 22:00:00.000000Z", "2024-10-27 22:00:00.000000Z"),
        ("timestamp_ntz", "2024-10-26 22:00:00.000000", "2024-10-27 22:00:00.000000"),
        ("date", "2024-10-26", "2024-10-27"),
        ("bigint", "1729980000", "1730066400"),
        ("double", "1729980000", "1730066400"),
        ("decimal(12,2)", "1729980000.00", "1730066400.00"),
        ("string", "2024-10-26T22:00:00", "2024-10-27T22:00:00"),
    ],
)
def test_an_interval_becomes_values_of_the_column(kind: str, first: str, end: str) -> None:
    window = Window(1_729_980_000_000, 1_730_066_400_000)

    assert [cursor_values.value_of("", bound, kind) for bound in window_bounds(window)] == [first, end]
    assert [bound.milliseconds() for bound in window_bounds(window)] == [
        window.start_ms,
        window.end_ms,
    ]


def test_an_end_as_text_is_before_each_text_of_that_time() -> None:
    """And a text of a time that no interval finds is refused."""
    for ms, fraction in ((0, ""), (500, ".5")):
        end = cursor_values.value_of("", window_bounds(Window(0, ms + 1_730_066_400_000))[1], "string")
        texts = [
            f"2024-10-27T22:00:00{fraction}{zeros}{zone}"
            for zeros in (["", "0"] if ms else ["", ".0"])
            for zone in ("", "Z", "+00:00", "+0000")
        ]
        assert all(end <= text for text in texts)
        assert end > "2024-10-27T21:59:59.999Z"
        for text in [*texts, f"{texts[0]}  ", None]:
            check_times("at", text)
    for text in ("2024-10-27 22:00:00", "2024-10-27", "2024-10-27T22:00", "2024-10-27T22:00:00+02:00", "n/a"):
        with pytest.raises(CursorError, match=re.escape(f"largest value is '{text}'")):
            check_times("at", text)


def test_parts_of_a_second_are_cut_off_as_the_type_does_not_have_them() -> None:
    bound = window_bounds(Window(1_729_980_000_567, 1_730_066_400_000))[0]
    kinds = ("int", "decimal(10,0)", "decimal(12,2)", "decimal(38,18)", "double")

    assert [cursor_values.value_of("", bound, kind) for kind in kinds] == [
        "1729980000",
        "1729980000",
        "1729980000.56",
        "1729980000.567000000000000000",
        "1729980000.567",
    ]


def rule(lag: float | None = None, func: str = "max") -> Cursor:
    return Cursor(column="c", last_value_func=func, lag=lag)


@pytest.mark.parametrize(
    ("kind", "last", "lag", "func", "start"),
    [
        ("int", "10", 3, "max", "7"),
        ("int", "10", 3.9, "max", "7"),
        ("bigint", "-10", 3, "min", "-7"),
        ("decimal(10,2)", "1.10", 0.2, "max", "0.90"),
        ("decimal(10,2)", "2.00", 0.3 - 0.2, "max", "1.91"),  # 0.09999999999999998
        ("decimal(10,0)", "5", 0.6, "min", "5"),
        ("double", "0.5", 1, "max", "-0.5"),
        ("date", "2024-03-01", 1, "max", "2024-02-29"),
        ("timestamp", "2024-10-27 01:00:00.5Z", 1.5, "max", "2024-10-27 00:59:59.000000Z"),
        ("timestamp_ntz", "2024-01-01 00:00:00", 1, "min", "2024-01-01 00:00:01.000000"),
        ("int", "10", 0, "max", "10"),
        ("string", "a", 0, "max", "a"),
        # The column of a database was a double, or a decimal.
        ("int", "10.0", 3, "max", "7.0"),
        ("bigint", "-2.50", 3.9, "min", "0.50"),
        # Not before the first value, or after the last one, that the type has.
        ("smallint", "3", 40_000, "max", "-32768"),
        ("tinyint", "100", 100, "min", "127"),
        ("bigint", "3", 1e30, "max", "-9223372036854775808"),
        ("decimal(38,2)", "5.00", 1e40, "max", f"-{'9' * 36}.99"),
        ("double", "5", 1e40, "max", f"-{'9' * 39}5"),
    ],
)
def test_lag_is_taken_from_the_last_value(kind: str, last: str, lag: float, func: str, start: str) -> None:
    state = CursorState(column="c", kind=kind, last=last)

    assert cursor_state.start_of(rule(lag, func), state, kind, None) == start


def test_years_that_python_does_not_have_are_in_order() -> None:
    days = ["-0044-06-08", "-0001-01-01", "0001-01-01", "2026-01-01", "9999-12-31", "+12345-06-07"]
    for kind, end in (("date", ""), ("timestamp", " 00:00:00.5Z"), ("timestamp_ntz", " 00:00:00")):
        for before, after in pairwise(day + end for day in days):
            assert cursor_values.is_beyond(after, before, kind, "max")
            assert cursor_values.is_beyond(before, after, kind, "min")
        assert not cursor_values.is_beyond(days[0] + end, days[0] + end, kind, "max")
        with pytest.raises(CursorError, match="cannot be applied to the last value"):
            cursor_state.start_of(
                rule(1), CursorState(column="c", kind=kind, last=days[-1] + end), kind, None
            )
    assert not cursor_values.is_beyond(
        "2026-01-01 00:00:00.000000Z", "2026-01-01 00:00:00Z", "timestamp", "max"
    )


def test_floats_are_compared_as_spark_compares_them() -> None:
    last = CursorState(column="c", kind="double", last="7.1")
    start = cursor_state.start_of(rule(0.7 - 0.5), last, "double", None)

    # Else the row there, which is read, would not be noted, and be loaded again each time.
    assert start == "6.90000000000000004"
    assert not cursor_values.is_beyond(start, "6.9", "double", "max")
    assert not cursor_values.is_beyond("16777217", "1.6777216E7", "float", "max")
    assert cursor_values.is_beyond("6.900000000000001", start, "double", "max")


def test_lag_never_goes_below_the_initial_value() -> None:
    state = CursorState(column="c", kind="int", last="10")

    assert cursor_state.start_of(rule(30), state, "int", Bound("number", "5")) == "5"
    assert cursor_state.start_of(rule(3), state, "int", Bound("number", "5")) == "7"
    assert cursor_state.start_of(rule(30, "min"), state, "int", Bound("number", "15")) == "15"
    assert cursor_state.start_of(rule(3), None, "int", Bound("number", "5")) == "5"
    assert cursor_state.start_of(rule(), state, "int", Bound("number", "50")) == "10"
    assert cursor_state.start_of(rule(3), state, "int", Bound("number", "50")) == "10"
    assert cursor_state.start_of(rule(3, "min"), state, "int", Bound("number", "5")) == "10"
    # An initial value that no load needs any more stops none, whatever its type.
    assert cursor_state.start_of(rule(), state, "int", Bound("number", "0.5")) == "10"


def test_lag_on_text_is_refused() -> None:
    with pytest.raises(CursorError, match="for numbers, dates and timestamps"):
        cursor_state.start_of(rule(1), CursorState(column="c", kind="string", last="a"), "string", None)


def test_a_state_is_read_as_it_was_written() -> None:
    rows = (("2024-01-01 00:00:00Z", "ab", 2),)
    state = CursorState(
        column="é`", kind="timestamp", last="x", boundary_rows=rows, source="id", version=0, more=True
    )

    assert cursor_state.decode(state.encode(), "here") == state
    assert cursor_state.decode(None, "here") is None
    assert cursor_state.decode(CursorState(column="c").encode(), "here") == CursorState(column="c")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"column": "c", "other": 1}', '{"column": "c", "boundary_rows": [[1]]}']
)
def test_a_state_that_is_none_is_damage(text: str) -> None:
    with pytest.raises(CheckpointCorruptError):
        cursor_state.decode(text, "batch 3")


def test_a_state_of_another_column_is_refused() -> None:
    state = CursorState(column="Changed", func="max", last="1")
    cursor_state.check_column(state, Cursor(column="changed"), "here")
    with pytest.raises(CursorError, match=r"'Changed'.*'created'"):
        cursor_state.check_column(state, Cursor(column="created"), "here")
    with pytest.raises(CursorError, match=r"'max'.*'min'"):
        cursor_state.check_column(state, Cursor(column="changed", last_value_func="min"), "here")
    with pytest.raises(CursorError, match=r"known with cursor\.per=None, and it is now 'g'"):
        cursor_state.check_column(state, Cursor(column="changed", per="g"), "here")


@pytest.mark.parametrize(("func", "lasts"), [("max", ["7", "10", "1"]), ("min", ["6", "9", "1"])])
def test_each_group_goes_on_from_the_furthest_value_that_it_ever_had(func: Any, lasts: list[str]) -> None:
    groups = (Group("=a", "7"), Group("=b", "9"))
    state = CursorState(column="n", func=func, kind="int", per="g", groups=groups)
    cursor = Cursor(column="n", per="g", last_value_func=func, lag=3)

    after = cursor_state.moved(cursor, state, {"=c": "1", "=b": "10", "=a": "6"}, "int", None)

    assert [(group.key, group.last) for group in after.groups] == [
        *zip(["=a", "=b", "=c"], lasts, strict=True)
    ]


@pytest.mark.parametrize(
    "kind", ["boolean", "binary", "array<int>", "struct<a:int>", "string collate UTF8_LCASE"]
)
def test_a_column_without_an_order_is_refused(kind: str) -> None:
    with pytest.raises(CursorError, match="no order"):
        cursor_state.check_kind("c", kind, None)


def test_numbers_may_change_their_type_and_others_may_not() -> None:
    cursor_state.check_kind("c", "bigint", CursorState(column="c", kind="int", last="1"))
    with pytest.raises(CursorError, match=r"date.*timestamp"):
        cursor_state.check_kind("c", "date", CursorState(column="c", kind="timestamp", last="1"))


# ---- specs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"end_value": 3},
        {"initial_value": 3, "end_value": 2},
        {"initial_value": 3, "range_end": "closed"},
        {"range_start": "half"},
        {"range_start": "open", "lag": 3},
        {"range_start": "open", "dedup_key": "id"},
        {"initial_value": 2, "end_value": 3, "last_value_func": "min"},
        {"initial_value": date(2024, 2, 1), "end_value": date(2024, 1, 1)},
        {"lag": -1},
        {"last_value_func": "sum"},
        {"on_cursor_value_missing": "skip"},
        {"dedup_key": 3},
    ],
)
def test_what_a_cursor_cannot_be_is_refused_when_the_dag_is_parsed(fields: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Cursor(column="n", **fields)


def test_a_range_may_be_empty_and_its_ends_may_be_templates() -> None:
    Cursor(column="n", initial_value=3, end_value=3)
    Cursor(column="n", initial_value="{{ ds }}", end_value="{{ next_ds }}")


def test_a_dict_with_a_cursor_is_a_table() -> None:
    source = source_from({"table": "/t", "cursor": {"column": "n", "lag": "3"}})

    assert source == TableSource(table="/t", cursor=Cursor(column="n", lag=3.0))


def arguments(**changes: Any) -> dict[str, Any]:
    source = {
        "table": "/in/t",
        "cursor": {"column": "n", **changes.pop("cursor", {})},
        **changes.pop("more", {}),
    }
    return shared.arguments(source=source, **changes)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (
            {"engine": {"scope_conn_id": "x"}, "table": {"columns": {"n": "int"}}},
            "FileSource with ScopeEngine",
        ),
        ({"write": Scd2()}, "merge_key"),
        ({"mode": "data_interval", "cursor": {"initial_value": 1}}, "initial_value"),
        ({"mode": "data_interval", "cursor": {"range_start": "open"}}, "an interval has its start"),
        ({"mode": "data_interval", "more": {"max_rows_per_batch": 5}}, "max_rows_per_batch"),
        (
            {"cursor": {"initial_value": 1, "end_value": 2}, "more": {"max_rows_per_batch": 5}},
            "a range|None with",
        ),
    ],
)
def test_what_does_not_go_with_a_cursor_is_refused(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        ingest_from(arguments(**changes))


def test_scd2_with_a_key_goes_with_a_cursor() -> None:
    assert ingest_from(arguments(write=Scd2(merge_key="id"))) is not None


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((1, 3), (3, 5), False),
        ((1, 4), (3, 5), True),
        ((1, 9), (3, 5), True),
        ((5, 3), (3, 1), False),  # down: 5 and 4; 3 and 2
        ((5, 2), (3, 1), True),
        ((1, 0), (1, 4), True),  # down to above 0: 1 is in both
        ((4, 1), (1, 0), False),
        ((1, 4), (6, 4), False),  # up to below 4; down to above 4
        ((1, 4), (6, 3), True),
        (("a", "c"), ("b", "d"), True),
        (("a", "b"), ("b", "d"), False),
        (("0", "3"), ("2", "4"), True),
        (("1", "2"), ("10", "11"), False),
        (("9", "10"), (9.5, 12), True),
        ((1, 3), ("2.5", "x"), None),
        (("2026-01-01", "2026-01-03"), ("2026-01-02T12:00:00+01:00", "2026-01-09"), True),
        (("2026-01-01", "2026-01-03"), ("2026-01-03T00:00:00", "2026-01-09T00:00:00"), False),
        (
            ("2026-01-01T08:00:00", "2026-01-01T12:00:00"),
            ("2026-01-01T12:00:00", "2026-01-01T15:00:00"),
            False,
        ),
        (
            ("2026-01-01T08:00:00", "2026-01-01T13:00:00"),
            ("2026-01-01T12:00:00", "2026-01-01T15:00:00"),
            True,
        ),
        # What has no zone is UTC, wherever the worker is.
        (("2026-01-01T08:00:00", "2026-01-01T12:00:00"), ("2026-01-01T13:00:00+01:00", "2026-01-02"), False),
        (("2026-01-01T08:00:00", "2026-01-01T12:00:00"), ("2026-01-01T12:30:00+01:00", "2026-01-02"), True),
    ],
)
def test_ranges_that_have_a_value_in_common_overlap(first, second, expected):
    def bounds(ends):
        return tuple(Bound("text" if isinstance(end, str) else "number", str(end)) for end in ends)

    assert overlap(bounds(first), bounds(second)) is expected
    assert overlap(bounds(second), bounds(first)) is expected


GRID = st.integers(0, 6)
"""Ends of ranges: values of a column lie between them, too."""


@st.composite
def ranges(draw: Any) -> tuple[Bound, Bound]:
    sides = draw(st.sampled_from(["", "open"])), draw(st.sampled_from(["", "closed"]))
    first, end = (Bound("number", str(draw(GRID)), side) for side in sides)
    return first, end


def values_of(ends: tuple[Bound, Bound]) -> set[Fraction]:
    first, end = (Fraction(bound.text) for bound in ends)
    values = {Fraction(n, 2) for n in range(13)}
    inside = {value for value in values if min(first, end) < value < max(first, end)}
    with_end = ends[1].side == "closed"
    if first == end:
        return {first} if with_end and not ends[0].side else set()
    return inside | ({end} if with_end else set()) | (set() if ends[0].side else {first})


@given(ranges(), ranges())
@settings(max_examples=300)
def test_ranges_overlap_if_they_have_a_value_in_common(one, other):
    assert overlap(one, other) is bool(values_of(one) & values_of(other))


def test_bounds_are_read_as_they_were_written_and_an_older_version_refuses_those_that_it_does_not_know():
    for bound in (Bound("text", "open a:b"), Bound("text", " :", "closed"), Bound("number", "1", "open")):
        assert Bound.decode(bound.encode()) == bound
    assert Bound("number", "1").encode() == "number:1"
    for kind in ("int", "double", "decimal(10,2)", "date", "timestamp", "timestamp_ntz", "string"):
        before, _, text = Bound("text" if kind == "string" else "number", "1", "open").encode().partition(":")
        with pytest.raises(CursorError, match=r"is 1 \(open (number|text)\)"):
            cursor_values.value_of("initial_value", Bound(before, text), kind)


def test_the_ends_of_a_range_are_in_the_slice_and_the_start_of_other_loads_in_the_plan():
    cursor = Cursor(column="n", initial_value=1, end_value=3, range_start="open", range_end="closed")
    assert [bound and bound.encode() for bound in cursor.bounds] == ["open number:1", "closed number:3"]
    plan = Plan(
        pipeline="p", table="/t", checkpoint="/c", batches=(), source=TableSource(table="/s", cursor=cursor)
    )
    assert plans.decode(plans.encode(plan)).cursor.cursor == Cursor(column="n", range_start="open")


def test_digits_in_a_column_of_text_are_compared_as_text():
    low, high = ((Bound("text", first), Bound("text", end)) for first, end in (("1", "2"), ("10", "11")))
    assert overlap(low, high, is_text=True)
    assert not overlap(low, high, is_text=False)


@pytest.mark.parametrize(
    ("before", "now", "dedup_key"),
    [
        (None, ("t",), "None"),
        (("t",), None, r'\("t",\)'),
        ((), None, r"\(\) or range_start=.open."),
        (("t",), ("v",), r'\("t",\)'),
        (None, None, None),
        (("t",), ("t",), None),
        (("t",), (), None),
    ],
)
def test_rows_are_compared_only_by_what_they_are_known_by(
    before: Any, now: Any, dedup_key: str | None
) -> None:
    old, new = (Cursor(column="v", dedup_key=key) for key in (before, now))
    state = CursorState(column="v", last="9", dedup=cursor_state.compared_by(old))

    if dedup_key is None:
        cursor_state.check_dedup(state, new, "here")
        return
    with pytest.raises(CursorError, match=f"known with dedup_key={dedup_key}, and cursor.dedup_key is"):
        cursor_state.check_dedup(state, new, "here")


def test_a_state_of_before_says_nothing_of_how_rows_are_known() -> None:
    rule = Cursor(column="v", lag=5, dedup_key=("t",))
    state = cursor_state.decode('{"column": "v", "kind": "int", "last": "9"}', "here")

    cursor_state.check_dedup(state, rule, "here")
    assert cursor_state.start_of(rule, state, "int", None) == "4"
