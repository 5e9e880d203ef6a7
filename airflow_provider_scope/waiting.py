"""Waiting: for jobs that outlive whoever submits them, and for files. Ask, wait longer, give up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, Protocol, TypeVar

from airflow_provider_scope.exceptions import JobNotEndedError, JobRunningError, ScopeJobFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_UNTIL_SECONDS = 1.0
"""Between two looks at what ends a wait beside the job itself."""
CANCEL_SECONDS = 600.0
"""How long a job may take to end after it was cancelled; dbt-scope waits for two minutes, and goes on."""
TRIES = 5
"""Looks in a row that bring no answer before a wait for files fails."""
FIRST_RETRY_SECONDS = 10.0
LONGEST_RETRY_SECONDS = 600.0


# ---- one look ----


class NextLook(NamedTuple):
    """What to do after a look: wait ``seconds``, or stop."""

    status: Literal["waiting", "timed out", "failed"]
    seconds: float = 0.0


def next_look(
    *,
    failures: int = 0,
    can_retry: bool = True,
    tries: int | None = TRIES,
    now: float = 0.0,
    deadline: float | None = None,
    interval_seconds: float = 0.0,
    longest_retry_seconds: float = LONGEST_RETRY_SECONDS,
    jitter: float = 0.0,
) -> NextLook:
    """Decide after a look that has not ended the wait.

    :param failures: How many looks in a row brought no answer, this one included. Each doubles the time
        to the next one, from 10 seconds on. What was not seen is never "nothing there": at the deadline it
        is a failure.
    :param can_retry: Whether another look can bring the answer that this one did not.
    :param tries: Looks in a row without an answer at the most; None never gives up.
    :param now: Wall clock, seconds since the epoch; a wait may go on in another process.
    :param deadline: The same clock; None is never.
    :param jitter: A random number from 0 to 1; it makes a wait longer by up to a fifth, and never shorter,
        so that many waits do not look at the same moment.
    """
    if failures and tries is not None and (not can_retry or failures >= tries):
        return NextLook("failed")
    if deadline is not None and now >= deadline:
        return NextLook("failed" if failures else "timed out")
    seconds = interval_seconds
    if failures:
        # The exponent is bounded, so that a long outage does not overflow.
        seconds = min(FIRST_RETRY_SECONDS * 2.0 ** min(failures - 1, 10), longest_retry_seconds)
    seconds *= 1 + 0.2 * jitter
    return NextLook("waiting", seconds if deadline is None else min(seconds, deadline - now))


# ---- jobs ----

Outcome = Literal["waiting", "succeeded", "failed", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobError:
    """One item of ``errorMessage``. A cancelled job has one, too."""

    error_id: str
    message: str
    description: str = ""
    severity: str = ""
    source: str = ""
    """``USER`` or ``SYSTEM``, as the service writes it."""
    details: str = ""
    resolution: str = ""
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as the service described it; times are milliseconds since the epoch, UTC."""

    job_id: str
    name: str
    state: str
    result: str
    """Means nothing before the state is ``Ended``: ask ``outcome``."""
    submitter: str | None = None
    degree_of_parallelism: int | None = None
    priority: int | None = None
    submitted_at_ms: int | None = None
    """None until the job runs; a job that was cancelled while it compiled has none."""
    ended_at_ms: int | None = None
    errors: tuple[JobError, ...] = ()
    pipeline_id: str | None = None
    recurrence_id: str | None = None
    run_id: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    script: str | None = field(default=None, repr=False)
    """None where the answer does not hold it: in lists, and after a submission."""


def outcome(job: Job) -> Outcome:
    """Return how a job ended, or that it has not.

    A job that ended with a result that is not known counts as failed: the caller looks into the table
    before it tries again.
    """
    if job.state.casefold() != "ended":
        return "waiting"
    outcomes: dict[str, Outcome] = {
        "succeeded": "succeeded",
        "cancelled": "cancelled",
        "canceled": "cancelled",
    }
    return outcomes.get(job.result.casefold(), "failed")


class Jobs(Protocol):
    """What a wait needs of the service that runs jobs: SCOPE jobs, or applications of Spark."""

    def get_job(self, job_id: str) -> Job | None:
        """Describe a job; None only if the service does not know it."""

    def cancel_job(self, job_id: str) -> None:
        """Ask for a job's end."""


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
    :param report: Takes a line when the job's state has changed.
    :param deadline: When a job is cancelled although its own time is not over, by the same clock.
    """

    jobs: _J
    timeout_seconds: float
    poll_seconds: float
    inline_wait_seconds: float | None
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    random: Callable[[], float]
    report: Callable[[str], None]
    deadline: float | None = None
    forgets_ended: bool = False
    """Whether a job that the service does not know has ended; else its submission may still arrive."""
    running: str | None = field(default=None, repr=False)
    """The job that is waited for."""
    timed_out: str | None = field(default=None, repr=False)
    """The job that was cancelled here, since its time was over."""

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
                self.report(f"the job {job_id}: {state}")
            if (job is None and self.forgets_ended) or (job and outcome(job) != "waiting"):
                return job
            submitted = job.submitted_at_ms / 1000 if job and job.submitted_at_ms else began
            deadline = submitted + self.timeout_seconds
            if self.deadline is not None:
                deadline = min(deadline, self.deadline)
            look = next_look(
                now=self.clock(), deadline=deadline, interval_seconds=self.poll_seconds, jitter=self.random()
            )
            if look.status != "waiting":
                self.jobs.cancel_job(job_id)
                self.timed_out = job_id
                return self.await_end(job_id)
            if until and until():
                return job
            waited = self.clock() - began
            longest = self.inline_wait_seconds
            if longest is not None and waited + look.seconds > longest:
                raise JobRunningError(
                    f"The job {job_id} {owner} is still running.",
                    kept="what was recorded before; the job goes on",
                    do="nothing: the next try goes on with the same job",
                    job_id=job_id,
                    deadline=None if deadline == float("inf") else deadline,
                )
            if self._sleep(look.seconds, until):
                return job

    def _sleep(self, seconds: float, until: Callable[[], bool] | None) -> bool:
        """Sleep; return whether something else than a job's end has ended the wait."""
        while seconds > 0:
            pause = min(seconds, _UNTIL_SECONDS) if until else seconds
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
