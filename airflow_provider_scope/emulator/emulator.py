"""The emulator, and the routing of requests to its two services."""

from __future__ import annotations

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, Self

from airflow_provider_scope import validation
from airflow_provider_scope.emulator import files, jobs_service
from airflow_provider_scope.emulator.files import Account, FilesService
from airflow_provider_scope.emulator.jobs import JobStore
from airflow_provider_scope.emulator.jobs_service import JobsService
from airflow_provider_scope.emulator.scripts import ScriptRunner
from airflow_provider_scope.emulator.web import HOST, DropConnection, Server
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.validation import Count, Whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
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


# ---- switches: behaviour that no document settles, limits, and faults ----


REQUEST_FAULTS = ("status", "drop_before", "drop_after")
JOB_FAULTS = ("fail_job", "fail_after_commit")


def _pattern(argument: str, value: Any) -> str:
    try:
        re.compile(value)
    except re.error as err:
        raise validation.bad(argument, value, f"a regular expression ({err})") from err
    return str(value)


def _seconds(argument: str, value: Any) -> dict[str, float]:
    try:
        return {str(state): float(seconds) for state, seconds in dict(value).items()}
    except (TypeError, ValueError):
        raise validation.bad(argument, value, 'seconds for each state, such as {"Running": 2}') from None


def _faults(_: str, value: Any) -> tuple[Fault, ...]:
    return tuple(validation.from_dict(Fault, "fault", fault) for fault in value)


@validation.checked
@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One kind of failure, and the requests or jobs in which it happens.

    Request faults: ``status`` (answers ``status`` without any effect), ``drop_before`` and ``drop_after``
    (close the connection without an answer, before or after the effect). Job faults: ``fail_job`` (fails
    without running) and ``fail_after_commit`` (runs, then is reported as failed).
    """

    kind: Literal["status", "drop_before", "drop_after", "fail_job", "fail_after_commit"]
    op: Annotated[str, _pattern] = ""
    """Regular expression for the whole operation (``submit``, ``get``, ``liststatus``, ...); empty is any.

    For job faults it is searched in the name of the job.
    """
    service: Literal["", "jobs", "files"] = ""
    """Empty for both."""
    times: Count | None = None
    """How often it happens; None is always."""
    skip: Whole = 0
    """How many matching requests or jobs are let through first."""
    probability: float = 1.0
    status: int = 503


@validation.checked
@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """All switches. They can be set at the start and while the emulator runs."""

    # ---- both services ----
    seed: Whole = 0
    """Seed of the faults with a probability; setting it starts the sequence again."""
    faults: Annotated[tuple[Fault, ...], _faults] = ()

    # ---- jobs ----
    duplicate_put: Literal["idempotent", "conflict"] = "idempotent"
    """A second PUT with the same id and the same body (own choice; nothing documents it)."""
    page_size: Count = 300
    """Largest page of a list of jobs (inferred from a client)."""
    state_seconds: Annotated[Mapping[str, float], _seconds] = field(default_factory=dict)
    """State -> how long each job stays in it; 0 for those that are not named."""
    commit_at: Literal["start", "end"] = "end"
    """Whether the script runs at the beginning or at the end of the state Running."""
    restart: Literal["rerun", "fail"] = "rerun"
    """What becomes of a job whose script was running when the emulator was killed (own choice)."""

    # ---- files ----
    list_cap: Count = 4000
    """Largest page of LISTSTATUS (inferred from clients)."""
    max_append_bytes: Count = 4 * 1024 * 1024
    """Most bytes of one CREATE or APPEND."""
    denied_paths: Annotated[tuple[str, ...], validation.texts] = ()
    """Paths that, with all that is below them, answer 403."""


def with_changes(switches: Switches, values: Mapping[str, Any]) -> Switches:
    """Return a copy of the switches with some values changed.

    :raises InputError: A name or a value is not known.
    """
    try:
        return replace(switches, **values)
    except InputError as err:
        kept, do = "the switches as they were", "correct the name or the value"
        raise InputError(err.what, kept=kept, do=do) from err


class Controls:
    """The current switches, the counters, and the random draw of faults. Threads may share it."""

    def __init__(self, switches: Switches) -> None:
        self._lock = threading.Lock()
        self._switches = switches
        self._counts: Counter[str] = Counter()
        self._random = random.Random(switches.seed)  # noqa: S311 - repeatable faults, no secret
        self._matches: Counter[Fault] = Counter()
        self._occurrences: Counter[Fault] = Counter()

    @property
    def now(self) -> Switches:
        """The current switches."""
        return self._switches

    def set(self, values: dict[str, Any]) -> None:
        """Change some switches. Setting the faults resets their counts.

        :raises InputError: A name or a value is not known.
        """
        with self._lock:
            self._switches = with_changes(self._switches, values)
            if "faults" in values:
                self._matches.clear()
                self._occurrences.clear()
            if "seed" in values:
                self._random.seed(self._switches.seed)

    def count(self, counter: str) -> None:
        """Add one to a counter."""
        with self._lock:
            self._counts[counter] += 1

    def counts(self) -> dict[str, int]:
        with self._lock:
            return dict(sorted(self._counts.items()))

    def request_faults(self, service: str, op: str) -> list[Fault]:
        """Draw the faults that happen to a request."""
        return self._draw(
            fault
            for fault in self._switches.faults
            if fault.kind in REQUEST_FAULTS
            and fault.service in ("", service)
            and (not fault.op or re.fullmatch(fault.op, op))
        )

    def job_faults(self, name: str) -> list[str]:
        """Draw the faults that happen to a job; give their kinds."""
        matching = (
            fault for fault in self._switches.faults if fault.kind in JOB_FAULTS and re.search(fault.op, name)
        )
        return [fault.kind for fault in self._draw(matching)]

    def _draw(self, matching: Iterable[Fault]) -> list[Fault]:
        drawn = []
        with self._lock:
            for fault in matching:
                self._matches[fault] += 1
                if self._matches[fault] <= fault.skip:
                    continue
                if fault.times is not None and self._occurrences[fault] >= fault.times:
                    continue
                if fault.probability < 1 and self._random.random() >= fault.probability:
                    continue
                self._occurrences[fault] += 1
                self._counts[f"fault.{fault.kind}"] += 1
                drawn.append(fault)
        return drawn
