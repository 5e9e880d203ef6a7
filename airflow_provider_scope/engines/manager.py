"""What runs applications of Spark on a cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from airflow_provider_scope.stores.calls import not_understood
from airflow_provider_scope.waiting import Jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from airflow_provider_scope.hooks.settings import Fields
    from airflow_provider_scope.stores.http import HttpClient
    from airflow_provider_scope.waiting import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
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
        """Submit an application. If one of its name exists and is not seen yet, there may be two.

        :raises InputError: The manager will never take it as it is.
        :raises ScopeProviderError: It was not submitted, or that is not known.
        """

    def log(self, name: str) -> Sequence[str]:
        """Return the last lines of the driver's log; none if they cannot be had."""


NAMES_AT_ONCE = 250
"""Names in one request: YARN takes an address of 64 KiB, a proxy may take less, and a name has 45 bytes."""


class RestManager(ABC):
    """What the managers have in common: a service that is asked over HTTP.

    :param fields: Of its connection.
    :param http: Its client.
    """

    def __init__(self, fields: Fields, http: HttpClient) -> None:
        self.poll_interval = fields.number("poll_interval", 10.0, at_least=1)
        self._http = http

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    @abstractmethod
    def get_jobs(self, names: Collection[str]) -> dict[str, Job]:
        """Describe the newest application of each name that the service knows.

        :raises ServiceError: They could not be read.
        """

    def get_job(self, job_id: str) -> Job | None:
        """Describe the newest application of a name; None if the service knows none.

        :raises ServiceError: It could not be read.
        """
        return self.get_jobs([job_id]).get(job_id)

    def _get(self, target: str, key: str, doing: str, params: Mapping[str, str]) -> dict[str, Any]:
        """Ask for an object with a key; without it, the answer is another service's, and no absence.

        :raises ServiceError: There is no such answer.
        """
        answer = self._http.request("GET", target, doing=doing, params=params)
        value = answer.accepted(doing).json(doing)
        if not isinstance(value, dict) or key not in value:
            raise not_understood(doing, f"the answer has no {key}")
        return value


def in_requests(names: Collection[str]) -> Iterator[list[str]]:
    """Divide names into those of one request each."""
    ordered = list(names)
    for start in range(0, len(ordered), NAMES_AT_ONCE):
        yield ordered[start : start + NAMES_AT_ONCE]
