"""The end of the log, found without a list of it: that grows with the age of the pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.core.takeover import covered

if TYPE_CHECKING:
    from airflow_provider_scope.checkpoint.log import CheckpointLog
    from airflow_provider_scope.core.records import CommitRecord, OffsetEntry

READ_AT_MOST = 64
"""Entries behind the hint that are read one by one. Where there are more, a list is cheaper."""


class Tail:
    """The newest records: those from ``floor`` on, a batch that has its commit record.

    Batches are recorded in order. So each entry below a recorded one is recorded as well, or a refresh took
    its place: nothing below ``floor`` is open.

    ``watermark.json`` names a batch that was committed. It is only a hint: it counts if that batch has a
    commit record, and the log is read on from there until a number is missing. Without a hint the log is
    listed, and ``floor`` is 0.

    A hint below ``vacuumed`` does not count: what was there is purged, and a run that was stopped long ago
    may have put records under these numbers since.

    Make it before the table is looked at, as it reads the commit records; then call ``catch_up``, which reads
    the entries. The other way round, a batch that another run commits in between would look like a
    transaction that no entry explains.

    :param vacuumed: The number below which records are purged, as far as the caller knows.
    """

    def __init__(self, log: CheckpointLog, vacuumed: int = 0) -> None:
        self._log = log
        self._entries: dict[int, OffsetEntry] = {}
        self._commits: dict[int, CommitRecord] = {}
        self.vacuumed = self.floor = vacuumed
        self.logged = range(0)
        """The entries from ``floor`` on, once ``catch_up`` has read them."""
        self.watermark = log.watermark()
        """``watermark.json`` as it is."""
        self._is_listed = not self._follow_hint()
        self.committed = log.committed() if self._is_listed else sorted(self._commits)
        """The numbers of the commit records from ``floor`` on, in order."""
        self._numbers = frozenset(self.committed)

    def _follow_hint(self) -> bool:
        hint = covered(self.watermark)
        record = self._log.find_commit(hint[0]) if hint and hint[0] >= self.vacuumed else None
        if record is None or not self._read_on(record.seq) or record.seq not in self._entries:
            return False
        self.floor = record.seq
        # Downwards: whoever recorded a batch had recorded those before it.
        for seq in sorted(self._entries, reverse=True):
            found = record if seq == record.seq else self._log.find_commit(seq)
            if found:
                self._commits[seq] = found
        return True

    def _read_on(self, seq: int) -> bool:
        """Read entries from ``seq`` on until a number is missing; False if there are too many."""
        while entry := self._log.find_offset(seq):
            if len(self._entries) == READ_AT_MOST:
                return False
            self._entries[seq] = entry
            seq += 1
        return True

    def catch_up(self) -> None:
        """Read the entries that are there now.

        :raises CheckpointGapError: A number is missing: the files of that batch are not known.
        """
        if not self._is_listed and self._read_on(self.floor + len(self._entries)):
            end = self.floor + len(self._entries)
            if self._log.find_offset(end + 1) is None:
                self.logged = range(self.floor, end)
                return
        listed = self._log.logged()
        self.logged = range(max(self.floor, listed[0]), listed[-1] + 1) if listed else range(0)

    def entry(self, seq: int) -> OffsetEntry:
        """Give an entry, of whatever number."""
        return self._entries.get(seq) or self._log.offset(seq)

    def commit(self, seq: int) -> CommitRecord:
        """Give a commit record that is in ``committed``."""
        return self._commits.get(seq) or self._log.commit(seq)

    def find_commit(self, seq: int) -> CommitRecord | None:
        """Give the commit record of an entry, as it was when this was made; None if there was none."""
        if seq < self.floor:
            return self._log.find_commit(seq)
        return self.commit(seq) if seq in self._numbers else None
