"""The records of the checkpoint as values; see ``record_text`` for how they are written and read."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - the annotations are read at run time
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from airflow_provider_scope.core import record_text
from airflow_provider_scope.core.bad_records import Quarantined  # noqa: TC001 - as above
from airflow_provider_scope.core.files import FileEntry
from airflow_provider_scope.core.record_text import FORMAT, LEFT_OUT
from airflow_provider_scope.core.slices import KINDS, FileSlice, Slice

Mode = Literal["append", "overwrite", "empty"]


@dataclass(frozen=True, slots=True)
class TableIdentity:
    """What tells a table from another one at the same place, and from an older state of itself."""

    table_id: str
    """``metaData.id`` of the Delta log; a table that is dropped and created again has another one."""
    restore_version: int | None = None
    """Version of the newest RESTORE, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """``pipeline.json``: one checkpoint is one pipeline."""

    pipeline: str
    """A UUID; the ``appId`` of all transactions in the table."""
    table: TableIdentity | None
    """The table when the pipeline was created; None if there was none yet."""
    table_version: int | None = None
    """The table's version at that time: transactions of this pipeline are all newer."""
    taken_over: int | None = None
    """The first record in ``taken_over/`` that counts; None if no other program loaded files before."""
    format: int = FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetEntry:
    """``offsets/<seq>``: what one batch reads, written before the batch runs."""

    seq: int
    mode: Mode
    """``empty`` is a batch that is only ever abandoned: it repeats the slice of the one before."""
    slice: Slice
    refresh_start: int | None
    """The entry from which slices count as seen; None before the first refresh."""
    overwrite_start: int | None
    """The newest entry that overwrites the whole table; open entries below it are dead."""
    where: str | None = None
    """Predicate of the rows that an overwrite replaces; None is the whole table.

    The batches that follow it in the same run have it too: their rows must lie inside.
    """

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """The files of a batch, for what reads nothing else.

        :raises TypeError: It is a batch of something else.
        """
        if not isinstance(self.slice, FileSlice):
            msg = f"batch {self.seq} is a batch of {self.slice.kind}, not of files"
            raise TypeError(msg)
        return self.slice.files

    def with_files(self, files: tuple[FileEntry, ...]) -> OffsetEntry:
        """Give the same batch with a part of its files."""
        return replace(self, slice=FileSlice(files, self.slice.highest))

    @property
    def size_bytes(self) -> int:
        """Bytes to read, as far as the source tells."""
        return self.slice.size_bytes

    @property
    def overwrites_table(self) -> bool:
        """Whether the batch replaces everything that is in the table."""
        return self.mode == "overwrite" and self.where is None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    """``commits/<seq>``: the batch is in the table, or was abandoned."""

    seq: int
    table: TableIdentity | None
    """The table that the batch is in; None if it was abandoned before there was one."""
    table_version: int
    files: int
    size_bytes: int
    committed_at_ms: int
    """When the record was made, for people; nothing is decided by it."""
    rows: int | None = None
    """Rows that the batch wrote; None if the table's log does not tell."""
    written_bytes: int | None = None
    abandoned: bool = False
    quarantined: Mapping[str, Quarantined] = field(default_factory=dict, metadata=LEFT_OUT)
    """``records``, ``rows`` or ``files`` -> those of the batch that are in the quarantine."""
    changes: Mapping[str, int] = field(default_factory=dict, metadata=LEFT_OUT)
    """What a batch of a row-level write did: rows that were inserted, updated, deleted, deduplicated, …"""
    columns: str | None = field(default=None, metadata=LEFT_OUT)
    """The columns that the batches of this refresh have, as they were inferred from its first one."""
    state: str | None = field(default=None, metadata=LEFT_OUT)
    """The state of the source behind the batch, as its commit says it; None if the source has none."""
    state_unknown: bool = field(default=False, metadata=LEFT_OUT)
    """Nothing tells the state behind the batch: only a full refresh may go on."""
    format: int = FORMAT

    def __post_init__(self) -> None:
        """Refuse a batch that is in no table.

        :raises ValueError: As said.
        """
        if self.table is None and not self.abandoned:
            raise ValueError("names no table")


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """``accepted/<n>``: somebody accepted a table that had diverged."""

    number: int
    after_commit: int
    """The newest commit record at that time, -1 if there was none."""
    table: TableIdentity | None
    """None: it was gone, and the next batch, which replaces all rows, makes a new one."""
    table_version: int
    gone: tuple[int, ...] = field(default=())
    """Open batches whose rows a RESTORE had taken out: they are recorded as abandoned."""
    state: str | None = field(default=None, metadata=LEFT_OUT)
    """The state of the source that the table's rows are the rows of; None is the initial one."""
    state_unknown: bool = field(default=False, metadata=LEFT_OUT)
    """Nothing tells that state: only a full refresh may go on."""
    format: int = FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """``attempts/<seq>.<k>``: a job of a batch, written before the job is submitted.

    The job's id follows from pipeline, seq and number, so whoever reads this can look the job up.
    """

    seq: int
    number: int
    table_version: int
    """The table's version before the job; -1 if there was none. What it changes is above it."""
    void: bool = False
    """There is no job, and there must be none: the batch was abandoned, or a refresh overtook it."""
    format: int = FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """``attempts/<seq>.<k>.settled``: somebody looked at the table and decided what became of a job.

    It counts for that attempt alone, and before anything that the service or the table's log says.
    """

    seq: int
    number: int
    landed: bool
    """Whether the job's rows are in the table."""
    table_version: int
    """The table's version when it was decided: rows of the job are in it, or in an older one."""
    format: int = FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuumed:
    """``vacuumed/<below>``: the entries and commit records below this number are purged, or about to be.

    The newest one counts, and nobody believes a record below it: a run that was stopped before it wrote an
    entry may find the number free again.
    """

    below: int
    quarantined: tuple[int, ...] = field(default=())
    """Purged batches since the last full refresh that are in the table, and of which something is in the
    quarantine."""
    format: int = FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineUse:
    """``quarantines/<n>``: from now on this table takes what cannot be loaded; written before the first."""

    number: int
    table: str
    """URI of the table."""
    format: int = FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileLine:
    """The keys of a line of an entry, in the order of ``FileEntry``."""

    modified: int
    path: str
    size: int
    created: int | None
    md5: str | None = field(default=None, metadata=LEFT_OUT)


def encode_offset(entry: OffsetEntry) -> bytes:
    """Give the bytes of an entry: a header line; of files, then one line a file."""
    header = {key.name: getattr(entry, key.name) for key in fields(entry)} | {"format": FORMAT}
    found = header.pop("slice")
    if isinstance(found, FileSlice):
        header |= {"files": len(found.files), "highest": found.highest}
    else:
        header |= {"kind": found.kind, "slice": asdict(found)}
    lines = [record_text.line(header)]
    lines += [record_text.row_line(_FileLine, file) for file in found.audited]
    return ("\n".join(lines) + "\n").encode()


def decode_offset(name: str, data: bytes, seq: int) -> OffsetEntry:
    """Read ``offsets/<seq>``; the number of file lines must be the one in the header.

    :raises CheckpointCorruptError: It was not written to its end, or says something that cannot be.
    :raises CheckpointVersionError: A newer version of this package wrote it.
    """
    # Not splitlines(): a path may hold any of the other characters that it takes for line ends.
    first, *lines = record_text.text_of(name, data).split("\n")[:-1]
    header = record_text.parsed(name, first)
    found = (_of_a_kind if "kind" in header else _of_files)(name, header, lines)
    entry = record_text.typed(OffsetEntry, name, header, slice=found)
    record_text.check_says(name, entry, seq=seq)
    return entry


def _of_files(name: str, header: dict[str, Any], lines: list[str]) -> Slice:
    count = header.get("files")
    if type(count) is not int or count != len(lines):
        raise record_text.corrupt(name, f"lists {len(lines)} files, its header says {count!r}")
    files = tuple(record_text.rows(_FileLine, FileEntry, name, lines))
    return record_text.typed(FileSlice, name, header, files=files)


def _of_a_kind(name: str, header: dict[str, Any], lines: list[str]) -> Slice:
    kind, value = header["kind"], header.get("slice")
    if type(kind) is not str or type(value) is not dict or lines:
        what = f"has kind={kind!r}, slice={value!r} and {len(lines)} more lines"
        raise record_text.corrupt(name, f"{what}, expected text, an object and none")
    if kind not in KINDS:
        raise record_text.newer(name, f"is of a batch of {kind}", f"no batches of {kind}")
    found: Slice = record_text.typed(KINDS[kind], name, value)
    return found
