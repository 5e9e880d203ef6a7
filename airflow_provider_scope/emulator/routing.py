"""From a request to the service that answers it, with the faults on the way."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.emulator.auth import refusal
from airflow_provider_scope.emulator.jobs_service import operation
from airflow_provider_scope.emulator.web import DropConnection, Response
from airflow_provider_scope.emulator.wire import files_error, jobs_error
from airflow_provider_scope.exceptions import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_scope.emulator.files_service import FilesService
    from airflow_provider_scope.emulator.jobs_service import JobsService
    from airflow_provider_scope.emulator.switches import Controls, Fault
    from airflow_provider_scope.emulator.web import Request

_ROOTS = {
    **dict.fromkeys(("jobs", "buildjob", "pipelines", "recurrences"), "jobs"),
    **dict.fromkeys(("webhdfs", "webhdfsext"), "files"),
    "_emulator": "admin",
}


class Router:
    """Answers every request.

    The account is the first path segment (``/acct/Jobs``), else the first label of a host name
    (``acct.azuredatalakeanalytics.net``), else the default one. All names lead to the same account,
    unless the switch ``account`` names one.
    """

    def __init__(
        self,
        jobs: JobsService,
        files: FilesService,
        controls: Controls,
        clock: Callable[[], float],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._jobs = jobs
        self._files = files
        self._controls = controls
        self._clock = clock
        self._sleep = sleep

    def __call__(self, request: Request) -> Response:
        """Answer a request."""
        account, service, segments = _place(request)
        if service == "admin":
            return self._administer(request, segments)
        only = self._controls.now.account
        if not service or (only and account and account.lower() != only.lower()):
            return jobs_error(404, "ResourceNotFound", "There is no such account or operation.")
        now = self._clock() + self._controls.now.clock_skew_seconds
        refused = refusal(request, self._controls.now.auth, now)
        if refused:
            if service == "files":
                return files_error(401, "SecurityException", refused)
            return jobs_error(401, "AuthenticationFailed", refused)
        op = operation(request.method, segments) if service == "jobs" else (request.param("op") or "").lower()
        self._controls.count(f"requests.{service}.{op or 'unknown'}")
        response = self._with_faults(service, op, request, account, segments)
        self._controls.count(f"answers.{service}.{response.status}")
        return response

    def _with_faults(
        self, service: str, op: str, request: Request, account: str, segments: list[str]
    ) -> Response:
        faults = self._controls.request_faults(service, op)
        for fault in faults:
            if fault.kind == "latency":
                self._sleep(fault.seconds)
            elif fault.kind == "drop_before":
                raise DropConnection
            elif fault.kind == "status":
                return _faulty(service, fault)
        if service == "jobs":
            base = request.origin + (f"/{account}" if _in_path(request, account) else "")
            response = self._jobs.answer(op, request, segments, base)
        else:
            extension = segments[0].lower() == "webhdfsext"
            inner = segments[1:] if extension else segments[2:]
            response = self._files.answer(request, "/".join(inner), extension=extension)
        if any(fault.kind == "drop_after" for fault in faults):
            raise DropConnection
        return response

    def _administer(self, request: Request, segments: list[str]) -> Response:
        what = [request.method, *segments[1:]]
        if what == ["GET", "counters"]:
            return _json(self._controls.counts())
        if what == ["GET", "switches"]:
            return _json(_shown(self._controls))
        if what == ["PUT", "switches"]:
            try:
                values = json.loads(request.body)
                if not isinstance(values, dict):
                    raise InputError("The body is not a JSON object.")
                self._controls.set(values)
            except (ValueError, TypeError) as err:
                return _json({"error": str(err)}, 400)
            return _json(_shown(self._controls))
        return _json({"error": "GET counters, GET switches or PUT switches"}, 404)


def _place(request: Request) -> tuple[str, str, list[str]]:
    """Give account, service and the path below the account."""
    segments = [segment for segment in request.path.split("/") if segment]
    lowered = [segment.lower() for segment in segments[:2]]
    if lowered and lowered[0] in _ROOTS:
        host = request.headers.get("host", "").rpartition(":")[0] or request.headers.get("host", "")
        labels = host.split(".")
        named = len(labels) > 1 and not labels[-1].isdigit() and "[" not in host
        return labels[0] if named else "", _ROOTS[lowered[0]], segments
    if len(lowered) > 1 and lowered[1] in _ROOTS and lowered[1] != "_emulator":
        return segments[0], _ROOTS[lowered[1]], segments[1:]
    return "", "", segments


def _in_path(request: Request, account: str) -> bool:
    first = request.path.lstrip("/").partition("/")[0]
    return bool(account) and first == account and first.lower() not in _ROOTS


def _faulty(service: str, fault: Fault) -> Response:
    if service == "files":
        name = {429: "ThrottledException", 401: "SecurityException", 403: "AccessControlException"}
        return files_error(
            fault.status,
            name.get(fault.status, "RuntimeException"),
            "The request was made to fail.",
            retry_after=fault.retry_after,
        )
    headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
    return jobs_error(fault.status, "MadeToFail", "The request was made to fail.", headers)


def _shown(controls: Controls) -> dict[str, Any]:
    return asdict(controls.now)


def _json(payload: Any, status: int = 200) -> Response:
    return Response(status, json.dumps(payload).encode(), {"Content-Type": "application/json"})
