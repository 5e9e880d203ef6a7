"""What is in the table for another reason than the newest job's rows."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from airflow_provider_scope.emulator import Fault
from airflow_provider_scope.exceptions import ScopeJobFailedError, ScopeScriptError
from airflow_provider_scope.scope.jobs import outcome


def test_rows_of_others_between_two_attempts_are_not_taken_for_the_first_ones(world):
    world.open(faults=(Fault(kind="fail_job", op="batch0", skip=1, times=1),))
    world.land(1)
    with pytest.raises(ScopeScriptError):  # it marks the table and adds nothing
        world.run(sql="SELECT id, missing AS source_file_uri FROM @data")
    execution, request, runner = world.assemble()
    submit = runner.jobs.submit_job

    def interfere_and_submit(*args):
        if world.table.exists():
            rows = pa.table({"id": [7], "source_file_uri": ["other"]})
            write_deltalake(world.table, rows, mode="append")
        return submit(*args)

    runner.jobs.submit_job = interfere_and_submit
    with pytest.raises(ScopeJobFailedError):
        execution.run(request)

    world.run()

    assert [outcome(job) for job in world.jobs()] == ["failed", "failed", "succeeded"]
    assert world.rows()[1] == 1


def test_a_batch_that_spark_committed_before_the_pipeline_moved_is_not_loaded_again(world):
    world.open()
    world.land(1)
    world.run()
    world.land(2)
    execution, request, runner = world.assemble()

    def spark_commits_and_is_killed(work, entries):
        (entry,) = entries
        named = json.dumps({"abandoned": False, "pipeline": work.pipeline, "seq": entry.seq})
        write_deltalake(
            world.table,
            pa.table({"id": [2, 102], "source_file_uri": ["2", "2"]}),
            mode="append",
            commit_properties=CommitProperties(
                app_transactions=[Transaction(work.pipeline, entry.seq)],
                custom_metadata={"userMetadata": named},
            ),
        )
        raise KeyboardInterrupt

    runner.run = spark_commits_and_is_killed
    with pytest.raises(KeyboardInterrupt):
        execution.run(request)

    report = world.run()

    assert [(batch.seq, batch.already_there) for batch in report.batches] == [(1, True)]
    assert len(world.jobs()) == 1
    assert world.rows_are_those_of(1, 2)
