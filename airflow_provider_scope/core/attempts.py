"""What became of a job of a batch: from the job's own word and from the table's log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_scope.core.jobs import Outcome
    from airflow_provider_scope.core.records import Attempt, Settlement

Fate = Literal["landed", "running", "unknown to the service", "not landed", "undecidable", "void"]


@dataclass(frozen=True, slots=True)
class Change:
    """One version of the table, as far as it tells about jobs."""

    version: int
    marker: str | None
    """The attempt that the version's metadata names; None if it changes no metadata."""
    adds: bool
    """It adds rows: compactions, which only rewrite them, do not count."""
    rows: int | None
    """Rows that it adds; None if its statistics do not say."""
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the table's log shows of one attempt.

    A script marks the table with its attempt first, in a version of its own, and adds the rows after
    it: so rows without the mark before them are not the attempt's.
    """

    marked: bool
    """The attempt's script began to change the table."""
    landed: tuple[Change, ...]
    """Versions that add rows after the mark, and before the next mark of the same pipeline."""
    shared: bool = False
    """Another pipeline's jobs marked the table as well: the rows may be theirs."""


NOTHING = Evidence(marked=False, landed=())


def evidence(attempt: Attempt, marker: str, changes: Iterable[Change]) -> Evidence:
    """Find an attempt in the versions of a table, oldest first."""
    pipeline = marker.rsplit(":", 2)[0]
    marked = shared = False
    landed: list[Change] = []
    for change in changes:
        if change.version <= attempt.table_version:
            continue
        if change.marker is not None and change.marker.rsplit(":", 2)[0] != pipeline:
            shared = True
        elif change.marker is not None:
            marked = change.marker == marker
            if landed:
                break
        if marked and change.adds:
            landed.append(change)
    return Evidence(marked or bool(landed), tuple(landed), shared)


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
        return "landed" if settled.landed else "not landed"
    if outcome == "waiting":
        return "running"
    if outcome == "succeeded" or (len(found.landed) == 1 and not found.shared):
        return "landed"
    if found.landed:
        return "undecidable"  # one of them may be another writer's, and nothing says which
    if outcome is None and not found.marked:
        return "unknown to the service"
    return "not landed"
