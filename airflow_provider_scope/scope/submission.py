"""What everybody does who submits a job: name it, look, wait, give up, and say why it failed."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from airflow_provider_scope.exceptions import (
    JobNotEndedError,
    JobRunningError,
    ScopeJobFailedError,
    ScopeScriptError,
)
from airflow_provider_scope.scope.jobs import NAME_LIMIT, NewJob, Related, next_step, outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_scope.scope.jobs import Job


logger = logging.getLogger(__name__)

UNTIL_SECONDS = 1.0
"""Between two looks at what ends a wait beside the job itself."""
CANCEL_SECONDS = 600.0
"""How long a job may take to end after it was cancelled; dbt-scope waits for two minutes, and goes on."""


class Jobs(Protocol):
    """What a wait needs of the service that runs jobs: SCOPE jobs, or applications of Spark."""

    def get_job(self, job_id: str) -> Job | None:
        """Describe a job; None only if the service does not know it."""

    def cancel_job(self, job_id: str) -> None:
        """Ask for a job's end."""


class ScopeJobs(Jobs, Protocol):
    """What is needed of Azure Data Lake Analytics; ``ScopeHook`` has it."""

    def submit_job(self, job_id: str, new: NewJob) -> Job:
        """Submit a job, or adopt the same one."""


_J = TypeVar("_J", bound=Jobs)


@dataclass
class JobWait(Generic[_J]):
    """Waits for jobs in the worker.

    :param timeout_seconds: From a job's submission; then it is cancelled. Infinite is never.
    :param poll_seconds: Between two looks.
    :param inline_wait_seconds: How long one job is waited for in the worker; None is to its end.
    :param clock: Seconds since the epoch.
    :param sleep: Waits for seconds.
    :param random: Gives a number from 0 to 1.
    :param deadline: When a job is cancelled although its own time is not over, by the same clock.
    """

    jobs: _J
    timeout_seconds: float
    poll_seconds: float
    inline_wait_seconds: float | None
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    random: Callable[[], float]
    deadline: float | None = None
    forgets_ended: bool = False
    """Whether a job that the service does not know has ended; else its submission may still arrive."""
    running: str | None = field(default=None, repr=False)
    """The job that is waited for."""

    def wait(self, job_id: str, owner: str, until: Callable[[], bool] | None = None) -> Job | None:
        """Wait for a job's end, as long as a worker waits. One that takes too long is cancelled.

        :param owner: What the job belongs to, as a sentence names it: ``of batch 3``.
        :param until: Ends the wait, too; it is asked every second.
        :return: The job as it was seen last; None if the service does not know it, even after all its time.
        :raises JobRunningError: It is still running; the next try goes on with it.
        :raises JobNotEndedError: It was cancelled and does not end.
        """
        self.running = job_id
        try:
            return self._wait(job_id, owner, until)
        finally:
            self.running = None

    def _wait(self, job_id: str, owner: str, until: Callable[[], bool] | None) -> Job | None:
        began, state = self.clock(), None
        while True:
            job = self.jobs.get_job(job_id)
            if job and job.state != state:
                state = job.state
                logger.info("the job %s: %s", job_id, state)
            if job is None and self.forgets_ended:
                return None
            submitted = (job.submitted_at_ms or 0) / 1000 if job and job.submitted_at_ms else began
            deadline = submitted + self.timeout_seconds
            if self.deadline is not None:
                deadline = min(deadline, self.deadline)
            step = next_step(
                job,
                now=self.clock(),
                deadline=deadline,
                interval_seconds=self.poll_seconds,
                jitter=self.random(),
            )
            if step.timed_out:
                self.jobs.cancel_job(job_id)
                return self.await_end(job_id)
            if step.outcome != "waiting" or (until and until()):
                return job
            waited = self.clock() - began
            longest = self.inline_wait_seconds
            if longest is not None and waited + step.seconds > longest:
                raise JobRunningError(
                    f"The job {job_id} {owner} is still running.",
                    kept="what was recorded before; the job goes on",
                    do="nothing: the next try goes on with the same job",
                    job_id=job_id,
                    deadline=None if deadline == float("inf") else deadline,
                )
            if self._sleep(step.seconds, until):
                return job

    def _sleep(self, seconds: float, until: Callable[[], bool] | None) -> bool:
        """Sleep; return whether something else than a job's end has ended the wait."""
        while seconds > 0:
            pause = min(seconds, UNTIL_SECONDS) if until else seconds
            self.sleep(pause)
            seconds -= pause
            if until and until():
                return True
        return False

    def check_time(self, owner: str) -> None:
        """Refuse to submit a job that would be cancelled at once.

        :raises ScopeJobFailedError: The deadline is over.
        """
        if self.is_over_time():
            raise ScopeJobFailedError(
                f"The task's execution_timeout has run out; the job {owner} was not submitted.",
                kept="what was recorded before; the rest stays logged",
                do="the next try goes on with it; give the task more time, or fewer batches in a run",
            )

    def is_over_time(self) -> bool:
        """Whether the task's own time has run out."""
        return self.deadline is not None and self.clock() >= self.deadline

    def await_end(self, job_id: str) -> Job | None:
        """Wait until a job that was cancelled has ended; None if the service does not know it.

        :raises JobNotEndedError: It has not, for ``CANCEL_SECONDS``.
        """
        deadline = self.clock() + CANCEL_SECONDS
        while (job := self.jobs.get_job(job_id)) is not None and outcome(job) == "waiting":
            if self.clock() >= deadline:
                raise JobNotEndedError(
                    f"The job {job_id} was cancelled and is still {job.state}, "
                    f"{CANCEL_SECONDS / 60:g} minutes later.",
                    kept="what was recorded before; no further job was submitted, because this one may still "
                    "change the table",
                    do="look at the job where the service shows it, or ask who runs it to end it; the next "
                    "try waits for it again, and goes on once it has ended",
                )
            self.sleep(min(self.poll_seconds, deadline - self.clock()))
        return job

    def cancel(self) -> None:
        """Cancel the job that is waited for."""
        if self.running:
            self.jobs.cancel_job(self.running)


def job_error(
    job: Job | None, problem: str, *, kept: str, correct: str, again: str
) -> ScopeJobFailedError | ScopeScriptError:
    """Return the error for a job that did not succeed, with what the service says of it.

    :param problem: The sentence without its cause and its full stop.
    :param correct: What to do if the service blames the script.
    :param again: What to do otherwise.
    """
    errors = job.errors if job else ()
    texts = [f"{e.error_id}: {e.message}" if e.error_id else e.message for e in errors]
    cause = "; ".join(text[:400] for text in texts[:2])
    # A job that was cancelled has an error of the user's, too.
    is_users = any(e.source.upper() == "USER" for e in errors) and not (job and outcome(job) == "cancelled")
    kind = ScopeScriptError if is_users else ScopeJobFailedError
    return kind(
        f"{problem}: {cause}." if cause else f"{problem}.", kept=kept, do=correct if is_users else again
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """What the jobs of a pipeline, or of a task, are submitted with."""

    name: str
    """How their names begin."""
    au: int
    priority: int
    run_id: str
    """A GUID of this run, for the service's own views."""
    task: str = ""
    """``<dag>.<task>``; empty if nobody knows."""

    def new_job(self, pipeline: str, name: str, script: str) -> NewJob:
        """Make a job of a pipeline.

        :param pipeline: A UUID: of a pipeline, or of a task.
        """
        related = Related(
            recurrence_id=_recurrence(pipeline),
            recurrence_name=self.name[:NAME_LIMIT] or None,
            pipeline_id=pipeline,
            pipeline_name=self.task[:NAME_LIMIT] or None,
            run_id=self.run_id,
        )
        return NewJob(
            name=name,
            script=script,
            degree_of_parallelism=self.au,
            priority=self.priority,
            related=related,
        )


def is_ours(job: Job) -> bool:
    """Return whether this package submitted a job: its recurrence follows from its pipeline."""
    try:
        return (job.recurrence_id or "").casefold() == _recurrence(job.pipeline_id or "")
    except ValueError:
        return False


def _recurrence(pipeline: str) -> str:
    return str(uuid.uuid5(uuid.UUID(pipeline), "recurrence"))
