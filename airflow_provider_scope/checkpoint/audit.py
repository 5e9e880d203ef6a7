"""Bring ``watermark.json`` and ``sources/`` up to the log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeVar

from airflow_provider_scope.checkpoint import snapshot as snapshots
from airflow_provider_scope.core import audit

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_scope.checkpoint.log import CheckpointLog
    from airflow_provider_scope.checkpoint.snapshot import SeenFiles, Snapshot
    from airflow_provider_scope.core.records import OffsetEntry

_T = TypeVar("_T", "SeenFiles", "Snapshot")


class AuditFiles:
    """The derived files of a pipeline.

    :param log: The pipeline's log.
    :param compaction_interval: Diffs that gather before a snapshot is written.
    :param retention_files: Files kept in ``sources/``; the newest snapshot and what follows always is.
    """

    def __init__(self, log: CheckpointLog, *, compaction_interval: int, retention_files: int) -> None:
        self.log = log
        self.storage = log.storage
        self.folder = f"{log.location}/sources"
        self.compaction_interval = compaction_interval
        self.retention_files = retention_files

    def newest_seen(self, refresh_start: int | None) -> SeenFiles | None:
        """Read which files the newest snapshot of the refresh says are loaded."""
        return self._newest(refresh_start, snapshots.decode_seen)

    def newest_snapshot(self, refresh_start: int | None) -> Snapshot | None:
        """Read the newest snapshot of the refresh; one of another refresh does not count."""
        return self._newest(refresh_start, snapshots.decode_snapshot)

    def _newest(self, refresh_start: int | None, decode: Callable[[str, bytes], _T | None]) -> _T | None:
        names = [name for name in self.storage.names(self.folder) if audit.is_snapshot(name)]
        for name in sorted(names, key=audit.snapshot_number, reverse=True):
            data = self.storage.read(f"{self.folder}/{name}")
            found = None if data is None else decode(name, data)
            if found and found.refresh_start == refresh_start:
                return found
        return None

    def watermark_bytes(self) -> bytes | None:
        """Read ``watermark.json`` as it is."""
        return self.storage.read(f"{self.log.location}/watermark.json")

    def bring_up_to_date(self, last: OffsetEntry, *, everything: bool = False) -> bool:
        """Write what is missing for the batches up to ``last``, the newest that is committed.

        The watermark comes last: one that is right says that everything else is.

        :param everything: Write all diffs of the refresh again, whatever is there.
        :return: False if nothing had to be written.
        """
        wanted = audit.watermark(last)
        there = self.watermark_bytes()
        if there == wanted and not everything:
            return False
        known = None if everything else _covered(there)
        if known and known[0] > last.seq:
            return False  # another run is further on, and has written this already
        is_next = known is not None and known[1] == last.refresh_start
        first = known[0] + 1 if known and is_next else last.refresh_start or 0
        for seq in range(first, last.seq + 1):
            self._write_diff(seq)
        self._delete_stale(audit.batch_id(last.seq, last.refresh_start), snapshots=not is_next)
        self._compact(last)
        self.storage.replace(f"{self.log.location}/watermark.json", wanted)
        return True

    def _write_diff(self, seq: int) -> None:
        entry = self.log.offset(seq)
        rows = list(audit.audit_rows(entry, self.log.commit(seq)))
        path = f"{self.folder}/{audit.batch_id(seq, entry.refresh_start)}"
        if rows:
            self.storage.replace(path, audit.audit_lines(rows))
        else:
            self.storage.delete(path)  # an earlier refresh may have had a batch of this number

    def _delete_stale(self, newest: int, *, snapshots: bool) -> None:
        """Delete what an earlier refresh left: its numbers are used again.

        :param snapshots: Delete all of them; nothing else tells an earlier refresh's from this one's name.
        """
        for name in self.storage.names(self.folder):
            number = name.removesuffix(".parquet")
            if number.isdigit() and (int(number) > newest or (snapshots and audit.is_snapshot(name))):
                self.storage.delete(f"{self.folder}/{name}")

    def _compact(self, last: OffsetEntry) -> None:
        older = self.newest_snapshot(last.refresh_start)
        after = older.seq + 1 if older else last.refresh_start or 0
        if last.seq + 1 - after >= self.compaction_interval:
            rows = [
                row
                for seq in range(after, last.seq + 1)
                for row in audit.audit_rows(self.log.offset(seq), self.log.commit(seq))
            ]
            number = audit.batch_id(last.seq, last.refresh_start)
            data = snapshots.encode_snapshot(older, rows, last.seq, last.refresh_start)
            self.storage.replace(f"{self.folder}/{number}.parquet", data)
        names = self.storage.names(self.folder)
        for name in audit.expired(names, self.retention_files):
            self.storage.delete(f"{self.folder}/{name}")


def _covered(watermark: bytes | None) -> tuple[int, int | None] | None:
    """Give the newest entry and the refresh that a watermark of ours stands for; None for any other."""
    try:
        value = json.loads(watermark or b"")
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    seq, start = value.get("seq"), value.get("refreshStart")
    return (seq, start) if type(seq) is int and type(start) in (int, type(None)) else None
