"""From a request to the service that answers it, with the faults on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.emulator import files, jobs_service
from airflow_provider_scope.emulator.web import DropConnection

if TYPE_CHECKING:
    from airflow_provider_scope.emulator.files import FilesService
    from airflow_provider_scope.emulator.jobs_service import JobsService
    from airflow_provider_scope.emulator.switches import Controls
    from airflow_provider_scope.emulator.web import Request, Response

_SERVICES = {"jobs": "jobs", "webhdfs": "files"}
"""First segment of a path below the account -> service."""
_NAMES = {401: "SecurityException", 403: "AccessControlException", 429: "ThrottledException"}
"""Status of a fault -> the exception by which the file service reports it."""


class Router:
    """Answers every request.

    The path may begin with an account (``/acct/Jobs``); all accounts are the same one.
    """

    def __init__(self, jobs: JobsService, files: FilesService, controls: Controls) -> None:
        self._jobs = jobs
        self._files = files
        self._controls = controls

    def __call__(self, request: Request) -> Response:
        """Answer a request."""
        segments = [segment for segment in request.path.split("/") if segment]
        base = request.origin
        if segments and segments[0].lower() not in _SERVICES:
            base = f"{base}/{segments.pop(0)}"
        service = _SERVICES.get(segments[0].lower()) if segments else None
        if service == "jobs":
            op = jobs_service.operation_of(request.method, segments)
        elif service == "files":
            op = (request.param("op") or "").lower()
        else:
            return jobs_service.error_response(404, "ResourceNotFound", "There is no such operation.")
        self._controls.count(f"requests.{service}.{op or 'unknown'}")
        faults = self._controls.request_faults(service, op)
        kinds = [fault.kind for fault in faults]
        if "drop_before" in kinds:
            raise DropConnection
        if "status" in kinds:
            response = _failed(service, faults[kinds.index("status")].status)
        elif service == "jobs":
            response = self._jobs.answer(op, request, segments, base)
        else:
            response = self._files.answer(request, "/".join(segments[2:]))
        if "drop_after" in kinds:
            raise DropConnection
        self._controls.count(f"answers.{service}.{response.status}")
        return response


def _failed(service: str, status: int) -> Response:
    message = "The request was made to fail."
    if service == "files":
        return files.error_response(status, _NAMES.get(status, "RuntimeException"), message)
    return jobs_service.error_response(status, "MadeToFail", message)
