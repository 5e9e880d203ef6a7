"""The switches of the emulator: behaviour that no document settles, limits, and faults.

A default is either recorded behaviour of the service or, where nothing is known, the emulator's own
choice; the descriptions say which.
"""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from airflow_provider_scope import validation
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.validation import Count, Whole

if TYPE_CHECKING:
    from collections.abc import Iterable

RequestFault = Literal["status", "drop_before", "drop_after"]
JobFault = Literal["fail_job", "fail_after_commit"]


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

    kind: Literal[RequestFault, JobFault]
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

    # ---- files ----
    list_cap: Count = 4000
    """Largest page of LISTSTATUS (inferred from clients)."""
    max_append_bytes: Count = 4 * 1024 * 1024
    """Most bytes of one CREATE or APPEND."""
    denied_paths: Annotated[tuple[str, ...], validation.texts] = ()
    """Paths that, with all that is below them, answer 403."""


class Controls:
    """The current switches, the counters, and the random draw of faults. Threads may share it.

    :raises InputError: A name or a value of a switch is not known.
    """

    def __init__(self, **switches: Any) -> None:
        self._lock = threading.Lock()
        self.now = Switches()
        """The current switches."""
        self._counts: Counter[str] = Counter()
        self._random = random.Random(self.now.seed)  # noqa: S311 - repeatable faults, no secret
        self._matches: Counter[Fault] = Counter()
        self._occurrences: Counter[Fault] = Counter()
        self.set(**switches)

    def set(self, **switches: Any) -> None:
        """Change some switches. Setting the faults resets their counts.

        :raises InputError: A name or a value is not known.
        """
        with self._lock:
            try:
                self.now = replace(self.now, **switches)
            except InputError as err:
                kept, do = "the switches as they were", "correct the name or the value"
                raise InputError(err.what, kept=kept, do=do) from err
            if "faults" in switches:
                self._matches.clear()
                self._occurrences.clear()
            if "seed" in switches:
                self._random.seed(self.now.seed)

    def count(self, counter: str) -> None:
        with self._lock:
            self._counts[counter] += 1

    def counts(self) -> dict[str, int]:
        with self._lock:
            return dict(sorted(self._counts.items()))

    def request_faults(self, service: str, op: str) -> list[Fault]:
        return self._draw(
            fault
            for fault in self.now.faults
            if fault.kind in get_args(RequestFault)
            and fault.service in ("", service)
            and (not fault.op or re.fullmatch(fault.op, op))
        )

    def job_faults(self, name: str) -> list[str]:
        """Draw the faults that happen to a job; give their kinds."""
        matching = (
            fault
            for fault in self.now.faults
            if fault.kind in get_args(JobFault) and re.search(fault.op, name)
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
