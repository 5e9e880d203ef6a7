"""Bring ``watermark.json`` and ``sources/`` up to the log."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, TypeVar

from airflow_provider_scope.checkpoint import snapshot as snapshots
from airflow_provider_scope.core import audit, takeover
from airflow_provider_scope.exceptions import StorageError
from airflow_provider_scope.storage.protocol import CONTROL_FILE_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_provider_scope.checkpoint.log import CheckpointLog
    from airflow_provider_scope.checkpoint.snapshot import SeenFiles, Snapshot
    from airflow_provider_scope.core.records import OffsetEntry
    from airflow_provider_scope.core.takeover import Takeover

logger = logging.getLogger(__name__)

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

    def newest_seen(
        self,
        refresh_start: int | None,
        taken: Takeover | None = None,
        returned: Mapping[str, int] | None = None,
    ) -> SeenFiles | None:
        """Read which files the newest snapshot of the refresh, or of the takeover, says are loaded.

        :param returned: Files that were given back, and the newest entry at that time.
        """
        decode = functools.partial(snapshots.decode_seen, returned=returned)
        return self._newest((refresh_start, taken), decode)

    def newest_snapshot(self, refresh_start: int | None, taken: Takeover | None = None) -> Snapshot | None:
        """Read the newest snapshot of the refresh; one of another refresh does not count."""
        return self._newest((refresh_start, taken), snapshots.decode_snapshot)

    def _newest(
        self, era: tuple[int | None, Takeover | None], decode: Callable[[str, bytes], _T | None]
    ) -> _T | None:
        refresh_start, taken = era
        names = [name for name in self.storage.names(self.folder) if audit.is_snapshot(name)]
        for name in sorted(names, key=audit.snapshot_number, reverse=True):
            if taken and audit.snapshot_number(name) < taken.next_batch_id:
                return None  # dbt-scope wrote it: what it tells is in the record of the takeover
            data = self._read(name)
            found = None if data is None else decode(name, data)
            number = taken.number if taken else None
            if found and (found.refresh_start, found.taken_over) == (refresh_start, number):
                return found
        return None

    def watermark_bytes(self) -> bytes | None:
        """Read ``watermark.json`` as it is."""
        return self.storage.read(f"{self.log.location}/watermark.json")

    def bring_up_to_date(
        self, last: OffsetEntry, takeovers: Sequence[Takeover] = (), *, everything: bool = False
    ) -> bool:
        """Write what is missing for the batches up to ``last``, the newest that is committed.

        The watermark comes last: one that is right says that everything else is.

        :param takeovers: The pipeline's records of what was taken over from dbt-scope.
        :param everything: Write all diffs of the refresh again, whatever is there.
        :return: False if nothing had to be written.
        :raises WatermarkChangedError: dbt-scope has written the watermark since it was ours.
        """
        taken = takeover.counting(takeovers, last.refresh_start)
        wanted = audit.watermark(last, taken)
        there = self.watermark_bytes()
        if there == wanted and not everything:
            return False
        if takeover.is_dbt_scopes(there) or not everything:
            takeover.check_watermark(there, takeovers, last.overwrite_start, self.log.location)
        known = None if everything else audit.covered(there)
        if known is None and taken and not everything:
            known = (taken.seq - 1, last.refresh_start)  # dbt-scope has written everything before
        if known and known[0] > last.seq:
            return False  # another run is further on, and has written this already
        is_next = known is not None and known[1] == last.refresh_start
        first = known[0] + 1 if known and is_next else takeover.era_start(last.refresh_start, taken)
        for seq in range(first, last.seq + 1):
            self._write_diff(seq, taken)
        newest = audit.batch_id(last.seq, last.refresh_start, taken)
        self._delete_stale(newest, last.refresh_start, taken, is_next=is_next)
        self._compact(last, taken)
        self.storage.replace(f"{self.log.location}/watermark.json", wanted)
        return True

    def _write_diff(self, seq: int, taken: Takeover | None) -> None:
        entry = self.log.offset(seq)
        rows = list(audit.audit_rows(entry, self.log.commit(seq), taken))
        path = f"{self.folder}/{audit.batch_id(seq, entry.refresh_start, taken)}"
        if rows:
            self.storage.replace(path, audit.audit_lines(rows))
        else:
            self.storage.delete(path)  # an earlier refresh may have had a batch of this number

    def _delete_stale(
        self, newest: int, refresh_start: int | None, taken: Takeover | None, *, is_next: bool
    ) -> None:
        """Delete what an earlier refresh left: its numbers are used again.

        :param is_next: The watermark was of this refresh: snapshots of others are gone already. They have
            the same names, so each is read; one of this refresh is what another run has just written.
        """
        for name in self.storage.names(self.folder):
            number = name.removesuffix(".parquet")
            if not number.isdigit():
                continue
            may_be_old = (
                not is_next
                and audit.is_snapshot(name)
                and (taken is None or int(number) >= taken.next_batch_id)
            )
            if int(number) > newest or (may_be_old and not self._is_of(name, refresh_start, taken)):
                self.storage.delete(f"{self.folder}/{name}")

    def _is_of(self, name: str, refresh_start: int | None, taken: Takeover | None) -> bool:
        data = self._read(name)
        era = (refresh_start, taken.number if taken else None)
        return data is not None and snapshots.era_of(name, data) == era

    def _read(self, name: str) -> bytes | None:
        """Read a snapshot; None if it cannot be read: all that it tells is in the log."""
        try:
            return self.storage.read(f"{self.folder}/{name}")
        except StorageError as err:
            logger.warning("A snapshot is not used, the log is read instead: %s", err)
            return None

    def _compact(self, last: OffsetEntry, taken: Takeover | None) -> None:
        older = self.newest_snapshot(last.refresh_start, taken)
        after = older.seq + 1 if older else takeover.era_start(last.refresh_start, taken)
        if last.seq + 1 - after >= self.compaction_interval:
            rows = list(audit.taken_rows(self.log.taken_files(taken))) if taken and not older else []
            for seq in range(after, last.seq + 1):
                rows += audit.audit_rows(self.log.offset(seq), self.log.commit(seq), taken)
            number = audit.batch_id(last.seq, last.refresh_start, taken)
            data = snapshots.encode_snapshot(
                older, rows, last.seq, last.refresh_start, taken.number if taken else None
            )
            if len(data) <= CONTROL_FILE_LIMIT_BYTES:
                self.storage.replace(f"{self.folder}/{number}.parquet", data)
            else:
                logger.warning(
                    "No snapshot of batch %d was written: it would have %d bytes, and more than %d are never "
                    "read back. Runs read the log from batch %d on.",
                    last.seq, len(data), CONTROL_FILE_LIMIT_BYTES, after,
                )  # fmt: skip
        names = self.storage.names(self.folder)
        for name in audit.expired(names, self.retention_files):
            self.storage.delete(f"{self.folder}/{name}")
