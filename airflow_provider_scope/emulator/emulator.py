"""The emulator, and the routing of requests to its two services."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from airflow_provider_scope.emulator import files, jobs_service
from airflow_provider_scope.emulator.files import Account, FilesService
from airflow_provider_scope.emulator.jobs import JobStore
from airflow_provider_scope.emulator.jobs_service import JobsService
from airflow_provider_scope.emulator.scripts import ScriptRunner
from airflow_provider_scope.emulator.switches import Controls, Switches, with_changes
from airflow_provider_scope.emulator.web import HOST, DropConnection, Server

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from airflow_provider_scope.emulator.web import Request, Response


class Emulator:
    """Both services of one account, on loopback; a context manager.

    :param root: The account directory; it is created, and keeps the jobs over restarts.
    :param port: 0 takes a free one.
    :param clock: Seconds since the epoch.
    :param switches: Fields of :class:`Switches`.
    :raises InputError: A switch is not known.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        port: int = 0,
        clock: Callable[[], float] = time.time,
        **switches: Any,
    ) -> None:
        self.controls = Controls(with_changes(Switches(), switches))
        self.account = Account(Path(root))
        self._clock = clock
        self._port = port
        self._server: Server | None = None
        self._jobs: JobStore | None = None
        self._claim: IO[bytes] | None = None

    def start(self) -> Self:
        """Open the port, and continue the jobs that had not ended."""
        claim = self.account.claim()
        try:
            server = Server(self._port)
        except OSError:
            claim.close()
            raise
        self._claim = claim
        runner = ScriptRunner(self.account)
        self._jobs = JobStore(self.account.private / "jobs", runner, self.controls, self._clock)
        server.answer = Router(
            JobsService(self._jobs, self.controls), FilesService(self.account, self.controls), self.controls
        )
        self._server = server
        threading.Thread(target=server.serve_forever, args=(0.01,), name="emulator", daemon=True).start()
        return self

    def stop(self) -> None:
        """Close the port. Running scripts are waited for; other jobs continue at the next start."""
        server, jobs = self._server, self._jobs
        self._server = self._jobs = None
        if server is not None:
            server.stop()
        if jobs is not None:
            jobs.close()
        if self._claim is not None:
            self._claim.close()

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()

    @property
    def port(self) -> int:
        """The port on which the emulator listens."""
        if self._server is None:
            msg = "the emulator is not running"
            raise RuntimeError(msg)
        return self._server.server_port

    @property
    def url(self) -> str:
        """Address of the default account, without a slash at the end."""
        return f"http://{HOST}:{self.port}"

    def set(self, **switches: Any) -> None:
        """Change switches while the emulator runs.

        :raises InputError: A switch is not known.
        """
        self.controls.set(switches)

    def counts(self) -> dict[str, int]:
        """Return the counters: requests, answers, faults, jobs."""
        return self.controls.counts()


# ---- from a request to its service, with the faults on the way ----

_SERVICES = {"jobs": "jobs", "webhdfs": "files"}
"""First segment of a path below the account -> service."""
_EXCEPTIONS = {401: "SecurityException", 403: "AccessControlException", 429: "ThrottledException"}
"""Status of a fault -> the exception with which the file service reports it."""


class Router:
    """Answers every request.

    The path may begin with an account (``/acct/Jobs``), but all names are those of the same account.
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
            response = _fault_response(service, faults[kinds.index("status")].status)
        elif service == "jobs":
            response = self._jobs.answer(op, request, segments, base)
        else:
            response = self._files.answer(request, "/".join(segments[2:]))
        if "drop_after" in kinds:
            raise DropConnection
        self._controls.count(f"answers.{service}.{response.status}")
        return response


def _fault_response(service: str, status: int) -> Response:
    message = "The request was made to fail."
    if service == "files":
        return files.error_response(status, _EXCEPTIONS.get(status, "RuntimeException"), message)
    return jobs_service.error_response(status, "MadeToFail", message)
