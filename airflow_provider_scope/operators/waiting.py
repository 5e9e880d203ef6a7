"""What the operators share that wait for SCOPE jobs, in the worker and in the triggerer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_scope.compat import TaskDeferralError, TaskDeferralTimeout
from airflow_provider_scope.links.scope_job import ScopeJobLink
from airflow_provider_scope.templates import KeepsPlainTexts
from airflow_provider_scope.triggers.scope_job import ScopeJobTrigger, is_over

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_scope.exceptions import JobRunningError


RESUME = "resume"
"""The method that a task goes on with after a wait; each operator has its own."""


class JobWaitingOperator(KeepsPlainTexts):
    """Base of operators whose tasks defer while a job runs."""

    operator_extra_links = (ScopeJobLink(),)

    job_url = ""
    """The address of the newest job, for its button."""

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Go on after a trigger that was lost, too: it decided nothing, and its job may be fine."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except (TaskDeferralError, TaskDeferralTimeout) as err:
            self.log.warning("the trigger ended with %r; the job is checked again", err)
            return getattr(self, RESUME)(context)

    def wait_in_triggerer(
        self,
        running: JobRunningError,
        scope_conn_id: str,
        poll_interval: float,
        first_batch: int | None = None,
    ) -> NoReturn:
        """Free the worker until the job has ended.

        :raises TaskDeferred: Always.
        """
        self.log.info("%s The worker is free until it has ended.", running.what)
        self.defer(
            trigger=ScopeJobTrigger(
                scope_conn_id=scope_conn_id,
                job_id=running.job_id,
                poll_interval=poll_interval,
                deadline=running.deadline,
                first_batch=first_batch,
            ),
            method_name=RESUME,
        )

    def deadline(self, ti: Any) -> float | None:
        """Give when ``execution_timeout`` is over; Airflow itself does not count while a task is deferred."""
        if self.execution_timeout is None or ti.start_date is None:
            return None
        return float((ti.start_date + self.execution_timeout).timestamp())

    def is_over(self, ti: Any) -> bool:
        """Tell whether nobody comes back for the job; False if Airflow does not say."""
        if ti is None:
            return False
        try:
            states = ti.get_task_states(
                dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id], map_index=ti.map_index
            )
        except (AirflowException, RuntimeError, OSError) as err:
            self.log.warning("Airflow does not say whether the task is over: %r", err)
            return False
        return is_over(states, ti.run_id, ti.task_id)
