"""The operator's arguments, checked alone and together; what to write for names that users bring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_scope import validation
from airflow_provider_scope.exceptions import InputError, SqlError
from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.operators.scope_submit import ScopeSubmitJobOperator
from airflow_provider_scope.specs import (
    Checkpoint,
    Cursor,
    FileSource,
    ScopeEngine,
    SparkEngine,
    TableSource,
    TableSpec,
)
from airflow_provider_scope.specs.ingest import Ingest, ingest_from
from tests.support.values import XCOM, arguments

TEMPLATE = "{{ params.x }}"
TEXT = "text that is not empty"
WHOLE = "a whole number, at least 1, or None"
MAPPING = "a mapping with text keys"
FOLDER = "the table's folder: an absolute path or a file:///… URI"
SWITCH = "True or False, or a template that gives one of them"


def test_plain_dicts_make_a_whole_pipeline() -> None:
    assert ingest_from(
        arguments(
            sql_params={"day": "2026-01-01"},
            table={"partition_by": "day"},
            engine={"spark_conn_id": "spark"},
            full_refresh="True",
            max_batches_per_run="3",
            checkpoint={"location": "/c"},
        )
    ) == Ingest(
        delta_location="/delta/t",
        source=FileSource(roots=("/in",), format="csv"),
        sql="SELECT * FROM @data",
        sql_dialect="spark",
        sql_params={"day": "2026-01-01"},
        table=TableSpec(partition_by=("day",)),
        write="append",
        engine=SparkEngine(spark_conn_id="spark"),
        full_refresh=True,
        max_batches_per_run=3,
        checkpoint=Checkpoint(location="/c"),
    )


def test_none_for_a_spec_is_its_default() -> None:
    specs = ("table", "engine", "checkpoint", "sql_params")

    none, empty = (dict.fromkeys(specs, value) for value in (None, {}))

    assert ingest_from(arguments(**none)) == ingest_from(arguments(**empty))


@pytest.mark.parametrize("name", ["source", "table", "engine", "checkpoint", "write"])
@pytest.mark.parametrize("value", [XCOM, TEMPLATE], ids=["XComArg", "template"])
def test_a_pipeline_with_a_spec_that_only_the_task_knows_cannot_be_made_yet(name: str, value: Any) -> None:
    assert ingest_from(arguments(**{name: value})) is None


def test_what_is_known_is_checked_beside_a_spec_that_is_not() -> None:
    with pytest.raises(InputError, match="has unknown keys: tabel"):
        ingest_from(arguments(source=XCOM, table={"tabel": 1}))
    with pytest.raises(SqlError, match="does not read @data"):
        ingest_from(arguments(source=XCOM, sql="SELECT 1"))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"delta_location": ""}, f"delta_location='' is not valid: expected {TEXT}."),
        (
            {"delta_location": None},
            f"delta_location=None is not valid: expected {FOLDER}.",
        ),
        (
            {"delta_location": " ", "engine": {"scope_conn_id": "c"}},
            f"delta_location=' ' is not valid: expected {TEXT}.",
        ),
        (
            {"delta_location": Path("/delta/t")},
            f"delta_location=PosixPath('/delta/t') is not valid: expected {TEXT}.",
        ),
        ({"sql": ""}, f"sql='' is not valid: expected {TEXT}."),
        ({"sql": None}, f"sql=None is not valid: expected {TEXT}."),
        ({"sql": "SELECT 1"}, "The SQL does not read @data: 'SELECT 1'."),
        ({"sql_params": [1]}, f"sql_params=[1] is not valid: expected {MAPPING}."),
        ({"source": None}, "source needs roots."),
        ({"max_batches_per_run": 0}, f"max_batches_per_run=0 is not valid: expected {WHOLE}."),
        (
            {"source": {"roots": ["/in"]}},
            "source.format='sstream' is not valid: expected a format that Spark reads.",
        ),
        (
            {"write": "replace", "max_batches_per_run": 2},
            "max_batches_per_run=2 is not valid: expected None with write='replace' or Replace(where=...).",
        ),
        (
            {"write": {"kind": "replace", "where": "day = 1"}, "full_refresh": True},
            "full_refresh=True is not valid: expected False with Replace(where=...).",
        ),
        (
            {"full_refresh": "maybe"},
            f"full_refresh='maybe' is not valid: expected {SWITCH}.",
        ),
        (
            {"full_refresh": 2},
            f"full_refresh=2 is not valid: expected {SWITCH}.",
        ),
    ],
)
def test_arguments_are_checked_alone_and_together(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError) as caught:
        ingest_from(arguments(**changes))

    assert caught.value.what == what
    assert caught.value.do


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, True),
        (False, False),
        ("True", True),
        ("true", True),
        (" TRUE ", True),
        ("1", True),
        ("yes", True),
        ("False", False),
        ("false", False),
        ("0", False),
        ("no", False),
        ("", False),
        ("None", False),
        (None, False),
    ],
)
def test_a_full_refresh_is_what_a_template_renders_to(value: Any, expected: bool) -> None:
    ingest = ingest_from(arguments(full_refresh=value))

    assert ingest is not None
    assert ingest.full_refresh is expected


def test_a_file_of_sql_and_a_template_are_read_when_the_task_runs() -> None:
    assert ingest_from(arguments(sql="model.sql")) is not None
    assert ingest_from(arguments(sql=TEMPLATE, full_refresh=TEMPLATE)) is not None


@pytest.mark.parametrize(
    ("engine", "kind"),
    [
        (None, SparkEngine),
        ({}, SparkEngine),
        ({"conf": {"a": "b"}}, SparkEngine),
        ({"scope_conn_id": "adla"}, ScopeEngine),
        ({"au": 5}, ScopeEngine),
        (ScopeEngine(), ScopeEngine),
    ],
)
def test_the_fields_of_an_engine_say_which_one_it_is(engine: Any, kind: type) -> None:
    ingest = ingest_from(arguments(engine=engine))

    assert ingest is not None
    assert type(ingest.engine) is kind


def test_a_select_of_scope_is_refused_for_spark() -> None:
    with pytest.raises(InputError, match="sql_dialect='scope' is not valid"):
        ingest_from(arguments(sql_dialect="scope"))


def test_only_a_connection_of_scope_jobs_can_say_where_the_table_is() -> None:
    ingest = ingest_from(arguments(engine={"scope_conn_id": "c"}, delta_location=None))

    assert ingest
    assert ingest.delta_location == ""


# ---- names and values that users bring from elsewhere ------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "do"),
    [
        ({"schema_evolution": "add"}, "set table=TableSpec(schema_evolution=…)"),
        ({"columns": "a int"}, "set source=FileSource(columns=…) or table=TableSpec(columns=…)"),
        (
            {"primary_key": "a", "au": 5},
            "set write=Merge(primary_key=…), and set engine=ScopeEngine(au=…)",
        ),
        ({"spark_conn_id": "c"}, "set engine=SparkEngine(spark_conn_id=…)"),
        ({"window_strat": "x"}, "write 'window_start' for 'window_strat'"),
    ],
)
def test_a_field_of_a_spec_given_to_the_operator_is_told_its_place(arguments: dict[str, Any], do: str):
    with pytest.raises(InputError) as caught:
        DeltaIncrementalIngestOperator(task_id="load", delta_location="/t", source={}, **arguments)

    assert caught.value.do == do


def test_an_operator_without_specs_names_none():
    with pytest.raises(InputError) as caught:
        ScopeSubmitJobOperator(task_id="run", script="x", columns="a int")

    assert "Spec" not in caught.value.do


@pytest.mark.parametrize(
    ("kind", "do"),
    [("delta", "TableSource(table="), ("jsonl", "format='json'"), ("tsv", "{'sep': '\\t'}")],
)
def test_a_format_of_another_reader_is_told_what_reads_it_here(kind: str, do: str):
    for make in (FileSource, lambda **fields: validation.from_dict(FileSource, "source", fields)):
        with pytest.raises(InputError) as caught:
            make(roots="/in", format=kind)

        assert do in caught.value.do


@pytest.mark.parametrize(
    ("location", "what", "do"),
    [
        ("dbfs:/mnt/t", "is in the file system of Databricks", "abfss://"),
        ("main.sales.orders", "is relative", "`DESCRIBE DETAIL main.sales.orders`"),
        ("sales.orders", "is relative", "`DESCRIBE DETAIL sales.orders`"),
        ("None", "names no folder", "what gave this value"),
    ],
)
@pytest.mark.parametrize(
    "place",
    [
        lambda location: {"delta_location": location},
        lambda location: {"checkpoint": {"location": location}},
        lambda location: {"source": FileSource(roots=location, format="csv")},
    ],
)
def test_a_location_of_another_world_is_told_what_to_write(place: Any, location: str, what: str, do: str):
    arguments = {"delta_location": "/t", "source": FileSource(roots="/in", format="csv"), **place(location)}
    with pytest.raises(InputError) as caught:
        DeltaIncrementalIngestOperator(task_id="load", **arguments)

    assert what in caught.value.what
    assert do in caught.value.do


def test_a_source_in_the_file_system_of_databricks_is_no_name_in_a_catalog():
    source = TableSource(table="dbfs:/mnt/t", cursor=Cursor(column="a"))

    with pytest.raises(InputError, match="is in the file system of Databricks"):
        DeltaIncrementalIngestOperator(task_id="load", delta_location="/t", source=source)
    assert TableSource(table="main.sales.orders", cursor=Cursor(column="a")).is_named
