"""The SELECT of a task is tried before a job is paid for, over the emulator's files."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from deltalake import DeltaTable
from pyarrow import parquet

from airflow_provider_scope.engines import assembly, validation
from airflow_provider_scope.engines.assembly import RunContext, assemble
from airflow_provider_scope.engines.validation import Validator
from airflow_provider_scope.exceptions import (
    InputError,
    JobRunningError,
    ModelValidationError,
    ScopeJobFailedError,
    SourceUnreadableError,
    SparkJobFailedError,
)
from airflow_provider_scope.specs.ingest import ingest_from
from tests.airflow.test_scope_operator import a_context, load
from tests.scope.conftest import ROOT, start_emulator, world

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["start_emulator", "world"]


class Bench:
    """Validations of one task, with what they told."""

    def __init__(self, world: Any, folder: Path) -> None:
        self.world = world
        self.folder = folder
        self.lines: list[str] = []

    def validator(self, **changes: Any) -> Validator:
        context = RunContext(task="dag.load", log_file=self.folder / "spark.log", report=self.lines.append)
        ingest = ingest_from(self.world.arguments(**changes))
        assert ingest
        execution, request, runner = assemble(ingest, context)
        return Validator(ingest, execution, request, runner, context.log_file, context.report)

    def now(self, files: int = 2, **changes: Any) -> list[str]:
        self.validator(**changes).now(files)
        return self.lines

    def refusal(self, files: int = 2, **changes: Any) -> str:
        """Give what a validation is refused with, having seen that Spark was not started."""
        with pytest.raises(ModelValidationError) as caught:
            self.now(files, **changes)
        assert not (self.folder / "spark.log").exists()
        assert self.world.jobs() == []
        assert not (self.world.table / "_checkpoint").exists()
        return caught.value.what

    def table(self, **columns: Any) -> None:
        """Make the table before the first run."""
        schema = pa.schema(list(columns.items()))
        DeltaTable.create(self.world.table, schema)


@pytest.fixture
def bench(world, tmp_path, monkeypatch) -> Bench:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    world.open()
    return Bench(world, tmp_path)


def left_behind(bench: Bench) -> list[str]:
    return sorted(path.name for path in (bench.folder / "scratch").iterdir())


# ---- what is found without Spark ------------------------------------------------------------------------


def test_a_column_that_the_table_does_not_have_is_named(bench):
    bench.world.land(1)
    bench.table(id=pa.int64())

    assert bench.refusal() == (
        f"The SELECT and the table file://{bench.world.table} at version 0 do not fit: source_file_uri "
        "string is declared, but is not a column of the table."
    )


def test_a_type_that_is_not_the_tables_is_named_with_both(bench):
    bench.world.land(1)
    bench.table(id=pa.string(), source_file_uri=pa.string())

    assert "do not fit: id is declared as bigint, but is string in the table." in bench.refusal()


def test_what_the_select_gives_is_compared_with_what_is_declared(bench):
    bench.world.land(1)

    what = bench.refusal(
        sql="SELECT (id + 0.5) AS id, source_file_length AS size FROM @data",
        table={"columns": {"id": "bigint", "name": "string"}},
    )

    assert what == (
        f"The SELECT and the table file://{bench.world.table} do not fit: name string is declared, but the "
        "SELECT does not give it; size bigint of the SELECT is not declared; id is double in the SELECT, but "
        "declared as bigint."
    )


def test_other_partitions_than_the_tables_are_named(bench):
    bench.world.land(1)
    bench.table(id=pa.int64(), source_file_uri=pa.string())
    columns = {"id": "bigint", "source_file_uri": "string"}

    what = bench.refusal(table={"columns": columns, "partition_by": ["id"]})

    assert what.endswith("the table is partitioned by nothing, but declared as partitioned by id.")


def test_a_select_that_does_not_translate_is_refused_at_its_place(bench):
    bench.world.land(1)

    what = bench.refusal(sql="SELECT id, My.Code(source_file_uri) AS source_file_uri\nFROM @data")

    assert what.startswith("The SELECT cannot be translated to Spark SQL: ")
    assert "at line 1, column 12" in what
    assert "My" in what


@pytest.mark.parametrize("content", [b"\x00\x01SSTREAM", b"\xff\xfe\x80stream"], ids=["zeros", "no text"])
def test_a_structured_stream_of_scopes_own_format_is_refused_by_its_first_bytes(bench, content):
    bench.world.land(1)
    path = bench.world.account / "landing/f1.ss"
    path.write_bytes(content)
    os.utime(path, (1_000_000_001, 1_000_000_001))

    assert bench.refusal() == (
        f"{ROOT}/f1.ss is neither parquet nor text: structured streams in SCOPE's own binary format cannot "
        "be read by Spark."
    )
    assert left_behind(bench) == []


def test_a_file_that_vanished_after_it_was_listed_can_be_tried_again(bench):
    bench.world.land(1)
    validator = bench.validator()
    list(validator.listing.walk(ROOT))
    (bench.world.account / "landing/f1.ss").unlink()

    with pytest.raises(SourceUnreadableError, match=r"f1.ss could not be read: it vanished"):
        validator.now(1)


def test_a_file_that_grew_after_it_was_listed_can_be_tried_again(bench):
    bench.world.land(1)
    validator = bench.validator()
    list(validator.listing.walk(ROOT))
    with (bench.world.account / "landing/f1.ss").open("ab") as file:
        file.write(b"x")

    with pytest.raises(SourceUnreadableError, match=r"f1.ss could not be read: it has grown"):
        validator.now(1)

    assert left_behind(bench) == []


def test_a_source_without_files_cannot_be_tried(bench):
    (bench.world.account / "landing").mkdir(parents=True)

    assert bench.refusal() == f"There is no file in {ROOT} to try the SELECT on."


def test_files_that_are_too_large_cannot_be_tried(bench, monkeypatch):
    bench.world.land(1)
    monkeypatch.setattr(validation, "LIMIT_BYTES", 100)

    assert bench.refusal() == "No file is small enough to try the SELECT on: all are larger than 100 bytes."


def test_tasks_on_spark_need_no_validation(bench):
    source = {"roots": str(bench.folder / "landing"), "format": "parquet"}

    with pytest.raises(InputError, match="run on Spark, which needs no validation"):
        bench.validator(engine={}, source=source, sql="SELECT * FROM @data", table={})


# ---- when a run validates -------------------------------------------------------------------------------


def test_a_run_that_would_load_nothing_validates_nothing(bench):
    bench.world.land(1)
    bench.world.run()

    bench.validator().before_run(1)

    assert bench.lines == ["nothing to load, so nothing is validated"]


def test_a_run_that_goes_on_with_a_job_validates_nothing(bench, monkeypatch):
    monkeypatch.setattr(assembly, "INLINE_WAIT_SECONDS", 0.0)
    bench.world.emulator.set(state_seconds={"Running": 3600.0})
    bench.world.land(1)
    with pytest.raises(JobRunningError):
        bench.world.run(deferrable=True)

    bench.validator(sql="SELECT id FROM @data").before_run(1)

    assert bench.lines == ["a job of an open batch has been submitted, so nothing is validated"]


def test_a_run_after_a_failed_job_validates_the_open_batch_again(bench):
    bench.world.emulator.set(faults=[{"kind": "fail_job", "op": "batch0", "times": 1}])
    bench.world.land(1)
    with pytest.raises(ScopeJobFailedError):
        bench.world.run()

    with pytest.raises(ModelValidationError, match="source_file_uri string is declared"):
        bench.validator(sql="SELECT id FROM @data").before_run(1)


def test_a_run_after_a_job_that_was_cancelled_behind_its_back_validates_again(bench, monkeypatch):
    monkeypatch.setattr(assembly, "INLINE_WAIT_SECONDS", 0.0)
    bench.world.emulator.set(state_seconds={"Running": 3600.0})
    bench.world.land(1)
    with pytest.raises(JobRunningError) as running:
        bench.world.run(deferrable=True)
    validator = bench.validator(sql="SELECT id FROM @data")
    validator.runner.jobs.cancel_job(running.value.job_id)

    with pytest.raises(ModelValidationError, match="source_file_uri string is declared"):
        validator.before_run(1)


def test_the_run_that_follows_uses_the_same_listing(bench, monkeypatch):
    bench.world.land(1)
    validator = bench.validator()
    walks = []
    walk = validator.listing.source.walk
    monkeypatch.setattr(validator.listing.source, "walk", lambda root: walks.append(root) or walk(root))
    monkeypatch.setattr(validator, "_try", lambda files, count: None)

    validator.before_run(1)
    report = validator.execution.run(validator.request)

    assert [batch.files for batch in report.batches] == [1]
    assert walks == [ROOT]


def test_a_task_whose_model_does_not_fit_fails_without_a_job_and_without_an_entry(run_dag, bench):
    bench.world.land(1)
    bench.table(id=pa.int64())
    with DAG("scope_mismatch", schedule=None) as dag:
        load(bench.world, validate_on_spark=1, retries=3)

    run = run_dag(dag)

    (ti,) = run.get_task_instances()
    assert (run.state, ti.state, ti.try_number) == ("failed", "failed", 1)
    assert bench.world.jobs() == []
    assert not (bench.world.table / "_checkpoint").exists()


def test_a_wait_that_is_over_validates_nothing(bench, monkeypatch):
    bench.world.land(1)
    bench.table(id=pa.int64())
    with DAG("scope_resumed", schedule=None):
        operator = load(bench.world, validate_on_spark=1)
    tried = []
    monkeypatch.setattr(Validator, "before_run", lambda self, count: tried.append(count))

    with pytest.raises(AirflowFailException):
        operator.resume(a_context(), {})

    assert tried == []


def test_a_task_that_is_killed_ends_its_validation_and_its_spark(bench):
    bench.world.land(1)
    with DAG("scope_killed_validation", schedule=None):
        operator = load(bench.world, validate_on_spark=1)
    operator._validator = bench.validator()

    operator.on_kill()

    with pytest.raises(SparkJobFailedError, match="The Spark application was ended") as caught:
        operator._validator.now(1)
    assert caught.value.is_retryable
    assert caught.value.kept == "everything; no job was submitted and nothing was written"
    assert left_behind(bench) == []


# ---- what Spark finds -----------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_select_that_fits_is_told_with_its_rows_and_leaves_nothing_behind(bench):
    bench.world.land(1)
    (bench.world.account / "landing/f2.ss").write_text("id,name\n2,x\n102,y\n3,z\n")
    (bench.world.account / "landing/f3.ss").write_bytes(b"\x00manifest")
    (bench.world.account / "landing/f3").mkdir()
    for number in (1, 2):
        rows = pa.table({"id": pa.array([number], pa.int32())})
        parquet.write_table(rows, bench.world.account / f"landing/f3/{number}.du")
    (bench.world.account / "landing/f3/empty.du").touch()
    for number in (2, 3):
        os.utime(bench.world.account / f"landing/f{number}.ss", (1_000_000_000 + number,) * 2)
    bench.table(id=pa.int64(), source_file_uri=pa.string())

    bench.now(
        3,
        source={"roots": ROOT, "columns": {"id": "int"}},
        sql="SELECT ((long?)id * 2L) AS id, source_file_uri FROM @data WHERE id != 3",
    )

    tried, told = bench.lines
    assert "on 3 files (" in tried
    assert told == "the SELECT gives 6 rows, which fit the table at version 0"
    assert left_behind(bench) == []
    assert bench.world.jobs() == []
    assert bench.world.rows() == {}
    assert not (bench.world.table / "_checkpoint").exists()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("changes", "what"),
    [
        (
            {"source": {"roots": ROOT, "columns": {"id": "bigint", "name": "string"}}},
            "there is no column name.",
        ),
        pytest.param(
            {
                "sql_dialect": "scope",
                "source": {"roots": ROOT, "columns": {"id": "long?"}},
                "table": {"columns": {"id": "long", "source_file_uri": "string"}},
            },
            "Column id of type long cannot hold null.",
            marks=pytest.mark.loads,
        ),
        pytest.param(
            {"sql": "SELECT (10L / (id - 1L)) AS id, source_file_uri FROM @data"},
            "Division by zero",
            marks=pytest.mark.loads,
        ),
    ],
    ids=["no column in the file", "null", "fails on a row"],
)
def test_a_select_that_does_not_run_on_the_files_is_refused_with_the_cause(bench, changes, what):
    bench.world.land(1)
    rows = pa.table({"id": [1, 5, None]})
    parquet.write_table(rows, bench.world.account / "landing/f1.ss")
    os.utime(bench.world.account / "landing/f1.ss", (1_000_000_001, 1_000_000_001))

    with pytest.raises(ModelValidationError, match="does not run on the files: ") as caught:
        bench.now(1, **changes)

    assert what in caught.value.what
    assert left_behind(bench) == []


@pytest.mark.spark
@pytest.mark.loads
def test_a_task_whose_model_fits_is_tried_once_and_loads_its_files(run_dag, bench, monkeypatch):
    bench.world.land(1, 2)
    runs = []
    submit = validation.SubmitHook.run
    monkeypatch.setattr(
        validation.SubmitHook, "run", lambda self, *args: runs.append(args) or submit(self, *args)
    )
    with DAG("scope_match", schedule=None) as dag:
        load(bench.world, validate_on_spark=5)

    run = run_dag(dag)

    assert run.state == "success"
    assert len(runs) == 1
    assert [job.name for job in bench.world.jobs()] == ["load_append_batch0_2files"]
    assert bench.world.rows_are_those_of(1, 2)
