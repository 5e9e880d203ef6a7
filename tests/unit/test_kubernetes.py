"""What is asked of Kubernetes' API, and what its answers mean; Livy's too. (Real ones: tests/clusters.)"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import Connection

from airflow_provider_scope.engines import kubernetes
from airflow_provider_scope.engines.jobs import jobs_of, manager_of
from airflow_provider_scope.engines.kubernetes import Kubernetes
from airflow_provider_scope.engines.livy import Livy
from airflow_provider_scope.engines.manager import Application
from airflow_provider_scope.exceptions import (
    InputError,
    ServiceAuthError,
    ServiceError,
    ServiceProtocolError,
    ServiceUnavailableError,
)
from airflow_provider_scope.stores.calls import Repeating
from airflow_provider_scope.waiting import outcome
from tests.client.server import Reply, serving
from tests.support.kubeconfig import kubeconfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.client.server import Asked, Server

TOKEN = "canary-51c0"


REFUSAL = {"kind": "Status", "reason": "Forbidden", "message": "pods is forbidden", "code": 403}


class Api:
    """Answers with what a test sets."""

    def __init__(self, server: Server) -> None:
        server.answers = self.reply
        self.server = server
        self.pods: list[dict[str, Any]] = []
        self.status = 200

    def reply(self, _: Asked) -> Reply:
        return Reply(self.status, {"items": self.pods} if self.status == 200 else REFUSAL)


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    (tmp_path / "config").write_text(json.dumps(kubeconfig(TOKEN, server="https://elsewhere")))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with serving() as server:
        yield Api(server)


def connection(host: str, **extra: Any) -> Connection:
    extra = {"deploy-mode": "cluster", "http_retries": 0, **extra}
    return Connection(conn_id="k8s", conn_type="spark", host=host, extra=json.dumps(extra))


def a_pod(name: str = "p-0-0", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "creationTimestamp": "2026-11-26T12:00:00Z"}, "status": status}


def container(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "driver", "state": state}]}


@pytest.mark.parametrize(
    ("status", "state", "expected", "errors"),
    [
        ({}, "Pending", "waiting", []),
        ({"phase": "Pending"}, "Pending", "waiting", []),
        (
            {"phase": "Pending", **container(waiting={"reason": "ImagePullBackOff"})},
            "Pending (ImagePullBackOff)",
            "waiting",
            [],
        ),
        ({"phase": "Pending", **container(waiting={})}, "Pending", "waiting", []),
        ({"phase": "Running", **container(running={})}, "Running", "waiting", []),
        ({"phase": "Unknown"}, "Unknown", "waiting", []),
        (
            {"phase": "Succeeded", **container(terminated={"exitCode": 0, "reason": "Completed"})},
            "Ended",
            "succeeded",
            [],
        ),
        (
            {"phase": "Failed", **container(terminated={"exitCode": 137, "reason": "OOMKilled"})},
            "Ended",
            "failed",
            ["OOMKilled", "exit code 137"],
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."},
            "Ended",
            "failed",
            ["Evicted The node was low on memory."],
        ),
    ],
)
def test_what_the_phase_of_a_pod_means(api, status, state, expected, errors):
    api.pods = [a_pod(**status)]

    job = jobs_of(connection(f"k8s://{api.server.url}")).get_job("p-0-0")

    assert (job.state, outcome(job), [error.message for error in job.errors]) == (state, expected, errors)


def test_an_application_without_a_pod_is_not_known(api):
    assert jobs_of(connection(f"k8s://{api.server.url}")).get_job("p-0-0") is None


def test_many_applications_are_asked_for_by_few_requests_in_the_namespace_of_the_connection(api):
    names = [f"p-{number}-0" for number in range(600)]
    api.pods = [a_pod("p-7-0", phase="Running")]
    jobs = jobs_of(connection(f"k8s://{api.server.url}", namespace="etl"))

    assert [*jobs.get_jobs(names)] == ["p-7-0"]

    assert api.server.said == ["GET /api/v1/namespaces/etl/pods"] * 3
    selectors = [request.query["labelSelector"] for request in api.server.asked]
    assert selectors[2] == f"airflow-provider-scope in ({','.join(names[500:])})"
    assert set(api.server.bearers) == {f"Bearer {TOKEN}"}


def test_an_application_that_is_ended_has_its_pod_deleted_and_none_is_fine(api):
    jobs = jobs_of(connection(f"k8s://{api.server.url}"))
    for api.status in (200, 404):
        jobs.cancel_job("p-0-0")

    assert api.server.said == ["DELETE /api/v1/namespaces/default/pods/p-0-0"] * 2


@pytest.mark.parametrize(("status", "error"), [(403, ServiceAuthError), (503, ServiceUnavailableError)])
def test_what_cannot_be_read_is_an_error_and_no_absence(api, status, error):
    api.status = status
    jobs = jobs_of(connection(f"k8s://{api.server.url}"))

    for ask in (jobs.get_job, jobs.cancel_job):
        with pytest.raises(error, match="pods is forbidden"):
            ask("p-0-0")


def test_the_driver_in_its_pod_has_the_variables_of_a_store(api, monkeypatch):
    submitted: list[dict[str, str]] = []
    monkeypatch.setattr(kubernetes, "submit_application", lambda _, conf, **__: submitted.append(conf))
    application = Application(
        name="p-0-0",
        script=Path("s"),
        archive=Path("a"),
        arguments=(),
        conf={},
        environment={"HADOOP_USER_NAME": "loader"},
        stage=lambda _: "file:/x",
    )

    Kubernetes(connection(f"k8s://{api.server.url}"), Path("log")).submit(application)

    assert submitted[0]["spark.kubernetes.driverEnv.HADOOP_USER_NAME"] == "loader"


def test_an_address_at_which_livy_is_not_is_no_livy_without_applications(api):
    api.status = 404
    livy = jobs_of(
        Connection(conn_id="livy", conn_type="livy", host=api.server.url, extra='{"http_retries": 0}')
    )

    with pytest.raises(ServiceError, match="Could not ask Livy for its applications"):
        livy.get_job("p-0-0")


def test_a_batch_that_livy_is_too_busy_for_is_submitted_again(monkeypatch):
    monkeypatch.setattr(Repeating, "pause", lambda *_: None)
    answers = [Reply(400, {"msg": "Rejected, too many sessions are being created!"})] * 5
    application = Application(
        name="p-0-0", script=Path("s"), archive=Path("a"), arguments=(), conf={}, stage=lambda _: "file:/x"
    )
    with serving() as server:
        server.answers = [*answers, Reply(201, {"id": 1, "name": "p-0-0", "state": "starting"})]
        extra = '{"http_retries": 0}'
        Livy(Connection(conn_id="livy", conn_type="livy", host=server.url, extra=extra)).submit(application)

        assert server.said == ["POST /batches"] * 6


def test_a_batch_that_livy_stays_too_busy_for_is_left_to_the_next_try_and_not_in_its_list(monkeypatch):
    monkeypatch.setattr(Repeating, "pause", lambda *_: None)
    refused = {"id": 1, "name": "p-0-0", "state": "starting"}
    answers = {
        "POST": Reply(400, {"msg": "Rejected, too many sessions are being created!"}),
        "GET": Reply(200, {"total": 1, "sessions": [refused], "log": []}),
        "DELETE": Reply(200, {"msg": "deleted"}),
    }
    application = Application(
        name="p-0-0", script=Path("s"), archive=Path("a"), arguments=(), conf={}, stage=lambda _: "file:/x"
    )
    with serving() as server:
        server.answers = lambda request: answers[request.method]
        livy = Livy(Connection(conn_id="livy", conn_type="livy", host=server.url))
        with pytest.raises(ServiceUnavailableError, match="in 25 tries: 400: Rejected, too many"):
            livy.submit(application)

        assert server.said.count("POST /batches") == 25
        assert server.said[-1] == "DELETE /batches/1"


@pytest.mark.parametrize("answer", [{"error": "signed out"}, [], None])
def test_an_answer_of_something_else_is_an_error_and_no_absence(answer):
    with serving() as server:
        server.answers = lambda _: Reply(200, answer)
        address = {"yarn_resourcemanager_webapp_address": server.url}
        livy = Connection(conn_id="livy", conn_type="livy", host=server.url, extra='{"http_retries": 0}')

        for manager in (livy, connection("yarn", **address)):
            with pytest.raises(ServiceProtocolError, match="the answer has no "):
                jobs_of(manager).get_job("p-0-0")


@pytest.mark.parametrize("host", ["k8s://api.example", "k8s://https://api.example"])
def test_the_master_is_read_as_spark_reads_it(api, host):
    assert jobs_of(connection(host))._http.base_url == "https://api.example"


@pytest.mark.parametrize("name", ["spark.kubernetes.namespace", "spark.kubernetes.context"])
def test_a_place_that_only_the_submission_would_know_is_refused(api, name):
    with pytest.raises(InputError, match=f"conf of the engine has {name}"):
        manager_of(connection(f"k8s://{api.server.url}"), {name: "etl"}, Path("log"))


def test_without_an_identity_the_connection_cannot_be_used(api, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", "/nowhere")

    with pytest.raises(InputError, match="there is no identity for Kubernetes"):
        Kubernetes(connection(f"k8s://{api.server.url}"))
