"""One job for each batch, whatever becomes of jobs, answers and runs."""

from __future__ import annotations

import json
import os

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.emulator import Fault
from airflow_provider_scope.engines import assembly
from airflow_provider_scope.exceptions import (
    BatchNotInTableError,
    BatchOutcomeUnknownError,
    InputError,
    JobRunningError,
    ScopeJobFailedError,
    ScopeScriptError,
    ServiceOutcomeUnknownError,
    SourceFileChangedError,
)
from airflow_provider_scope.protocol.records import Attempt
from airflow_provider_scope.scope.engine import ScopeRunner
from airflow_provider_scope.scope.fate import job_id
from airflow_provider_scope.waiting import outcome
from tests.scope.conftest import ROOT

SLOW = {"state_seconds": {"Running": 3600.0}}


def test_each_batch_is_one_job_and_each_file_is_loaded_once(world):
    world.open()
    world.land(1, 2, 3)

    report = world.run()

    assert [(b.record.seq, b.record.files, b.record.rows) for b in report.batches] == [(0, 2, 4), (1, 1, 2)]
    assert world.rows_are_those_of(1, 2, 3)
    assert world.run().batches == []
    assert [job.name for job in world.jobs()] == ["load_append_batch0_2files", "load_append_batch1_1files"]


GROWN = {
    "source": {"roots": "adl://acme.azuredatalakestore.net/landing", "columns": {"id": "bigint"}},
    "sql": "SELECT id, source_file_uri, source_file_uri AS region FROM @data",
}


@pytest.mark.parametrize("region_comes", ["last", "first"])
def test_a_table_grows_with_its_declared_columns_wherever_they_are_declared(world, region_comes):
    world.open()
    world.land(1)
    world.run()
    world.land(2)
    columns = {"id": "bigint", "source_file_uri": "string"}
    grown = {**columns, "region": "string"} if region_comes == "last" else {"region": "string", **columns}
    table = {"columns": grown, "schema_evolution": "add"}

    world.run(**GROWN, table=table)
    world.land(3)
    world.run(**GROWN, table=table)

    assert world.rows_are_those_of(1, 2, 3)
    delta = DeltaTable(world.table)
    assert [field.name for field in delta.schema().fields] == ["id", "source_file_uri", "region"]
    by_id = {row["id"]: row for row in delta.to_pyarrow_table().to_pylist()}
    assert by_id[1]["region"] is None
    assert by_id[2]["region"] == by_id[2]["source_file_uri"] == f"{GROWN['source']['roots']}/f2.ss"
    added = ["ADD COLUMN" in (world.job(job).script or "") for job in world.jobs()]
    assert added == [False, True, False]


def test_a_column_that_partitions_cannot_be_added(world):
    world.open()
    world.land(1)
    world.run()
    world.land(2)
    columns = {"id": "bigint", "source_file_uri": "string", "region": "string"}

    with pytest.raises(
        InputError, match=r"region cannot be added to the table .*: the table is partitioned by it"
    ):
        world.run(**GROWN, table={"columns": columns, "partition_by": ["region"], "schema_evolution": "add"})

    assert len(world.jobs()) == 1


def test_a_column_that_partitions_may_be_named_in_another_letter_case(world):
    world.open()
    world.land(1)

    world.run(table={"columns": {"id": "bigint", "source_file_uri": "string"}, "partition_by": ["ID"]})

    assert world.rows_are_those_of(1)
    assert DeltaTable(world.table).metadata().partition_columns == ["id"]


def test_columns_of_one_type_are_not_swapped_when_the_table_has_another_order(world):
    world.open()
    schema = pa.schema([("source_file_length", pa.int64()), ("id", pa.int64())])
    write_deltalake(world.table, schema.empty_table())
    world.land(1)

    world.run(
        sql="SELECT id, source_file_length FROM @data",
        table={"columns": {"id": "bigint", "source_file_length": "bigint"}},
    )

    assert world.rows_are_those_of(1)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id, // the file's name\n source_file_uri AS file, id.ToString() + '.' AS text FROM @data",
        'SELECT id, @"a\\" AS text, [source_file_uri] AS file FROM @data WHERE "x" != "y"',
    ],
    ids=["apostrophe in a comment", "backslash at the end of a verbatim string"],
)
def test_a_virtual_column_is_found_by_the_rules_of_scope_and_not_of_spark(world, sql):
    world.open()
    world.land(1)

    world.run(sql=sql, table={"columns": {"id": "bigint", "file": "string", "text": "string"}})

    assert set(DeltaTable(world.table).to_pyarrow_table()["file"].to_pylist()) == {f"{ROOT}/f1.ss"}


def test_a_batch_whose_select_gives_no_rows_has_none(world):
    world.open()
    world.land(1)

    report = world.run(sql="SELECT id, source_file_uri FROM @data WHERE id < 0L")

    assert [(batch.record.rows, batch.record.written_bytes) for batch in report.batches] == [(0, 0)]


def test_a_job_is_submitted_as_the_task_says(world):
    world.open()
    world.land(1)

    world.run(engine={"scope_conn_id": "adla_scope_default", "au": 7, "priority": 3, "job_tag": "mine"})

    (job,) = world.jobs()
    assert (job.name, job.degree_of_parallelism, job.priority) == ("mine_append_batch0_1files", 7, 3)


@pytest.mark.parametrize("argument", ["source", "delta_location"])
@pytest.mark.parametrize("place", ["webhdfs://namenode:9870/x", "s3://bucket/x"])
def test_a_place_that_no_job_reaches_is_refused_before_anything_is_logged(world, argument, place):
    world.open()
    changes = {"delta_location": place, "checkpoint": {"location": str(world.account / "log")}}
    if argument == "source":
        changes = {"source": {"roots": place, "columns": {"id": "bigint"}}}

    with pytest.raises(InputError, match=f"The folder {place} is on .*, which SCOPE jobs do not reach"):
        world.run(**changes)

    assert world.jobs() == []


def test_a_name_of_a_task_that_is_too_long_for_a_job_is_cut(world):
    world.open()
    world.land(1)

    world.run(engine={"scope_conn_id": "adla_scope_default", "job_tag": "x" * 250})

    assert [job.name for job in world.jobs()] == ["x" * 220 + "_append_batch0_1files"]
    assert world.rows_are_those_of(1)


def test_a_failed_job_leaves_its_batch_open_and_the_next_run_submits_another(world):
    world.open(faults=(Fault(kind="fail_job", op="batch0", times=1),))
    world.land(1)
    with pytest.raises(ScopeJobFailedError, match="of batch 0 did not succeed"):
        world.run()

    report = world.run()

    assert [b.record.seq for b in report.batches] == [0]
    assert [outcome(job) for job in world.jobs()] == ["failed", "succeeded"]
    assert world.rows_are_those_of(1)


def test_a_job_that_failed_after_its_commit_is_in_the_table_and_is_not_run_again(world):
    world.open(faults=(Fault(kind="fail_after_commit", op="batch0", times=1),))
    world.land(1)

    report = world.run()

    assert [(b.record.seq, b.record.rows) for b in report.batches] == [(0, 2)]
    assert [outcome(job) for job in world.jobs()] == ["failed"]
    assert world.rows_are_those_of(1)


def test_a_submission_of_which_nothing_is_known_is_looked_up_by_the_next_run(world):
    world.open(faults=(Fault(kind="drop_before", op="submit", times=3),))
    world.land(1)
    with pytest.raises(ServiceOutcomeUnknownError):
        world.run()

    world.run()

    assert len(world.jobs()) == 1
    assert world.rows_are_those_of(1)


def test_a_long_job_is_left_running_and_whoever_comes_next_adopts_it(world, monkeypatch):
    monkeypatch.setattr(assembly, "INLINE_WAIT_SECONDS", 0.0)
    world.open(**SLOW)
    world.land(1)
    with pytest.raises(JobRunningError) as running:
        world.run(deferrable=True)
    with pytest.raises(JobRunningError) as again:
        world.run(deferrable=True)
    world.emulator.set(state_seconds={})

    world.run()

    assert running.value.job_id == again.value.job_id
    assert [job.job_id for job in world.jobs()] == [running.value.job_id]
    assert world.rows_are_those_of(1)


@pytest.mark.parametrize("is_settled", [False, True])
def test_a_job_of_another_account_is_not_submitted_again(world, monkeypatch, start_emulator, is_settled):
    monkeypatch.setattr(assembly, "INLINE_WAIT_SECONDS", 0.0)
    world.open(**SLOW)
    world.land(1)
    with pytest.raises(JobRunningError):
        world.run(deferrable=True)
    before = os.environ["AIRFLOW_CONN_ADLA_SCOPE_DEFAULT"]
    after = {"conn_type": "adla_scope", "host": start_emulator(world.account.parent / "other").url}
    monkeypatch.setenv(
        "AIRFLOW_CONN_ADLA_SCOPE_DEFAULT", json.dumps({**after, "extra": {"account_name": "other"}})
    )

    with pytest.raises(BatchOutcomeUnknownError, match=r"was for acme\.azure.* is one of other\.azure"):
        world.run()

    assert world.jobs() == []
    if is_settled:
        _, request, engine = world.assemble()
        engine.settle(request.table, 0, committed=False)
        assert world.jobs() == []  # an empty one would be taken for its end if the decision is not written
        return
    monkeypatch.setenv("AIRFLOW_CONN_ADLA_SCOPE_DEFAULT", before)
    world.emulator.set(state_seconds={})
    world.run()
    assert world.rows_are_those_of(1)


def test_a_job_over_its_time_is_cancelled(world):
    world.open(**SLOW)
    world.land(1)

    with pytest.raises(ScopeJobFailedError, match="did not succeed: it took longer than job_timeout_seconds"):
        world.run(engine={"scope_conn_id": "adla_scope_default", "job_timeout_seconds": 1})

    assert [outcome(job) for job in world.jobs()] == ["cancelled"]


def test_a_refresh_ends_the_job_of_an_older_batch_before_it_begins(world, monkeypatch):
    monkeypatch.setattr(assembly, "INLINE_WAIT_SECONDS", 0.0)
    world.open(**SLOW)
    world.land(1)
    with pytest.raises(JobRunningError):
        world.run(deferrable=True)
    world.land(2)
    with pytest.raises(JobRunningError):
        world.run(deferrable=True, full_refresh=True)
    world.emulator.set(state_seconds={})

    world.run()

    first, refresh = world.jobs()
    assert (outcome(first), outcome(refresh)) == ("cancelled", "succeeded")
    assert world.rows_are_those_of(1, 2)


def test_a_refresh_takes_the_id_of_a_job_that_never_arrived(world):
    """A late PUT of that job then meets the no-op, and adds no rows."""
    world.open(faults=(Fault(kind="drop_before", op="submit", times=3),))
    world.land(1)
    with pytest.raises(ServiceOutcomeUnknownError):
        world.run()

    world.run(full_refresh=True)

    assert [job.name for job in world.jobs()] == [
        "airflow_provider_scope_void_batch0",
        "load_overwrite_batch1_1files",
    ]
    assert world.rows_are_those_of(1)


def test_a_full_refresh_replaces_the_rows(world):
    world.open()
    world.land(1, 2, 3)
    world.run()
    (world.account / "landing" / "f1.ss").unlink()

    world.run(full_refresh=True)

    assert world.rows_are_those_of(2, 3)


def test_a_file_that_changed_since_it_was_logged_stops_its_batch_before_a_job_is_submitted(world):
    world.open(faults=(Fault(kind="fail_job", op="batch0", times=1),))
    world.land(1)
    with pytest.raises(ScopeJobFailedError):
        world.run()
    (world.account / "landing" / "f1.ss").touch()

    with pytest.raises(SourceFileChangedError, match=r"f1\.ss of batch 0 is there, but it has changed"):
        world.run()

    assert len(world.jobs()) == 1


def test_a_script_that_the_service_refuses_is_the_users_to_mend(world):
    world.open()
    world.land(1)
    with pytest.raises(ScopeScriptError) as refused:
        world.run(sql="SELECT nothing AS id, source_file_uri FROM @data")
    assert not refused.value.is_retryable

    world.run()

    assert world.rows_are_those_of(1)


def test_the_id_of_a_job_follows_from_pipeline_batch_and_attempt():
    pipeline = "4f0e4a50-93a4-4a3f-9ab4-0d9f1f0c6a11"

    attempts = [Attempt(seq=seq, number=number, table_version=7) for seq in range(3) for number in range(3)]

    assert job_id(pipeline, attempts[5]) == "b7e9d0fe-be6d-509d-af45-87d809d70ff6"
    assert len({job_id(pipeline, attempt) for attempt in attempts}) == 9


def test_spark_does_not_take_over_a_batch_that_was_submitted_as_a_job(world, monkeypatch):
    monkeypatch.setattr(assembly, "INLINE_WAIT_SECONDS", 0.0)
    world.open(**SLOW)
    world.land(1)
    with pytest.raises(JobRunningError):
        world.run(deferrable=True)

    with pytest.raises(InputError, match=r"Batch 0 of .* is open and has SCOPE jobs"):
        world.run(engine=None, source={"roots": str(world.account / "landing"), "format": "parquet"})


def a_plan(world):
    """Leave the plan of an application of Spark that runs batch 0 on a worker."""
    plan = world.table / "_checkpoint" / "plans" / "6f0e1c3a-2f6f-4c8e-9a55-0f6f1f0f7a11"
    plan.parent.mkdir(parents=True)
    plan.write_text('{"batches": [0]}')
    return plan


def test_a_batch_that_spark_may_still_commit_is_given_to_no_job(world, monkeypatch):
    world.open()
    world.land(1)
    with monkeypatch.context() as patch:
        patch.setattr(ScopeRunner, "run", lambda *_: None)
        with pytest.raises(BatchNotInTableError):
            world.run()
    plan = a_plan(world)

    with pytest.raises(InputError, match=r"Batch 0 of .* is open, and the application 6f0e1c3a-") as refused:
        world.run()

    assert str(plan) in refused.value.do
    assert world.jobs() == []
    plan.unlink()
    world.run()
    assert world.rows_are_those_of(1)


def test_an_application_of_spark_that_begins_at_the_same_moment_is_seen(world, monkeypatch):
    world.open()
    world.land(1)
    start = ScopeRunner._start
    monkeypatch.setattr(ScopeRunner, "_start", lambda *given: (start(*given), a_plan(world)))

    with pytest.raises(InputError, match=r"Batch 0 of .* is open, and the application 6f0e1c3a-"):
        world.run()

    assert world.jobs() == []


def test_the_debug_log_shows_what_each_file_adds_to_a_job(world, caplog):
    world.open()
    world.land(1, 2)
    with caplog.at_level("DEBUG", logger="airflow_provider_scope.scope.engine"):
        world.run()
    (shown,) = [record.getMessage() for record in caplog.records if "as estimated" in record.getMessage()]
    assert "f1.ss" in shown
    assert shown.endswith("total of 2")
