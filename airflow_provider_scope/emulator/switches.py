"""The switches of the emulator: behaviour that no document settles, limits, and faults.

A default is either recorded behaviour of the service or, where nothing is known, the emulator's own
choice; the descriptions say which.
"""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, get_args, get_type_hints

from airflow_provider_scope.exceptions import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

REQUEST_FAULTS = ("status", "drop_before", "drop_after")
JOB_FAULTS = ("fail_job", "fail_after_commit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One kind of failure, and the requests or jobs in which it happens.

    Request faults: ``status`` (answers ``status`` without any effect), ``drop_before`` and ``drop_after``
    (close the connection without an answer, before or after the effect). Job faults: ``fail_job`` (fails
    without running) and ``fail_after_commit`` (runs, then is reported as failed).
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
    """All switches. They can be set at the start and while the emulator runs."""

    # ---- both services ----
    seed: int = 0
    """Seed of the faults with a probability; setting it starts the sequence again."""
    faults: tuple[Fault, ...] = ()

    # ---- jobs ----
    duplicate_put: Literal["idempotent", "conflict"] = "idempotent"
    """A second PUT with the same id and the same body (own choice; nothing documents it)."""
    page_size: int = 300
    """Largest page of a list of jobs (inferred from a client)."""
    state_seconds: dict[str, float] = field(default_factory=dict)
    """State -> how long each job stays in it; 0 for those that are not named."""
    commit_at: Literal["start", "end"] = "end"
    """Whether the script runs at the beginning or at the end of the state Running."""
    restart: Literal["rerun", "fail"] = "rerun"
    """What becomes of a job whose script was running when the emulator was killed (own choice)."""

    # ---- files ----
    list_cap: int = 4000
    """Largest page of LISTSTATUS (inferred from clients)."""
    max_append_bytes: int = 4 * 1024 * 1024
    """Most bytes of one CREATE or APPEND."""
    denied_paths: tuple[str, ...] = ()
    """Paths that, with all that is below them, answer 403."""


_TYPES = get_type_hints(Switches)


def with_changes(switches: Switches, values: dict[str, Any]) -> Switches:
    """Return a copy of the switches with some values changed.

    :raises InputError: A name or a value is not known.
    """
    unknown = [name for name in values if name not in _TYPES]
    if unknown:
        raise _bad("switch", unknown[0], tuple(_TYPES))
    return replace(switches, **{name: _value(name, value) for name, value in values.items()})


def _value(name: str, value: Any) -> Any:
    if name == "faults":
        return tuple(fault if isinstance(fault, Fault) else _fault(fault) for fault in value)
    if name == "denied_paths":
        return tuple(str(path) for path in value)
    if name == "state_seconds":
        try:
            return {str(state): float(seconds) for state, seconds in dict(value).items()}
        except (TypeError, ValueError):
            raise _bad(name, value, ('seconds for each state, such as {"Running": 2}',)) from None
    if choices := get_args(_TYPES[name]):
        if value not in choices:
            raise _bad(name, value, choices)
    elif _TYPES[name] is int:
        minimum = 0 if name == "seed" else 1
        if type(value) is not int or value < minimum:
            raise _bad(name, value, (f"a number from {minimum}",))
    return value


def _fault(values: Any) -> Fault:
    names = {field.name for field in fields(Fault)}
    if not isinstance(values, dict) or "kind" not in values or set(values) - names:
        raise _bad("fault", values, tuple(sorted(names)))
    return Fault(**values)


def _bad(name: str, value: object, expected: tuple[str, ...]) -> InputError:
    return InputError(
        f"{name}={value!r} is not valid: expected one of {', '.join(expected)}.",
        kept="the switches as they were",
        do="correct the name or the value",
    )


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
