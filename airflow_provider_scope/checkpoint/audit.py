"""Bring ``watermark.json``, ``sources/`` and ``seen/`` up to the log."""

from __future__ import annotations

import contextlib
import functools
import logging
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider_scope.checkpoint import seen
from airflow_provider_scope.checkpoint.seen import SeenFiles, Segments
from airflow_provider_scope.core import audit, takeover
from airflow_provider_scope.core.audit import epoch
from airflow_provider_scope.exceptions import RecordsVacuumedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_provider_scope.checkpoint.log import CheckpointLog
    from airflow_provider_scope.core.discovery import History
    from airflow_provider_scope.core.records import CommitRecord, OffsetEntry
    from airflow_provider_scope.core.takeover import Takeover

logger = logging.getLogger(__name__)


class AuditFiles:
    """The derived files of a pipeline.

    :param log: The pipeline's log.
    :param compaction_interval: A segment of ``seen/`` this many times as large as what comes is left alone.
    :param retention_files: Files kept in ``sources/``: those of the newest batches.
    """

    def __init__(self, log: CheckpointLog, *, compaction_interval: int, retention_files: int) -> None:
        self.log = log
        self.storage = log.storage
        self.folder = f"{log.location}/sources"
        self.retention_files = retention_files
        self.segments = Segments(log.storage, log.location, compaction_interval)

    def seen_files(
        self,
        refresh_start: int | None,
        taken: Takeover | None = None,
    ) -> tuple[History, int]:
        """Read which files the segments of the refresh, or of the takeover, say are loaded.

        :return: The files, and the first entry that has to be read for the rest.
        """
        start = takeover.epoch_start(refresh_start, taken)
        tables, behind = self.segments.read(epoch(refresh_start, taken), start)
        if not tables:
            rows, behind = self._before(refresh_start, taken)
            tables = [rows]
        return SeenFiles(tables), behind

    def _before(self, refresh_start: int | None, taken: Takeover | None) -> tuple[pa.Table, int]:
        """Give what no entry has to be read for, and the first entry behind it."""
        files = self.log.taken_files(taken) if taken else []
        rows = seen.rows_of((file.path, file.modified_ms, file.size_bytes, None, None) for file in files)
        return seen.newest_of_each(rows), takeover.epoch_start(refresh_start, taken)

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
        there = self.log.watermark()
        if there == wanted and not everything:
            return False
        if takeover.is_dbt_scopes(there) or not everything:
            takeover.check_watermark(there, takeovers, last.overwrite_start, self.log.location)
        known = None if everything else takeover.covered(there)
        if known is None and taken and not everything:
            known = (taken.seq - 1, last.refresh_start)  # dbt-scope has written everything before
        if known and known[0] > last.seq:
            return False  # another run is further on, and has written this already
        is_next = known is not None and known[1] == last.refresh_start
        start = takeover.epoch_start(last.refresh_start, taken)
        first = known[0] + 1 if known and is_next else start
        batch = functools.lru_cache(self.retention_files)(self._batch)
        # Those that retention would delete at once are not written.
        for seq in range(max(first, last.seq + 1 - self.retention_files), last.seq + 1):
            with contextlib.suppress(RecordsVacuumedError):
                self._write_diff(*batch(seq), taken)
        folder = epoch(last.refresh_start, taken)

        def rows_from(behind: int) -> pa.Table:
            before, behind = self._before(last.refresh_start, taken) if behind == start else (_NONE, behind)
            batches = map(batch, range(behind, last.seq + 1))
            # Each batch by itself: a column of texts holds 2 GiB at the most.
            rows = [seen.rows_of(_rows(one)) for one in batches]
            if behind < self.log.vacuumed_below():
                what = f"Entries of {self.log.location} from {behind} on are purged, and no segment has them."
                raise RecordsVacuumedError(what)
            return pa.concat_tables([before, *rows])

        anew_from = self.log.vacuumed_below() if everything else None
        try:
            self.segments.extend(folder, start, last.seq, rows_from, anew_from=anew_from)
        except RecordsVacuumedError as err:
            logger.warning("seen/ was not written: %s", err.what)
        newest = audit.batch_id(last.seq, last.refresh_start, taken)
        ours = taken.next_batch_id if taken else 0
        for name in audit.expired(self.storage.names(self.folder), newest, self.retention_files, ours):
            self.storage.delete(f"{self.folder}/{name}")
        self.storage.replace(f"{self.log.location}/watermark.json", wanted)
        return True

    def _batch(self, seq: int) -> tuple[OffsetEntry, CommitRecord]:
        return self.log.offset(seq), self.log.commit(seq)

    def _write_diff(self, entry: OffsetEntry, commit: CommitRecord, taken: Takeover | None) -> None:
        rows = list(audit.audit_rows(entry, commit, taken))
        path = f"{self.folder}/{audit.batch_id(entry.seq, entry.refresh_start, taken)}"
        if rows:
            self.storage.replace(path, audit.audit_lines(rows))
        else:
            self.storage.delete(path)  # an earlier refresh may have had a batch of this number


_NONE = seen.rows_of(())


def _rows(batch: tuple[OffsetEntry, CommitRecord]) -> Iterator[seen.Row]:
    """Give the rows of a committed batch; one that was abandoned has none."""
    entry, commit = batch
    for file in () if commit.abandoned else entry.slice.audited:
        yield file.path, file.modified_ms, file.size_bytes, file.content_md5, entry.seq
