"""By what the service's own views group our jobs, and by what we know them again."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from airflow_provider_scope.core.jobs import Related

if TYPE_CHECKING:
    from airflow_provider_scope.core.jobs import Job

NAME_LIMIT = 260
"""Characters of a pipeline's name (Microsoft's specification)."""


def related_to(pipeline: str, *, name: str, task: str, run_id: str) -> Related:
    """Give what a job belongs to.

    :param pipeline: A UUID: of a pipeline, or of a task.
    :param name: How the jobs' names begin.
    :param task: ``<dag>.<task>``; empty if nobody knows.
    :param run_id: A GUID of the run.
    """
    return Related(
        recurrence_id=_recurrence(pipeline),
        recurrence_name=name[:NAME_LIMIT] or None,
        pipeline_id=pipeline,
        pipeline_name=task[:NAME_LIMIT] or None,
        run_id=run_id,
    )


def is_ours(job: Job) -> bool:
    """Tell whether this package submitted a job: its recurrence follows from its pipeline."""
    try:
        return (job.recurrence_id or "").casefold() == _recurrence(job.pipeline_id or "")
    except ValueError:
        return False


def _recurrence(pipeline: str) -> str:
    return str(uuid.uuid5(uuid.UUID(pipeline), "recurrence"))
