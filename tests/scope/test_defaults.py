"""What a connection says where a task's argument is left out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_scope.engines import assembly
from airflow_provider_scope.engines.assembly import RunContext, assemble
from airflow_provider_scope.exceptions import InputError, StorageError
from airflow_provider_scope.sources.files.source import Files
from airflow_provider_scope.specs import FileSource, ScopeEngine
from airflow_provider_scope.specs.ingest import ingest_from
from tests.airflow.scope_load import a_context, load
from tests.cli.conftest import typed
from tests.scope.conftest import ROOT, start_emulator, world

__all__ = ["start_emulator", "world"]

LAKE = {"storage_account": "store", "container": "lake", "delta_base_path": "/tables/"}
AT = "abfss://lake@store.dfs.core.windows.net/tables"


@pytest.fixture
def connection(world, monkeypatch):
    """Return the connection of the jobs further fields."""
    world.open()

    def put(**fields: Any) -> None:
        value = {"conn_type": "adla_scope", "host": world.emulator.url}
        extra = {"account_name": "acme", **fields}
        monkeypatch.setenv("AIRFLOW_CONN_ADLA_SCOPE_DEFAULT", json.dumps({**value, "extra": extra}))

    return put


def parts(world, name: str = "load", **changes: Any) -> tuple[Any, RunContext]:
    log_file = Path("unused")
    context = RunContext(task="dag.load", task_id="load", table_name=name, log_file=log_file, report=print)
    return ingest_from(world.arguments(**changes)), context


# ---- where the table is ---------------------------------------------------------------------------------


def test_a_table_without_a_location_is_a_folder_below_the_connections(world, connection):
    connection(**LAKE)

    found = assembly.located(*parts(world, "group.load", delta_location=None))

    assert found.delta_location == f"{AT}/group.load"


def test_a_location_that_is_given_wins(world, connection):
    connection(**LAKE)

    assert assembly.located(*parts(world, delta_location="/data/t")).delta_location == "/data/t"


def test_a_table_without_any_location_names_both_places_for_it(world, connection):
    connection()

    with pytest.raises(InputError) as caught:
        assemble(*parts(world, delta_location=None))

    assert caught.value.what == (
        "delta_location is missing, and the connection has no storage_account and container."
    )
    assert caught.value.do == (
        "give delta_location, or storage_account, container and delta_base_path on the connection"
    )


@pytest.fixture
def nobody(monkeypatch):
    """No identity for Azure Storage, and no look for one elsewhere."""
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")


@pytest.mark.usefixtures("nobody")
def test_a_task_without_a_location_uses_the_connections_with_its_id(world, connection):
    connection(**LAKE)
    with DAG("scope_no_location", schedule=None):
        operator = load(world, delta_location=None)

    with pytest.raises(StorageError, match=f"Could not (read|list) {AT}/load/_checkpoint/"):
        operator.execute(a_context())


def test_the_instances_of_a_mapped_task_do_not_share_a_table(world, connection):
    connection(**LAKE)
    with DAG("scope_mapped_location", schedule=None):
        operator = load(world, delta_location=None)
    context = a_context()
    context["ti"].map_index = 0

    with pytest.raises(AirflowFailException, match="The table name '' cannot be a folder's name"):
        operator.execute(context)


@pytest.mark.usefixtures("nobody")
def test_plan_looks_for_the_table_where_a_run_does(world, connection, monkeypatch, capsys):
    connection(**LAKE)
    with DAG("scope_located", schedule=None) as dag:
        load(world, delta_location=None)
    monkeypatch.setattr("airflow_provider_scope.cli.tasks.find_dag", lambda bundles, dag_id: dag)

    code, _, err = typed(capsys, "plan", "scope_located", "load")

    assert code == 1
    assert re.search(f"Could not (read|list) {AT}/load/_checkpoint/", err)


# ---- how large a batch is -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "source", "expected"),
    [
        ({}, {}, (50, 10_737_418_240_000)),
        ({"max_files_per_trigger": 7, "max_bytes_per_trigger": 1000}, {}, (7, 1000)),
        (
            {"max_files_per_trigger": 7, "max_bytes_per_trigger": 1000},
            {"max_files_per_trigger": 3, "max_bytes_per_trigger": 500},
            (3, 500),
        ),
    ],
    ids=["seed", "connection", "argument"],
)
def test_the_limits_of_a_batch_are_the_arguments_else_the_connections(
    world, connection, fields, source, expected
):
    connection(**fields)

    run, _, _ = assemble(*parts(world, source={"roots": ROOT, "columns": {"id": "bigint"}, **source}))

    assert (run.source.max_files, run.source.max_bytes) == expected


def test_on_spark_the_limits_are_the_seeds():
    files = Files(spec=FileSource(roots="/in", format="parquet"), log=None, listing=None, now_ms=0)

    assert (files.max_files, files.max_bytes) == (1_000, 10_737_418_240_000)


# ---- what jobs may not be called ------------------------------------------------------------------------


def test_no_task_can_name_its_jobs_like_those_that_add_no_rows(world):
    with pytest.raises(InputError) as caught:
        ScopeEngine(job_tag="airflow_provider_scope_void")

    assert caught.value.what == (
        "job_tag='airflow_provider_scope_void' is not valid: expected text that does not begin with "
        "airflow_provider_scope_void."
    )


def test_a_tag_that_renders_to_such_a_name_fails_the_task(world):
    world.open()
    with DAG("scope_tag", schedule=None):
        operator = load(world, engine=ScopeEngine(job_tag="{{ params.tag }}"))
    operator.engine["job_tag"] = "airflow_provider_scope_void_x"

    with pytest.raises(AirflowFailException, match="job_tag='airflow_provider_scope_void_x' is not valid"):
        operator.execute(a_context())


def test_a_task_id_of_that_kind_needs_a_tag(world):
    world.open()
    ingest, context = parts(world)
    voided = RunContext(**{**_fields(context), "task_id": "airflow_provider_scope_void"})

    with pytest.raises(InputError, match="task_id='airflow_provider_scope_void' is not valid"):
        assemble(ingest, voided)


def _fields(context: RunContext) -> dict[str, Any]:
    return {name: getattr(context, name) for name in context.__slots__}
