"""What a RESTORE left of batches, and what it means to go on from there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.core import recovery
from airflow_provider_scope.core.recovery import Landed
from airflow_provider_scope.core.slices import FileSlice
from airflow_provider_scope.exceptions import BatchOutcomeUnknownError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from airflow_provider_scope.checkpoint.log import CheckpointLog
    from airflow_provider_scope.core.records import CommitRecord, OffsetEntry, TableStamp
    from airflow_provider_scope.core.recovery import TableState
    from airflow_provider_scope.core.slices import Slice

REFRESH_NEXT = (
    "add --reload-undecidable, and run the task with full_refresh=True next: it replaces all rows. Another "
    "run would load files on top of their rows"
)
"""What a person does when only a full refresh is known to repair the table."""


def is_about_another_table(
    log: CheckpointLog, seq: int, expected: TableStamp | None, found: TableState
) -> bool:
    """Tell whether what is known of a batch's jobs says nothing about the table that is there now.

    A job leaves no transaction in the table. What the service says of it, and the versions that its
    attempt and a decision name, are about the table and the rows of that time.
    """
    attempts = [attempt for attempt in log.attempts(seq) if not attempt.void]
    if expected and found.stamp and expected.table_id != found.stamp.table_id:
        return bool(attempts)
    newest = max((restore.version for restore in found.restores), default=-1)
    decided = [log.settlement(seq, attempt.number) for attempt in attempts]
    return any(settled is not None and settled.table_version < newest for settled in decided)


def restore_under_refresh(
    log: CheckpointLog, entry: OffsetEntry, landed: Landed, found: TableState
) -> int | None:
    """Give the RESTORE between the deletion of a refresh's job and its rows, if there may be one.

    What it brought back is in the table beside those rows. Only the attempt's beginning and the rows
    have versions that are known for sure, so a RESTORE just before the deletion counts as well.
    """
    began = [attempt.table_version for attempt in log.attempts(entry.seq) if not attempt.void]
    if not entry.overwrites_table or not began:
        return None
    return next((r.version for r in found.restores if began[-1] < r.version < landed.version), None)


def old_rows_beside_new_ones(table: str, seq: int, restore: int) -> BatchOutcomeUnknownError:
    """Give the error for what ``restore_under_refresh`` found."""
    return BatchOutcomeUnknownError(
        f"A RESTORE of {table} (version {restore}) came while the job of batch {seq} replaced the rows. "
        "The table may hold both the rows that the RESTORE brought back and those of the batch.",
        kept="the table, the log and all files; nothing was written",
        do=REFRESH_NEXT,
    )


def doubled_by_going_on(
    log: CheckpointLog,
    logged: Sequence[int],
    records: Sequence[CommitRecord],
    found: TableState,
    *,
    gone: Collection[int],
    start: int,
) -> set[str]:
    """Give the files that would be loaded on top of their rows, because a RESTORE undid a refresh.

    The rows that the refresh replaced are back, but its log has not seen their files: those that no
    committed batch of the refresh names come again.
    """
    table_id = found.stamp.table_id if found.stamp else None
    undone = start in gone or any(
        r.seq == start and r.table and r.table.table_id == table_id and is_gone(r, found) for r in records
    )
    if not undone:
        return set()
    loaded = {name for r in records if not r.abandoned for name in _names(log.offset(r.seq).slice)}
    before = {name for seq in logged if seq < start for name in _names(log.offset(seq).slice)}
    return before - loaded


def _names(found: Slice) -> list[str]:
    """Name what may be loaded twice; a slice of something else than files is told by its whole text."""
    return [file.path for file in found.audited] if isinstance(found, FileSlice) else [found.text()]


def refresh_undone(table: str, start: int, doubled: Collection[str]) -> BatchOutcomeUnknownError:
    """Give the error for what ``doubled_by_going_on`` found."""
    return BatchOutcomeUnknownError(
        f"A RESTORE of {table} undid the full refresh that began with batch {start}, before the refresh had "
        f"loaded all files. {len(doubled):,} of them would be loaded on top of their old rows, such as "
        f"{min(doubled)}.",
        kept="the table, the log and all files; nothing was written",
        do="RESTORE the table to a version of the refresh. Or delete the rows that the RESTORE brought back, "
        "then add --reload-undecidable",
    )


def is_gone(record: CommitRecord, found: TableState) -> bool:
    """Tell whether the rows of a recorded batch are no longer in the table, as far as its log tells."""
    if found.stamp is None or record.table is None or record.table.table_id != found.stamp.table_id:
        return True
    return recovery.rows_gone(Landed(record.table_version, None, None), found.restores) is True
