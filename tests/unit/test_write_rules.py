"""The rules of Merge and Scd2: what they make of columns and values, without rows."""

from __future__ import annotations

import pytest

from airflow_provider_scope.delta import write_rules
from airflow_provider_scope.exceptions import InputError


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
