"""Jobs of Azure Data Lake Analytics as values: what one look at a job tells, and the fate of its batch.

Recorded answers of the service have more shapes than its specification. So reading is tolerant: an unknown
state or result is kept as text, and only ``Ended`` ends a job.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_scope.exceptions import ServiceProtocolError, mask
from airflow_provider_scope.values import milliseconds
from airflow_provider_scope.waiting import Job, JobError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_scope.protocol.records import Attempt
    from airflow_provider_scope.waiting import Outcome


SCRIPT_LIMIT_BYTES = 3_000_000
"""The service takes 3 MB; which of the two megabytes is not documented, so the smaller one."""
NAME_LIMIT = 260
"""Characters of a pipeline's name (Microsoft's specification), and of a job's, which nothing limits."""
TAG_LIMIT = 220
"""The most characters of a tag in a job's name, before what says which batch it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Related:
    """What a job belongs to; the ids are GUIDs."""

    recurrence_id: str
    """The service requires it whenever there is metadata of this kind."""
    recurrence_name: str | None = None
    pipeline_id: str | None = None
    pipeline_name: str | None = None
    run_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to submit; its id is chosen by the caller and is not part of it."""

    name: str
    script: str = field(repr=False)
    degree_of_parallelism: int
    """Analytics units (AU)."""
    priority: int
    """1 or more; a lower number leaves the queue first."""
    related: Related | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "name": self.name,
            "type": "Scope",
            "degreeOfParallelism": self.degree_of_parallelism,
            "priority": self.priority,
            "properties": {"type": "Scope", "script": self.script},
        }
        if self.tags:
            body["tags"] = dict(self.tags)
        if self.related:
            related = {
                "recurrenceId": self.related.recurrence_id,
                "recurrenceName": self.related.recurrence_name,
                "pipelineId": self.related.pipeline_id,
                "pipelineName": self.related.pipeline_name,
                "runId": self.related.run_id,
            }
            body["related"] = {key: value for key, value in related.items() if value is not None}
        return body


def parse_job(value: object) -> Job:
    """Read the service's description of a job.

    :raises ServiceProtocolError: It has no id, no name or no state.
    """
    if not isinstance(value, Mapping):
        raise _not_a_job(f"a job is {type(value).__name__}, expected an object")
    for key in ("jobId", "name", "state"):
        if not isinstance(value.get(key), str) or not value[key]:
            raise _not_a_job(f"a job has {key}={value.get(key)!r}, expected text")
    related = _object(value.get("related"))
    errors = value.get("errorMessage")
    return Job(
        job_id=value["jobId"],
        name=value["name"],
        state=value["state"],
        result=_text(value.get("result")),
        submitter=_text(value.get("submitter")) or None,
        degree_of_parallelism=_integer(value.get("degreeOfParallelism")),
        priority=_integer(value.get("priority")),
        submitted_at_ms=parse_time(value.get("submitTime")),
        ended_at_ms=parse_time(value.get("endTime")),
        errors=tuple(_error(item) for item in errors) if isinstance(errors, list) else (),
        pipeline_id=_text(related.get("pipelineId")) or None,
        recurrence_id=_text(related.get("recurrenceId")) or None,
        run_id=_text(related.get("runId")) or None,
        tags={str(key): _text(tag) for key, tag in _object(value.get("tags")).items()},
        script=_text(_object(value.get("properties")).get("script")) or None,
    )


def parse_time(value: object) -> int | None:
    """Read a time: seven fractional digits, an offset, ``Z`` or no zone (UTC).

    None for one that is absent, cannot be read, or lies in year 1, which is how the service writes
    "not yet".
    """
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        return None
    if time.year <= 1:
        return None
    return milliseconds(time if time.tzinfo else time.replace(tzinfo=UTC))


def _not_a_job(problem: str) -> ServiceProtocolError:
    return ServiceProtocolError(
        f"The answer of Azure Data Lake Analytics cannot be read: {problem}.",
        kept="the job is left as it is",
        do="check that the connection's host is the service itself, and that no proxy answers for it",
    )


def _error(value: object) -> JobError:
    """Read an error, without secrets: a script's text may come back in it."""
    item = _object(value) or {"message": value}
    return JobError(
        error_id=_text(item.get("errorId")),
        message=mask(_text(item.get("message"))),
        description=mask(_text(item.get("description"))),
        severity=_text(item.get("severity")),
        source=_text(item.get("source")),
        details=mask(_text(item.get("details"))),
        resolution=mask(_text(item.get("resolution"))),
        line=_integer(item.get("lineNumber")),
    )


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _integer(value: object) -> int | None:
    return value if type(value) is int else None


# ---- the marks that a batch's jobs leave in the table ----

MARKER_PROPERTY = "adlaScope.batch"
"""The table property that tells which attempt of which batch changed the table last, and if it is done."""
PIPELINE = r"[A-Za-z0-9._:/+ -]+"
"""What the id of a pipeline can consist of, as a regular expression."""
_NUMBER = r"0|[1-9][0-9]*"
_MARKER = re.compile(rf"({PIPELINE}):({_NUMBER}):({_NUMBER})(:done)?")


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """One attempt of one batch of one pipeline."""

    pipeline: str
    seq: int
    attempt: int

    @classmethod
    def of(cls, pipeline: str, attempt: Attempt) -> BatchIdentity:
        return cls(pipeline, attempt.seq, attempt.number)

    @property
    def marker(self) -> str:
        """The value of the table property ``MARKER_PROPERTY``."""
        return f"{self.pipeline}:{self.seq}:{self.attempt}"

    @property
    def closing_marker(self) -> str:
        """The value of ``MARKER_PROPERTY`` once the attempt's rows are in the table."""
        return f"{self.marker}:done"


def identity_of_marker(marker: str) -> BatchIdentity | None:
    """Read the attempt out of either value of ``MARKER_PROPERTY``; None if it is not ours."""
    match = _MARKER.fullmatch(marker)
    return BatchIdentity(match[1], int(match[2]), int(match[3])) if match else None


# ---- what became of a job of a batch: from the job's own word and from the table's log ----

Fate = Literal["committed", "running", "unknown to the service", "not committed", "undecidable"]


@dataclass(frozen=True, slots=True)
class Change:
    """One version of the table, as far as it tells about jobs."""

    version: int
    marker: str | None
    """The mark that the version's metadata brings; None if it brings no new one."""
    adds: bool
    """It adds rows: compactions, which only rewrite them, do not count."""
    rows: int | None
    """Rows that it adds; None if its statistics do not say."""
    size_bytes: int
    made_by: str = ""
    """Operation and writer, as the version's ``commitInfo`` names them; for people."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the table's log shows of one attempt.

    A script marks the table with its attempt first, adds the rows after that, and then marks the table
    as closed, each in a version of its own. So rows that are not between the two are not the attempt's,
    and with the closing mark its own are there.
    """

    marked: bool
    """The attempt's script began to change the table."""
    added: tuple[Change, ...]
    """Versions that add rows after the mark, up to the closing mark or the pipeline's next mark."""
    closed: bool = False
    """The attempt's script came to its end."""
    has_table: bool = True
    """Whether there is a table where the log is looked for."""


NOTHING = Evidence(marked=False, added=())


def evidence(pipeline: str, attempt: Attempt, changes: Iterable[Change]) -> Evidence:
    """Find an attempt in the versions of a table, oldest first."""
    identity = BatchIdentity.of(pipeline, attempt)
    marked = False
    added: list[Change] = []
    for change in changes:
        if change.version <= attempt.table_version:
            continue
        if change.marker == identity.closing_marker:
            return Evidence(marked=True, added=tuple(added), closed=True)
        if change.marker == identity.marker:
            marked = True
        elif marked and change.marker is not None and change.marker.startswith(f"{pipeline}:"):
            break  # the pipeline's next attempt; another pipeline's jobs may come in between
        if marked and change.adds:
            added.append(change)
    return Evidence(marked, tuple(added))


def fate(outcome: Outcome | None, table_evidence: Evidence) -> Fate:
    """Decide what became of an attempt.

    :param outcome: What the service says of its job; None if the service does not know the job: it
        never arrived, may still arrive, or is older than the service's memory.
    """
    if outcome == "waiting":
        return "running"
    if table_evidence.closed or (outcome == "succeeded" and not table_evidence.has_table):
        return "committed"
    if table_evidence.added or outcome == "succeeded":
        # Rows may be the job's or another writer's, and nothing says which. A job that succeeded, and did not
        # close its mark, changed another table than this: that of before an older copy was put in its place.
        return "undecidable"
    if outcome is None and not table_evidence.marked:
        return "unknown to the service"
    return "not committed"
