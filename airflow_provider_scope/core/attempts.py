"""What became of a job of a batch: from the job's own word and from the table's log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_scope.core.jobs import Outcome
    from airflow_provider_scope.core.records import Attempt, Settlement

Fate = Literal["committed", "running", "unknown to the service", "not committed", "undecidable", "void"]


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


NOTHING = Evidence(marked=False, added=())


def evidence(attempt: Attempt, marker: str, closing_marker: str, changes: Iterable[Change]) -> Evidence:
    """Find an attempt in the versions of a table, oldest first."""
    own = marker.rsplit(":", 2)[0] + ":"
    marked = False
    added: list[Change] = []
    for change in changes:
        if change.version <= attempt.table_version:
            continue
        if change.marker == closing_marker:
            return Evidence(marked=True, added=tuple(added), closed=True)
        if change.marker == marker:
            marked = True
        elif marked and change.marker is not None and change.marker.startswith(own):
            break  # the pipeline's next attempt; another pipeline's jobs may come in between
        if marked and change.adds:
            added.append(change)
    return Evidence(marked, tuple(added))


def fate(
    attempt: Attempt, outcome: Outcome | None, found: Evidence, settled: Settlement | None = None
) -> Fate:
    """Tell what became of an attempt.

    :param outcome: What the service says of its job; None if the service does not know the job: it
        never arrived, may still arrive, or is older than the service's memory.
    :param settled: What somebody decided. Whoever did had seen the job's end, so it goes first.
    """
    if attempt.void:
        return "void"
    if settled is not None:
        return "committed" if settled.landed else "not committed"
    if outcome == "waiting":
        return "running"
    if outcome == "succeeded" or found.closed:
        return "committed"
    if found.added:
        return "undecidable"  # each may be the job's or another writer's, and nothing says which
    if outcome is None and not found.marked:
        return "unknown to the service"
    return "not committed"
