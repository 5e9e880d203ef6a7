"""What ``airflow scope validate`` tells about the SELECT of a task."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from airflow.sdk import DAG
from deltalake import DeltaTable

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource
from tests.airflow.test_scope_operator import load
from tests.cli.test_scope_commands import scope
from tests.docs.pages import DOCS, blocks, section
from tests.scope.conftest import start_emulator, world

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["scope", "start_emulator", "world"]


@pytest.fixture
def task(world, monkeypatch) -> Callable[..., None]:
    """Make the task of the commands."""
    world.open()
    world.land(1, 2)

    def make(kind: Any = None, **arguments: Any) -> None:
        with DAG("flights_scope", schedule=None) as dag:
            if kind:
                kind(task_id="ingest", **arguments)
            else:
                load(world, task_id="ingest", **arguments)
        monkeypatch.setattr("airflow.utils.cli.get_bagged_dag", lambda bundles, dag_id: dag)

    return make


def alike(text: str) -> list[str]:
    """Give the lines of an output without names and sizes."""
    text = re.sub(r"adl://\S+?\.ss", "FILE", text)
    text = re.sub(r"[\d,]+ bytes", "N bytes", text)
    return re.sub(r"(?<=log: )\S+", "LOG", text).splitlines()


@pytest.mark.spark
def test_a_select_that_fits_is_told_as_the_page_shows(world, scope, task):
    task()
    (shown,) = blocks(section(DOCS / "commands.md", "## validate"), "console")
    command, _, output = shown.text.partition("\n")

    code, out, err = scope(*command.removeprefix("$ airflow scope ").split())

    assert (code, err) == (0, "")
    assert alike(out) == alike(output)
    assert "/commands/spark.log" in out
    assert world.jobs() == []
    assert not world.table.exists()


@pytest.mark.loads
@pytest.mark.spark
def test_without_new_files_the_newest_of_the_source_are_tried(world, scope, task):
    task()
    world.run()
    version = DeltaTable(world.table).version()

    code, out, err = scope("validate", "flights_scope", "ingest")

    assert (code, err) == (0, "")
    told, tried, fits, end = out.splitlines()
    assert told == "a run would load nothing; the newest files of the source are taken"
    assert "on 1 file (" in tried
    assert "/landing/f2.ss. Spark's log: " in tried
    assert fits == f"the SELECT gives 2 rows, which fit the table at version {version}"
    assert end == "nothing was written"
    assert DeltaTable(world.table).version() == version


def test_a_select_that_does_not_fit_ends_with_the_differences_and_exit_code_1(world, scope, task):
    task()
    DeltaTable.create(world.table, pa.schema([("id", pa.int64())]))

    code, out, err = scope("validate", "flights_scope", "ingest", "--files", "2")

    assert (code, out) == (1, "")
    assert err == (
        f"ModelValidationError: The SELECT and the table file://{world.table} at version 0 do not fit: "
        "source_file_uri string is declared, but is not a column of the table.\n"
        "Kept: everything; no job was submitted and nothing was written\n"
        "What to do: change the SELECT or table.columns, with a cast where a conversion is meant; or the "
        "table\n"
    )


def test_a_task_on_spark_is_refused(world, scope, task, tmp_path):
    source = FileSource(roots=str(tmp_path / "landing"), format="parquet")
    task(DeltaIncrementalIngestOperator, delta_location=str(world.table), source=source)

    code, out, err = scope("validate", "flights_scope", "ingest")

    assert (code, out) == (1, "")
    assert err.startswith("InputError: The batches of this task run on Spark, which needs no validation.\n")


def test_a_number_of_files_is_at_least_one(world, scope, task):
    task()

    code, out, err = scope("validate", "flights_scope", "ingest", "--files", "0")

    assert (code, out) == (1, "")
    assert err.startswith("InputError: --files=0 is not valid: expected a whole number, at least 1.\n")
