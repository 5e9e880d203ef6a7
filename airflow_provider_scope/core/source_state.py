"""Of which state of a source the rows of a table are the rows, whatever RESTOREs came in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_provider_scope.core.records import CommitRecord, OffsetEntry
    from airflow_provider_scope.core.recovery import CommittedBatch, TableState

Problem = Literal["", "unreadable", "mixed"]
"""Why rows are of no known state: a commit cannot be read, or a batch was added to another state's rows."""


@dataclass(frozen=True, slots=True)
class Behind:
    """The state behind the rows of a table."""

    state: str | None
    """None is the initial one; without meaning if there is a problem."""
    problem: Problem = ""
    at: int = -1
    """The batch that was added to the rows of another state, or the version that cannot be read."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The commits that made the rows of a table, back to one whose state is known."""

    bottom: Behind
    """The state under them."""
    batches: tuple[tuple[int, CommittedBatch], ...]
    """Number and commit of the batches, in order; also of those that were abandoned."""

    def has_rows_of(self, seq: int) -> bool:
        """Tell whether the rows of a batch without a record are in the table."""
        return any(number == seq and not batch.abandoned for number, batch in self.batches)


def recorded_states(records: Iterable[CommitRecord], found: TableState) -> dict[int, str | None]:
    """Give the versions of this table whose state a record tells."""
    table_id = found.identity.table_id if found.identity else None
    return {
        record.table_version: record.state
        for record in records
        if not record.abandoned and record.table and record.table.table_id == table_id
    }


def chain_of(found: TableState, recorded: Mapping[int, str | None]) -> Chain:
    """Go back from the newest version, through RESTOREs to what they brought back.

    A record says which state its version has: it was put when the table was the one that the log describes.

    :param found: The table, with its whole log.
    :param recorded: Version -> state of the batches that have a record.
    """
    restored = {restore.version: restore.to_version for restore in found.restores}
    committed = {batch.version: (seq, batch) for seq, batch in found.committed.items()}
    batches: list[tuple[int, CommittedBatch]] = []
    version, bottom = found.version, Behind(None)
    while version >= 0:
        if version in recorded:
            bottom = Behind(recorded[version])
            break
        target = restored.get(version, version - 1)
        if version < found.oldest or target is None or target >= version:
            bottom = Behind(None, "unreadable", version)
            break
        if version in committed:
            batches.append(committed[version])
        version = target
    return Chain(bottom, tuple(reversed(batches)))


def state_behind(chain: Chain, entries: Mapping[int, OffsetEntry]) -> Behind:
    """Give the state behind the newest commit of a chain.

    Each batch must have been added to the rows of the state that it begins at.

    :param entries: The entries of its batches; one that is purged is missing.
    """
    behind = chain.bottom
    for seq, batch in chain.batches:
        entry = entries.get(seq)
        if entry is None:
            behind = Behind(None, "unreadable", batch.version)
        elif entry.mode == "overwrite":
            behind = Behind(entry.slice.before if batch.abandoned else batch.state)
        elif batch.abandoned or behind.problem:
            continue
        elif entry.slice.before != behind.state:
            behind = Behind(None, "mixed", seq)
        else:
            behind = Behind(batch.state)
    return behind
