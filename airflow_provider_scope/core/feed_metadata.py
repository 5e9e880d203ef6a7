"""The batches of a change data feed as rows for people: what the table at ``metadata_location`` holds.

Nothing is decided by them. Names and meanings follow the metadata table of cloe-nessy where there is one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_provider_scope.core import changes
from airflow_provider_scope.core.slices import VersionSlice

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_provider_scope.core.records import CommitRecord, OffsetEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow:
    """One batch."""

    batch: int
    identifier: str
    source: str
    """The location of the source."""
    is_processed: bool
    """Whether the batch was committed."""
    is_stale: bool
    """Whether its rows are not in the table by it any more, or never were."""
    rows: int | None
    """Rows that it wrote, as the table's log tells them."""
    first: int
    """The first version of the source that it read."""
    last: int
    first_ms: int | None
    """When that version was committed."""
    last_ms: int | None
    recorded_ms: int | None
    """When the batch was recorded as committed, or as abandoned."""

    @property
    def is_final(self) -> bool:
        """Whether no record can change it but by making it stale."""
        return self.is_processed or self.is_stale


@dataclass(frozen=True, slots=True)
class Batch:
    """What the log has of one batch."""

    entry: OffsetEntry
    record: CommitRecord | None


def first_unknown(known: Iterable[BatchRow]) -> int:
    """Give the first batch of which the log has to be asked: rows that are final stay as they are."""
    by_batch = {row.batch: row for row in known}
    waiting = [row.batch for row in by_batch.values() if not row.is_final]
    return min([*waiting, max(by_batch, default=-1) + 1])


def rows_of(known: Sequence[BatchRow], found: Iterable[Batch], overwrite_start: int | None) -> list[BatchRow]:
    """Give the rows of all batches, in order.

    A batch is stale if it was abandoned, if a full refresh came after it, or if a RESTORE took its rows: then
    the record of a batch behind it, which was abandoned, has the state that is left.

    :param known: Those that were there; they count where the log was not asked.
    :param found: What the log has of others.
    :param overwrite_start: The newest full refresh.
    :raises CheckpointCorruptError: A state cannot be read.
    """
    found = list(found)
    by_batch = {row.batch: row for row in known}
    left: list[tuple[int, int]] = []
    for one in found:
        row = _row(one)
        if row is None:
            continue
        by_batch[row.batch] = row
        record = one.record
        if record and record.abandoned:
            state = changes.decode(record.state, f"the record of batch {record.seq}")
            left.append((record.seq, -1 if state is None else state.version))
    rows = [by_batch[batch] for batch in sorted(by_batch)]
    return [_stale(row) if _is_stale(row, left, overwrite_start or 0) else row for row in rows]


def _row(one: Batch) -> BatchRow | None:
    part, record = one.entry.slice, one.record
    if not isinstance(part, VersionSlice):
        return None
    is_given_up = one.entry.mode == "empty" or (record is not None and record.abandoned)
    return BatchRow(
        batch=one.entry.seq,
        identifier=part.identifier,
        source=part.location,
        is_processed=record is not None and not is_given_up,
        is_stale=is_given_up,
        rows=record.rows if record and not is_given_up else None,
        first=part.first,
        last=part.last,
        first_ms=part.first_ms,
        last_ms=part.last_ms,
        recorded_ms=record.committed_at_ms if record else None,
    )


def _is_stale(row: BatchRow, left: Iterable[tuple[int, int]], overwrite_start: int) -> bool:
    return row.batch < overwrite_start or any(row.batch < seq and row.last > version for seq, version in left)


def _stale(row: BatchRow) -> BatchRow:
    return replace(row, is_stale=True)
