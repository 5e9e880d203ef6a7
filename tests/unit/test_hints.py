"""Names and values that users bring from elsewhere: the error says what to write here."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_scope import validation
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.operators.scope_submit import ScopeSubmitJobOperator
from airflow_provider_scope.specs import Cursor, FileSource, TableSource


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
    for make in (FileSource, lambda **given: validation.from_dict(FileSource, "source", given)):
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
