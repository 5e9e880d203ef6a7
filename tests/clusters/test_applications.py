"""Applications whose driver runs on a cluster: submitted once, waited for, adopted, ended; and their rows."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG
from airflow.sdk.exceptions import TaskDeferred
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.engines.cluster import ClusterEngine
from airflow_provider_scope.exceptions import ScopeProviderError, SparkJobFailedError
from airflow_provider_scope.stores import http
from airflow_provider_scope.stores.http import HttpClient
from airflow_provider_scope.triggers.job import JobTrigger
from airflow_provider_scope.waiting import outcome
from tests.clusters.conftest import a_context
from tests.support.processes import eventually

pytestmark = pytest.mark.spark

SLOW = (
    "SELECT d.* FROM @data d WHERE (SELECT count(*) FROM range(0, 10000000000000, 1, 1) WHERE id % 7 = 3) > 0"
)


def test_a_dag_loads_its_files_by_one_application_for_each_run(run_dag, cluster):
    cluster.land(1, 2)
    cluster.land(3)
    with DAG("on_a_cluster", schedule=None) as dag:
        cluster.operator(
            source={"roots": cluster.place("in"), "format": "parquet", "max_files_per_trigger": 1}
        )

    first = run_dag(dag)
    jobs = cluster.jobs()
    cluster.land(4)
    second = run_dag(dag)

    assert (first.state, second.state) == ("success", "success")
    assert [outcome(job) for job in jobs.values()] == ["succeeded"]
    assert cluster.rows() == [1, 2, 3, 4]
    (ti,) = second.get_task_instances()
    assert ti.xcom_pull(task_ids="load")["rows"] == 1


def test_a_deferrable_task_leaves_the_worker_and_its_trigger_waits(run_dag, cluster, waits_elsewhere):
    cluster.land(1)
    with DAG("deferred", schedule=None) as dag:
        cluster.operator(deferrable=True)

    run = run_dag(dag)

    assert run.state == "success"
    assert cluster.rows() == [1]
    assert len(cluster.jobs()) == 1


def test_a_try_adopts_the_application_of_the_one_before(cluster, waits_elsewhere):
    cluster.land(1)
    task = cluster.operator(deferrable=True)
    with pytest.raises(TaskDeferred):
        task.execute(a_context())

    with pytest.raises(TaskDeferred) as again:  # cleared: the whole task begins anew
        cluster.operator(deferrable=True).execute(a_context())
    cluster.operator().execute(a_context())

    (name,) = cluster.jobs()
    assert again.value.trigger.job_id == name
    assert cluster.rows() == [1]
    assert eventually(lambda: not cluster.drivers())


def submitted(cluster, **more):
    """Begin a deferrable task, and give the name of its application."""
    with pytest.raises(TaskDeferred) as deferred:
        cluster.operator(deferrable=True, **more).execute(a_context())
    return deferred.value.trigger.job_id


def test_an_application_whose_worker_died_before_the_submission_is_submitted_under_its_name(
    cluster, monkeypatch
):
    class KilledError(BaseException):
        pass

    def dies(*_):
        raise KilledError

    cluster.land(1)
    with monkeypatch.context() as patch:
        patch.setattr(type(cluster.manager()), "submit", dies)
        with pytest.raises(KilledError):
            cluster.operator().execute(a_context())
    (name,) = cluster.written()

    cluster.operator().execute(a_context())

    assert [*cluster.jobs()] == [name] == cluster.written()
    assert cluster.rows() == [1]


def test_a_submission_whose_answer_is_lost_is_not_sent_again(cluster, monkeypatch):
    send, sent = HttpClient._send, []

    def loses_the_answer(self, request, token):
        answer = send(self, request, token)
        if request.method == "POST" and answer.ok:
            sent.append(answer)
            raise http._FailedError("the connection was closed", may_have_arrived=True)
        return answer

    monkeypatch.setattr(HttpClient, "_send", loses_the_answer)
    cluster.land(1)

    cluster.operator().execute(a_context())

    assert cluster.rows() == [1]
    assert len(sent) <= 1  # spark-submit has no answer to lose
    assert len(cluster.jobs()) == 1


def test_a_driver_that_is_killed_fails_the_try_and_the_next_one_loads_the_batch(cluster, waits_elsewhere):
    cluster.land(1)
    name = submitted(cluster, sql=SLOW)
    assert eventually(cluster.drivers)
    for driver in cluster.drivers():
        driver.kill()

    task = cluster.operator()
    with pytest.raises(SparkJobFailedError, match=name) as failed:
        task.resume(a_context(), {"job_id": name, "status": "failed", "first_batch": 0})
    cluster.operator().execute(a_context())

    assert failed.value.is_retryable
    assert cluster.rows() == [1]
    assert [outcome(job) for job in cluster.jobs().values()] == ["failed", "succeeded"]


def test_what_fails_in_the_driver_fails_the_task_with_its_own_error_and_changes_nothing(cluster):
    cluster.land(1)

    with pytest.raises(AirflowFailException) as failed:
        cluster.operator(sql="SELECT id, 1 / (id - 1) AS x FROM @data").execute(a_context())

    (name,) = cluster.written()
    assert "SqlError: The SQL fails on record 1 of the file" in str(failed.value)
    assert "DIVIDE_BY_ZERO" in str(failed.value)
    assert name in str(failed.value)
    assert not cluster.has_table()
    cluster.operator().execute(a_context())
    assert cluster.rows() == [1]


def test_a_task_that_is_killed_for_good_ends_its_application_and_sees_it_end(cluster, monkeypatch):
    cluster.land(1)
    task = cluster.operator(sql=SLOW)
    monkeypatch.setattr(type(task), "is_over", lambda *_: True)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(task.execute, a_context())
        assert eventually(cluster.drivers)
        task.on_kill()
        jobs = cluster.jobs()
        with pytest.raises(ScopeProviderError):
            run.result()

    assert "waiting" not in map(outcome, jobs.values())
    assert eventually(lambda: not cluster.drivers())
    assert not cluster.has_table()
    cluster.operator().execute(a_context())
    assert cluster.rows() == [1]


def test_a_task_over_its_time_ends_its_application(cluster):
    cluster.land(1)
    began = datetime.now(tz=UTC)
    task = cluster.operator(sql=SLOW, execution_timeout=timedelta(seconds=45))

    with pytest.raises(SparkJobFailedError, match="execution_timeout has run out; the application"):
        task.execute(a_context(start_date=began))

    assert eventually(lambda: not cluster.drivers())
    assert not cluster.has_table()


def test_two_runs_at_once_load_each_row_once(cluster):
    cluster.land(1)
    cluster.land(2)

    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(cluster.operator().execute, a_context(run_id=str(n))) for n in range(2)]
        for run in runs:
            run.exception()
    cluster.operator().execute(a_context())

    assert cluster.rows() == [1, 2]


def test_a_trigger_that_is_run_twice_fires_twice_and_changes_nothing(cluster, waits_elsewhere):
    cluster.land(1)
    name = submitted(cluster)
    trigger = JobTrigger(conn_id="cluster", job_id=name, poll_interval=10, first_batch=0)

    async def both():
        return await asyncio.gather(*(anext(aiter(trigger.run())) for _ in range(2)))

    first, second = asyncio.run(both())
    cluster.operator().resume(a_context(), first.payload)

    assert first.payload == second.payload == {"job_id": name, "status": "succeeded", "first_batch": 0}
    assert cluster.rows() == [1]
    assert len(cluster.jobs()) == 1


def test_rows_of_a_cursor_a_feed_and_a_merge_come_through(run_dag, cluster, tmp_path):
    people = tmp_path / "people"
    cursor = {"table": cluster.place("people"), "cursor": {"column": "at"}}
    tasks = {
        "cursor": {"source": cursor, "write": "append"},
        "versions": {"source": cursor, "write": {"kind": "scd2", "merge_key": "id"}},
        "changes": {
            "source": {"table": cluster.place("people")},
            "write": {"kind": "merge", "primary_key": "id"},
        },
    }
    with DAG("kinds", schedule=None) as dag:
        for name, task in tasks.items():
            cluster.operator(task_id=name, delta_location=cluster.place(name), **task)

    rows = pa.table({"id": [1, 2], "name": ["a", "b"], "at": [1, 2]})
    write_deltalake(str(people), rows, configuration={"delta.enableChangeDataFeed": "true"})
    cluster.publish("people")
    first = run_dag(dag)
    table = DeltaTable(str(people))
    table.update(predicate="id = 2", updates={"name": "'c'", "at": "3"})
    table.delete("id = 1")
    cluster.publish("people")
    second = run_dag(dag)

    def loaded(name):
        rows = DeltaTable(str(cluster.copy(name))).to_pyarrow_table(columns=["id", "name"])
        return sorted((row["id"], row["name"]) for row in rows.to_pylist())

    assert (first.state, second.state) == ("success", "success")
    assert loaded("cursor") == [(1, "a"), (2, "b"), (2, "c")]
    assert loaded("changes") == [(2, "c")]
    assert loaded("versions") == [(1, "a"), (2, "b"), (2, "c")]


@pytest.mark.parametrize("deferrable", [False, True])
def test_batches_that_follow_from_each_other_go_on_in_one_application(
    run_dag, cluster, waits_elsewhere, deferrable
):
    cluster.land_people(3)
    with DAG("in_turn", schedule=None) as dag:
        cluster.operator(**cluster.in_turn(deferrable=deferrable))

    run = run_dag(dag)

    assert run.state == "success"
    assert cluster.rows() == [0, 1, 2]
    assert len(DeltaTable(str(cluster.copy("table"))).history()) == 3
    assert len(cluster.jobs()) == 1
    assert eventually(lambda: not cluster.drivers()), "it is told that nothing follows"


def test_an_application_that_is_killed_while_it_waits_is_followed_by_another_one(
    cluster, waits_elsewhere, monkeypatch
):
    give = ClusterEngine._give

    def kills(self, work, begun, entries):
        cluster.jobs()  # its name is forgotten when another one takes its place
        for driver in cluster.drivers():
            driver.kill()
            driver.wait()
        monkeypatch.setattr(ClusterEngine, "_give", give)
        return give(self, work, begun, entries)

    monkeypatch.setattr(ClusterEngine, "_give", kills)

    cluster.land_people(3)
    cluster.operator(**cluster.in_turn()).execute(a_context())

    assert len(cluster.jobs()) == 2
    assert cluster.rows() == [0, 1, 2]


def test_a_worker_that_dies_while_its_application_waits_is_followed_by_one_that_goes_on(cluster, monkeypatch):
    class KilledError(BaseException):
        pass

    def dies(*_):
        raise KilledError

    cluster.land_people(3)
    with monkeypatch.context() as patch:
        patch.setattr(ClusterEngine, "_give", dies)
        with pytest.raises(KilledError):
            cluster.operator(**cluster.in_turn()).execute(a_context())

    cluster.operator(**cluster.in_turn()).execute(a_context())

    assert len(cluster.jobs()) == 1
    assert cluster.rows() == [0, 1, 2]
