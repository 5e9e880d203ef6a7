"""Applications that YARN runs, driver included."""

from __future__ import annotations

import getpass
import os
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.engines.manager import RestManager, in_requests
from airflow_provider_scope.engines.submit import submit_application
from airflow_provider_scope.exceptions import InputError, ServiceError, ServiceUnavailableError
from airflow_provider_scope.hooks.settings import Fields
from airflow_provider_scope.stores.calls import Repeating
from airflow_provider_scope.stores.http import HttpClient
from airflow_provider_scope.values import counted
from airflow_provider_scope.waiting import Job, JobError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from airflow.providers.common.compat.sdk import Connection

    from airflow_provider_scope.engines.manager import Application

ADDRESS = "yarn_resourcemanager_webapp_address"
"""The field of the connection's extra that the Spark provider has for it."""
_RESULTS = {"FINISHED": "Succeeded", "FAILED": "Failed", "KILLED": "Cancelled"}
"""States in which an application has ended."""
_CONF = {
    # Whoever waits is not a process of the worker.
    "spark.yarn.submit.waitAppCompletion": "false",
    # The next try of the task submits it again, and knows of it.
    "spark.yarn.maxAppAttempts": "1",
    # Of the driver, as spark.executorEnv says for the other machines.
    "spark.yarn.appMasterEnv.TZ": "UTC",
    "spark.yarn.appMasterEnv.LC_ALL": "C.UTF-8",
}
_TAGS = "spark.yarn.tags"
_LOG_BYTES = 20_000
"""Of each of the driver's two files, from the end."""


class Yarn(RestManager):
    """The applications of one ResourceManager; a tag of an application is its name.

    They are submitted by ``spark-submit``, and looked at and ended through the ResourceManager's service.

    :param connection: One of type ``spark`` with the master ``yarn``, and with the address of the service in
        its extra.
    :param log_file: Where the output of ``spark-submit`` goes; None if nothing is to be submitted.
    :raises InputError: The connection is not valid.
    """

    keeps_secrets = True
    """Settings lie in a folder of the user's on the cluster's file system."""

    def __init__(self, connection: Connection, log_file: Path | None = None) -> None:
        self.conn_id = connection.conn_id
        fields = Fields(connection)
        address = fields.text(ADDRESS)
        if not address:
            raise fields.bad(
                ADDRESS,
                address,
                "the address of the ResourceManager, such as http://resourcemanager:8088: applications in "
                "deploy mode cluster are asked for there",
            )
        self._log_file = log_file
        # Without a name the service takes everybody for dr.who, and hides what others may not see.
        self._user = fields.login or os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
        url = address if "://" in address else f"http://{address}"
        super().__init__(fields, HttpClient(url, None, user=self._user, **fields.requests()))

    def submit(self, application: Application) -> None:
        """Submit an application by ``spark-submit``, which ends when YARN has taken it.

        :raises InputError: Spark does not start with these settings.
        :raises SparkJobFailedError: YARN did not take it.
        """
        tags = filter(None, (application.name, application.conf.get(_TAGS)))
        submit_application(
            application,
            {**_CONF, _TAGS: ",".join(tags)},
            conn_id=self.conn_id,
            log_file=self._log_file,
        )

    def get_jobs(self, names: Collection[str]) -> dict[str, Job]:
        """Describe the newest application of each name that YARN knows, or one that runs.

        :raises ServiceError: They could not be read, or the ResourceManager does not know yet what it runs.
        """
        jobs: dict[str, Job] = {}
        for asked in in_requests(names):
            jobs |= {name: _job(name, app) for name, app in self._newest(asked).items()}
        return jobs

    def cancel_job(self, job_id: str) -> None:
        """End every application of a name.

        :raises ServiceError: That is not known.
        """
        doing = f"end the application {job_id}"
        for app in self._applications([job_id]):
            if not _has_ended(app):
                target = f"/ws/v1/cluster/apps/{app['id']}/state"
                self._http.request("PUT", target, doing=doing, json={"state": "KILLED"}).accepted(doing)

    def log(self, name: str) -> Sequence[str]:
        """Return the end of the driver's log; none if its machine has it no more.

        What the machine's Java writes comes first, then what Python does.
        """
        app = self._newest([name]).get(name) or {}
        base, _, container = str(app.get("amContainerLogs") or "").partition("/node/containerlogs/")
        if not container:
            return ()
        lines: list[str] = []
        client = HttpClient(base, None, user=self._user, repeating=Repeating(retries=0))
        with closing(client), suppress(ServiceError, InputError):
            for file in ("stderr", "stdout"):
                target = f"/ws/v1/node/containerlogs/{container.partition('/')[0]}/{file}"
                answer = client.request(
                    "GET", target, doing="read its log", params={"size": f"-{_LOG_BYTES}"}
                )
                if answer.ok:
                    text = answer.body.decode(errors="replace")
                    contents = text.partition("LogContents:\n")[2].partition("\nEnd of LogType:")[0]
                    lines += contents.splitlines()
        return lines

    def url_of(self, job_id: str) -> str:
        """Return the address of the newest application's page."""
        app = self._newest([job_id]).get(job_id)
        return f"{self._http.base_url}/cluster/app/{app['id']}" if app else ""

    def _newest(self, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        apps = self._applications(names)
        newest: dict[str, dict[str, Any]] = {}
        for app in sorted(apps, key=lambda app: (not _has_ended(app), int(app["startedTime"]))):
            newest |= {name: app for name in names if name.lower() in _tags(app)}
        return newest

    def _applications(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Return the applications of these names; if one has none, that is certain.

        A ResourceManager that was started again answers with none until it has read what it runs.
        """
        doing = f"ask YARN for {counted(len(names), 'application')}, {names[0]} the first"
        tags = ",".join(names).lower()  # as YARN keeps them
        for _ in self._http.repeating.tries():
            apps = self._tagged(tags, doing)
            if {name.lower() for name in names} <= {tag for app in apps for tag in _tags(app)}:
                return apps
            before = self._incarnation(doing)
            apps = self._tagged(tags, doing)
            if before is not None and before == self._incarnation(doing):
                return apps
        raise ServiceUnavailableError(
            f"Could not {doing}: the ResourceManager was started again, and does not know yet what it runs.",
            kept="what was recorded before; the application, if there is one, goes on",
            do="nothing: the next try asks again",
        )

    def _tagged(self, tags: str, doing: str) -> list[dict[str, Any]]:
        value = self._get("/ws/v1/cluster/apps", "apps", doing, {"applicationTags": tags})
        apps: list[dict[str, Any]] = (value["apps"] or {}).get("app") or []
        return apps

    def _incarnation(self, doing: str) -> int | None:
        """Return when the ResourceManager was started; None if it does not know yet what it runs."""
        info = self._get("/ws/v1/cluster/info", "clusterInfo", doing, {})["clusterInfo"]
        return int(info["startedOn"]) if info.get("haState") == "ACTIVE" else None


def _tags(app: dict[str, Any]) -> list[str]:
    return str(app.get("applicationTags", "")).split(",")


def _has_ended(app: dict[str, Any]) -> bool:
    return app["state"] in _RESULTS


def _job(name: str, app: dict[str, Any]) -> Job:
    result = _RESULTS.get(app["state"], "")
    if app["state"] == "FINISHED" and app.get("finalStatus") != "SUCCEEDED":
        result = "Cancelled" if app.get("finalStatus") == "KILLED" else "Failed"
    diagnostics = str(app.get("diagnostics") or "").strip()
    return Job(
        job_id=name,
        name=name,
        state="Ended" if result else app["state"],
        result=result,
        submitted_at_ms=int(app["startedTime"]),
        errors=(JobError(error_id="", message=diagnostics),) if result and diagnostics else (),
    )
