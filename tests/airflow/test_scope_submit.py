"""A script of the user's own: one job, whatever becomes of tries, answers and the worker."""

from __future__ import annotations

import json
import re
import runpy
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, TaskDeferred
from airflow.sdk import DAG, BaseOperator
from deltalake import DeltaTable

from airflow_provider_scope.emulator import Fault
from airflow_provider_scope.engines import assembly
from airflow_provider_scope.exceptions import (
    InputError,
    JobMismatchError,
    ScopeJobFailedError,
    ServiceOutcomeUnknownError,
    StorageError,
)
from airflow_provider_scope.operators import scope_submit
from airflow_provider_scope.operators.base import TaskDeferralError
from airflow_provider_scope.operators.scope_submit import ScopeSubmitJobOperator
from airflow_provider_scope.scope.jobs import NewJob
from airflow_provider_scope.scope.submission import is_ours
from airflow_provider_scope.triggers import job as job_trigger
from airflow_provider_scope.waiting import outcome
from tests.docs.pages import DOCS, section
from tests.scope.conftest import start_emulator, world
from tests.support.stand_in import stand_in

__all__ = ["start_emulator", "world"]

SCRIPT = '#DECLARE @nothing string = "1";\n'
SLOW = {"state_seconds": {"Running": 3600.0}}


@dataclass
class Store:
    """Airflow's task state, as a task sees it."""

    values: dict[str, Any] = field(default_factory=dict)
    is_fenced: bool = False

    def get(self, key: str, default: Any = None) -> Any:
        return default if self.is_fenced else self.values.get(key, default)

    def set(self, key: str, value: Any) -> None:
        if self.is_fenced:
            raise RuntimeError("404")
        self.values[key] = json.loads(json.dumps(value))


@dataclass
class Instance:
    """What a task knows of its task instance."""

    max_tries: int = 2
    map_index: int = -1
    dag_id: str = "scripts"
    run_id: str = "manual__1"
    task_id: str = "report"
    start_date: datetime = field(default_factory=lambda: datetime.now(UTC))
    state: str = "running"

    def get_task_states(self, **_: Any) -> dict[str, Any]:
        return {self.run_id: {self.task_id: self.state}}


@dataclass
class Try:
    """Tries of one task instance; each has an operator of its own, as in Airflow."""

    store: Store | None = field(default_factory=Store)
    ti: Instance = field(default_factory=Instance)
    arguments: dict[str, Any] = field(default_factory=dict)

    def task(self, **more: Any) -> ScopeSubmitJobOperator:
        given = {"task_id": "report", "script": SCRIPT, "poll_interval": 0.1, **self.arguments, **more}
        return ScopeSubmitJobOperator(**given)

    def context(self) -> Any:
        return {"ti": self.ti, **({"task_state_store": self.store} if self.store else {})}

    def execute(self, **more: Any) -> dict[str, Any]:
        return self.task(**more).execute(self.context())

    def resume(self, **more: Any) -> dict[str, Any]:
        return self.task(**more).resume(self.context(), {"status": "succeeded"})

    def defers(self, monkeypatch: pytest.MonkeyPatch, **more: Any) -> job_trigger.JobTrigger:
        """Execute while the job runs; give the trigger that waits for it."""
        monkeypatch.setattr(assembly, "INLINE_WAIT_SECONDS", 0.0)
        with pytest.raises(TaskDeferred) as deferred:
            self.execute(deferrable=True, **more)
        assert deferred.value.method_name == "resume"
        return deferred.value.trigger  # type: ignore[return-value]


# ---- in real Dag runs -----------------------------------------------------------------------------------


def test_a_dag_runs_its_script_as_one_job(run_dag, world):
    world.open()
    with DAG("script_inline", schedule=None, params={"day": "2026-01-01"}) as dag:
        ScopeSubmitJobOperator(
            task_id="report",
            script='#DECLARE @day string = "{{ params.day }}";\n',
            job_name="report_{{ params.day }}",
            job_tag="nightly",
            au=7,
            priority=3,
        )

    run = run_dag(dag)

    (job,) = world.jobs()
    (ti,) = run.get_task_instances()
    assert run.state == "success"
    assert (job.name, job.degree_of_parallelism, job.priority) == ("nightly_report_2026-01-01", 7, 3)
    assert assembly.ScopeHook().get_job(job.job_id).script == '#DECLARE @day string = "2026-01-01";'
    assert is_ours(job)
    assert ti.xcom_pull("report") == {
        "job_id": job.job_id,
        "name": "nightly_report_2026-01-01",
        "state": "Ended",
        "result": "Succeeded",
        "attempt": 0,
    }


def test_a_script_can_be_a_file_beside_the_dag(run_dag, world, tmp_path):
    world.open()
    (tmp_path / "report.scope").write_text('#DECLARE @run string = "{{ params.day }}";\n')
    folder = str(tmp_path)
    with DAG("script_file", schedule=None, template_searchpath=folder, params={"day": "1"}) as dag:
        ScopeSubmitJobOperator(task_id="report", script="report.scope")

    run = run_dag(dag)

    (job,) = world.jobs()
    assert run.state == "success"
    assert assembly.ScopeHook().get_job(job.job_id).script == '#DECLARE @run string = "1";'


def test_a_retry_submits_another_job_after_one_that_failed(run_dag, world):
    world.open(faults=(Fault(kind="fail_job", times=1),))
    with DAG("script_retry", schedule=None) as dag:
        ScopeSubmitJobOperator(
            task_id="report", script=SCRIPT, retries=1, retry_delay=timedelta(0), poll_interval=0.1
        )

    run = run_dag(dag)

    assert run.state == "success"
    assert [outcome(job) for job in world.jobs()] == ["failed", "succeeded"]


def test_a_long_job_is_waited_for_by_the_trigger(run_dag, world, monkeypatch):
    monkeypatch.setattr(assembly, "INLINE_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(job_trigger, "SHORTEST_HOLD_SECONDS", 0.2)
    world.open(state_seconds={"Running": 1.0})
    with DAG("script_deferred", schedule=None) as dag:
        ScopeSubmitJobOperator(task_id="report", script=SCRIPT, deferrable=True, poll_interval=0.2)

    run = run_dag(dag)

    (job,) = world.jobs()
    assert run.state == "success"
    assert outcome(job) == "succeeded"


# ---- what is there is gone on with ----------------------------------------------------------------------


def test_the_job_is_written_down_before_it_is_submitted(world):
    world.open(faults=(Fault(kind="status", op="submit", status=403, times=1),))
    tries = Try()
    with pytest.raises(Exception, match="403"):
        tries.execute()

    written = dict(tries.store.values["scope_job"])
    result = tries.execute()

    account = "acme.azuredatalakeanalytics.net"
    assert written == {"epoch": 2, "attempt": 0, "job_id": result["job_id"], "account": account}
    assert len(world.jobs()) == 1


def test_a_submission_that_never_arrived_is_sent_again_by_the_next_try_under_the_same_id(world):
    world.open(faults=(Fault(kind="drop_before", op="submit", times=3),))
    tries = Try()
    with pytest.raises(ServiceOutcomeUnknownError):
        tries.execute()
    written = tries.store.values["scope_job"]["job_id"]

    tries.execute()

    assert [(job.job_id, outcome(job)) for job in world.jobs()] == [(written, "succeeded")]


@pytest.mark.parametrize("store", [Store(), None])
def test_a_retry_goes_on_with_a_job_that_runs(world, monkeypatch, store):
    world.open(**SLOW)
    tries = Try(store)
    first = tries.defers(monkeypatch)
    second = tries.defers(monkeypatch, script="// mended\n" + SCRIPT)
    world.emulator.set(state_seconds={})

    result = tries.resume()

    assert first.job_id == second.job_id == result["job_id"]
    assert len(world.jobs()) == 1


def test_a_retry_takes_the_result_of_a_job_that_succeeded(world):
    world.open()
    tries = Try()
    first = tries.execute()

    second = tries.execute()

    assert second == first
    assert len(world.jobs()) == 1


@pytest.mark.parametrize("store", [Store(), None])
def test_a_job_that_failed_while_it_was_waited_for_is_submitted_again_by_the_next_try_alone(
    world, monkeypatch, store
):
    world.open(**SLOW)
    tries = Try(store)
    first = tries.defers(monkeypatch)
    assembly.ScopeHook().cancel_job(first.job_id)

    with pytest.raises(ScopeJobFailedError, match=first.job_id):
        tries.resume()
    jobs_then = len(world.jobs())
    world.emulator.set(state_seconds={})
    result = tries.execute()

    assert jobs_then == 1
    assert result["attempt"] == 1
    assert [outcome(job) for job in world.jobs()] == ["cancelled", "succeeded"]


def test_a_clear_begins_anew_after_a_success(world):
    world.open()
    tries = Try()
    first = tries.execute()
    tries.ti.max_tries = 3

    second = tries.execute()

    assert first["job_id"] != second["job_id"]
    assert [outcome(job) for job in world.jobs()] == ["succeeded", "succeeded"]


def test_a_clear_ends_the_job_of_before_and_then_begins_anew(world, monkeypatch):
    world.open(**SLOW)
    tries = Try()
    tries.defers(monkeypatch)
    tries.ti.max_tries = 3
    monkeypatch.setattr(assembly, "INLINE_WAIT_SECONDS", 0.0)

    tries.defers(monkeypatch)

    assert [outcome(job) for job in world.jobs()] == ["cancelled", "waiting"]


def test_each_mapped_task_and_each_run_has_a_job_of_its_own(world):
    world.open()

    ids = {Try(ti=Instance(map_index=index)).execute()["job_id"] for index in (-1, 0, 1)}
    ids.add(Try(ti=Instance(run_id="manual__2")).execute()["job_id"])

    assert len(ids) == len(world.jobs()) == 4


def test_two_airflows_with_the_same_dag_do_not_take_each_others_jobs(world, monkeypatch):
    world.open()
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://staging")
    first = Try().execute()
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://production")

    second = Try().execute()

    assert first["job_id"] != second["job_id"]


def test_a_job_of_somebody_else_under_the_id_is_not_taken_for_this_one(world, monkeypatch):
    world.open()
    tries = Try()
    number = "00000000-0000-4000-8000-000000000001"
    other = NewJob(name="other", script=SCRIPT, degree_of_parallelism=1, priority=1)
    monkeypatch.setattr(scope_submit, "submission_id", lambda *_: number)
    hook = assembly.ScopeHook
    known = hook.get_job
    monkeypatch.setattr(hook, "get_job", lambda self, job_id: None)
    hook().submit_job(number, other)

    with pytest.raises(AirflowFailException, match=JobMismatchError.__name__):
        tries.execute()

    monkeypatch.setattr(hook, "get_job", known)
    assert [job.name for job in world.jobs()] == ["other"]


def test_a_try_that_airflow_gave_up_on_submits_nothing(world):
    world.open()
    tries = Try(Store(is_fenced=True))

    with pytest.raises(RuntimeError, match="404"):
        tries.execute()
    with pytest.raises(StorageError, match="another try"):
        tries.resume()

    assert world.jobs() == []


# ---- waiting --------------------------------------------------------------------------------------------


def test_without_waiting_the_task_ends_when_the_service_has_the_job(world):
    world.open(**SLOW)

    result = Try().execute(wait_for_completion=False)

    (job,) = world.jobs()
    assert result["job_id"] == job.job_id
    assert result["result"] != "Succeeded"
    assert outcome(job) == "waiting"


def test_a_job_that_was_written_down_without_its_account_is_gone_on_with(world):
    world.open()
    tries = Try()
    first = tries.execute()
    del tries.store.values["scope_job"]["account"]

    assert tries.execute() == first


def test_a_job_of_another_account_is_not_submitted_again(world, monkeypatch, start_emulator):
    world.open(**SLOW)
    tries = Try()
    tries.defers(monkeypatch)
    after = {"conn_type": "adla_scope", "host": start_emulator(world.account.parent / "other").url}
    monkeypatch.setenv(
        "AIRFLOW_CONN_ADLA_SCOPE_DEFAULT", json.dumps({**after, "extra": {"account_name": "other"}})
    )

    with pytest.raises(AirflowFailException, match=r"was for acme\.azure.* is one of other\.azure"):
        tries.resume()

    assert world.jobs() == []
    tries.ti.max_tries += 1  # cleared
    assert tries.execute()["result"] == "Succeeded"


def test_a_job_over_its_time_is_cancelled(world):
    world.open(**SLOW)

    with pytest.raises(ScopeJobFailedError, match="it took longer than job_timeout_seconds"):
        Try().execute(job_timeout_seconds=1)

    assert [outcome(job) for job in world.jobs()] == ["cancelled"]


def test_a_job_is_cancelled_when_the_tasks_time_is_over_though_it_was_deferred(world, monkeypatch):
    world.open(**SLOW)
    tries = Try(arguments={"execution_timeout": timedelta(hours=1)})
    trigger = tries.defers(monkeypatch)
    over = (tries.ti.start_date + timedelta(hours=1)).timestamp()
    tries.ti.start_date -= timedelta(hours=1)

    with pytest.raises(ScopeJobFailedError):
        tries.resume()

    assert trigger.deadline == pytest.approx(over)
    assert [outcome(job) for job in world.jobs()] == ["cancelled"]


def test_a_trigger_that_was_lost_does_not_end_a_job_that_is_fine(world, monkeypatch):
    world.open(**SLOW)
    tries = Try()
    trigger = tries.defers(monkeypatch)
    world.emulator.set(state_seconds={})
    lost = {"error": "Trigger failure"}

    result = tries.task().resume_execution("__fail__", lost, tries.context())

    assert result["job_id"] == trigger.job_id
    with pytest.raises(TaskDeferralError):
        BaseOperator.resume_execution(tries.task(), "__fail__", lost, tries.context())


def test_a_script_that_the_service_blames_fails_the_task_without_a_retry(world):
    world.open()

    with pytest.raises(AirflowFailException, match=r"ScopeScriptError: The job .* did not succeed: "):
        Try().execute(script="SELECT FROM;\n")


@pytest.mark.parametrize(("state", "ended"), [("failed", "cancelled"), ("running", "waiting")])
def test_a_killed_task_cancels_its_job_only_if_nobody_comes_back_for_it(world, state, ended):
    world.open(**SLOW)
    tries = Try()
    task = tries.task()
    tries.ti.state = state

    def killed(_: float) -> None:
        task.on_kill()
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch, scope_submit, time, sleep=killed)
        with pytest.raises(KeyboardInterrupt):
            task.execute(tries.context())

    (job,) = world.jobs()
    assert outcome(job) == ended


def test_the_button_leads_to_the_job(world):
    world.open()
    task = Try().task()

    result = task.execute(Try().context())
    (link,) = task.operator_extra_links

    assert link.get_link(task, ti_key=None) == f"{world.emulator.url}/Jobs/{result['job_id']}"


# ---- arguments ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("script", " "),
        ("script", "x" * 3_000_001),
        ("job_name", ""),
        ("job_tag", " "),
        ("job_tag", "airflow_provider_scope_void_nightly"),
        ("au", 0),
        ("priority", "high"),
        ("job_timeout_seconds", 0),
        ("poll_interval", -1),
        ("scope_conn_id", ""),
    ],
)
def test_an_argument_that_is_wrong_fails_when_the_dag_is_parsed(name, value):
    with pytest.raises(InputError, match=f"^{name}="):
        ScopeSubmitJobOperator(**{"task_id": "report", "script": SCRIPT, name: value})


def test_templates_are_checked_when_they_are_rendered(world):
    world.open()
    task = Try().task(au="{{ params.au }}")
    task.au = "0"

    with pytest.raises(AirflowFailException, match="au='0' is not valid"):
        task.execute(Try().context())


# ---- the example ----------------------------------------------------------------------------------------


def test_the_example_runs(run_dag, world):
    path = Path(__file__).parents[2] / "dags_examples" / "example_scope_submit.py"
    (dag,) = (value for value in runpy.run_path(str(path)).values() if isinstance(value, DAG))
    world.open()
    world.land(1)

    run = run_dag(dag, run_conf={"table": str(world.account / "delta" / "report")})

    (job,) = world.jobs()
    assert (run.state, job.name) == ("success", "nightly_report")
    assert DeltaTable(world.account / "delta" / "report").to_pyarrow_table()["id"].to_pylist() == [1, 101]


def test_the_script_of_the_page_runs(run_dag, world):
    page = section(DOCS / "scope.md", "## ScopeSubmitJobOperator")
    script = re.search(r'script="""(.*?)"""', page, re.DOTALL)
    assert script
    with DAG("script_of_the_page", schedule=None) as dag:
        ScopeSubmitJobOperator(task_id="report", script=script[1].replace("{{ ds }}", "f1"))
    world.open()
    world.land(1)

    run = run_dag(dag)

    table = DeltaTable(world.account / "lake" / "reports" / "flights").to_pyarrow_table()
    assert (run.state, table["id"].to_pylist()) == ("success", [1, 101])
