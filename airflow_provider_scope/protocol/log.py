"""The pipeline's log: what is written before a batch runs, and after it is in the table.

Its end (``Tail``) is found without a list of it: that grows with the age of the pipeline.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

from airflow_provider_scope.exceptions import (
    CheckpointError,
    CheckpointGapError,
    InputError,
    RecordsVacuumedError,
    StorageError,
)
from airflow_provider_scope.protocol import records, recovery, takeover
from airflow_provider_scope.protocol.records import (
    NEW_LOG,
    Acceptance,
    Attempt,
    CommitRecord,
    Pipeline,
    QuarantineUse,
    SchemaVersion,
    Vacuumed,
)
from airflow_provider_scope.protocol.takeover import Takeover, covered
from airflow_provider_scope.stores.protocol import CONTROL_FILE_LIMIT_BYTES

if TYPE_CHECKING:
    from airflow_provider_scope.protocol.records import OffsetEntry, Record
    from airflow_provider_scope.protocol.recovery import TableState
    from airflow_provider_scope.stores.protocol import Storage


_R = TypeVar("_R", bound="Record")
_NUMBER = re.compile(r"\d{20}")
_ATTEMPT = re.compile(r"(\d{20})\.\d+")


class CheckpointLog:
    """Read and append the records below one checkpoint location.

    Nothing here decides anything, and a record is never changed. Every write is a put-if-absent. If another
    writer was faster, or if the answer is lost, it gives back what is there.

    :param storage: The storage of ``location``.
    :param location: Canonical URI of the checkpoint folder.
    """

    def __init__(self, storage: Storage, location: str) -> None:
        self.storage = storage
        self.location = location
        self.first = 0
        """The number below which records are purged, as it was when this last looked."""

    def find(self, kind: type[_R], **name: object) -> _R | None:
        """Read a record; None if there is none.

        :param name: The keys that its name tells.
        """
        path = self._path(kind.PATH.format(**name))
        data = self.storage.read(path)
        return None if data is None else records.decode(kind, path, data, **name)

    def get(self, kind: type[_R], **name: object) -> _R:
        """Read a record that was listed.

        :raises CheckpointGapError: There is none.
        """
        record = self.find(kind, **name)
        if record is None:
            raise _missing_record(self._path(kind.PATH.format(**name)))
        return record

    def put(self, record: _R, *, purged_as: int | None = None) -> _R:
        """Create a record; give the one that is there, ours or another writer's.

        :param purged_as: The batch's number, if the record may be purged.
        """
        name = records.name_of(record)
        path = self._path(record.PATH.format(**name))
        stored = self._put_bytes(path, records.encode(record), purged_as)
        return records.decode(type(record), path, stored, **name)

    # ---- pipeline.json -------------------------------------------------------------------------

    def pipeline(self) -> Pipeline | None:
        """Read ``pipeline.json``; None before the first batch was logged."""
        return self.find(Pipeline)

    def put_pipeline(self, pipeline: Pipeline) -> Pipeline:
        """Create ``pipeline.json``; give the one that is there, ours or another runner's."""
        return self.put(pipeline)

    def begin(self, pipeline: str, table: TableState) -> Pipeline:
        """Create ``pipeline.json`` for the table as it is now; give the one that is there.

        :param pipeline: Its UUID, if it is this call that creates it.
        :raises InputError: A stream of Spark has its checkpoint there: its batches have such names, too.
        """
        if self.storage.read(self._path("metadata")) is not None:
            raise InputError(
                f"The checkpoint {self.location} is that of a stream of Spark, whose records would be mixed "
                "with those of this pipeline.",
                kept="everything; nothing was written",
                do="set checkpoint=Checkpoint(location=…) to another folder; or move the stream's checkpoint "
                "to another folder, and set its checkpointLocation to that",
            )
        version = table.version if table.identity else None
        return self.put_pipeline(Pipeline(pipeline=pipeline, table=table.identity, table_version=version))

    def watermark(self) -> bytes | None:
        return self.storage.read(self._path("watermark.json"))

    # ---- commits/, accepted/ -------------------------------------------------------------------

    def committed(self) -> list[int]:
        """List the numbers of all commit records that are not purged, in order."""
        numbers = self._numbers("commits")
        first = self.vacuumed_below()
        return [seq for seq in numbers if seq >= first]

    def find_commit(self, seq: int) -> CommitRecord | None:
        return self.find(CommitRecord, seq=seq)

    def commit(self, seq: int) -> CommitRecord:
        """Read a commit record that was listed.

        :raises RecordsVacuumedError: It was purged in the meantime.
        """
        record = self.find_commit(seq)
        if record is None:
            raise self._missing_or_purged(self._path(CommitRecord.PATH.format(seq=seq)), seq)
        return record

    def put_commit(self, record: CommitRecord) -> CommitRecord:
        return self.put(record, purged_as=record.seq)

    def newest_acceptance(self) -> Acceptance | None:
        numbers = self._numbers("accepted")
        return self.get(Acceptance, number=numbers[-1]) if numbers else None

    def shares_table(self) -> bool:
        """Return whether the table holds rows of pipelines beside this one, in the same checkpoint."""
        return False

    def schemas(self) -> list[SchemaVersion]:
        """Read the versions of the inferred columns, in order."""
        return [self.get(SchemaVersion, seq=seq) for seq in self._numbers("schemas")]

    # ---- quarantines/ --------------------------------------------------------------------------

    def quarantines(self) -> list[str]:
        """Return the tables that ever took what could not be loaded; the last one does now."""
        return [self.get(QuarantineUse, number=number).table for number in self._numbers("quarantines")]

    def use_quarantine(self, table: str) -> list[str]:
        """Record that a table takes what cannot be loaded, and give all that ever did, that one last."""
        while (used := self.quarantines())[-1:] != [table]:
            self.put(QuarantineUse(number=len(used), table=table))
        return used

    # ---- offsets/ ------------------------------------------------------------------------------

    def logged(self) -> list[int]:
        """List the numbers of all offset entries that are not purged, in order.

        :raises CheckpointGapError: A number is missing: the files of that batch are not known.
        """
        numbers = self._numbers("offsets")
        below = self.vacuumed_below()  # after the list: whoever purges says so first
        numbers = [seq for seq in numbers if seq >= below]
        if numbers != list(range(below, below + len(numbers))) or (below and not numbers):
            missing = sorted(set(range(below, numbers[-1] if numbers else below + 1)) - set(numbers))
            raise CheckpointGapError(
                f"The log {self._path('offsets')} goes {f'from {below} ' if below else ''}up to "
                f"{max([below, *numbers])}, but "
                f"{', '.join(map(str, missing[:5]))} {'is' if len(missing) == 1 else 'are'} missing.",
                kept="the table and all records; nothing was written",
                do="restore the missing records from a copy of the checkpoint: the files they name "
                f"would otherwise be lost or loaded twice. If there is no copy, {NEW_LOG}",
            )
        return numbers

    def newest_offset(self) -> OffsetEntry | None:
        logged = self.logged()
        return self.offset(logged[-1]) if logged else None

    def open_entries(self) -> tuple[OffsetEntry, ...]:
        """Read the entries that have no commit record and that no refresh superseded."""
        tail = self.tail()
        tail.catch_up()
        return tail.open_entries

    def is_begun(self) -> bool:
        return self.find_offset(0) is not None or self.vacuumed_below() > 0

    def find_offset(self, seq: int) -> OffsetEntry | None:
        path = self._offset_path(seq)
        data = self.storage.read(path)
        return None if data is None else records.decode_offset(path, data, seq)

    def offset(self, seq: int) -> OffsetEntry:
        """Read an offset entry that is there.

        :raises RecordsVacuumedError: It was purged in the meantime.
        """
        entry = self.find_offset(seq)
        if entry is None:
            raise self._missing_or_purged(self._offset_path(seq), seq)
        return entry

    def put_offset(self, entry: OffsetEntry) -> OffsetEntry:
        """Create an offset entry; give the one that is there, ours or the winner's.

        :raises RecordsVacuumedError: Other runs have used its number, and it was purged: the number is free
            again, and what is there is void.
        """
        path = self._offset_path(entry.seq)
        data = records.encode_offset(entry)
        stored = self._put_bytes(path, data, entry.seq)
        if entry.seq < self.vacuumed_below():
            raise self._missing_or_purged(path, entry.seq)
        return entry if stored == data else records.decode_offset(path, stored, entry.seq)

    # ---- vacuumed/ -----------------------------------------------------------------------------

    def vacuumed_below(self) -> int:
        """Return the number below which entries and commit records are purged, and not to be believed.

        Ask for it after a record was read: whoever purges says so before anything is deleted.
        """
        self.first = max(self._numbers("vacuumed"), default=0)
        return self.first

    def kept(self, begin: int, end: int) -> range:
        """Return the numbers from ``begin`` to before ``end`` that are not purged."""
        return range(max(begin, self.vacuumed_below()), end)

    def vacuumed(self) -> Vacuumed:
        """Read what the newest record of a purge says."""
        while below := self.vacuumed_below():
            record = self.find(Vacuumed, below=below)
            if record:
                return record  # else a newer one has taken its place
        return Vacuumed(below=0)

    def tail(self) -> Tail:
        """Find the newest records, none of which is purged by now."""
        self.vacuumed_below()
        return Tail(self)

    # ---- attempts/ -----------------------------------------------------------------------------

    def attempts(self, seq: int) -> list[Attempt]:
        """Read all attempts of a batch, in order.

        They are read one after the other until a number is missing: a list would name those of all batches.

        :raises CheckpointGapError: A number is missing: what became of that job is not known.
        """
        attempts: list[Attempt] = []
        while attempt := self.find(Attempt, seq=seq, number=len(attempts)):
            attempts.append(attempt)
        if self.find(Attempt, seq=seq, number=len(attempts) + 1):
            raise CheckpointGapError(
                f"Attempt {len(attempts)} of batch {seq} is missing in {self._path('attempts')}; a later one "
                "is there.",
                kept="the table and all records; nothing was written and no job was submitted",
                do="restore the missing record from a copy of the checkpoint: a job of this attempt may be "
                "running",
            )
        return attempts

    def newest_attempted(self) -> int:
        """Return the newest batch that was run as a job; -1 if none ever was."""
        matches = map(_ATTEMPT.match, self.storage.names(self._path("attempts")))
        return max((int(match[1]) for match in matches if match), default=-1)

    # ---- taken_over/ -----------------------------------------------------------------------------

    def takeover(self, newest: OffsetEntry | None) -> Takeover | None:
        """Read the newest record of what was taken over from dbt-scope; None if there is none.

        :param newest: The newest entry, read before this.
        :raises CheckpointGapError: A record that the entry builds on is missing.
        """
        numbers = self._numbers("taken_over")
        for number in range(newest.takeovers if newest else 0):
            if number not in numbers:
                raise _missing_record(f"{self._path('taken_over')}/{number:020}")
        return self.get(Takeover, number=numbers[-1]) if numbers else None

    def put_taken_list(self, data: bytes) -> str:
        """Create a list of files that dbt-scope had loaded, and give its digest, which is its name."""
        name = takeover.digest(data)
        self._put_bytes(self._path(f"taken_over/{name}.parquet"), data)
        return name

    def taken_list(self, name: str) -> bytes:
        """Read a list of files that dbt-scope had loaded.

        :raises CheckpointCorruptError: It is not what was written under this name.
        """
        path = self._path(f"taken_over/{name}.parquet")
        data = self.storage.read(path)
        if data is None:
            raise _missing_record(path)
        if takeover.digest(data) != name:
            raise records.corrupt(path, "was changed after it was written")
        return data

    # ---- how ------------------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return f"{self.location}/{name}"

    def _offset_path(self, seq: int) -> str:
        return self._path(f"offsets/{seq:020}")

    def _numbers(self, folder: str) -> list[int]:
        names = self.storage.names(self._path(folder))
        return [int(name) for name in names if _NUMBER.fullmatch(name)]

    def _missing_or_purged(self, path: str, seq: int) -> CheckpointError:
        below = self.vacuumed_below()
        if seq >= below:
            return _missing_record(path)
        return RecordsVacuumedError(
            f"The record {path} was purged by `airflow scope vacuum`, with all below {below}.",
            kept="the table and all other records",
            do="run again: the next run continues from the newer records",
        )

    def _put_bytes(self, path: str, data: bytes, seq: int | None = None) -> bytes:
        """Create a record, and give the one that is there.

        :param seq: The batch's number, if its record may be purged.
        """
        if len(data) > CONTROL_FILE_LIMIT_BYTES:
            raise InputError(
                f"The record {path} would have {len(data):,} bytes; records of more than "
                f"{CONTROL_FILE_LIMIT_BYTES:,} are never read back.",
                kept="the table and the checkpoint; nothing was written",
                do="set `max_files_per_trigger`, so that a batch has fewer files",
            )
        try:
            return self.storage.put_if_absent(path, data)
        except StorageError:
            # The answer was lost, or the write was: only what is there now tells. If it is absent,
            # the caller's run fails with the storage's own error and the next one starts afresh.
            existing = self.storage.read(path)
            if existing is not None:
                return existing
            if seq is not None and seq < self.vacuumed_below():
                raise self._missing_or_purged(path, seq) from None
            raise


def _missing_record(path: str) -> CheckpointGapError:
    return CheckpointGapError(
        f"The record {path} was listed but is missing now.",
        kept="the table and all other records; nothing was written",
        do="restore it from a copy of the checkpoint; nothing but this package may delete there",
    )


READ_AT_MOST = 64
"""Entries after the hint that are read one by one. Where there are more, a list is cheaper."""


class Tail:
    """The newest records: those from ``floor`` on, a batch that has its commit record.

    Batches are recorded in order. So each entry below a recorded one is recorded as well, or a refresh took
    its place: nothing below ``floor`` is open.

    ``watermark.json`` names a batch that was committed. It is only a hint: it counts if that batch has a
    commit record, and the log is read on from there until a number is missing. Without a hint the log is
    listed, and ``floor`` is 0.

    A hint below the log's first number does not count: what was there is purged, and a run that was stopped
    long ago may have put records under these numbers since.

    Make it before the table is looked at, as it reads the commit records; then call ``catch_up``, which reads
    the entries. The other way round, a batch that another run commits in between would look like a
    transaction that no entry explains.
    """

    def __init__(self, log: CheckpointLog) -> None:
        self._log = log
        self._entries: dict[int, OffsetEntry] = {}
        self._commits: dict[int, CommitRecord] = {}
        self.floor = log.first
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
        record = self._log.find_commit(hint[0]) if hint and hint[0] >= self.floor else None
        if record is None or not self._read_on(record.seq) or record.seq not in self._entries:
            return False
        self.floor = record.seq
        # Downwards: whoever recorded a batch had recorded those before it.
        for seq in sorted(self._entries, reverse=True):
            commit = record if seq == record.seq else self._log.find_commit(seq)
            if commit:
                self._commits[seq] = commit
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
        """Return an entry, of whatever number."""
        return self._entries.get(seq) or self._log.offset(seq)

    @property
    def newest(self) -> OffsetEntry | None:
        return self.entry(self.logged[-1]) if self.logged else None

    @property
    def open_entries(self) -> tuple[OffsetEntry, ...]:
        """The entries without a commit record that still have to run, in order; no other is read."""
        first = recovery.first_open(self.newest)
        return tuple(self.entry(seq) for seq in self.logged if seq >= first and seq not in self._numbers)

    def commit(self, seq: int) -> CommitRecord:
        """Return a commit record that is in ``committed``."""
        return self._commits.get(seq) or self._log.commit(seq)

    def find_commit(self, seq: int) -> CommitRecord | None:
        """Return the commit record of an entry, as it was when this was made; None if there was none."""
        if seq < self.floor:
            return self._log.find_commit(seq)
        return self.commit(seq) if seq in self._numbers else None
