"""Jobs of Azure Data Lake Analytics, through a connection."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.exceptions import ScopeProviderError
from airflow_provider_scope.hooks.credentials import ServiceHook
from airflow_provider_scope.hooks.settings import ScopeDefaults, defaults_of
from airflow_provider_scope.scope.client import AdlaClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow.providers.common.compat.sdk import Connection

    from airflow_provider_scope.scope.jobs import NewJob
    from airflow_provider_scope.waiting import Job


class ScopeHook(ServiceHook):
    """Submits, reads, lists and cancels jobs. Its calls block: a trigger makes them in a thread.

    :param scope_conn_id: A connection of type ``adla_scope``.
    :param connection: The connection itself, where it was read before: a trigger reads it asynchronously.
    """

    conn_name_attr = "scope_conn_id"
    default_conn_name = "adla_scope_default"
    conn_type = "adla_scope"
    hook_name = "Azure Data Lake Analytics (SCOPE)"

    suffix = "azuredatalakeanalytics.net"

    def __init__(
        self, scope_conn_id: str = default_conn_name, *, connection: Connection | None = None, **kwargs: Any
    ) -> None:
        super().__init__(scope_conn_id, connection, **kwargs)
        self.scope_conn_id = scope_conn_id

    @cached_property
    def defaults(self) -> ScopeDefaults:
        """What holds where an argument is None.

        :raises InputError: The connection is not valid.
        """
        return defaults_of(self._fields)

    @property
    def poll_interval(self) -> float:
        """Seconds between two looks at a job, where the task does not say."""
        return self.defaults.poll_interval

    @cached_property
    def _client(self) -> AdlaClient:
        return AdlaClient(self._http)

    def get_conn(self) -> AdlaClient:
        """Return the client.

        :raises InputError: The connection is not valid.
        """
        return self._client

    def submit_job(self, job_id: str, new: NewJob) -> Job:
        """Submit a job under an id of the caller's choice, or adopt the same job; see its client."""
        return self._client.submit(job_id, new)

    def get_job(self, job_id: str) -> Job | None:
        """Describe a job; None only if the service says that it does not know it."""
        return self._client.get(job_id)

    def list_jobs(
        self,
        filter: str | None = None,  # noqa: A002 - the service's own word
        orderby: str | None = None,
        top: int | None = None,
    ) -> Iterator[Job]:
        """List jobs, page by page; see ``AdlaClient.list``."""
        return self._client.list(filter, orderby, top)

    def cancel_job(self, job_id: str) -> None:
        """Ask for a job's end; it ends some time later."""
        self._client.cancel(job_id)

    def url_of(self, job_id: str) -> str:
        """Return the address of a job."""
        return f"{self.service.url}/Jobs/{job_id}"

    def test_connection(self) -> tuple[bool, str]:
        """Get a token and list one job; say what that shows and what it does not."""
        try:
            _ = self.defaults
            for _ in self.list_jobs(top=1):
                pass
        except ScopeProviderError as err:
            return False, str(err)
        return True, (
            f"{self.service.url} accepted the identity and listed its jobs. Not checked: the right to submit "
            "and to cancel jobs, and the jobs' own rights on source files and tables."
        )
