"""The operator with SCOPE jobs in real Dag runs, against the emulator over HTTP."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import NoReturn

import pytest
from airflow.sdk import DAG, TaskGroup
from airflow.sdk.exceptions import (
    TaskDeferralError,
    TaskDeferralTimeout,
    TaskDeferred,
)
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.serialization.serialized_objects import DagSerialization

from airflow_provider_scope.engines import assembly
from airflow_provider_scope.exceptions import InputError, JobRunningError, ScopeJobFailedError
from airflow_provider_scope.operators.base import address_of
from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource, ScopeEngine, SparkEngine, TableSpec
from airflow_provider_scope.triggers import job as job_trigger
from airflow_provider_scope.waiting import Job, outcome
from tests.airflow.scope_load import a_context, load
from tests.scope.conftest import ROOT, start_emulator, world
from tests.support.stand_in import stand_in

__all__ = ["start_emulator", "world"]


def test_a_dag_loads_its_files_by_one_job(run_dag, world):
    world.open()
    world.land(1, 2)
    with DAG("scope_inline", schedule=None) as dag:
        load(world)

    run = run_dag(dag)

    assert run.state == "success"
    assert [job.name for job in world.jobs()] == ["load_append_batch0_2files"]
    assert world.rows_are_those_of(1, 2)


def test_the_jobs_of_a_task_in_a_group_are_found_by_its_id(run_dag, world):
    world.open()
    world.land(1)
    with DAG("scope.group", schedule=None) as dag, TaskGroup("flights"):
        operator = load(world)

    run_dag(dag)

    tag = address_of(operator.ingest(), (dag.dag_id, operator.task_id), None, None).tag
    assert [job.name for job in world.jobs()] == [f"{tag}_append_batch0_1files"]


@pytest.mark.parametrize("full_refresh", [False, True])
def test_a_long_job_frees_the_worker_and_is_waited_for_by_the_trigger(
    run_dag, world, monkeypatch, full_refresh
):
    monkeypatch.setattr(assembly, "INLINE_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(job_trigger, "SHORTEST_HOLD_SECONDS", 0.2)
    world.open(state_seconds={"Running": 1.0})
    world.land(1)
    waits = []
    watch = job_trigger.JobTrigger._watch

    async def watched(self, began):
        status = await watch(self, began)
        waits.append((self.job_id, status))
        return status

    monkeypatch.setattr(job_trigger.JobTrigger, "_watch", watched)
    with DAG("scope_deferred", schedule=None) as dag:
        load(world, deferrable=True, poll_interval=0.2, full_refresh=full_refresh)

    run = run_dag(dag)

    assert run.state == "success"
    (job,) = world.jobs()
    assert waits == [(job.job_id, "succeeded")]
    assert world.rows_are_those_of(1)
    (ti,) = run.get_task_instances()
    assert ti.xcom_pull(task_ids="load", key="wait") == {"job_id": job.job_id, "first_batch": 0}


def test_the_report_of_a_task_that_waited_holds_the_batches_of_before(run_dag, world, monkeypatch):
    monkeypatch.setattr(assembly, "INLINE_WAIT_SECONDS", 1.0)
    monkeypatch.setattr(job_trigger, "SHORTEST_HOLD_SECONDS", 0.2)
    world.open(state_seconds={"Running": 0.7, "Queued": 0.0})
    world.land(1, 2, 3)
    with DAG("scope_report", schedule=None) as dag:
        load(
            world,
            deferrable=True,
            poll_interval=0.6,
            source=FileSource(roots=ROOT, columns={"id": "bigint"}, max_files_per_trigger=1),
        )

    run = run_dag(dag)

    (ti,) = run.get_task_instances()
    report = ti.xcom_pull(task_ids="load")
    assert (report["batches"], report["files"], report["rows"]) == (3, 3, 6)


@pytest.mark.parametrize(
    ("of_the_task", "of_the_connection", "seconds"),
    [(None, 60.0, 60.0), (30, 60.0, 30), (3, 60.0, 10), (None, 0.5, 10)],
)
def test_a_deferred_wait_looks_as_often_as_the_task_or_else_the_connection_says(
    world, monkeypatch, of_the_task, of_the_connection, seconds
):
    world.open()
    connection = {"account_name": "acme", "poll_interval": of_the_connection}
    value = {"conn_type": "adla_scope", "host": world.emulator.url, "extra": connection}
    monkeypatch.setenv("AIRFLOW_CONN_ADLA_SCOPE_DEFAULT", json.dumps(value))
    with DAG("scope_interval", schedule=None):
        operator = load(world, deferrable=True, poll_interval=of_the_task)
    running = JobRunningError("It runs.", kept="it", do="nothing", job_id=str(uuid.uuid4()), deadline=None)
    with pytest.raises(TaskDeferred) as deferred:
        operator.wait_in_triggerer(running, "adla_scope_default")
    intervals = []

    def stop(*_: object, interval_seconds: float, **__: object) -> NoReturn:
        intervals.append(interval_seconds)
        raise RuntimeError

    monkeypatch.setattr(job_trigger, "next_look", stop)
    job = Job(job_id="j", name="n", state="Running", result="None")
    monkeypatch.setattr("airflow_provider_scope.hooks.scope.ScopeHook.get_job", lambda *_: job)
    with pytest.raises(RuntimeError):
        asyncio.run(deferred.value.trigger._watch(0.0))

    assert intervals == [seconds]


@pytest.mark.parametrize("value", [timedelta(seconds=30), "often", 0])
def test_seconds_between_two_looks_that_are_no_number_fail_when_the_dag_is_parsed(world, value):
    with pytest.raises(InputError, match=r"poll_interval=.* expected a number"):
        load(world, poll_interval=value)


def test_a_trigger_that_does_not_find_its_connection_names_it(monkeypatch):
    monkeypatch.setattr(job_trigger, "SHORTEST_HOLD_SECONDS", 0.0)

    async def fired():
        return [
            event.payload async for event in job_trigger.JobTrigger(conn_id="of_workers", job_id="j").run()
        ]

    (found,) = asyncio.run(fired())

    assert found["status"] == "cannot be watched: Airflow has no connection 'of_workers'."


def test_a_trigger_is_stored_as_ids_and_numbers():
    trigger = job_trigger.JobTrigger(conn_id="c", job_id="j", poll_interval=3, deadline=7.5)

    assert trigger.serialize() == (
        "airflow_provider_scope.triggers.job.JobTrigger",
        {
            "conn_id": "c",
            "job_id": "j",
            "poll_interval": 3,
            "deadline": 7.5,
            "first_batch": None,
            "events": None,
            "storage_conn_id": None,
        },
    )


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"table": None}, "table.columns=None is not valid"),
        ({"sql": "SELECT id FROM @data; DROP"}, "statement"),
    ],
)
def test_what_scope_jobs_cannot_do_fails_when_the_dag_is_parsed(world, changes, what):
    with pytest.raises(InputError, match=what):
        load(world, **changes)


def test_a_select_that_is_a_template_is_checked_when_it_is_rendered(run_dag, world):
    world.open()
    world.land(1, 2)
    params = {"first": 2, "sql": "SELECT id, source_file_uri FROM @data WHERE id % 100 >= "}
    with DAG("scope_template", schedule=None, params=params) as dag:
        load(world, sql="{# from the second file on #}{{ params.sql }}{{ params['first'] }}")

    run_dag(dag)

    assert world.rows_are_those_of(2)
    load(world, sql="{# all files #} SELECT id, source_file_uri FROM @data")


def test_the_button_of_the_task_leads_to_its_job(run_dag, world):
    world.open()
    world.land(1)
    with DAG("scope_link", schedule=None) as dag:
        load(world)

    run = run_dag(dag)

    (job,) = world.jobs()
    (ti,) = run.get_task_instances()
    link = ti.xcom_pull(task_ids="load", key="_link_JobLink")
    assert link == f"{world.emulator.url}/Jobs/{job.job_id}"


SCOPE = {"scope_conn_id": "adla_scope_default"}


@pytest.mark.parametrize(
    ("engine", "expanded", "has_button"),
    [
        (None, {}, False),
        (SparkEngine(), {}, False),
        ({"conf": {"spark.master": "local[2]"}}, {}, False),
        (ScopeEngine(), {}, True),
        (SCOPE, {}, True),
        ("{{ params.engine }}", {}, True),
        (None, {"full_refresh": [True, False]}, False),
        (ScopeEngine(), {"full_refresh": [True, False]}, True),
        (None, {"engine": [SCOPE, {}]}, True),
    ],
)
def test_a_task_on_spark_has_no_button_for_a_job(engine, expanded, has_button):
    source_format = "sstream" if engine in (ScopeEngine(), SCOPE) else "parquet"
    arguments = {
        "task_id": "load",
        "delta_location": "/data/t",
        "source": FileSource(roots="/in", columns={"id": "bigint"}, format=source_format),
        "table": TableSpec(columns={"id": "bigint"}),
        "sql": "SELECT id FROM @data",
        **({} if engine is None else {"engine": engine}),
    }
    with DAG("scope_button", schedule=None) as dag:
        if expanded:
            DeltaIncrementalIngestOperator.partial(**arguments).expand(**expanded)
        else:
            DeltaIncrementalIngestOperator(**arguments)

    (task,) = DagSerialization.to_dict(dag)["dag"]["tasks"]

    assert bool(task["__var"].get("_operator_extra_links")) is has_button


@pytest.mark.parametrize("error", [TaskDeferralError, TaskDeferralTimeout])
def test_a_lost_trigger_fails_no_task_whose_job_is_fine(world, error):
    world.open()
    world.land(1)
    with DAG("scope_lost", schedule=None):
        operator = load(world)
    reason = "Trigger timeout" if error is TaskDeferralTimeout else "it broke"

    result = operator.resume_execution("__fail__", {"error": reason}, a_context())

    assert result["files"] == 1
    assert world.rows_are_those_of(1)


def test_a_refresh_whose_trigger_was_lost_goes_on_with_its_job(world, monkeypatch):
    monkeypatch.setattr(assembly, "INLINE_WAIT_SECONDS", 0.0)
    world.open(state_seconds={"Running": 3600.0})
    world.land(1)
    with DAG("scope_lost_refresh", schedule=None):
        operator = load(world, deferrable=True, full_refresh=True)
    context, waits = a_context(), []
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(context)
    waits.append(deferred.value.trigger)

    with pytest.raises(TaskDeferred) as deferred:
        operator.resume_execution("__fail__", {"error": "it broke"}, context)
    waits.append(deferred.value.trigger)

    (job,) = world.jobs()
    assert outcome(job) == "waiting"
    assert [(wait.job_id, wait.first_batch) for wait in waits] == [(job.job_id, 0)] * 2


def test_a_job_that_failed_while_it_was_waited_for_fails_the_try_and_the_next_one_submits_again(
    world, monkeypatch
):
    monkeypatch.setattr(assembly, "INLINE_WAIT_SECONDS", 0.0)
    world.open(state_seconds={"Running": 3600.0})
    world.land(1)
    with DAG("scope_fails_late", schedule=None):
        operator = load(world, deferrable=True)
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(a_context())
    job_id = deferred.value.trigger.job_id
    assembly.ScopeHook().cancel_job(job_id)

    with pytest.raises(ScopeJobFailedError, match=job_id):
        operator.resume(a_context(), {"job_id": job_id, "status": "cancelled", "first_batch": 0})
    jobs_then = len(world.jobs())
    with pytest.raises(TaskDeferred):
        operator.execute(a_context())

    assert jobs_then == 1
    assert [outcome(job) for job in world.jobs()] == ["cancelled", "waiting"]


def test_a_task_over_its_time_cancels_the_job_that_it_waits_for(world, monkeypatch):
    monkeypatch.setattr(assembly, "INLINE_WAIT_SECONDS", 0.0)
    world.open(state_seconds={"Running": 3600.0})
    world.land(1)
    with DAG("scope_over_time", schedule=None):
        operator = load(world, deferrable=True, execution_timeout=timedelta(seconds=60))
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(a_context())
    late = a_context(started=datetime.now(tz=UTC) - timedelta(seconds=61))

    with pytest.raises(ScopeJobFailedError):
        operator.resume(late, {"job_id": deferred.value.trigger.job_id, "status": "deadline"})

    in_a_minute = datetime.now(tz=UTC).timestamp() + 60
    assert deferred.value.trigger.deadline == pytest.approx(in_a_minute, abs=30)
    assert [outcome(job) for job in world.jobs()] == ["cancelled"]


def test_a_task_over_its_time_submits_no_further_job(world):
    world.open()
    world.land(1)
    with DAG("scope_no_time", schedule=None):
        operator = load(world, execution_timeout=timedelta(seconds=60))

    with pytest.raises(ScopeJobFailedError, match="the job of batch 0 was not submitted"):
        operator.execute(a_context(started=datetime.now(tz=UTC) - timedelta(seconds=61)))

    assert world.jobs() == []


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("failed", "cancelled"),
        ("success", "cancelled"),
        ("deferred", "waiting"),
        ("up_for_retry", "waiting"),
        ("None", "waiting"),
    ],
)
def test_a_trigger_that_is_killed_cancels_the_job_only_if_the_task_is_over(
    world, monkeypatch, state, expected
):
    monkeypatch.setattr(assembly, "INLINE_WAIT_SECONDS", 0.0)
    world.open(state_seconds={"Running": 3600.0})
    world.land(1)
    with pytest.raises(JobRunningError) as running:
        world.run(deferrable=True)
    trigger = job_trigger.JobTrigger(conn_id="adla_scope_default", job_id=running.value.job_id)
    trigger.task_instance = SimpleNamespace(dag_id="d", run_id="r", task_id="load", map_index=-1)
    monkeypatch.setattr(
        RuntimeTaskInstance, "get_task_states", staticmethod(lambda **asked: {"r": {"load": state}})
    )

    asyncio.run(trigger.on_kill())

    (job,) = world.jobs()
    assert outcome(job) == expected


def test_a_task_of_which_airflow_says_nothing_is_not_over():
    assert not job_trigger.is_over({}, "r", "load")
    assert not job_trigger.is_over({"r": {"another": "failed"}}, "r", "load")


@pytest.mark.parametrize(("state", "expected"), [("failed", "cancelled"), ("running", "waiting")])
def test_a_killed_task_cancels_its_job_only_if_nobody_comes_back_for_it(world, monkeypatch, state, expected):
    world.open(state_seconds={"Running": 3600.0})
    world.land(1)
    with DAG("scope_killed", schedule=None):
        task = load(world)
    context = a_context()
    context["ti"].get_task_states = lambda **_: {"r": {"load": state}}

    def killed(_: float) -> NoReturn:
        task.on_kill()
        raise KeyboardInterrupt

    stand_in(monkeypatch, assembly, time, sleep=killed)
    with pytest.raises(KeyboardInterrupt):
        task.execute(context)

    (job,) = world.jobs()
    assert outcome(job) == expected
