"""Applications that a server of Apache Livy runs."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from requests.auth import HTTPBasicAuth

from airflow_provider_scope.engines.application import EXCLUDED_PACKAGES
from airflow_provider_scope.engines.manager import RestManager
from airflow_provider_scope.exceptions import ServiceUnavailableError
from airflow_provider_scope.hooks.settings import Fields, url_of
from airflow_provider_scope.stores.http import HttpClient
from airflow_provider_scope.waiting import Job, JobError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from airflow.providers.common.compat.sdk import Connection

    from airflow_provider_scope.engines.manager import Application
    from airflow_provider_scope.exceptions import ServiceError, ServiceOutcomeUnknownError

_RESULTS = {"success": "Succeeded", "dead": "Failed", "error": "Failed", "killed": "Cancelled"}
"""States in which a batch has ended."""
_PAGE = 1000
_LOG_LINES = 200
_HEADERS = {"X-Requested-By": "airflow-provider-scope"}
"""Required by a server that guards against forged requests, as those of HDInsight do."""
_BUSY = "too many sessions are being created"
"""How the server refuses a batch (400) while as many processes of ``spark-submit`` run as it allows."""
_UNKNOWN = 404
_SILENT_SECONDS = 60.0
"""How long a batch may be ``starting`` without a line of log: those with a process have one at once."""


class Livy(RestManager):
    """The batches of one server; a batch's name is its application's.

    :param connection: One of type ``livy``: host or URL, port, login and password.
    :param now: A clock in seconds.
    :raises InputError: The connection is not valid.
    """

    keeps_secrets = False
    """The server hands settings on as arguments of a command, and shows them."""

    def __init__(self, connection: Connection, now: Callable[[], float] = time.monotonic) -> None:
        fields = Fields(connection, scheme="http")
        url, host = url_of(fields)
        if not host:
            raise fields.bad("host", fields.host, "the host of the server, or its URL")
        auth = HTTPBasicAuth(fields.login, fields.password or "") if fields.login else None
        http = HttpClient(
            url, None, auth=auth, headers=_HEADERS, retry_on_error_messages=[_BUSY], **fields.requests()
        )
        super().__init__(fields, http)
        self._now = now
        self._silent_since: dict[str, float] = {}
        """When a batch was first seen that has no process yet, by name."""

    def submit(self, application: Application) -> None:
        """Submit a batch; the server refuses a second one of its name while one runs.

        :raises ServiceError: It was not submitted, or that is not known.
        """
        name = application.name
        conf = dict(application.conf)
        if application.packages:
            conf["spark.jars.packages"] = ",".join(application.packages)
            conf["spark.jars.excludes"] = ",".join(EXCLUDED_PACKAGES)
        body: dict[str, Any] = {
            "name": name,
            "file": application.stage(application.script),
            "pyFiles": [application.stage(application.archive)],
            "args": list(application.arguments),
            "conf": conf,
        }
        if application.jars:
            body["jars"] = list(application.jars)
        doing = f"submit the application {name} to Livy"

        def attempt() -> Job:
            refusal: ServiceError
            try:
                answer = self._http.request("POST", "/batches", doing=doing, repeatable=False, json=body)
                if answer.ok:
                    return _job(answer.json(doing))
                refusal = answer.error(doing)
            except ServiceUnavailableError as err:  # such as by a server that stays busy
                refusal = err
            process = self._known_process(name)  # it was submitted at the same moment
            if process is None:
                raise refusal
            return process

        def check(_: ServiceOutcomeUnknownError) -> Job | None:
            return self._known_process(name)

        self._http.once(attempt, check)

    def _known_process(self, name: str) -> Job | None:
        """Return the batch of a name, if it has a process; one without is deleted.

        The server keeps a batch that it refused, or could not start, in its list: it stays ``starting``.
        """
        job = self.get_job(name)
        if job is None or self.log(name):
            return job
        self.cancel_job(name)
        return None

    def get_jobs(self, names: Collection[str]) -> dict[str, Job]:
        """Describe the newest batch of each name that the server knows: it forgets those that ended.

        :raises ServiceError: They could not be read.
        """
        return {name: self._job(batch) for name, batch in self._newest(names).items()}

    def _job(self, batch: dict[str, Any]) -> Job:
        name, now = batch["name"], self._now()
        if batch["state"] != "starting" or batch.get("log"):
            self._silent_since.pop(name, None)
        elif now - self._silent_since.setdefault(name, now) > _SILENT_SECONDS:
            errors = (JobError(error_id="", message="Livy lists it, and did not start it"),)
            return replace(_job(batch), state="Ended", result="Failed", errors=errors)
        return _job(batch)

    def cancel_job(self, job_id: str) -> None:
        """End a batch; one that the server does not know is fine.

        :raises ServiceError: That is not known.
        """
        batch = self._newest([job_id]).get(job_id)
        if batch is None:
            return
        doing = f"end the application {job_id}"
        answer = self._http.request("DELETE", f"/batches/{batch['id']}", doing=doing)
        if answer.status != _UNKNOWN:
            answer.accepted(doing)

    def log(self, name: str) -> Sequence[str]:
        """Return the last lines of the driver's log, as far as the server has them."""
        batch = self._newest([name]).get(name)
        if batch is None:
            return ()
        doing, params = f"read the log of {name}", {"from": "-1", "size": str(_LOG_LINES)}
        answer = self._http.request("GET", f"/batches/{batch['id']}/log", doing=doing, params=params)
        if answer.status == _UNKNOWN:
            return ()
        lines = answer.accepted(doing).json(doing).get("log", ())
        return [line for text in lines for line in str(text).splitlines()]

    def url_of(self, job_id: str) -> str:
        """Return the address of a batch's page; empty if the server does not know it."""
        batch = self._newest([job_id]).get(job_id)
        return f"{self._http.base_url}/ui/batch/{batch['id']}/log" if batch else ""

    def _newest(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        newest: dict[str, dict[str, Any]] = {}
        for _ in range(2):
            batches, is_one_page = self._batches()
            newest |= {batch["name"]: batch for batch in batches if batch.get("name") in names}
            if is_one_page or len(newest) == len(names):
                break  # else one that ended meanwhile may have moved another one to a page that was read
        return newest

    def _batches(self) -> tuple[list[dict[str, Any]], bool]:
        """List all batches, oldest first, and whether they are on one page."""
        batches: list[dict[str, Any]] = []
        while True:
            params = {"from": str(len(batches)), "size": str(_PAGE)}
            page = self._get("/batches", "sessions", "ask Livy for its applications", params)
            new = page["sessions"] or []
            batches += new
            if not new or len(batches) >= page.get("total", 0):
                return batches, len(batches) <= _PAGE


def _job(batch: dict[str, Any]) -> Job:
    state = str(batch.get("state", ""))
    result = _RESULTS.get(state)
    return Job(
        job_id=str(batch.get("name") or batch["id"]),
        name=str(batch.get("name") or ""),
        state="Ended" if result else state or "unknown",
        result=result or "",
    )
