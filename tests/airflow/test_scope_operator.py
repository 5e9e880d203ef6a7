"""The operator with SCOPE jobs in real Dag runs, against the emulator over HTTP."""

from __future__ import annotations

import pytest
from airflow.sdk import DAG

from airflow_provider_scope.engines import assembly
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource, ScopeEngine, TableSpec
from airflow_provider_scope.triggers import scope_job
from tests.scope.conftest import ROOT, start_emulator, world

__all__ = ["start_emulator", "world"]

COLUMNS = {"id": "bigint", "source_file_uri": "string"}


def load(world, **more) -> DeltaIncrementalIngestOperator:
    defaults = {
        "task_id": "load",
        "delta_location": str(world.table),
        "source": FileSource(roots=ROOT, columns={"id": "bigint"}),
        "sql": "SELECT id, source_file_uri FROM @data",
        "table": TableSpec(columns=COLUMNS),
        "engine": ScopeEngine(),
    }
    return DeltaIncrementalIngestOperator(**{**defaults, **more})


def test_a_dag_loads_its_files_by_one_job(run_dag, world):
    world.open()
    world.land(1, 2)
    with DAG("scope_inline", schedule=None) as dag:
        load(world)

    run = run_dag(dag)

    assert run.state == "success"
    assert [job.name for job in world.jobs()] == ["load_append_batch0_2files"]
    assert world.rows_are_those_of(1, 2)


def test_a_long_job_frees_the_worker_and_is_waited_for_by_the_trigger(run_dag, world, monkeypatch):
    monkeypatch.setattr(assembly, "INLINE_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(scope_job, "SHORTEST_HOLD_SECONDS", 0.2)
    world.open(state_seconds={"Running": 1.0})
    world.land(1)
    waits = []
    watch = scope_job.ScopeJobTrigger._watch

    async def watched(self, began):
        status = await watch(self, began)
        waits.append((self.job_id, status))
        return status

    monkeypatch.setattr(scope_job.ScopeJobTrigger, "_watch", watched)
    with DAG("scope_deferred", schedule=None) as dag:
        load(world, deferrable=True, poll_interval=0.2)

    run = run_dag(dag)

    assert run.state == "success"
    (job,) = world.jobs()
    assert waits == [(job.job_id, "succeeded")]
    assert world.rows_are_those_of(1)


def test_a_trigger_is_stored_as_ids_and_numbers():
    trigger = scope_job.ScopeJobTrigger(scope_conn_id="c", job_id="j", poll_interval=3, deadline=7.5)

    assert trigger.serialize() == (
        "airflow_provider_scope.triggers.scope_job.ScopeJobTrigger",
        {
            "scope_conn_id": "c",
            "job_id": "j",
            "poll_interval": 10.0,
            "deadline": 7.5,
            "unreachable_seconds": 900.0,
        },
    )


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"table": None}, "table.columns is missing"),
        ({"write": {"where": "id = 1"}}, "write=Replace"),
        ({"sql_params": {"a": 1}}, "sql_params is not possible"),
        ({"sql": "SELECT id FROM @data; DROP"}, "statement"),
        ({"source": FileSource(roots=ROOT, format="json")}, "source.format='json'"),
    ],
)
def test_what_scope_jobs_cannot_do_fails_when_the_dag_is_parsed(world, changes, what):
    with pytest.raises(InputError, match=what):
        load(world, **changes)
