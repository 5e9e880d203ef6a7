"""What everybody does who submits a SCOPE job: name it, and say why it failed."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from airflow_provider_scope.exceptions import ScopeJobFailedError, ScopeScriptError
from airflow_provider_scope.scope.jobs import NAME_LIMIT, NewJob, Related
from airflow_provider_scope.waiting import Jobs, outcome

if TYPE_CHECKING:
    from airflow_provider_scope.waiting import Job


class ScopeJobs(Jobs, Protocol):
    """What is needed of Azure Data Lake Analytics; ``ScopeHook`` has it."""

    def submit_job(self, job_id: str, new: NewJob) -> Job:
        """Submit a job, or adopt the same one."""


def job_error(
    job: Job | None, problem: str, *, timed_out: bool, kept: str, correct: str, again: str
) -> ScopeJobFailedError | ScopeScriptError:
    """Return the error for a job that did not succeed, with what the service says of it.

    :param problem: The sentence without its cause and its full stop.
    :param timed_out: Whether it was cancelled here since its time was over; the service names no reason.
    :param correct: What to do if the service blames the script.
    :param again: What to do otherwise.
    """
    if timed_out and not (job and outcome(job) == "failed"):
        return ScopeJobFailedError(
            f"{problem}: it took longer than job_timeout_seconds, or than the task's execution_timeout, and "
            "was cancelled.",
            kept=kept,
            do=f"{again}. Give it more time, or less to do",
        )
    errors = job.errors if job else ()
    texts = [f"{e.error_id}: {e.message}" if e.error_id else e.message for e in errors]
    cause = "; ".join(text[:400].removesuffix(".") for text in texts[:2])
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
    account: str = ""
    """The host of the account that runs them."""

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
