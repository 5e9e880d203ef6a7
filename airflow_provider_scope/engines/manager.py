"""What runs applications of Spark on a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from airflow_provider_scope.waiting import Jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from airflow_provider_scope.waiting import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """An application to submit."""

    name: str
    """Its submitter's choice, written down before; whoever knows it can ask for the application."""
    script: Path
    archive: Path
    """The zip that the script imports."""
    arguments: Sequence[str]
    conf: Mapping[str, str] = field(repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables of whoever submits it; no secrets."""
    packages: Sequence[str] = ()
    """Maven coordinates; what Spark has already is to be left out (``EXCLUDED_PACKAGES``)."""
    jars: Sequence[str] = ()
    stage: Callable[[Path], str] = field(repr=False)
    """Puts a file where every machine of the cluster reads it, and gives its URI."""


class WatchedJobs(Jobs, Protocol):
    """Jobs that a trigger looks at; its calls block."""

    @property
    def poll_interval(self) -> float:
        """Seconds between two looks at a job, where the task does not say."""

    def url_of(self, job_id: str) -> str:
        """Return the address of a job's page."""

    def close(self) -> None:
        """Close its connections."""


@runtime_checkable
class ListsJobs(Protocol):
    """Describes many jobs by one request."""

    def get_jobs(self, names: Collection[str]) -> Mapping[str, Job]:
        """Describe those of the jobs that are known.

        :raises ScopeProviderError: They could not be read; one that is missing is not there for certain.
        """


class Manager(WatchedJobs, ListsJobs, Protocol):
    """Runs applications: YARN, Kubernetes or Livy. A job's id is the application's name.

    Its calls may be made by several threads at once.
    """

    keeps_secrets: bool
    """Whether the settings of an application can be read by its submitter and its cluster alone."""

    def submit(self, application: Application) -> None:
        """Submit an application; it is a second one if one of this name is not seen yet.

        :raises InputError: The manager will never take it as it is.
        :raises ScopeProviderError: It was not submitted, or that is not known.
        """

    def log(self, name: str) -> Sequence[str]:
        """Return the last lines of the driver's log; none if they cannot be had."""
