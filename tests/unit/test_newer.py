"""Rows beyond a cursor: what statistics of commits tell, and which rows of a database are known."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from airflow_provider_scope.delta.commit import parse
from airflow_provider_scope.sources.cursor import newer
from airflow_provider_scope.sources.cursor.bounds import Bound
from airflow_provider_scope.sources.cursor.spec import Cursor
from airflow_provider_scope.sources.cursor.state import CursorState, Group, compared_by

CURSOR = Cursor(column="n")


def add(low: Any, high: Any, nulls: Any = 0, rows: int = 3, column: str = "n", **more: Any) -> dict[str, Any]:
    stats = {
        "numRecords": rows,
        "minValues": {column: low, "other": 10**9},
        "maxValues": {column: high, "other": 10**9},
        "nullCount": {column: nulls, "other": 0},
    }
    return {"add": {"path": "f", "dataChange": True, "stats": json.dumps(stats), **more}}


def holds_none(
    *actions: Any, kind: str = "int", last: str | None = "7", first: Bound | None = None, **more: Any
) -> bool:
    commit = "\n".join(json.dumps(action) for action in ({"commitInfo": {}}, *actions)).encode()
    state = CursorState(column="n", kind=kind, last=last)
    return newer.holds_none(
        [parse(0, b'{"commitInfo": {}}'), parse(1, commit)], replace(CURSOR, **more), state, first
    )


@pytest.mark.parametrize(
    "actions",
    [
        [],
        [{"remove": {"path": "f", "dataChange": True}}],
        [{"txn": {"appId": "a", "version": 1}}, {"cdc": {"path": "c"}}, {"domainMetadata": {}}],
        [add(1, 6), add(-5, 5)],
        [add(1, 6, column="N")],
        # Files that are only packed anew hold rows that were there.
        [add(1, 99, dataChange=False), {"add": {"path": "f", "dataChange": False}}],
        [add(None, None, rows=0)],
    ],
)
def test_rows_before_the_last_value_and_no_rows_are_nothing_newer(actions: list[Any]) -> None:
    assert holds_none(*actions)


@pytest.mark.parametrize(
    "action",
    [
        add(1, 8),
        add(1, 7),  # at the last value, a row may be new
        add(1, None),
        add(1, 6.0),
        add(1, "6x"),
        add(1, high=True),
        add(1, 6, nulls=1),
        add(1, 6, nulls=None),
        add(1, 6, column="m"),
        {"add": {"path": "f", "dataChange": True}},
        {"add": {"path": "f", "dataChange": True, "stats": None}},
        {"add": {"path": "f", "dataChange": True, "stats": "{"}},
        {"add": {"path": "f", "dataChange": True, "stats": "{}"}},
        {"add": {"path": "f"}},
        {"metaData": {}},
        {"protocol": {}},
        {"somethingElse": {}},
        {**add(1, 6), "metaData": {}},
    ],
)
def test_what_cannot_be_told_counts_as_new(action: Any) -> None:
    assert not holds_none(add(1, 2), action)


def test_two_columns_that_differ_by_case_cannot_be_told() -> None:
    stats = {"numRecords": 1, "maxValues": {"n": 1, "N": 1}, "nullCount": {"n": 0, "N": 0}}
    assert not holds_none({"add": {"path": "f", "dataChange": True, "stats": json.dumps(stats)}})


def test_a_field_of_a_struct_cannot_be_told() -> None:
    stats = {"numRecords": 1, "maxValues": {"s": {"n": 1}}, "nullCount": {"s": {"n": 0}}}
    action = {"add": {"path": "f", "dataChange": True, "stats": json.dumps(stats)}}
    assert not holds_none(action, column="s.n")
    assert not holds_none(action, column="s")


@pytest.mark.parametrize("kind", ["string", "double", "float", "decimal(9,2)", "boolean"])
def test_types_whose_statistics_are_cut_or_silent_cannot_be_told(kind: str) -> None:
    assert not holds_none(add(1, 2), kind=kind)
    assert not holds_none(add("1", "2"), kind=kind)


@pytest.mark.parametrize(
    ("kind", "last", "high", "is_before"),
    [
        ("bigint", "9007199254740993", 9007199254740992, True),
        ("bigint", "-5", -6, True),
        ("date", "2026-01-02", "2026-01-01", True),
        ("date", "2026-01-02", "2026-01-02", False),
        ("date", "2026-01-02", "+10000-01-01", False),
        # Statistics are cut to milliseconds: the row behind ".123" may be at 123999 microseconds.
        ("timestamp", "2026-01-01 00:00:00.124000Z", "2026-01-01T00:00:00.123Z", True),
        ("timestamp", "2026-01-01 00:00:00.123999Z", "2026-01-01T00:00:00.123Z", False),
        ("timestamp", "2026-01-01 00:00:00Z", "2026-01-01T00:59:59.000+01:00", True),
        ("timestamp", "2026-01-01 00:00:00Z", "2026-01-01T01:00:00.000+01:00", False),
        ("timestamp", "2026-01-01 00:00:00Z", "2025-01-01T00:00:00.000", False),
        ("timestamp_ntz", "2026-01-01 00:00:00.124", "2026-01-01T00:00:00.123", True),
        ("timestamp_ntz", "2026-01-01 00:00:00.123999", "2026-01-01T00:00:00.123", False),
        ("timestamp_ntz", "2026-01-01 00:00:00", "2025-01-01T00:00:00.000Z", False),
        ("timestamp_ntz", "2026-01-01 00:00:00", "9999-12-31T23:59:59.999", False),
        # Delta 3.2 cuts the seconds of the zone's offset: this is 19:55:56.
        ("timestamp", "1883-11-18 19:55:57Z", "1883-11-18T12:03:58.000-07:52", False),
        ("timestamp", "1890-01-01 00:00:00Z", "1883-11-18T12:03:58.000-07:52", False),
        ("timestamp", "1972-01-06 00:00:30Z", "1972-01-05T23:15:30.000-00:44", False),
        ("timestamp", "1974-01-01 00:00:00Z", "1972-01-05T23:15:30.000-00:44", True),
        ("timestamp_ntz", "1890-01-01 00:00:00", "1883-11-18T12:03:58.000", True),
        ("timestamp_ntz", "1500-01-05 00:00:00", "1500-01-01T00:00:00.000", False),
        ("date", "1500-01-05", "1500-01-01", False),
        ("date", "1900-01-02", "1500-01-01", True),
    ],
)
def test_values_are_compared_as_their_type(kind: str, last: str, high: Any, *, is_before: bool) -> None:
    assert holds_none(add("0", high), kind=kind, last=last) is is_before


def test_with_falling_values_the_smallest_counts() -> None:
    assert holds_none(add(8, 99), last_value_func="min")
    assert not holds_none(add(7, 99), last_value_func="min")
    at = {"kind": "timestamp", "last": "2026-01-01 00:00:00.123Z", "last_value_func": "min"}
    assert holds_none(add("2026-01-01T00:00:00.124Z", ""), **at)
    assert not holds_none(add("2026-01-01T00:00:00.1235Z", ""), **at)
    early = {"kind": "timestamp", "last": "1883-11-18 00:00:00Z", "last_value_func": "min"}
    assert not holds_none(add("1900-01-01T00:00:00.000+07:36", ""), **early)
    assert holds_none(add("1973-01-01T00:00:00.000Z", ""), **early)


def test_a_lag_looks_further_back_and_no_further_than_the_first_value() -> None:
    assert holds_none(add(1, 4), lag=2)
    assert not holds_none(add(1, 5), lag=2)
    assert holds_none(add(1, 5), lag=2, first=Bound("number", "6"))
    assert not holds_none(add(1, 1), lag=2, first=Bound("text", "x"))


def test_rows_without_a_value_are_new_unless_they_are_left_out() -> None:
    assert holds_none(add(1, 6, nulls=1), on_cursor_value_missing="exclude")
    assert holds_none(add(None, None, nulls=3), on_cursor_value_missing="exclude")
    assert not holds_none(add(None, None, nulls=2), on_cursor_value_missing="exclude")
    assert not holds_none(add(1, 6), on_cursor_value_missing="include")
    assert not holds_none(dedup_key=())


@pytest.mark.parametrize(("high", "first", "expected"), [(2, None, False), (2, 3, True), (3, 3, False)])
def test_a_group_that_is_new_may_begin_before_the_last_value_of_the_others(
    high: int, first: int | None, expected: bool
) -> None:
    state = CursorState(column="n", kind="int", per="g", groups=(Group("=a", "7"),))
    commit = parse(0, json.dumps(add(1, high)).encode())
    initial = None if first is None else Bound("number", str(first))

    assert newer.holds_none([commit], replace(CURSOR, per="g"), state, initial) is expected
    assert newer.holds_none([parse(0, b'{"commitInfo": {}}')], replace(CURSOR, per="g"), state, initial)


def test_without_a_last_value_all_is_new() -> None:
    assert not holds_none(add(1, 2), last=None)
    assert holds_none(add(1, 2), last=None, first=Bound("number", "3"))


# ---- rows that a database's driver gives -------------------------------------------------------------


RULE = Cursor(column="n")
ROW = {"n": 7, "t": "x"}


def state_of(*rows: dict[str, Any], rule: Cursor = RULE, **more: Any) -> CursorState:
    marks = tuple((str(row["n"]), newer.row_hash(row, rule), 1) for row in rows)
    fields: dict[str, Any] = {"column": "n", "kind": "int", "last": "7", "since": "7", "boundary_rows": marks}
    fields |= {"func": "max", "dedup": compared_by(rule), "columns": ("n", "t")}
    return CursorState(**fields | more)


@pytest.mark.parametrize(
    ("database", "kind", "last", "condition"),
    [
        ("postgresql", "int", "7", '"n" >= 7 OR "n" IS NULL'),
        ("postgresql", "decimal(9,2)", "-7.50", '"n" >= (-7.50) OR "n" IS NULL'),
        ("postgresql", "date", "2026-01-01", '"n" >= DATE \'2026-01-01\' OR "n" IS NULL'),
        (
            "postgresql",
            "timestamp",
            "2026-01-01 00:00:00Z",
            '"n" >= TIMESTAMPTZ \'2026-01-01 00:00:00+00\' OR "n" IS NULL',
        ),
        (
            "postgresql",
            "string",
            "it's",
            (
                '"n" COLLATE "C" >= E\'it\'\'s\' OR "n" IS NULL'
                " OR current_setting('server_encoding') <> 'UTF8'"
            ),
        ),
        ("sqlite", "bigint", "7", '"n" >= 7 OR "n" IS NULL'),
        (
            "sqlite",
            "string",
            "it's",
            (
                "CAST(\"n\" AS TEXT) COLLATE BINARY >= 'it''s' OR \"n\" IS NULL"
                " OR (SELECT encoding FROM pragma_encoding) <> 'UTF-8'"
            ),
        ),
    ],
)
def test_the_database_is_asked_for_what_the_load_would_read(
    database: str, kind: str, last: str, condition: str
) -> None:
    state = state_of(ROW, kind=kind, last=last, since=last)
    assert newer.question(database, "t AS q", RULE, state, None) == (
        f"SELECT * FROM t AS q\nWHERE {condition}\nLIMIT 2",
        2,
    )


@pytest.mark.parametrize(
    ("database", "changes", "rule"),
    [
        ("mysql", {}, {}),
        ("jdbc", {}, {}),
        ("postgresql", {"kind": "double"}, {}),
        ("sqlite", {"kind": "decimal(38,18)"}, {}),
        ("postgresql", {"last": None}, {}),
        ("postgresql", {"boundary_folder": "folder"}, {}),
        ("postgresql", {}, {"dedup_key": ()}),
        ("postgresql", {}, {"dedup_key": ("t",)}),  # other columns than before
        ("postgresql", {}, {"lag": 2}),  # a longer lag than before: `since` holds
        ("postgresql", {"since": "5"}, {}),  # a shorter one
    ],
)
def test_what_the_answer_could_not_tell_is_not_asked(
    database: str, changes: dict[str, Any], rule: dict[str, Any]
) -> None:
    state = state_of(ROW, **changes)
    question = newer.question(database, "t AS q", replace(RULE, **rule), state, None)
    if rule == {"lag": 2}:
        assert question
        assert '"n" >= 7 ' in question[0]
    else:
        assert question is None


def test_the_question_looks_as_far_back_as_the_load() -> None:
    lag = replace(RULE, lag=3, last_value_func="min", on_cursor_value_missing="exclude", column="N")
    state = state_of(ROW, since="10", func="min", columns=())  # as with a dedup_key
    question = newer.question("postgresql", "t AS q", lag, state, None)
    assert question
    assert 'WHERE "n" <= 10\nLIMIT' in question[0]
    assert newer.question("postgresql", "t AS q", lag, state, Bound("number", "9")) is None


@pytest.mark.parametrize(
    "rows",
    [
        [],  # deleted: what is gone stays known
        [ROW],
        [{"T": "x", "N": 7}],
        [{**ROW, "added": None}],
    ],
)
def test_rows_that_were_loaded_are_known(rows: list[dict[str, Any]]) -> None:
    assert newer.are_known(rows, RULE, state_of(ROW))


@pytest.mark.parametrize(
    "rows",
    [
        [{"n": 8, "t": "x"}],
        [{"n": 7, "t": "changed"}],
        [ROW, ROW],
        [ROW, {"n": 8, "t": "x"}],
        [{"n": None, "t": "x"}],
        [{"n": True, "t": "x"}],
        [{"n": 7.0, "t": "x"}],
        [{"n": Decimal(7), "t": "x"}],
        [{"n": 7, "N": 7, "t": "x"}],
        [{"n": 7, "t": {"a": 1}}],
        [{"n": 7, "t": "x", "added": 0}],
    ],
)
def test_what_is_new_or_not_certain_is_not_known(rows: list[dict[str, Any]]) -> None:
    assert not newer.are_known(rows, RULE, state_of(ROW))


def test_a_uuid_is_known_as_the_text_that_the_load_makes_of_it() -> None:
    value = UUID("00000000-0000-0000-0000-0000000000ab")
    assert newer.are_known([{"n": 7, "t": value}], RULE, state_of({"n": 7, "t": str(value)}))


def test_of_a_value_with_fewer_rows_than_before_the_load_takes_note() -> None:
    state = state_of(ROW, {"n": 7, "t": "y"})
    assert not newer.are_known([ROW], RULE, state)
    assert newer.are_known([{"n": 7, "t": "y"}, ROW], RULE, state)


def test_by_keys_a_row_that_changed_is_known() -> None:
    rule = replace(RULE, dedup_key=("N",))
    state = state_of(ROW, rule=rule)
    assert newer.are_known([{"n": 7, "t": "changed"}], rule, state)
    assert not newer.are_known([{"n": 8, "t": "x"}], rule, state)
    assert not newer.are_known([{"t": "x", "n": 7}], replace(rule, dedup_key=("gone",)), state)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("timestamp", datetime(2026, 1, 1, 0, 0, 0, 120, UTC), "2026-01-01 00:00:00.00012Z"),
        ("timestamp_ntz", datetime(2026, 1, 1, 10), "2026-01-01 10:00:00"),  # noqa: DTZ001 - without a zone
        ("date", date(26, 1, 1), "0026-01-01"),
        ("decimal(9,2)", Decimal("7.50"), "7.50"),
        ("string", "é", "é"),
    ],
)
def test_the_value_is_compared_as_the_state_has_it(kind: str, value: Any, text: str) -> None:
    row = {"n": value, "t": "x"}
    state = state_of(ROW, kind=kind, boundary_rows=((text, newer.row_hash(row, RULE), 1),))
    assert newer.are_known([row], RULE, state)
    assert not newer.are_known([row], RULE, replace(state, kind="int"))
