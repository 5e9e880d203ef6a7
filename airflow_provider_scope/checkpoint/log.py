"""The pipeline's log: what is written before a batch runs, and after it is in the table."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, TypeVar

from airflow_provider_scope.core import records, takeover
from airflow_provider_scope.core.records import QuarantineUse
from airflow_provider_scope.exceptions import CheckpointGapError, InputError, StorageError
from airflow_provider_scope.storage.protocol import CONTROL_FILE_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_provider_scope.core.records import (
        Acceptance,
        Attempt,
        CommitRecord,
        OffsetEntry,
        Pipeline,
        Return,
        Settlement,
    )
    from airflow_provider_scope.core.takeover import Decision, LoadedFile, Takeover
    from airflow_provider_scope.storage.protocol import Storage

_T = TypeVar("_T")
_NUMBER = re.compile(r"\d{20}")


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

    # ---- pipeline.json -------------------------------------------------------------------------

    def pipeline(self) -> Pipeline | None:
        """Read ``pipeline.json``; None before the first batch was logged."""
        data = self.storage.read(self._path("pipeline.json"))
        return None if data is None else records.decode_pipeline(self._path("pipeline.json"), data)

    def put_pipeline(self, pipeline: Pipeline) -> Pipeline:
        """Create ``pipeline.json``; give the one that is there, ours or another runner's."""
        return self._put("pipeline.json", records.encode(pipeline), pipeline, records.decode_pipeline)

    # ---- commits/, accepted/ -------------------------------------------------------------------

    def committed(self) -> list[int]:
        """List the numbers of all commit records, in order."""
        return self._numbers("commits")

    def commit(self, seq: int) -> CommitRecord:
        """Read a commit record that was listed."""
        return self._listed(f"commits/{seq:020}", lambda name, data: records.decode_commit(name, data, seq))

    def put_commit(self, record: CommitRecord) -> CommitRecord:
        """Create a commit record; give the one that is there."""
        return self._put(
            f"commits/{record.seq:020}",
            records.encode(record),
            record,
            lambda name, data: records.decode_commit(name, data, record.seq),
        )

    def newest_acceptance(self) -> Acceptance | None:
        """Read the newest record of an accepted table, if there is one."""
        numbers = self._numbers("accepted")
        if not numbers:
            return None
        newest = numbers[-1]
        return self._listed(
            f"accepted/{newest:020}",
            lambda name, data: records.decode_acceptance(name, data, newest),
        )

    def put_acceptance(self, record: Acceptance) -> Acceptance:
        """Create the record of an accepted table; give the one that is there."""
        return self._put(
            f"accepted/{record.number:020}",
            records.encode(record),
            record,
            lambda name, data: records.decode_acceptance(name, data, record.number),
        )

    def shares_table(self) -> bool:
        """Tell whether the table holds rows of pipelines beside this one, in the same checkpoint."""
        return False

    # ---- quarantines/, returned/ ---------------------------------------------------------------

    def quarantines(self) -> list[str]:
        """Give the tables that ever took what could not be loaded; the last one does now."""
        return [
            self._listed(
                f"quarantines/{number:020}",
                functools.partial(records.decode_quarantine_use, number=number),
            ).table
            for number in self._numbers("quarantines")
        ]

    def use_quarantine(self, table: str) -> list[str]:
        """Record that a table takes what cannot be loaded, and give all that ever did, that one last."""
        while True:
            used = self.quarantines()
            if used and used[-1] == table:
                return used
            mine = QuarantineUse(number=len(used), table=table)
            self._put(
                f"quarantines/{mine.number:020}",
                records.encode(mine),
                mine,
                functools.partial(records.decode_quarantine_use, number=mine.number),
            )

    def returns(self) -> list[Return]:
        """Read all records of files that were given back from the quarantine, in order."""
        return [
            self._listed(
                f"returned/{number:020}",
                functools.partial(records.decode_return, number=number),
            )
            for number in self._numbers("returned")
        ]

    def returned(self) -> dict[str, int]:
        """Give the files that were given back, and the newest entry at that time."""
        return {path: record.after for record in self.returns() for path in record.files}

    def put_return(self, record: Return) -> Return:
        """Create the record of files that were given back; give the one that is there."""
        return self._put(
            f"returned/{record.number:020}",
            records.encode(record),
            record,
            functools.partial(records.decode_return, number=record.number),
        )

    # ---- offsets/ ------------------------------------------------------------------------------

    def logged(self) -> list[int]:
        """List the numbers of all offset entries, in order.

        :raises CheckpointGapError: A number is missing: the files of that batch are not known.
        """
        numbers = self._numbers("offsets")
        if numbers != list(range(len(numbers))):
            missing = sorted(set(range(numbers[-1])) - set(numbers))
            raise CheckpointGapError(
                f"The log {self._path('offsets')} goes up to {numbers[-1]}, but "
                f"{', '.join(map(str, missing[:5]))} {'is' if len(missing) == 1 else 'are'} missing.",
                kept="the table and all records; nothing was written",
                do="restore the missing records from a copy of the checkpoint: the files they name "
                "would otherwise be lost or loaded twice",
            )
        return numbers

    def offset(self, seq: int) -> OffsetEntry:
        """Read an offset entry that was listed."""
        return self._listed(f"offsets/{seq:020}", lambda name, data: records.decode_offset(name, data, seq))

    def put_offset(self, entry: OffsetEntry) -> OffsetEntry:
        """Create an offset entry; give the one that is there, ours or the winner's."""
        return self._put(
            f"offsets/{entry.seq:020}",
            records.encode_offset(entry),
            entry,
            lambda name, data: records.decode_offset(name, data, entry.seq),
        )

    # ---- attempts/ -----------------------------------------------------------------------------

    def attempts(self, seq: int) -> list[Attempt]:
        """Read all attempts of a batch, in order.

        :raises CheckpointGapError: A number is missing: what became of that job is not known.
        """
        names = self.storage.names(self._path("attempts"))
        found = [re.fullmatch(rf"{seq:020}\.(\d+)", name) for name in names]
        numbers = sorted(int(match[1]) for match in found if match)
        if numbers != list(range(len(numbers))):
            raise CheckpointGapError(
                f"The attempts {numbers} of batch {seq} in {self._path('attempts')} are not all there.",
                kept="the table and all records; nothing was written and no job was submitted",
                do="restore the missing records from a copy of the checkpoint: a job of theirs may run",
            )
        return [self._attempt(seq, number) for number in numbers]

    def put_attempt(self, attempt: Attempt) -> Attempt:
        """Create the record of an attempt; give the one that is there."""
        seq, number = attempt.seq, attempt.number
        return self._put(
            f"attempts/{seq:020}.{number}",
            records.encode(attempt),
            attempt,
            lambda name, data: records.decode_attempt(name, data, seq, number),
        )

    def has_attempts(self) -> bool:
        """Tell whether any batch was ever run as a job."""
        return bool(self.storage.names(self._path("attempts")))

    def settlement(self, seq: int, number: int) -> Settlement | None:
        """Read what somebody decided about an attempt; None if nobody did."""
        name = self._path(f"attempts/{seq:020}.{number}.settled")
        data = self.storage.read(name)
        return None if data is None else records.decode_settlement(name, data, seq, number)

    def put_settlement(self, settled: Settlement) -> Settlement:
        """Create the record of a decision; give the one that is there."""
        seq, number = settled.seq, settled.number
        return self._put(
            f"attempts/{seq:020}.{number}.settled",
            records.encode(settled),
            settled,
            lambda name, data: records.decode_settlement(name, data, seq, number),
        )

    def _attempt(self, seq: int, number: int) -> Attempt:
        return self._listed(
            f"attempts/{seq:020}.{number}",
            lambda name, data: records.decode_attempt(name, data, seq, number),
        )

    # ---- taken_over/ -----------------------------------------------------------------------------

    def takeovers(self, pipeline: Pipeline) -> list[Takeover]:
        """Read what this pipeline took over from dbt-scope, in order.

        :raises CheckpointGapError: The record with which the pipeline began is missing.
        """
        found = [self._takeover(number) for number in self._numbers("taken_over")]
        ours = [taken for taken in found if taken.pipeline == pipeline.pipeline]
        if pipeline.taken_over is not None and pipeline.taken_over not in [t.number for t in ours]:
            raise _gone(f"{self._path('taken_over')}/{pipeline.taken_over:020}")
        return ours

    def newest_takeover(self) -> Takeover | None:
        """Read the newest record in ``taken_over/``, whichever pipeline it is of."""
        numbers = self._numbers("taken_over")
        return self._takeover(numbers[-1]) if numbers else None

    def put_takeover(self, taken: Takeover) -> Takeover:
        """Create the record of a takeover; give the one that is there."""
        return self._put(
            f"taken_over/{taken.number:020}",
            takeover.encode(taken),
            taken,
            lambda name, data: takeover.decode(name, data, taken.number),
        )

    def put_taken_files(self, files: Sequence[LoadedFile]) -> tuple[str, ...]:
        """Create the lists of files that a takeover names by their digests, and give the digests."""
        digests = []
        for data in takeover.encode_files(files):
            digests.append(takeover.digest(data))
            self._put(f"taken_over/{digests[-1]}.files", data, data, lambda _, there: there)
        return tuple(digests)

    def taken_files(self, taken: Takeover) -> list[LoadedFile]:
        """Read the files that a takeover names."""
        found: list[LoadedFile] = []
        for digest in taken.lists:
            decode = functools.partial(takeover.decode_files, expected=digest)
            found += self._listed(f"taken_over/{digest}.files", decode)
        return found

    def decision(self, watermark: str) -> Decision | None:
        """Read what somebody decided about the files that have exactly a watermark's time."""
        name = self._path(f"taken_over/{watermark}.decided")
        data = self.storage.read(name)
        return None if data is None else takeover.decode_decision(name, data, watermark)

    def put_decision(self, decided: Decision) -> Decision:
        """Create the record of a decision; give the one that is there."""
        return self._put(
            f"taken_over/{decided.watermark}.decided",
            takeover.encode_decision(decided),
            decided,
            lambda name, data: takeover.decode_decision(name, data, decided.watermark),
        )

    def _takeover(self, number: int) -> Takeover:
        return self._listed(
            f"taken_over/{number:020}", lambda name, data: takeover.decode(name, data, number)
        )

    # ---- how ------------------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return f"{self.location}/{name}"

    def _numbers(self, folder: str) -> list[int]:
        names = self.storage.names(self._path(folder))
        return [int(name) for name in names if _NUMBER.fullmatch(name)]

    def _listed(self, name: str, decode: Callable[[str, bytes], _T]) -> _T:
        data = self.storage.read(self._path(name))
        if data is None:
            raise _gone(self._path(name))
        return decode(self._path(name), data)

    def _put(self, name: str, data: bytes, record: _T, decode: Callable[[str, bytes], _T]) -> _T:
        path = self._path(name)
        if len(data) > CONTROL_FILE_LIMIT_BYTES:
            raise InputError(
                f"The record {path} would have {len(data):,} bytes; records of more than "
                f"{CONTROL_FILE_LIMIT_BYTES:,} are never read back.",
                kept="the table and the checkpoint; nothing was written",
                do="set `max_files_per_trigger`, so that a batch has fewer files",
            )
        try:
            if self.storage.put_if_absent(path, data):
                return record
        except StorageError:
            # The answer was lost, or the write was: only what is there now tells. If it is absent,
            # the caller's run fails with the storage's own error and the next one starts afresh.
            there = self.storage.read(path)
            if there is None:
                raise
            return decode(path, there)
        there = self.storage.read(path)
        if there is None:
            raise CheckpointGapError(
                f"The record {path} existed a moment ago and is missing now.",
                kept="the table and all other records",
                do="nothing but this package may write there; find out what does, then run again",
            )
        return decode(path, there)


def _gone(path: str) -> CheckpointGapError:
    return CheckpointGapError(
        f"The record {path} was listed but is missing now.",
        kept="the table and all other records; nothing was written",
        do="restore it from a copy of the checkpoint; nothing but this package may delete there",
    )
