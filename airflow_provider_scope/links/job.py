"""The button that leads to a task's newest job: of SCOPE, or an application of Spark on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


class JobLink(BaseOperatorLink):
    """Leads to the job that the task submitted or adopted last.

    Airflow asks the operator that ran, in the worker, after each part of the task: so the button is there
    while the task is deferred, too.
    """

    name = "Job"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        """Return the job's address; empty if there was no job."""
        return getattr(operator, "job_url", None) or ""
