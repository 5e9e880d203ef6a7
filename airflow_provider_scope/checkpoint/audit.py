"""Bring ``watermark.json`` and ``sources/`` up to the log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from airflow_provider_scope.checkpoint.snapshot import Snapshot, decode_snapshot, encode_snapshot
from airflow_provider_scope.core import audit

if TYPE_CHECKING:
    from airflow_provider_scope.checkpoint.log import CheckpointLog
    from airflow_provider_scope.core.records import OffsetEntry


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

    def newest_snapshot(self, refresh_start: int | None) -> Snapshot | None:
        """Read the newest snapshot of the refresh; one of another refresh does not count."""
        names = [name for name in self.storage.names(self.folder) if audit.is_snapshot(name)]
        for name in sorted(names, key=audit.snapshot_number, reverse=True):
            data = self.storage.read(f"{self.folder}/{name}")
            found = None if data is None else decode_snapshot(name, data)
            if found and found.refresh_start == refresh_start:
                return found
        return None

    def watermark_bytes(self) -> bytes | None:
        """Read ``watermark.json`` as it is."""
        return self.storage.read(f"{self.log.location}/watermark.json")

    def bring_up_to_date(self, last: OffsetEntry, *, everything: bool = False) -> bool:
        """Write what is missing for the batches up to ``last``, the newest that is committed.

        Diffs first, the watermark after them: a watermark that is right says that the diffs are there.

        :param everything: Write all diffs of the refresh again, whatever is there.
        :return: False if nothing had to be written.
        """
        wanted = audit.watermark(last)
        there = self.watermark_bytes()
        if there == wanted and not everything:
            return False
        first = last.refresh_start or 0
        known = _seq_in(there, last.refresh_start)
        if known is not None and known <= last.seq and not everything:
            first = known + 1
        for seq in range(first, last.seq + 1):
            self._write_diff(seq)
        self._delete_stale(audit.batch_id(last.seq, last.refresh_start))
        self.storage.replace(f"{self.log.location}/watermark.json", wanted)
        self._compact(last)
        return True

    def _write_diff(self, seq: int) -> None:
        entry = self.log.offset(seq)
        rows = list(audit.audit_rows(entry, self.log.commit(seq)))
        if rows:
            number = audit.batch_id(seq, entry.refresh_start)
            self.storage.replace(f"{self.folder}/{number}", audit.audit_lines(rows))

    def _delete_stale(self, newest: int) -> None:
        """Delete what an earlier refresh left above the newest batch id: its numbers are used again."""
        for name in self.storage.names(self.folder):
            number = name.removesuffix(".parquet")
            if number.isdigit() and int(number) > newest:
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
            data = encode_snapshot(older, rows, last.seq, last.refresh_start)
            self.storage.replace(f"{self.folder}/{number}.parquet", data)
        names = self.storage.names(self.folder)
        for name in audit.expired(names, self.retention_files):
            self.storage.delete(f"{self.folder}/{name}")


def _seq_in(watermark: bytes | None, refresh_start: int | None) -> int | None:
    """Give the entry that a watermark of ours stands for; None for any other, which is rewritten."""
    try:
        value = json.loads(watermark or b"")
    except ValueError:
        return None
    if not isinstance(value, dict) or value.get("refreshStart") != refresh_start:
        return None
    seq = value.get("seq")
    return seq if type(seq) is int else None
