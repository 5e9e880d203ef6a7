"""What Merge and Scd2 say of columns is checked when the DAG is parsed, where it is certain."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.specs import FileSource, Merge, Scd2, TableSpec
from airflow_provider_scope.specs.ingest import ingest_from
from tests.support.values import arguments

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
