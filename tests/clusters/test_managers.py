"""What single managers do that others do not: a server that forgets, and what each of them refuses."""

from __future__ import annotations

import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import psutil
import pytest
import requests
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk.exceptions import TaskDeferred

from airflow_provider_scope.engines.livy import Livy
from airflow_provider_scope.exceptions import ScopeProviderError, SparkJobFailedError
from airflow_provider_scope.hooks.settings import connection_of
from airflow_provider_scope.waiting import outcome
from tests.clusters.conftest import CONF, a_context
from tests.support import yarn
from tests.support.processes import eventually

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("cluster", [pytest.param("livy", marks=pytest.mark.livy)], indirect=True)
def test_a_file_that_livy_does_not_take_fails_the_task_and_leaves_nothing_in_its_list(
    cluster, tmp_path_factory, monkeypatch
):
    cluster.land(1)
    refusal = "400: requirement failed: Local path .* cannot be added"
    # Livy takes what lies below the folder of all tests.
    with tempfile.TemporaryDirectory(dir=tmp_path_factory.getbasetemp().parent) as elsewhere:
        monkeypatch.setattr(
            cluster, "place", lambda name: f"{elsewhere if name == 'table' else cluster.folder}/{name}"
        )
        task = cluster.operator(engine={"spark_conn_id": "cluster", "shared_folders": ["/"]})

        with pytest.raises(AirflowFailException, match=refusal):
            task.execute(a_context())

    port = json.loads(cluster.manager()._http.base_url.rpartition(":")[2])
    batches = requests.get(f"http://127.0.0.1:{port}/batches?size=1000", timeout=30).json()["sessions"]
    assert not [batch for batch in batches if batch["state"] == "starting" and not batch["log"]]


@pytest.mark.parametrize(
    "cluster",
    [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("kubernetes", "livy")],
    indirect=True,
)
def test_a_checkpoint_in_a_folder_with_an_odd_name_is_read(cluster):
    cluster.folder /= "a b é #x"
    cluster.folder.mkdir()
    cluster.land(1)

    cluster.operator().execute(a_context())

    assert cluster.rows() == [1]


@pytest.mark.parametrize(
    "cluster",
    [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("kubernetes", "livy")],
    indirect=True,
)
def test_a_checkpoint_in_a_folder_with_a_comma_is_refused_before_anything_is_submitted(cluster):
    cluster.folder /= "a,b"
    cluster.folder.mkdir()
    cluster.land(1)

    with pytest.raises(AirflowFailException, match="has a comma, where Spark splits names of files"):
        cluster.operator().execute(a_context())

    assert cluster.jobs() == {}
    assert not cluster.has_table()


@pytest.mark.parametrize("cluster", [pytest.param("livy", marks=pytest.mark.livy)], indirect=True)
def test_a_batch_that_livy_lists_and_never_starts_counts_as_failed_after_a_while(cluster):
    seconds = [0.0]
    manager = Livy(connection_of("cluster"), now=lambda: seconds[0])
    body = {"name": "ghost", "file": "/not/in/the/whitelist.py"}
    assert requests.post(f"{manager._http.base_url}/batches", json=body, timeout=30).status_code == 400
    first = manager.get_job("ghost")
    seconds[0] = 61.0

    later = manager.get_job("ghost")
    manager.cancel_job("ghost")

    assert [outcome(job) for job in (first, later)] == ["waiting", "failed"]
    assert later.errors[0].message == "Livy lists it, and did not start it"
    assert manager.get_job("ghost") is None


@pytest.mark.parametrize("cluster", [pytest.param("livy", marks=pytest.mark.livy)], indirect=True)
def test_a_server_that_forgets_its_batches_makes_the_next_try_submit_them(
    cluster, waits_elsewhere, livy_server
):
    cluster.land(1)
    with pytest.raises(TaskDeferred):
        cluster.operator(deferrable=True).execute(a_context())

    livy_server.restart()
    cluster.operator().execute(a_context())

    assert eventually(lambda: not cluster.drivers())
    cluster.operator().execute(a_context())
    assert cluster.rows() == [1]


@pytest.mark.parametrize("cluster", [pytest.param("yarn", marks=pytest.mark.yarn)], indirect=True)
def test_a_resource_manager_that_is_started_again_is_waited_for(cluster):
    cluster.land(1)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(cluster.operator().execute, a_context())
        assert eventually(cluster.drivers)
        yarn.start().restart_resource_manager()
        failure = run.exception()

    assert failure is None or failure.is_retryable, "it may be out of reach for longer than the retries"
    cluster.operator().execute(a_context())

    assert cluster.rows() == [1]
    assert len(cluster.jobs()) == 1


@pytest.mark.parametrize("cluster", [pytest.param("yarn", marks=pytest.mark.yarn)], indirect=True)
def test_a_queue_that_does_not_exist_fails_the_task_for_good(cluster, monkeypatch):
    cluster.land(1)
    engine = {"spark_conn_id": "cluster", "conf": {"spark.yarn.queue": "nowhere"}}

    with pytest.raises(AirflowFailException, match="to unknown queue: nowhere"):
        cluster.operator(engine=engine).execute(a_context())
    cluster.operator().execute(a_context())

    assert cluster.rows() == [1]


OLD_PYTHON = """#!/bin/sh
exec {python} -c '
import runpy, sys
sys.version_info = (3, 9, 18, "final", 0)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")' "$@"
"""
"""Says that it is an older one when it runs a script."""


@pytest.mark.parametrize("cluster", [pytest.param("yarn", marks=pytest.mark.yarn)], indirect=True)
def test_what_the_machines_of_a_cluster_lack_is_named_and_changes_nothing(cluster, tmp_path):
    cluster.land(1)
    python = tmp_path / "python"
    python.write_text(OLD_PYTHON.format(python=sys.executable))
    python.chmod(0o755)
    lacking = {
        'Cannot run program "/no/such/python"': {"conf": {**CONF, "spark.pyspark.python": "/no/such/python"}},
        "Spark's driver runs in Python 3.9.18 here, and needs 3.11": {
            "conf": {**CONF, "spark.pyspark.python": str(python)}
        },
        "Delta's jars are not on its machine": {"jars": ["local:///no/such/delta.jar"], "packages": ()},
    }

    for text, engine in lacking.items():
        with pytest.raises((AirflowFailException, ScopeProviderError)) as failed:
            cluster.operator(engine={"spark_conn_id": "cluster", **engine}).execute(a_context())
        assert text in str(failed.value)
        assert "\nWhat to do: " in str(failed.value)
        assert not cluster.has_table()


@pytest.mark.parametrize("cluster", [pytest.param("kubernetes", marks=pytest.mark.kubernetes)], indirect=True)
def test_a_pod_that_cannot_start_says_so_and_is_deleted_when_the_time_of_its_task_is_over(cluster, caplog):
    cluster.land(1)
    engine = {
        "spark_conn_id": "cluster",
        "conf": {**cluster.conf, "spark.kubernetes.container.image": "nowhere"},
        "shared_folders": [cluster.place("")],
    }
    task = cluster.operator(engine=engine, execution_timeout=timedelta(seconds=30))

    with caplog.at_level("INFO"), pytest.raises(SparkJobFailedError, match="execution_timeout has run out"):
        task.execute(a_context(start_date=datetime.now(tz=UTC)))

    assert "Pending (ImagePullBackOff)" in caplog.text
    assert cluster.jobs() == {}
    cluster.operator().execute(a_context())
    assert cluster.rows() == [1]


@pytest.mark.parametrize("cluster", [pytest.param("kubernetes", marks=pytest.mark.kubernetes)], indirect=True)
def test_an_image_that_is_not_named_fails_the_task_for_good(cluster):
    cluster.land(1)
    engine = {"spark_conn_id": "cluster", "shared_folders": [cluster.place("")]}

    with pytest.raises(AirflowFailException, match="image"):
        cluster.operator(engine=engine).execute(a_context())


@pytest.mark.parametrize("cluster", [pytest.param("kubernetes", marks=pytest.mark.kubernetes)], indirect=True)
def test_an_api_server_that_is_killed_while_an_application_runs_is_waited_for(cluster, kubernetes_plane):
    cluster.land(1)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(cluster.operator().execute, a_context())
        assert eventually(cluster.drivers)
        kubernetes_plane.kill_api()
        kubernetes_plane.start_api()
        failure = run.exception()

    assert failure is None or failure.is_retryable, "it may be out of reach for longer than the retries"
    cluster.operator().execute(a_context())

    assert cluster.rows() == [1]


@pytest.mark.parametrize(
    "cluster",
    [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("kubernetes", "yarn")],
    indirect=True,
)
def test_an_executor_that_is_killed_is_replaced_and_its_rows_are_not_lost(cluster):
    cluster.land(1, 2, 3)
    counts = "SELECT count(*) FROM range(0, 2000000000, 1, 4) WHERE id % 7 = 3"
    with ThreadPoolExecutor(1) as pool:
        sql = f"SELECT d.* FROM @data d WHERE ({counts}) > 0"
        run = pool.submit(cluster.operator(sql=sql).execute, a_context())
        assert eventually(executors)
        (executor,) = executors()
        executor.kill()
        run.result()

    assert cluster.rows() == [1, 2, 3]
    assert [outcome(job) for job in cluster.jobs().values()] == ["succeeded"]


def executors():
    """Return the processes of Java that run tasks for drivers."""
    processes = psutil.process_iter(["name", "cmdline"])
    java = [process for process in processes if process.info["name"] == "java"]
    return [process for process in java if "ExecutorBackend" in " ".join(process.info["cmdline"] or ())]
