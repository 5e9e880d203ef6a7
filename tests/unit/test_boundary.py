"""Rows that a database's driver gives are known, or count as new where that is not certain."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from airflow_provider_scope.sources.cursor import newer
from airflow_provider_scope.sources.cursor.bounds import Bound
from airflow_provider_scope.sources.cursor.spec import Cursor
from airflow_provider_scope.sources.cursor.state import CursorState, compared_by

RULE = Cursor(column="n")
ROW = {"n": 7, "t": "x"}


def state_of(*rows: dict[str, Any], rule: Cursor = RULE, **more: Any) -> CursorState:
    known = tuple((str(row["n"]), newer.row_hash(row, rule), 1) for row in rows)
    fields: dict[str, Any] = {"column": "n", "kind": "int", "last": "7", "since": "7", "boundary_rows": known}
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
            "CAST(\"n\" AS TEXT) COLLATE BINARY >= 'it''s' OR \"n\" IS NULL",
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
    asked = newer.question(database, "t AS q", replace(RULE, **rule), state, None)
    if rule == {"lag": 2}:
        assert asked
        assert '"n" >= 7 ' in asked[0]
    else:
        assert asked is None


def test_the_question_looks_as_far_back_as_the_load() -> None:
    lag = replace(RULE, lag=3, last_value_func="min", on_cursor_value_missing="exclude", column="N")
    state = state_of(ROW, since="10", func="min")
    asked = newer.question("postgresql", "t AS q", lag, state, None)
    assert asked
    assert 'WHERE "n" <= 10\nLIMIT' in asked[0]
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
