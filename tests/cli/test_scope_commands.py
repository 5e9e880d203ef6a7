"""The commands on pipelines whose batches are SCOPE jobs, against the emulator over HTTP."""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.emulator import Fault
from airflow_provider_scope.engines import assembly
from airflow_provider_scope.exceptions import (
    BatchOutcomeUnknownError,
    JobRunningError,
    UnknownRowsError,
)
from airflow_provider_scope.protocol.records import Attempt, Settlement
from airflow_provider_scope.scope.fate import job_id
from airflow_provider_scope.scope.jobs import NewJob
from airflow_provider_scope.waiting import outcome
from tests.cli.conftest import typed
from tests.docs.pages import DOCS, blocks, section
from tests.scope.conftest import start_emulator, world
from tests.support.delta_engine import DeltaEngine
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["start_emulator", "world"]

ADD_YES = "nothing was written; add --yes to do it\n"
SLOW = {"state_seconds": {"Running": 3600.0}}


@pytest.fixture
def scope(capsys) -> Callable[..., tuple[int, str, str]]:
    return partial(typed, capsys)


def job_of(world, seq: int, attempt: int = 0) -> str:
    pipeline = log_of(world).pipeline()
    assert pipeline
    return job_id(pipeline.pipeline, Attempt(seq=seq, number=attempt, table_version=-1))


def log_of(world):
    from airflow_provider_scope.specs import Checkpoint

    return assembly.open_log(str(world.table), Checkpoint())


def tree(world) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in world.account.rglob("*") if p.is_file() and "delta" in p.parts}


def left_running(world, monkeypatch, *numbers: int, **changes: object) -> None:
    """Leave the job of a batch of these files running."""
    world.emulator.set(**SLOW)
    world.land(*numbers)
    monkeypatch.setattr(assembly, "INLINE_WAIT_SECONDS", 0.0)
    with pytest.raises(JobRunningError):
        world.run(deferrable=True, **changes)


def undecidable(world, *, job_committed: bool) -> None:
    """Let a job fail before its closing mark, and others add rows: nothing tells whose they are."""
    kind = "fail_after_commit" if job_committed else "fail_job"
    world.open(faults=(Fault(kind=kind, op="batch0", times=1),))
    world.land(1)
    execution, request, runner = world.assemble()
    submit, script = runner.jobs.submit_job, runner.script
    runner.script = lambda *args: script(*args).rpartition("ALTER TABLE")[0]

    def submit_and_interfere(*args):
        job = submit(*args)
        runner.wait.await_end(job.job_id)
        if not job_committed:
            marker = {"adlaScope.batch": f"{log_of(world).pipeline().pipeline}:0:0"}
            rows = pa.table({"id": [8], "source_file_uri": ["other"]})
            table = DeltaTable.create(world.table, rows.schema)
            table.alter.set_table_properties(marker, raise_if_not_exists=False)
            write_deltalake(world.table, rows, mode="append")
        rows = pa.table({"id": [7], "source_file_uri": ["other"]})
        write_deltalake(world.table, rows, mode="append")
        return job

    runner.jobs.submit_job = submit_and_interfere
    with pytest.raises(BatchOutcomeUnknownError, match="nothing shows whether they are the job's"):
        execution.run(request)


# ---- status, plan, rebuild ------------------------------------------------------------------------------


def test_status_shows_the_jobs_of_the_open_batches(world, scope, monkeypatch):
    world.open()
    world.land(1)
    world.run()
    left_running(world, monkeypatch, 2)

    code, out, err = scope("status", world.table)

    assert (code, err) == (0, "")
    assert f"               attempt 0: job {job_of(world, 1)}, Running\n" in out
    assert "the next run begins with the open batches\n" in out


def test_status_of_an_undecidable_batch_shows_its_job_and_names_the_way_out(world, scope):
    undecidable(world, job_committed=True)

    code, out, err = scope("status", world.table)

    assert code == 1
    assert f"attempt 0: job {job_of(world, 0)}, Ended, Failed\n" in out
    for decision in ("committed", "not-committed"):
        assert f"`airflow scope settle {world.table} 0 --{decision}`" in err


def test_plan_shows_what_a_task_of_jobs_would_load_and_submits_nothing(world, scope, monkeypatch):
    from airflow.sdk import DAG

    from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator

    world.open()
    world.land(1, 2, 3)
    with DAG("flights", schedule=None) as dag:
        given = {name: value for name, value in world.arguments().items() if value is not None}
        DeltaIncrementalIngestOperator(task_id="load", **given)
    monkeypatch.setattr(
        "airflow_provider_scope.cli.tasks.find_dag", lambda _, dag_id: {"flights": dag}[dag_id]
    )

    code, out, _ = scope("plan", "flights", "load")

    assert code == 0
    assert out.startswith("new: 2 batches, 3 files\n  0: append, 2 files, ")
    assert world.jobs() == []


# ---- settle ---------------------------------------------------------------------------------------------


def test_settle_says_what_it_would_decide_and_writes_nothing(world, scope):
    undecidable(world, job_committed=True)
    before = tree(world)

    code, out, err = scope("settle", world.table, 0, "--committed")

    assert (code, err) == (0, "")
    assert out == (
        f"batch 0, attempt 0: job {job_of(world, 0)}, Ended, Failed\n"
        "its rows are in the table: the next run records the batch\n"
        "A wrong decision loses the rows of the batch, or duplicates them; it cannot be undone.\n" + ADD_YES
    )
    assert tree(world) == before


def test_a_job_that_is_said_to_be_committed_is_recorded_and_not_run_again(world, scope):
    undecidable(world, job_committed=True)
    version = DeltaTable(world.table).version()

    code, out, _ = scope("settle", world.table, 0, "--committed", "--yes")
    report = world.run()

    record = world.table / "_checkpoint" / "attempts" / f"{0:020}.0.settled"
    assert code == 0
    assert out.endswith(f"settled, as file://{record}\n")
    assert log_of(world).find(Settlement, seq=0, number=0) == Settlement(
        seq=0, number=0, committed=True, table_version=version
    )
    assert [(b.record.seq, b.record.rows, b.already_there) for b in report.batches] == [(0, None, True)]
    assert len(world.jobs()) == 1
    assert world.rows() == {1: 1, 101: 1, 7: 1}


def test_a_job_that_is_said_not_to_be_committed_is_submitted_again(world, scope):
    undecidable(world, job_committed=False)

    code, _, _ = scope("settle", world.table, 0, "--not-committed", "--yes")
    report = world.run()

    assert code == 0
    assert [(b.record.seq, b.record.rows) for b in report.batches] == [(0, 2)]
    assert [outcome(job) for job in world.jobs()] == ["failed", "succeeded"]
    assert world.rows() == {1: 1, 101: 1, 7: 1, 8: 1}


def test_the_id_of_a_job_that_the_service_forgot_is_taken_before_it_is_settled(world, scope):
    """A submission of it that is still on its way then meets the no-op."""
    undecidable(world, job_committed=True)
    world.emulator._jobs._jobs.clear()

    code, out, _ = scope("settle", world.table, 0, "--committed", "--yes")

    assert code == 0
    assert f"job {job_of(world, 0)}, unknown to the service\n" in out
    assert [job.name for job in world.jobs()] == ["airflow_provider_scope_void_batch0"]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ((0,), "Exactly one of --committed and --not-committed is required."),
        (
            (0, "--committed", "--not-committed"),
            "Exactly one of --committed and --not-committed is required.",
        ),
        ((0, "--committed"), "Batch 0 of "),
        ((1, "--committed"), "There is nothing to decide about batch 1 of "),
        ((2, "--committed"), "Batch 2 of "),
    ],
)
def test_only_what_is_in_doubt_can_be_settled(world, scope, monkeypatch, words, what):
    world.open()
    world.land(1)
    world.run()
    left_running(world, monkeypatch, 2)
    before = tree(world)

    code, out, err = scope("settle", world.table, *words, "--yes")

    assert (code, out) == (1, "")
    assert err.startswith(f"InputError: {what}")
    assert tree(world) == before


@pytest.mark.parametrize("command", ["status", "accept-table"])
def test_of_a_job_that_the_tables_log_does_not_go_back_to_the_whole_command_is_named(
    world, scope, monkeypatch, command
):
    world.open()
    left_running(world, monkeypatch, 1)
    world.emulator.set(state_seconds={})
    assert eventually(lambda: all(outcome(job) == "succeeded" for job in world.jobs()))
    table = DeltaTable(str(world.table))
    table.create_checkpoint()
    (world.table / "_delta_log" / f"{0:020}.json").unlink()

    said = scope(command, world.table)[2]
    code, _, err = scope(*shlex.split(re.findall("`airflow scope ([^`]+)`", said)[0]), "--yes")

    assert (code, err) == (0, "")
    assert log_of(world).find(Settlement, seq=0, number=0).committed


# ---- abandon, accept-table ------------------------------------------------------------------------------


def test_a_batch_is_given_up_with_its_job(world, scope, monkeypatch):
    world.open()
    world.land(1)
    world.run()
    left_running(world, monkeypatch, 2)

    _, said, _ = scope("abandon", world.table, 1)
    running = [outcome(job) for job in world.jobs()]
    code, out, _ = scope("abandon", world.table, 1, "--yes")
    world.emulator.set(state_seconds={})
    world.run()

    assert "its job is cancelled if it has one, and no other is submitted\n" in said
    assert running == ["succeeded", "waiting"]
    assert (code, out) == (
        0,
        "batch 1 is abandoned; the next run loads those of its files that still exist\n",
    )
    assert [outcome(job) for job in world.jobs()] == ["succeeded", "cancelled", "succeeded"]
    assert world.rows_are_those_of(1, 2)


def test_a_restored_table_of_jobs_is_accepted_and_runs_go_on(world, scope):
    world.open()
    world.land(1, 2, 3)
    world.run()
    DeltaTable(world.table).restore(
        DeltaTable(world.table).version() - 2
    )  # after the rows it closes its mark
    world.land(4)

    code, out, _ = scope("accept-table", world.table, "--yes")
    world.run()

    assert code == 0
    assert "- the rows of batch 1 (1 file) are no longer in the table: the files count as loaded\n" in out
    assert world.rows_are_those_of(1, 2, 4)


def test_a_table_that_was_created_again_is_accepted_without_a_transaction(world, scope):
    world.open()
    world.land(1)
    world.run()
    created_again(world)
    world.land(2)

    code, out, _ = scope("accept-table", world.table, "--yes")
    world.run()

    assert code == 0
    assert "empty transaction" not in out
    assert world.rows_are_those_of(2)


def created_again(world) -> None:
    """Drop the table, keep the checkpoint, and create it again."""
    schema = DeltaTable(world.table).schema()
    (world.table / "_delta_log").rename(world.account / "dropped")
    DeltaTable.create(world.table, schema)


def unrecorded(world, monkeypatch, number: int) -> None:
    """Let the job of a batch succeed after its run has gone."""
    left_running(world, monkeypatch, number)
    world.emulator.set(state_seconds={})
    hook = assembly.ScopeHook()
    while any(outcome(job) == "waiting" for job in hook.list_jobs()):
        pass


def test_what_a_job_says_is_not_about_a_table_that_was_created_again(world, scope, monkeypatch):
    world.open()
    world.land(1)
    world.run()
    unrecorded(world, monkeypatch, 2)
    created_again(world)

    refused = scope("accept-table", world.table, "--yes")
    code, out, _ = scope("accept-table", world.table, "--yes", "--reload-undecidable")
    world.run()

    assert refused[0] == 1
    assert "does not show whether the rows of the open batches 1 are in the table" in refused[2]
    assert code == 0
    assert "- the files of the open batch 1 count as new: the next run loads them\n" in out
    assert world.rows_are_those_of(2)


def test_status_does_not_count_a_batch_as_in_an_older_copy_of_its_table(world, scope, tmp_path):
    world.open()
    world.land(1)
    world.run()
    shutil.copytree(world.table, tmp_path / "copy")
    world.land(2)
    world.run()
    shutil.rmtree(world.table)
    shutil.copytree(tmp_path / "copy", world.table)
    with pytest.raises(BatchOutcomeUnknownError):
        world.run()

    assert "newest batch 1, whose commit the table's log does not show\n" in scope("status", world.table)[1]


class SparkOfFlights(DeltaEngine):
    """Stands in for Spark, on a table with other columns than that of the other tests."""

    def no_rows(self) -> pa.Table:
        return pa.schema({"id": pa.int64(), "source_file_uri": pa.string()}).empty_table()


def test_a_pipeline_without_open_jobs_goes_on_with_spark_after_an_empty_transaction(
    world, scope, monkeypatch
):
    world.open()
    world.land(1, 2, 3)
    world.run()
    monkeypatch.setattr(assembly, "spark_engine", lambda *_, **__: SparkOfFlights())

    code, out, _ = scope("accept-table", world.table, "--engine", "spark", "--yes")
    again = scope("accept-table", world.table, "--engine", "spark", "--yes")

    pipeline = log_of(world).pipeline()
    assert pipeline
    assert code == 0
    assert "- an empty transaction records in the table that batch 1 is its newest\n" in out
    assert "no longer in the table" not in out
    assert DeltaTable(world.table).transaction_version(pipeline.pipeline) == 1
    assert again[1].endswith("there is nothing to accept\n")
    assert world.rows_are_those_of(1, 2, 3)


@pytest.mark.slow
@pytest.mark.parametrize("past", ["refreshed", "vacuumed"])
def test_spark_goes_on_with_what_jobs_loaded_whatever_is_purged_or_was_replaced(
    world, scope, monkeypatch, past
):
    world.open()
    for number in range(1, 13):
        world.land(number)
        world.run()
    if past == "vacuumed":
        scope("vacuum", world.table, "--retain-batches", "10", "--yes")
    else:
        (world.account / "landing" / "f1.ss").unlink()
        world.run(full_refresh=True)
    monkeypatch.setattr(assembly, "spark_engine", lambda *_, **__: SparkOfFlights())

    code, out, _ = scope("accept-table", world.table, "--engine", "spark", "--yes")

    assert code == 0
    assert "To accept it as it is means:\n- an empty transaction records in the table that batch" in out


def test_the_commands_for_batches_of_spark_after_those_of_jobs_need_no_name_of_the_engine(
    world, scope, monkeypatch
):
    world.open()
    world.land(1, 2, 3)
    world.run()
    monkeypatch.setattr(assembly, "spark_engine", lambda *_, **__: SparkOfFlights())
    scope("accept-table", world.table, "--engine", "spark", "--yes")
    log = log_of(world)
    pipeline, newest = log.pipeline(), log.newest_offset()
    assert pipeline
    assert newest
    log.put_offset(replace(newest, seq=2))

    abandoned = scope("abandon", world.table, "2", "--yes")
    status = scope("status", world.table)

    assert (abandoned[0], status[0]) == (0, 0)
    assert log.attempts(2) == []
    assert DeltaTable(world.table).transaction_version(pipeline.pipeline) == 2
    # Of a table that was created again, the newest record tells.
    shutil.rmtree(world.table / "_delta_log")
    monkeypatch.delenv("AIRFLOW_CONN_ADLA_SCOPE_DEFAULT")
    assert scope("status", world.table)[2].startswith("TableGoneError")


def test_a_table_where_spark_cannot_read_is_accepted_before_its_first_job(world, scope):
    world.open()
    world.land(1)
    location = "adl://acme.azuredatalakestore.net/delta/flights"
    rows = pa.table({"id": [9], "source_file_uri": ["other"]})
    write_deltalake(world.table, rows)
    with pytest.raises(UnknownRowsError):
        world.run(delta_location=location)

    code, _, err = scope("accept-table", location, "--yes")
    world.run(delta_location=location)

    assert (code, err) == (0, "")
    assert world.rows() == {1: 1, 101: 1, 9: 1}


# ---- the page -------------------------------------------------------------------------------------------


def as_on_the_page(text: str, world) -> list[str]:
    text = text.replace(str(world.table), "/data/delta/flights").replace("emulator@", "etl@")
    return re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UUID", text).splitlines()


def the_page_shows(heading: str, world, scope) -> None:
    """Run the commands of a section of the page, and compare what they print."""
    (block,) = blocks(section(DOCS / "commands.md", heading), "console")
    for part in re.split(r"^\$ airflow scope ", block.text, flags=re.MULTILINE)[1:]:
        line, _, shown = part.partition("\n")

        code, out, _ = scope(*line.replace("/data/delta/flights", str(world.table)).split())

        assert code == 0
        assert as_on_the_page(out, world) == as_on_the_page(shown, world)


def test_settle_prints_what_the_page_shows(world, scope):
    undecidable(world, job_committed=True)

    the_page_shows("## settle", world, scope)


def test_cancel_jobs_prints_what_the_page_shows(world, scope, monkeypatch):
    world.open()
    left_running(world, monkeypatch, 1)

    the_page_shows("## cancel-jobs", world, scope)


# ---- cancel-jobs ----------------------------------------------------------------------------------------


def test_own_jobs_are_shown_first_and_cancelled_with_yes_and_nobody_elses(world, scope, monkeypatch):
    world.open()
    left_running(world, monkeypatch, 1)
    hook = assembly.ScopeHook()
    script = '#DECLARE @x string = "1";'
    others = NewJob(name="load_append_batch9_1files", script=script, degree_of_parallelism=1, priority=1)
    hook.submit_job("00000000-0000-4000-8000-000000000001", others)
    ours = job_of(world, 0)

    first = scope("cancel-jobs", "--tag", "load")
    before = {job.job_id: job.state for job in world.jobs()}
    second = scope("cancel-jobs", "--tag", "load", "--yes")

    assert first[0] == 0
    assert first[1].startswith(f"{ours}  Running      load_append_batch0_1files")
    assert first[1].endswith("1 job would be cancelled\n" + ADD_YES)
    assert before[ours] == "Running"
    assert second[1].endswith(
        "cancellation of 1 job requested; runs that wait for them fail and submit them again\n"
    )
    states = {job.job_id: outcome(job) for job in hook.list_jobs()}
    assert states == {ours: "cancelled", "00000000-0000-4000-8000-000000000001": "waiting"}


@pytest.mark.parametrize("tag", ["loa", "load_append_batch0_1file", "it's"])
def test_a_tag_is_a_whole_word_of_a_jobs_name(world, scope, monkeypatch, tag):
    world.open()
    left_running(world, monkeypatch, 1)

    code, out, err = scope("cancel-jobs", "--tag", tag, "--yes")

    assert (code, err) == (0, "")
    assert out == f"no job of this package whose name begins with {tag}_ is queued or running\n"


def test_a_tag_that_is_cut_in_a_jobs_name_finds_the_job(world, scope, monkeypatch):
    world.open()
    tag = "x" * 250
    left_running(world, monkeypatch, 1, engine={"scope_conn_id": "adla_scope_default", "job_tag": tag})

    assert scope("cancel-jobs", "--tag", tag)[1].endswith("1 job would be cancelled\n" + ADD_YES)


@pytest.mark.parametrize("tag", ["", " ", "_"])
def test_an_empty_tag_is_refused(world, scope, tag):
    world.open()

    code, _, err = scope("cancel-jobs", "--tag", tag, "--yes")

    assert (code, err.startswith("InputError: --tag=")) == (1, True)
