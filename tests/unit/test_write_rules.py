"""Merge and Scd2 as values, with the columns that are declared, and what they make of columns and values."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from airflow_provider_scope.delta import write_rules
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.protocol.report import changes_text
from airflow_provider_scope.specs import FileSource, Merge, Scd2, TableSpec
from airflow_provider_scope.specs.ingest import ingest_from
from airflow_provider_scope.specs.write import write_from, write_to_dict
from tests.support.values import arguments


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"strategy": "insert"}, "strategy='insert' is not valid"),
        ({"strategy": "upsert"}, "expected at least one column with strategy='upsert'"),
        ({"strategy": "upsert", "merge_key": "day"}, "expected at least one column"),
        ({"strategy": "upsert", "primary_key": "id", "merge_key": "day"}, "expected none with strategy"),
        ({"primary_key": "id", "dedup_sort": "at"}, "expected one column and 'asc' or 'desc'"),
        ({"primary_key": "id", "dedup_sort": ("at", "down")}, "expected one of 'asc', 'desc'"),
        ({"primary_key": "id", "dedup_sort": ("at", "asc", "on", "asc")}, "expected one column"),
        ({"merge_key": "day", "dedup_sort": ("at", "asc")}, "None without primary_key"),
        ({"merge_key": "day", "sequence_by": "at"}, "None without primary_key"),
        ({"primary_key": "id", "merge_key": "day", "sequence_by": "at"}, "None with merge_key"),
        (
            {"strategy": "insert-only", "primary_key": "id", "sequence_by": "at"},
            "None with strategy='insert-only'",
        ),
        (
            {"primary_key": "id", "hard_delete": "gone", "tombstone_retention_days": 7},
            "None without sequence_by",
        ),
        (
            {"primary_key": "id", "sequence_by": "at", "tombstone_retention_days": 30},
            "None without hard_delete",
        ),
    ],
)
def test_what_a_merge_cannot_do_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        Merge(**fields)

    assert said in caught.value.what


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-01-31", "2026-01-31T00:00:00+00:00"),
        ("2026-01-31T10:00:00", "2026-01-31T10:00:00+00:00"),
        ("2026-01-31T10:00:00+02:00", "2026-01-31T08:00:00+00:00"),
        (date(9999, 12, 31), "9999-12-31T00:00:00+00:00"),
        (datetime(2026, 1, 31, 10, tzinfo=UTC), "2026-01-31T10:00:00+00:00"),
        ("tomorrow", None),
        (7, None),
    ],
)
def test_an_instant_is_one_of_utc_or_refused(value: Any, expected: str | None) -> None:
    for name in ("active_record_timestamp", "boundary_timestamp"):
        if expected is None:
            with pytest.raises(InputError, match=f"{name}=.* is not valid: expected a date or a timestamp"):
                Scd2(**{name: value})
        else:
            assert getattr(Scd2(**{name: value}), name) == expected


@pytest.mark.parametrize(
    "write", [Merge(primary_key="id", dedup_sort=("at", "desc")), Scd2(merge_key=["a", "b"]), Merge()]
)
def test_a_write_is_the_same_as_its_dict(write: Any) -> None:
    assert write_from(write_to_dict(write)) == write


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            {"kind": "upsert", "primary_key": "id"},
            "kind='upsert' is not valid: expected one of 'replace', 'merge'",
        ),
        ({"kind": ["merge"]}, "kind=['merge'] is not valid"),
        ({"primary_key": "id"}, "kind=None is not valid: expected one of 'replace', 'merge', 'scd2'"),
        ({"where": "day = 1"}, "kind=None is not valid"),
        ({}, "kind=None is not valid"),
        (
            {"kind": "merge", "primary_keys": "id"},
            "write has unknown keys: primary_keys. Merge has strategy,",
        ),
    ],
)
def test_a_dict_that_is_no_write_is_refused(value: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        write_from(value)

    assert said in caught.value.what


def test_what_a_write_changed_is_one_line() -> None:
    changes = {"hard_deleted": 3, "deduplicated": 4, "deleted": 0, "inserted": 2_000, "updated": 1}

    line = "rows: 2,000 inserted, 1 updated, 0 deleted; in the batch: 4 deduplicated, 3 marked as deleted"
    assert changes_text(changes) == line
    assert (
        changes_text({"inserted": 1, "deduplicated": 0}) == "rows: 1 inserted; in the batch: 0 deduplicated"
    )


# ---- columns, where it is certain when the Dag is parsed ---------------------------------------------


COLUMNS = {"Id": "bigint", "text": "string"}


def ingest(write: Any, **more: Any) -> Any:
    source = FileSource(roots="/data/landing", format="csv", columns=more.pop("columns", None))
    return ingest_from(arguments(write=write, source=source, **more))


@pytest.mark.parametrize(
    ("write", "argument", "name"),
    [
        (Merge(primary_key=("id", "day")), "primary_key", "day"),
        (Merge(merge_key="day"), "merge_key", "day"),
        (Merge(primary_key="id", dedup_sort=("changed", "desc")), "dedup_sort", "changed"),
        (Merge(primary_key="id", hard_delete="gone"), "hard_delete", "gone"),
        (Merge(primary_key="id", sequence_by="at"), "sequence_by", "at"),
        (Scd2(merge_key="day"), "merge_key", "day"),
        (Scd2(merge_key="id", sequence_by="at"), "sequence_by", "at"),
        (
            Scd2(merge_key="id", sequence_by="id", track_history_columns=["text", "no"]),
            "track_history_columns",
            "no",
        ),
    ],
)
@pytest.mark.parametrize("where", ["files", "table"])
def test_a_column_that_the_rows_do_not_have_is_refused(
    write: Any, argument: str, name: str, where: str
) -> None:
    more: dict[str, Any] = {"columns": COLUMNS} if where == "files" else {"table": TableSpec(columns=COLUMNS)}
    with pytest.raises(InputError) as caught:
        ingest(write, **more)

    assert caught.value.what == f"{argument} names {name!r}, which is not a column of the rows: Id, text."


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"columns": COLUMNS, "sql": "SELECT *, 1 AS day FROM @data"},
        {"table": TableSpec(columns=COLUMNS, schema_evolution="add")},
        {"columns": {**COLUMNS, "DAY": "date"}},
        {"columns": COLUMNS, "write": Merge(primary_key="{{ params.key }}")},
    ],
)
def test_what_is_not_certain_is_left_to_the_batch(more: dict[str, Any]) -> None:
    assert ingest(more.pop("write", Merge(primary_key="day")), **more)


@pytest.mark.parametrize("where", ["files", "table"])
@pytest.mark.parametrize("name", ["_valid_from", "_VALID_TO", "_row_hash"])
def test_a_declared_column_with_a_name_of_the_versions_is_refused(name: str, where: str) -> None:
    columns = {**COLUMNS, name: "string"}
    more: dict[str, Any] = {"columns": columns} if where == "files" else {"table": TableSpec(columns=columns)}
    with pytest.raises(InputError) as caught:
        ingest(Scd2(), **more)

    assert name in caught.value.what


@pytest.mark.parametrize(
    "names",
    [
        {"validity_column_names": ("at", "AT")},
        {"validity_column_names": ("start", "end"), "row_version_column_name": "End"},
        {"validity_column_names": ("start", "_row_hash")},
        {"merge_key": "id", "on_empty_extract": "retire"},
        {"sequence_by": "at"},
        {"merge_key": "id", "track_history_columns": "text"},
        {"merge_key": "id", "hard_delete": "gone"},
        {"merge_key": "id", "dedup_sort": ("at", "desc")},
        {"merge_key": "id", "sequence_by": "at", "dedup_sort": ("n", "up")},
        {"merge_key": "id", "sequence_by": "at", "active_record_timestamp": "9999-12-31"},
        {"merge_key": "id", "sequence_by": "at", "boundary_timestamp": "2026-01-01"},
        {"merge_key": "id", "sequence_by": "at", "row_version_column_name": "digest"},
    ],
)
def test_fields_of_scd2_that_contradict_each_other_are_refused(names: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="is not valid: expected"):
        Scd2(**names)


def test_names_that_are_templates_are_compared_when_the_task_runs() -> None:
    assert Scd2(validity_column_names=("{{ params.a }}", "{{ params.a }}"))


# ---- the rules, without rows -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "needs_winner"),
    [
        ({"strategy": "delete-insert"}, False),
        ({"strategy": "upsert"}, True),
        ({"strategy": "insert-only"}, True),
        ({"strategy": "upsert", "dedup_sort": ["at", "desc"]}, False),
    ],
)
def test_two_rows_with_one_key_are_an_error_where_nothing_says_which_counts(
    write: dict[str, object], needs_winner: bool
) -> None:
    assert write_rules.Merge(primary_key=["id"], **write).needs_winner is needs_winner


def test_an_argument_names_a_column_in_any_case() -> None:
    assert write_rules.place("merge_key", "DAY", ["id", "Day"], "t") == 1
    with pytest.raises(InputError, match="merge_key names 'no', which is not a column of the rows for t: id"):
        write_rules.place("merge_key", "no", ["id"], "t")


@pytest.mark.parametrize("kind", ["bigint", "decimal(38,18)", "string", "binary", "timestamp_ntz", "float"])
def test_values_that_are_compared_exactly_can_be_keys(kind: str) -> None:
    write_rules.check_key("primary_key", "k", kind, "t")


@pytest.mark.parametrize("kind", ["string collate UTF8_LCASE", "struct<x:int>", "array<int>", "variant"])
def test_others_cannot(kind: str) -> None:
    with pytest.raises(InputError, match="values of this type cannot be keys in t"):
        write_rules.check_key("primary_key", "k", kind, "t")


def test_values_of_partitions_become_a_condition_unless_one_has_no_literal() -> None:
    columns = [("day", "date"), ("it's", "string")]

    assert write_rules.one_of(columns, [("2026-01-31", "a'b")], of="t.") == (
        "(t.`day` = DATE '2026-01-31' AND t.`it's` = 'a\\'b')"
    )
    assert write_rules.one_of(columns, []) is None
    assert write_rules.one_of(columns, [("+12026-01-31", "a")]) is None
    assert write_rules.one_of(columns, [("2026-01-31", "a" * 101)]) is None
    assert write_rules.one_of([("x", "double")], [("NaN",)]) is None


@pytest.mark.parametrize("lacking", [["_valid_from", "_valid_to"], ["text"], []])
def test_rows_that_have_a_column_of_the_versions_may_be_added_to_them(lacking: list[str]) -> None:
    write_rules.refuse_without_versions(lacking, "t")


def test_rows_without_a_time_of_validity_are_not_added_to_versions() -> None:
    with pytest.raises(InputError, match="have no _valid_from, _valid_to, _row_hash"):
        write_rules.refuse_without_versions(["text", "_row_hash", "_valid_to", "_valid_from"], "t")


@pytest.mark.parametrize(
    ("names", "own"),
    [
        (["id"], {"_valid_from": "timestamp", "_valid_to": "timestamp", "_row_hash": "string"}),
        (["id", "Digest"], {"_valid_from": "timestamp", "_valid_to": "timestamp"}),
        (["id", "_VALID_TO"], None),
        (["_valid_from"], None),
    ],
)
def test_the_columns_of_versions_are_added_unless_the_rows_have_them(
    names: list[str], own: dict[str, str] | None
) -> None:
    version = "digest" if "Digest" in names else None
    rule = write_rules.Scd2(row_version_column_name=version)

    if own is None:
        with pytest.raises(InputError, match=r"'(?i:_valid_(from|to))', which Scd2 writes itself"):
            rule.own_columns(dict.fromkeys(names, "date"))
        return
    assert rule.own_columns(dict.fromkeys(names, "date")) == own


def test_a_hash_of_the_rows_own_is_not_taken_for_that_of_the_versions() -> None:
    with pytest.raises(InputError) as caught:
        write_rules.Scd2().own_columns({"id": "int", "_row_hash": "string"})

    assert "row_version_column_name='_row_hash'" in caught.value.do


def test_a_long_text_is_no_bound_and_never_a_shorter_one() -> None:
    longest, longer = "k" * 100, "k" * 101

    assert write_rules.as_literal("string", longest) == f"'{longest}'"
    assert write_rules.as_literal("string", longer) is None
    assert write_rules.within("id", "string", longest, longer) is None, (
        "a row with the longer key would not be found"
    )


def test_versions_by_the_time_of_the_source_have_its_type() -> None:
    rule = write_rules.Scd2(sequence_by="At", merge_key=["id"], hard_delete="gone")

    assert rule.own_columns({"id": "int", "at": "bigint"}) == {
        "_valid_from": "bigint",
        "_valid_to": "bigint",
        "_row_hash": "string",
    }
    assert [name for name in ("ID", "AT", "Gone", "text") if rule.tracks(name)] == ["text"]
    assert write_rules.Scd2(sequence_by="commit", merge_key="id").sequence == "_committed_at"
