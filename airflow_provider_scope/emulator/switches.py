"""What can be set on the emulator: everything that no document settles, limits, and faults.

A default is either recorded behaviour of the service or, where nothing is known, the emulator's own
choice; the comments say which.
"""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from airflow_provider_scope.exceptions import InputError

REQUEST_FAULTS = ("latency", "status", "drop_before", "drop_after")
JOB_FAULTS = ("fail_job", "fail_after_commit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way in which something goes wrong, and for which requests or jobs.

    Request faults: ``latency`` (waits ``seconds``), ``status`` (answers ``status`` without any effect),
    ``drop_before`` and ``drop_after`` (close the connection without an answer, before or after the
    effect). Job faults: ``fail_job`` (fails without running) and ``fail_after_commit`` (runs, then is
    reported as failed).
    """

    kind: str
    op: str = ""
    """Regular expression for the whole operation (``submit``, ``get``, ``liststatus``, ...); empty is any.

    For job faults it is searched in the name of the job.
    """
    service: str = ""
    """``jobs``, ``files``, or empty for both."""
    times: int | None = None
    """How often it happens; None is always."""
    skip: int = 0
    """How many matching requests or jobs are let through first."""
    probability: float = 1.0
    status: int = 503
    retry_after: int | None = None
    """Value of ``Retry-After`` in seconds."""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        """Check the kind and the pattern."""
        if self.kind not in REQUEST_FAULTS + JOB_FAULTS:
            raise _bad("kind", self.kind, REQUEST_FAULTS + JOB_FAULTS)
        try:
            re.compile(self.op)
        except re.error as err:
            raise InputError(f"op={self.op!r} of a fault is not a regular expression: {err}.") from err


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """Everything that can be set, at the start and at run time."""

    # ---- both services ----
    auth: Literal["off", "any", "strict"] = "any"
    """``any``: no token is needed, one that is sent must not be empty. ``strict``: a bearer token is
    needed; one that is a JWT must be for this service and not expired."""
    account: str = ""
    """The only account name that is answered; empty answers to every name."""
    clock_skew_seconds: float = 0.0
    """Added to the clock of the service: submit times, audit records, retention."""
    seed: int = 0
    """Seed of the faults with a probability; setting it starts the sequence again."""
    faults: tuple[Fault, ...] = ()
    max_body_bytes: int = 16 * 1024 * 1024

    # ---- jobs ----
    duplicate_put: Literal["idempotent", "conflict"] = "idempotent"
    """A second PUT with the same id and the same body (own choice; nothing documents it)."""
    page_size: int = 300
    """Largest page of a list of jobs (inferred from a client)."""
    max_queued_jobs: int = 1000
    max_running_jobs: int = 20
    max_aus: int = 250
    retention_seconds: float = 30 * 86400.0
    """How long an ended job is kept."""
    utc_offset_minutes: int = -480
    """Offset of the times in answers: recorded jobs carry a local one, not ``Z``."""
    state_seconds: dict[str, float] = field(default_factory=dict)
    """State -> how long each job stays in it; 0 for those that are not named."""
    commit_at: Literal["start", "end"] = "end"
    """Whether the script runs at the beginning or at the end of the state Running."""
    restart: Literal["rerun", "fail"] = "rerun"
    """What becomes of a job whose script was running when the emulator was killed (own choice)."""
    pipeline_runs: Literal["recorded", "specified"] = "recorded"
    """How a pipeline shows its runs: ``item1`` and ``item2`` as recorded, or ``runId`` and
    ``lastSubmitTime`` as specified."""
    commit_metadata: bool = True
    """Whether a commit's ``commitInfo`` names its job (own choice; nothing documents it)."""

    # ---- files ----
    list_cap: int = 4000
    """Largest page of LISTSTATUS (inferred from clients)."""
    max_append_bytes: int = 4 * 1024 * 1024
    lease_seconds: float = 600.0
    """How long a file stays locked by a writer that does not come back (from a client's notes)."""
    open_past_end: Literal["empty", "400", "403", "416"] = "400"
    """OPEN at or after the end of a file that is not empty (specification: 400; a client: 403 or 416)."""
    nonrecursive_delete_status: int = 403
    """Status for deleting a folder with entries without ``recursive`` (own choice)."""
    concurrent_append: Literal["append", "refuse"] = "append"
    """CONCURRENTAPPEND at the end of a file (own choice; no more than its name is documented)."""
    denied_paths: tuple[str, ...] = ()
    """Paths that, with all that is below them, answer 403."""


_CHOICES: dict[str, tuple[str, ...]] = {
    "auth": ("off", "any", "strict"),
    "duplicate_put": ("idempotent", "conflict"),
    "commit_at": ("start", "end"),
    "restart": ("rerun", "fail"),
    "pipeline_runs": ("recorded", "specified"),
    "concurrent_append": ("append", "refuse"),
    "open_past_end": ("empty", "400", "403", "416"),
}
_AT_LEAST_ONE = ("page_size", "max_running_jobs", "max_aus", "list_cap", "max_append_bytes", "max_body_bytes")


def changed(switches: Switches, values: dict[str, Any]) -> Switches:
    """Give the switches with some values changed.

    :raises InputError: A name or a value is not known.
    """
    known = {f.name: f for f in fields(Switches)}
    clean: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise _bad("switch", name, tuple(known))
        clean[name] = _value(name, value, getattr(switches, name))
    return replace(switches, **clean)


def _value(name: str, value: Any, present: Any) -> Any:
    if name == "faults":
        return tuple(one if isinstance(one, Fault) else _fault(one) for one in value)
    if name == "denied_paths":
        return tuple(str(path) for path in value)
    if name == "state_seconds":
        return {str(state): float(seconds) for state, seconds in dict(value).items()}
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            raise _bad(name, value, _CHOICES[name])
        return value
    kind = type(present)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number if kind in (int, float) else isinstance(value, kind)):
        raise _bad(name, value, (kind.__name__,))
    if name in _AT_LEAST_ONE and value < 1:
        raise _bad(name, value, ("a number from 1",))
    return kind(value)


def _fault(values: Any) -> Fault:
    known = {f.name for f in fields(Fault)}
    if not isinstance(values, dict) or "kind" not in values or set(values) - known:
        raise _bad("fault", values, tuple(sorted(known)))
    return Fault(**values)


def _bad(name: str, value: object, expected: tuple[str, ...]) -> InputError:
    return InputError(
        f"{name}={value!r} is not valid: expected one of {', '.join(expected)}.",
        kept="the switches as they were",
        do="correct the name or the value",
    )


class Controls:
    """The switches that hold now, what was counted, and the draw of the faults. Safe to share."""

    def __init__(self, switches: Switches) -> None:
        self._lock = threading.Lock()
        self._switches = switches
        self._counts: Counter[str] = Counter()
        self._random = random.Random(switches.seed)  # noqa: S311 - repeatable faults, no secret
        self._met: Counter[Fault] = Counter()
        self._done: Counter[Fault] = Counter()

    @property
    def now(self) -> Switches:
        """The switches that hold now."""
        return self._switches

    def set(self, values: dict[str, Any]) -> Switches:
        """Change some switches; faults that are set again start counting again.

        :raises InputError: A name or a value is not known.
        """
        with self._lock:
            self._switches = changed(self._switches, values)
            if "faults" in values:
                self._met.clear()
                self._done.clear()
            if "seed" in values:
                self._random.seed(self._switches.seed)
            return self._switches

    def count(self, what: str) -> None:
        """Add one to a counter."""
        with self._lock:
            self._counts[what] += 1

    def counts(self) -> dict[str, int]:
        """Give all counters."""
        with self._lock:
            return dict(sorted(self._counts.items()))

    def request_faults(self, service: str, op: str) -> list[Fault]:
        """Draw the faults of one request."""
        return self._draw(
            lambda f: (
                f.kind in REQUEST_FAULTS
                and f.service in ("", service)
                and (not f.op or re.fullmatch(f.op, op) is not None)
            )
        )

    def job_faults(self, name: str) -> list[str]:
        """Draw the faults of one job: their kinds."""
        drawn = self._draw(lambda f: f.kind in JOB_FAULTS and re.search(f.op, name) is not None)
        return [fault.kind for fault in drawn]

    def _draw(self, matches: Any) -> list[Fault]:
        drawn = []
        with self._lock:
            for fault in self._switches.faults:
                if not matches(fault):
                    continue
                self._met[fault] += 1
                if self._met[fault] <= fault.skip:
                    continue
                if fault.times is not None and self._done[fault] >= fault.times:
                    continue
                if fault.probability < 1 and self._random.random() >= fault.probability:
                    continue
                self._done[fault] += 1
                self._counts[f"fault.{fault.kind}"] += 1
                drawn.append(fault)
        return drawn
