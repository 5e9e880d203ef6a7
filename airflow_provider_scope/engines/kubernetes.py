"""Applications whose driver is a pod on Kubernetes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from requests.auth import AuthBase

from airflow_provider_scope.engines.manager import RestManager, in_requests
from airflow_provider_scope.engines.submit import submit_application
from airflow_provider_scope.exceptions import InputError, SparkJobFailedError, of_extra
from airflow_provider_scope.hooks.settings import Fields
from airflow_provider_scope.scope.jobs import parse_time
from airflow_provider_scope.stores.http import HttpClient
from airflow_provider_scope.values import counted
from airflow_provider_scope.waiting import Job, JobError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    import requests
    from airflow.providers.common.compat.sdk import Connection
    from kubernetes.client import Configuration

    from airflow_provider_scope.engines.manager import Application

PREFIX = "k8s://"
NAMESPACE = "spark.kubernetes.namespace"
PLACE = (NAMESPACE, "spark.kubernetes.context")
"""Settings that say where applications run; the connection says it instead."""
_LABEL = "airflow-provider-scope"
"""A label of a driver's pod; its value is the application's name, as the pod's name is."""
_RESULTS = ("Succeeded", "Failed")
"""Phases of a pod that has ended; a job's results have the same names."""
_CONF = {
    # Whoever waits is not a process of the worker.
    "spark.kubernetes.submission.waitAppCompletion": "false",
    # Of the driver, as spark.executorEnv says for the other machines.
    "spark.kubernetes.driverEnv.TZ": "UTC",
    "spark.kubernetes.driverEnv.LC_ALL": "C.UTF-8",
}
_LOG_LINES = 200
_UNKNOWN = 404


class Kubernetes(RestManager):
    """The drivers of one namespace; the name of a driver's pod is its application's.

    They are submitted by ``spark-submit``, and looked at and ended through Kubernetes' API, with the same
    identity: that of ``KUBECONFIG``, of ``~/.kube/config``, or of the pod in which this runs.

    :param connection: One of type ``spark`` with the master ``k8s://…``.
    :param log_file: Where the output of ``spark-submit`` goes; None if nothing is to be submitted.
    :raises InputError: The connection is not valid, or there is no identity.
    """

    keeps_secrets = False
    """Settings lie in a config map, for all who may read those of the namespace."""

    def __init__(self, connection: Connection, log_file: Path | None = None) -> None:
        self.conn_id = connection.conn_id
        fields = Fields(connection)
        self.namespace = fields.text("namespace") or "default"
        self._log_file = log_file
        identity = _identity(connection.conn_id)
        http = HttpClient(
            _api(fields),
            None,
            auth=_Authorization(identity),
            verify=identity.ssl_ca_cert or identity.verify_ssl,
            certificate=(identity.cert_file, identity.key_file) if identity.cert_file else None,
            **fields.requests(),
        )
        super().__init__(fields, http)

    def submit(self, application: Application) -> None:
        """Submit an application by ``spark-submit``; Kubernetes takes no second pod of its name.

        :raises InputError: Spark does not start with these settings.
        :raises SparkJobFailedError: Kubernetes did not take it.
        """
        names = {
            NAMESPACE: self.namespace,
            "spark.kubernetes.driver.pod.name": application.name,
            f"spark.kubernetes.driver.label.{_LABEL}": application.name,
        }
        # Spark makes the executors the driver's user; without these, the driver is that of the image.
        variables = application.environment.items()
        names |= {f"spark.kubernetes.driverEnv.{name}": value for name, value in variables}
        try:
            submit_application(
                application,
                {**_CONF, **names},
                conn_id=self.conn_id,
                log_file=self._log_file,
                # Spark would copy a file of this machine; "local" is one that the pod sees at the same path.
                place=lambda file: application.stage(file).replace("file:", "local:", 1),
            )
        except SparkJobFailedError:
            if self.get_job(application.name) is None:  # else it was submitted, now or by another run
                raise

    def get_jobs(self, names: Collection[str]) -> dict[str, Job]:
        """Describe the applications of these names that have a pod; it is deleted with the application.

        :raises ServiceError: They could not be read.
        """
        jobs: dict[str, Job] = {}
        for asked in in_requests(names):
            doing = f"ask Kubernetes for {counted(len(asked), 'application')}, {asked[0]} the first"
            params = {"labelSelector": f"{_LABEL} in ({','.join(asked)})"}
            pods = self._get(self._pods(), "items", doing, params)["items"]
            jobs |= {pod["metadata"]["name"]: _job(pod) for pod in pods}
        return jobs

    def cancel_job(self, job_id: str) -> None:
        """Delete the pod of a driver, and with it those of its executors; none is fine.

        :raises ServiceError: That is not known.
        """
        doing = f"end the application {job_id}"
        answer = self._http.request("DELETE", self._pods(job_id), doing=doing)
        if answer.status != _UNKNOWN:
            answer.accepted(doing)

    def log(self, name: str) -> Sequence[str]:
        """Return the last lines of the driver's log; none if its pod is gone, or has not begun."""
        lines = {"tailLines": str(_LOG_LINES)}
        answer = self._http.request("GET", f"{self._pods(name)}/log", doing="read its log", params=lines)
        return answer.body.decode(errors="replace").splitlines() if answer.ok else ()

    def url_of(self, job_id: str) -> str:  # noqa: ARG002
        """Return no address: Kubernetes has no page of its own."""
        return ""

    def _pods(self, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods{'/' if name else ''}{name}"


class _Authorization(AuthBase):
    """Signs a request with a token that is as new as it has to be, if there is one."""

    def __init__(self, identity: Configuration) -> None:
        self._identity = identity

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        for setting in self._identity.auth_settings().values():
            request.headers[setting["key"]] = setting["value"]
        return request


def _api(fields: Fields) -> str:
    """Return the API's address, as Spark reads it in a master."""
    address = fields.host.removeprefix(PREFIX) + (f":{fields.port}" if fields.port else "")
    return address if "://" in address else f"https://{address}"


def _identity(conn_id: str) -> Configuration:
    """Read whom Kubernetes' clients are on this machine, in the order in which Spark looks."""
    with of_extra("kubernetes", f"The Spark connection {conn_id!r}"):
        from kubernetes import client, config  # noqa: PLC0415 - an extra
    identity = client.Configuration()
    try:
        try:
            config.load_kube_config(os.environ.get("KUBECONFIG"), client_configuration=identity)
        except config.ConfigException:
            config.load_incluster_config(client_configuration=identity)
    except config.ConfigException as err:
        raise InputError(
            f"The Spark connection {conn_id!r} cannot be used: there is no identity for Kubernetes: {err}.",
            kept="everything; nothing was read or written",
            do="set KUBECONFIG on the workers and on the triggerer, or run them in pods that have a service "
            "account",
        ) from err
    return identity


def _job(pod: Mapping[str, Any]) -> Job:
    metadata, status = pod["metadata"], pod.get("status") or {}
    phase = str(status.get("phase") or "Pending")
    result = phase if phase in _RESULTS else ""
    states = [container.get("state") or {} for container in status.get("containerStatuses") or ()]
    # A kubelet that does not know a container's state says that it waits, and no reason.
    waiting = next((state["waiting"].get("reason") for state in states if "waiting" in state), "")
    return Job(
        job_id=metadata["name"],
        name=metadata["name"],
        state="Ended" if result else f"{phase} ({waiting})" if waiting else phase,
        result=result,
        submitted_at_ms=parse_time(metadata["creationTimestamp"]),
        errors=tuple(_errors(status, states)) if result == "Failed" else (),
    )


def _errors(status: Mapping[str, Any], states: Sequence[Mapping[str, Any]]) -> list[JobError]:
    """Return why a pod failed: what its machine did, such as ``Evicted``, and how its container ended."""
    ends = [state["terminated"] for state in states if "terminated" in state]
    reasons = [
        f"{end.get('reason')} {end.get('message') or ''}" for end in (status, *ends) if end.get("reason")
    ]
    codes = [f"exit code {end['exitCode']}" for end in ends]
    return [JobError(error_id="", message=text.strip()) for text in (*reasons, *codes)]
