"""What a RESTORE left of batches, and what it means to go on from there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.core import recovery
from airflow_provider_scope.core.recovery import CommittedBatch
from airflow_provider_scope.core.slices import FileSlice
from airflow_provider_scope.exceptions import BatchOutcomeUnknownError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from airflow_provider_scope.checkpoint.log import CheckpointLog
    from airflow_provider_scope.core.records import CommitRecord, OffsetEntry, TableIdentity
    from airflow_provider_scope.core.recovery import TableState
    from airflow_provider_scope.core.slices import Slice

REFRESH_NEXT = (
    "add --reload-undecidable, and run the task with full_refresh=True next: it replaces all rows. Any "
    "other run would load files whose rows are already in the table"
)
"""What a person does when only a full refresh is known to repair the table."""


def is_about_another_table(
    log: CheckpointLog, seq: int, expected: TableIdentity | None, found: TableState
) -> bool:
    """Tell whether what is known of a batch's jobs says nothing about the table that is there now.

    A job leaves no transaction in the table. What the service says of it, and the versions that its
    attempt and a decision name, are about the table and the rows of that time.
    """
    attempts = [attempt for attempt in log.attempts(seq) if not attempt.void]
    if expected and found.identity and expected.table_id != found.identity.table_id:
        return bool(attempts)
    newest = max((restore.version for restore in found.restores), default=-1)
    decided = [log.settlement(seq, attempt.number) for attempt in attempts]
    return any(settled is not None and settled.table_version < newest for settled in decided)


def restore_under_refresh(
    log: CheckpointLog, entry: OffsetEntry, committed: CommittedBatch, found: TableState
) -> int | None:
    """Give the RESTORE between the deletion of a refresh's job and its rows, if there may be one.

    What it brought back is in the table beside those rows. Only the attempt's beginning and the rows
    have versions that are known for sure, so a RESTORE just before the deletion counts as well.
    """
    began = [attempt.table_version for attempt in log.attempts(entry.seq) if not attempt.void]
    if not entry.overwrites_table or not began:
        return None
    return next((r.version for r in found.restores if began[-1] < r.version < committed.version), None)


def old_rows_beside_new_ones(table: str, seq: int, restore: int) -> BatchOutcomeUnknownError:
    """Give the error for what ``restore_under_refresh`` found."""
    return BatchOutcomeUnknownError(
        f"A RESTORE of {table} (version {restore}) happened while the job of batch {seq} was replacing the "
        "rows. The table may hold both the rows that the RESTORE brought back and those of the batch.",
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

    :raises BatchOutcomeUnknownError: The entries of before the refresh were purged.

    The rows that the refresh replaced are back, but its log has not seen their files: those that no
    committed batch of the refresh names come again.
    """
    table_id = found.identity.table_id if found.identity else None
    undone = start in gone or any(
        r.seq == start and r.table and r.table.table_id == table_id and is_gone(r, found) for r in records
    )
    if not undone:
        return set()
    if not logged or logged[0] > 0:
        raise BatchOutcomeUnknownError(
            f"A RESTORE undid the full refresh that began with batch {start}. It is not known whether its "
            "next batches would be loaded on top of their old rows: `airflow scope vacuum` purged the "
            "records of the batches before it.",
            kept="the table, the log and all files; nothing was written",
            do=f"RESTORE the table to a version of the refresh. Or {REFRESH_NEXT}",
        )
    loaded = {name for r in records if not r.abandoned for name in _names(log.offset(r.seq).slice)}
    before = {name for seq in logged if seq < start for name in _names(log.offset(seq).slice)}
    return before - loaded


def doubled_from_before(
    log: CheckpointLog, records: Sequence[CommitRecord], found: TableState, start: int
) -> set[str]:
    """Give the files that would be loaded on top of their rows, because the table has batches of before.

    A run that slept through a full refresh may have put them into a table that was created after it. They
    count as replaced by the refresh, which is not in this table.
    """
    table_id = found.identity.table_id if found.identity else None
    if not any(r.seq == start and r.table and r.table.table_id != table_id for r in records):
        return set()
    older = [
        seq
        for seq, batch in found.committed.items()
        if seq < start and not batch.abandoned and recovery.rolled_back(batch, found.restores) is not True
    ]
    loaded = {name for r in records if not r.abandoned for name in _names(log.offset(r.seq).slice)}
    entries = {seq: log.find_offset(seq) for seq in older}
    # A batch whose entry is purged may have any file.
    names = {
        name for seq, e in entries.items() for name in (_names(e.slice) if e else [f"those of batch {seq}"])
    }
    return names - loaded


def batches_of_before(table: str, start: int, doubled: Collection[str]) -> BatchOutcomeUnknownError:
    """Give the error for what ``doubled_from_before`` found."""
    return BatchOutcomeUnknownError(
        f"{table} was created again after the full refresh that began with batch {start}, and holds "
        f"batches from before it. The next runs would load {len(doubled):,} files on top of their existing "
        f"rows, such as {min(doubled)}.",
        kept="the table, the log and all files; nothing was written",
        do=REFRESH_NEXT,
    )


def _names(found: Slice) -> list[str]:
    """Name what may be loaded twice; a slice of something else than files is told by its whole text."""
    return [file.path for file in found.audited] if isinstance(found, FileSlice) else [found.text()]


def is_rolled_back(record: CommitRecord, found: TableState) -> bool:
    """Tell whether a RESTORE took the rows of a recorded batch, out of the table that it was loaded into."""
    same = record.table and found.identity and record.table.table_id == found.identity.table_id
    return bool(same) and is_gone(record, found)


def rolled_back_below(table: str, oldest: CommitRecord, vacuumed: int) -> BatchOutcomeUnknownError:
    """Give the error for a RESTORE to before the oldest record that is left."""
    return BatchOutcomeUnknownError(
        f"{table} was restored to before batch {oldest.seq} (version {oldest.table_version}). It is not "
        "known which older batches lost their rows too: `airflow scope vacuum` purged the records of the "
        f"batches below {vacuumed}.",
        kept="the table, the log and all files; nothing was written",
        do=f"RESTORE the table to version {oldest.table_version} or a newer one. Or add "
        "--reload-undecidable: the files of all these batches still count as loaded. To get lost rows "
        "back, run the task once with full_refresh=True after that",
    )


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
    if found.identity is None or record.table is None or record.table.table_id != found.identity.table_id:
        return True
    return recovery.rolled_back(CommittedBatch(record.table_version, None, None), found.restores) is True
