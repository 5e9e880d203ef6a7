"""Purge what a checkpoint no longer needs. It looks first, and deletes only when it is told to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.protocol import retention, takeover
from airflow_provider_scope.protocol.commands import RETAIN_AT_LEAST
from airflow_provider_scope.protocol.derived import SeenFiles
from airflow_provider_scope.protocol.records import Vacuumed
from airflow_provider_scope.protocol.retention import Boundary
from airflow_provider_scope.protocol.view import newest_not_abandoned, read_log
from airflow_provider_scope.values import CursorSlice

if TYPE_CHECKING:
    from airflow_provider_scope.protocol.derived import AuditFiles
    from airflow_provider_scope.protocol.engine import Engine
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.retention import Group, Segment
    from airflow_provider_scope.protocol.seen import History
    from airflow_provider_scope.protocol.view import LogView

AT_ONCE = 500
"""Entries whose files are compared with the segments together."""


@dataclass(frozen=True, slots=True)
class Purge:
    """What a vacuum would do."""

    record: Vacuumed
    """What is to be put before anything is deleted."""
    vacuumed_before: int
    """The number below which records are purged already."""
    groups: tuple[Group, ...]
    """What is to be deleted, in this order."""
    kept: tuple[Group, ...]
    """What stays, folder by folder."""
    why: str
    """Why the records from ``record.below`` on stay."""


def check_retain(retain: int) -> None:
    """Refuse to keep too few batches.

    :raises InputError: As said.
    """
    if retain < RETAIN_AT_LEAST:
        raise InputError(
            f"--retain-batches={retain} is not valid: expected {RETAIN_AT_LEAST} or more.",
            kept="everything; nothing was read or deleted",
            do="keep more: active runs, and `airflow scope accept-table` after a RESTORE, need the newest "
            "records",
        )


def purge_of(
    log: CheckpointLog, audit: AuditFiles, engine: Engine, table: str, *, retain: int, now_ms: int
) -> Purge:
    """Find what may be deleted; nothing is written.

    :param retain: Committed batches whose records stay.
    :raises ScopeProviderError: The log could not be read, or the table does not match it: what was purged
        might be needed to accept the table.
    """
    view = read_log(log, engine, table)
    view.check()
    before = log.vacuumed()
    below, why = before.below, _why_not(view)
    folder: str | None = None
    chain: list[Segment] = []
    quarantined = before.quarantined
    boundary: Boundary | None = None
    if not why:
        epoch = view.epoch
        folder = epoch.folder
        segments, end = audit.segments.read(epoch)
        chain = [*segments]
        end = min(end, view.newest_commit + 1)
        # Where the epoch begins, only a part of the table may have been replaced: ranges and columns of
        # batches before it count, too.
        first = max(view.overwrite_start or 0, before.below)
        first_of_epoch = max(epoch.start, before.below)
        with_columns = newest_not_abandoned(log, view, first)  # as ``view.pinned_columns`` reads them
        below, why = retention.purge_below(
            newest_commit=view.newest_commit,
            first_needed=min(
                _oldest_range(log, range(first, first_of_epoch), default=end),
                _first_needed(log, SeenFiles(segments.values()), first_of_epoch, end),
            ),
            columns_from=with_columns.seq if with_columns else None,
            vacuumed=before.below,
            retain=retain,
        )
        boundary = _boundary(log, view, below)
        purged = [log.commit(seq) for seq in range(first_of_epoch, below)]
        quarantined = (
            *(seq for seq in before.quarantined if seq >= epoch.start),
            *(record.seq for record in purged if record.quarantined and not record.abandoned),
        )
    groups, kept = retention.purgeable(
        log.storage.walk(log.location),
        log.location,
        below=below,
        epoch=folder,
        chain=chain,
        now_ms=now_ms,
        boundary=boundary,
    )
    record = Vacuumed(below=below, quarantined=quarantined)
    return Purge(record, before.below, tuple(groups), tuple(kept), why)


def run(log: CheckpointLog, purge: Purge) -> None:
    """Delete what was planned.

    The record first: from then on nobody believes a record below its number, neither those that are still
    there when this dies, nor those that a run puts that was stopped before the records were purged.

    :param purge: What ``purge_of`` found.
    """
    if purge.record.below > purge.vacuumed_before:
        log.put(purge.record, purged_as=purge.record.below)
    for group in purge.groups:
        for file in group.files:
            log.storage.delete(file.path)


def _why_not(view: LogView) -> str:
    """Return why no record may be purged now; "" if some may."""
    last = view.last_committed_entry
    if view.last_commit is None:
        return "no batch is committed"
    if last is None or last.refresh_start != view.refresh_start:
        begun = "since the takeover" if view.epoch.taken else "of the full refresh"
        return f"no batch {begun} is committed"
    if view.watermark != takeover.watermark(last, view.epoch.batch_id(last.seq)):
        return "watermark.json is not up to date: the next run, or `airflow scope rebuild`, writes it"
    return ""


def _boundary(log: CheckpointLog, view: LogView, below: int) -> Boundary | None:
    """Return the states that may still be read; None if the source has none."""
    if not view.has_state:
        return None
    records = [record for seq in range(below, view.next_seq) if (record := log.find_commit(seq))]
    states = [record.state for record in records]
    states += [log.offset(seq).slice.before for seq in range(below, view.next_seq)]
    states += [view.accepted.state] if view.accepted else []
    return Boundary(frozenset(filter(None, states)), records[-1].seq if records else -1)


def _oldest_range(log: CheckpointLog, batches: range, *, default: int) -> int:
    """Return the first batch that is the newest of its range, as only its record tells what is loaded."""
    newest: dict[tuple[str, str | None, str], int] = {}
    for seq in batches:
        batch = log.offset(seq).slice
        if isinstance(batch, CursorSlice) and batch.end and not log.commit(seq).abandoned:
            newest[batch.column.lower(), batch.first, batch.end] = seq
    return min(newest.values(), default=default)


def _first_needed(log: CheckpointLog, held: History, first: int, end: int) -> int:
    """Return the first entry without which it is not known what was loaded.

    Each file is looked up: after the purge, the segments alone tell that it was loaded.

    :param held: The files in the segments.
    :param first: The first entry that is not purged.
    :param end: The first entry that no segment claims to hold.
    """
    for at in range(first, end, AT_ONCE):
        entries = [log.offset(seq) for seq in range(at, min(at + AT_ONCE, end))]
        loaded = [entry for entry in entries if not log.commit(entry.seq).abandoned]
        statuses = held.find([file.path for entry in loaded for file in entry.slice.audited])
        for entry in loaded:
            if entry.slice.needs_record or any(file.path not in statuses for file in entry.slice.audited):
                return entry.seq
    return end
