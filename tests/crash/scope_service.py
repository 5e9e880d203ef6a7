"""A job service for the crash tests: what it does, it does when it is told to, and never by itself.

The real service runs jobs on its own, so anything may happen between two steps of a runner. Here each
step of a job is a call of ``step``, and whoever plays a schedule chooses when.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from airflow_provider_scope.exceptions import (
    JobMismatchError,
    ServiceOutcomeUnknownError,
    ServiceUnavailableError,
)
from airflow_provider_scope.scope.engine import ScopeRunner
from airflow_provider_scope.scope.submission import JobSettings
from airflow_provider_scope.specs.engine import VOID_NAME
from airflow_provider_scope.stores.local import LocalStorage
from airflow_provider_scope.waiting import Job, JobError, JobWait
from tests.support.faulty_storage import Call, Gate, LostAnswer

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_scope.scope.jobs import NewJob

TIMEOUT_SECONDS = 36_000.0
Flaw = Literal["", "before", "between", "unclosed", "after"]
"""Where a job fails: before it does anything, after its mark, after its rows, after its closing mark."""


@dataclass
class Served:
    """One job at the service."""

    job_id: str
    name: str
    script: str
    run_id: str | None
    submitted_at_ms: int
    flaw: Flaw = ""
    done: int = 0
    """How many of its script's steps were taken."""
    result: str = ""
    """Empty while it runs."""
    cancelled: bool = False
    """Somebody asked for its end before it had ended."""

    @property
    def is_void(self) -> bool:
        return self.name.startswith(VOID_NAME)


class Executor(Protocol):
    """What changes the table."""

    def steps(self, script: str) -> list[str]:
        """Return the names of what a script does to the table, in order.

        They are ``mark``, ``delete``, ``insert`` and ``close``.
        """

    def take(self, job: Served, step: str) -> None:
        """Do one of them."""


@dataclass
class Service:
    """All jobs, and the submissions that are still on their way."""

    executor: Executor
    jobs: dict[str, Served] = field(default_factory=dict)
    late: list[tuple[str, NewJob]] = field(default_factory=list)
    """Submissions whose sender got no answer, or is dead; they arrive some time, or never."""
    flaw: Callable[[NewJob], Flaw] = lambda _new: ""
    now: Callable[[], float] = lambda: 0.0
    problems: list[str] = field(default_factory=list)

    def submit(self, job_id: str, new: NewJob) -> Served:
        run_id = new.related.run_id if new.related else None
        known = self.jobs.get(job_id)
        if known is not None:
            if (known.name, known.script, known.run_id) != (new.name, new.script, run_id):
                raise JobMismatchError(f"the job {job_id} exists as {known.name}")
            return known
        is_void = new.name.startswith(VOID_NAME)
        job = Served(
            job_id=job_id,
            name=new.name,
            script=new.script,
            run_id=run_id,
            submitted_at_ms=int(self.now() * 1000),
            flaw="" if is_void else self.flaw(new),
        )
        live = [other.name for other in self.jobs.values() if not other.result and not other.is_void]
        if live and not is_void:
            self.problems.append(f"{new.name} was submitted while {live} ran")
        self.jobs[job_id] = job
        return job

    def cancel(self, job_id: str) -> None:
        job = self.jobs.get(job_id)
        if job is not None and not job.result:
            job.cancelled = True

    def delay(self, job_id: str, new: NewJob) -> None:
        """Keep a submission that is on its way."""
        self.late.append((job_id, new))

    def deliver(self, number: int = 0) -> None:
        """Let a late submission arrive. If its id is taken, nobody is there to be told."""
        job_id, new = self.late.pop(number)
        if job_id not in self.jobs:
            self.submit(job_id, new)

    # ---- what the service does by itself ---------------------------------------------------------

    def running(self) -> list[Served]:
        return [job for job in self.jobs.values() if not job.result]

    def next_step(self, job: Served) -> str:
        """Return what the job does next."""
        if job.cancelled:
            return "cancelled"
        taken = self.executor.steps(job.script)[: job.done]
        last = {"before": "", "between": "mark", "unclosed": "insert", "after": "close"}
        if job.flaw and last[job.flaw] in ("", *taken):
            return "failed"
        return next(iter(self.rest(job)), "succeeded")

    def rest(self, job: Served) -> list[str]:
        """Return the steps that a job has not taken."""
        return self.executor.steps(job.script)[job.done :]

    def step(self, job: Served) -> None:
        """Let the job do what it does next."""
        step = self.next_step(job)
        if step in ("cancelled", "failed", "succeeded"):
            job.result = step
            return
        self.executor.take(job, step)
        job.done += 1

    def finish(self) -> None:
        """Let all jobs go on to their ends."""
        while running := self.running():
            self.step(running[0])

    def end_all(self) -> None:
        """Let every late submission arrive, and every job end."""
        while self.late:
            self.deliver()
        self.finish()

    # ---- for a service whose state outlives the process ------------------------------------------

    def dump(self) -> str:
        late = [
            (job_id, new.name, new.script, new.related and new.related.run_id) for job_id, new in self.late
        ]
        return json.dumps(
            {"jobs": [asdict(job) for job in self.jobs.values()], "late": late, "problems": self.problems}
        )


def describe(job: Served) -> Job:
    """Describe a job as a client does."""
    failed = JobError(error_id="E_TEST", message="made to fail", source="SYSTEM")
    return Job(
        job_id=job.job_id,
        name=job.name,
        state="Ended" if job.result else "Running",
        result=job.result.capitalize(),
        submitted_at_ms=job.submitted_at_ms,
        errors=(failed,) if job.result == "failed" else (),
        run_id=job.run_id,
        script=job.script,
    )


class GatedJobs:
    """The service as a runner sees it: behind a gate, with what the client makes of a lost answer."""

    def __init__(self, service: Service, gate: Gate) -> None:
        self.service = service
        self.gate = gate

    def submit_job(self, job_id: str, new: NewJob) -> Job:
        call = Call(f"PUT {new.name}", writes=True)
        try:
            done = self.gate(
                call, lambda: self.service.submit(job_id, new), lambda: self.service.delay(job_id, new)
            )
        except LostAnswer as err:
            found = self.get_job(job_id)
            if found is None:
                raise ServiceOutcomeUnknownError(f"no answer to the submission of {new.name}") from err
            return describe(self.service.submit(job_id, new))
        return describe(done)

    def get_job(self, job_id: str) -> Job | None:
        job = self._pass(Call("GET"), lambda: self.service.jobs.get(job_id))
        return describe(job) if job else None

    def cancel_job(self, job_id: str) -> None:
        self._pass(Call("cancel", writes=True), lambda: self.service.cancel(job_id))

    def _pass(self, call: Call, effect: Callable[[], Any]) -> Any:
        try:
            return self.gate(call, effect)
        except LostAnswer as err:
            raise ServiceUnavailableError(f"no answer to {call.name}") from err


def scope_runner(world: Any, gate: Gate, timeout_seconds: float = TIMEOUT_SECONDS) -> ScopeRunner:
    """Return the SCOPE engine of a world, behind a gate."""
    return ScopeRunner(
        log=world.log(gate),
        wait=JobWait(
            jobs=GatedJobs(world.service, gate),
            timeout_seconds=timeout_seconds,
            poll_seconds=10.0,
            inline_wait_seconds=world.inline_wait,
            clock=lambda: world.now,
            sleep=lambda seconds: world.sleep(gate, seconds),
            random=lambda: 0.0,
            report=lambda _: None,
        ),
        settings=JobSettings(name="load", au=1, priority=1, run_id=str(uuid.uuid4())),
        script=world.script,
        report=lambda _line: None,
        table_storage=LocalStorage(),
    )
