"""The records of the checkpoint as values, and their bytes; see ``record_text`` for how they are read."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal

from airflow_provider_scope.core import record_text
from airflow_provider_scope.core.files import FileEntry, Position
from airflow_provider_scope.core.record_text import FORMAT, Reader

if TYPE_CHECKING:
    from collections.abc import Mapping

Mode = Literal["append", "overwrite"]


@dataclass(frozen=True, slots=True)
class TableStamp:
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
    table: TableStamp | None
    """The table when the pipeline was created; None if there was none yet."""
    table_version: int | None = None
    """The table's version at that time: transactions of this pipeline are all newer."""
    taken_over: int | None = None
    """The first record in ``taken_over/`` that counts; None if no other program loaded files before."""
    format: int = FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetEntry:
    """``offsets/<seq>``: the files of one batch, written before the batch runs."""

    seq: int
    mode: Mode
    files: tuple[FileEntry, ...]
    refresh_start: int | None
    """The entry from which files count as seen; None before the first refresh."""
    overwrite_start: int | None
    """The newest entry that overwrites the whole table; open entries below it are dead."""
    highest: Position | None
    """The largest (modified, path) of all entries since ``refresh_start``, this one included."""
    where: str | None = None
    """Predicate of the rows that an overwrite replaces; None is the whole table.

    The batches that follow it in the same run have it too: their rows must lie inside.
    """
    format: int = FORMAT

    @property
    def size_bytes(self) -> int:
        """Sum of the files' sizes."""
        return sum(file.size_bytes for file in self.files)

    @property
    def overwrites_table(self) -> bool:
        """Whether the batch replaces everything that is in the table."""
        return self.mode == "overwrite" and self.where is None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    """``commits/<seq>``: the batch is in the table, or was abandoned."""

    seq: int
    table: TableStamp | None
    """The table that the batch is in; None if it was given up before there was one."""
    table_version: int
    files: int
    size_bytes: int
    committed_at_ms: int
    """When the record was made, for people; nothing is decided by it."""
    rows: int | None = None
    """Rows that the batch wrote; None if the table's log does not tell."""
    written_bytes: int | None = None
    abandoned: bool = False
    quarantined: Mapping[str, int] = field(default_factory=dict)
    """Rule -> records, rows and files of the batch that broke it and are in the quarantine."""
    columns: str | None = None
    """The columns that the batches of this refresh have, as they were inferred from its first one."""
    format: int = FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """``accepted/<n>``: somebody accepted a table that had diverged."""

    number: int
    after_commit: int
    """The newest commit record at that time, -1 if there was none."""
    table: TableStamp
    table_version: int
    gone: tuple[int, ...] = field(default=())
    """Open batches whose rows a RESTORE had taken out: they are recorded as abandoned."""
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
    """There is no job, and there must be none: the batch was given up, or a refresh overtook it."""
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
class Return:
    """``returned/<n>``: files were given back from the quarantine, and count as not loaded."""

    number: int
    after: int
    """The newest entry at that time: a file that a later one names was loaded again since."""
    files: tuple[str, ...]
    """URIs of files that were quarantined as a whole."""
    format: int = FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineUse:
    """``quarantines/<n>``: from now on this table takes what cannot be loaded; written before the first."""

    number: int
    table: str
    """URI of the table."""
    format: int = FORMAT


Record = Pipeline | CommitRecord | Acceptance | Attempt | Settlement | Return | QuarantineUse

_LEFT_OUT_IF_EMPTY = ("quarantined", "columns")
"""Keys that a record of version 0.1.0 does not have."""


def encode(record: Record) -> bytes:
    """Give the bytes of a record that is one JSON object."""
    fields = asdict(record)
    value = {key: fields[key] for key in fields if fields[key] or key not in _LEFT_OUT_IF_EMPTY}
    return (record_text.line(value) + "\n").encode()


def encode_offset(entry: OffsetEntry) -> bytes:
    """Give the bytes of an offset entry: a header line, then one line a file."""
    header = {
        "files": len(entry.files),
        "format": entry.format,
        "highest": list(entry.highest) if entry.highest else None,
        "mode": entry.mode,
        "overwrite_start": entry.overwrite_start,
        "refresh_start": entry.refresh_start,
        "seq": entry.seq,
        "where": entry.where,
    }
    lines = [record_text.line(header)]
    lines += [record_text.line(_file_line(file)) for file in entry.files]
    return ("\n".join(lines) + "\n").encode()


def _file_line(file: FileEntry) -> dict[str, object]:
    line: dict[str, object] = {
        "created": file.created_ms,
        "modified": file.modified_ms,
        "path": file.path,
        "size": file.size_bytes,
    }
    return line | {"md5": file.content_md5} if file.content_md5 is not None else line


def _stamp(reader: Reader) -> TableStamp | None:
    value = reader.value.get("table")
    if value is None:
        return None
    inner = Reader(reader.name, record_text.line(value))
    return TableStamp(inner.text("table_id"), inner.optional_integer("restore_version"))


def _needed_stamp(reader: Reader) -> TableStamp:
    stamp = _stamp(reader)
    if stamp is None:
        raise reader.corrupt("names no table")
    return stamp


def decode_pipeline(name: str, data: bytes) -> Pipeline:
    """Read ``pipeline.json``."""
    reader = record_text.single(name, data)
    return Pipeline(
        pipeline=reader.text("pipeline"),
        table=_stamp(reader),
        table_version=reader.optional_integer("table_version"),
        taken_over=reader.optional_integer("taken_over"),
        format=reader.integer("format"),
    )


def decode_commit(name: str, data: bytes, seq: int) -> CommitRecord:
    """Read ``commits/<seq>``; the number inside must be that of the name."""
    reader = record_text.single(name, data)
    if reader.integer("seq") != seq:
        raise reader.corrupt(f"says seq={reader.integer('seq')}")
    return CommitRecord(
        seq=seq,
        table=_stamp(reader) if reader.switch("abandoned") else _needed_stamp(reader),
        table_version=reader.integer("table_version"),
        files=reader.integer("files"),
        size_bytes=reader.integer("size_bytes"),
        committed_at_ms=reader.integer("committed_at_ms"),
        rows=reader.optional_integer("rows"),
        written_bytes=reader.optional_integer("written_bytes"),
        abandoned=reader.switch("abandoned"),
        quarantined=reader.counts("quarantined"),
        columns=None if reader.value.get("columns") is None else reader.text("columns"),
        format=reader.integer("format"),
    )


def decode_return(name: str, data: bytes, number: int) -> Return:
    """Read ``returned/<n>``."""
    reader = record_text.single(name, data)
    if reader.integer("number") != number:
        raise reader.corrupt(f"says number={reader.integer('number')}")
    files = reader.value.get("files")
    if not isinstance(files, list) or not all(isinstance(path, str) for path in files):
        raise reader.corrupt(f"has files={files!r}, expected a list of URIs")
    return Return(
        number=number, after=reader.integer("after"), files=tuple(files), format=reader.integer("format")
    )


def decode_quarantine_use(name: str, data: bytes, number: int) -> QuarantineUse:
    """Read ``quarantines/<n>``."""
    reader = record_text.single(name, data)
    if reader.integer("number") != number:
        raise reader.corrupt(f"says number={reader.integer('number')}")
    return QuarantineUse(number=number, table=reader.text("table"), format=reader.integer("format"))


def decode_acceptance(name: str, data: bytes, number: int) -> Acceptance:
    """Read ``accepted/<n>``."""
    reader = record_text.single(name, data)
    if reader.integer("number") != number:
        raise reader.corrupt(f"says number={reader.integer('number')}")
    gone = reader.value.get("gone")
    if not isinstance(gone, list) or not all(type(seq) is int for seq in gone):
        raise reader.corrupt(f"has gone={gone!r}, expected a list of numbers")
    return Acceptance(
        number=number,
        after_commit=reader.integer("after_commit"),
        table=_needed_stamp(reader),
        table_version=reader.integer("table_version"),
        gone=tuple(gone),
        format=reader.integer("format"),
    )


def decode_attempt(name: str, data: bytes, seq: int, number: int) -> Attempt:
    """Read ``attempts/<seq>.<k>``; the numbers inside must be those of the name."""
    reader = record_text.single(name, data)
    found = reader.integer("seq"), reader.integer("number")
    if found != (seq, number):
        raise reader.corrupt(f"says seq={found[0]}, number={found[1]}")
    return Attempt(
        seq=seq,
        number=number,
        table_version=reader.integer("table_version"),
        void=reader.switch("void"),
        format=reader.integer("format"),
    )


def decode_settlement(name: str, data: bytes, seq: int, number: int) -> Settlement:
    """Read ``attempts/<seq>.<k>.settled``; the numbers inside must be those of the name."""
    reader = record_text.single(name, data)
    found = reader.integer("seq"), reader.integer("number")
    if found != (seq, number):
        raise reader.corrupt(f"says seq={found[0]}, number={found[1]}")
    if "landed" not in reader.value:
        raise reader.corrupt("does not say whether the job's rows are in the table")
    return Settlement(
        seq=seq,
        number=number,
        landed=reader.switch("landed"),
        table_version=reader.integer("table_version"),
        format=reader.integer("format"),
    )


def decode_offset(name: str, data: bytes, seq: int) -> OffsetEntry:
    """Read ``offsets/<seq>``; the number of file lines must be the one in the header."""
    # Not splitlines(): a path may hold any of the other characters that it takes for line ends.
    header, *rest = record_text.text_of(name, data).split("\n")[:-1]
    reader = Reader(name, header)
    reader.check_format()
    if reader.integer("seq") != seq:
        raise reader.corrupt(f"says seq={reader.integer('seq')}")
    mode = reader.text("mode")
    if mode not in ("append", "overwrite"):
        raise reader.corrupt(f"has mode={mode!r}, expected 'append' or 'overwrite'")
    if len(rest) != reader.integer("files"):
        raise reader.corrupt(f"lists {len(rest)} files, its header says {reader.integer('files')}")
    highest = reader.value.get("highest")
    if highest is not None and not (
        isinstance(highest, list) and [type(part) for part in highest] == [int, str]
    ):
        raise reader.corrupt(f"has highest={highest!r}, expected [modified, path]")
    return OffsetEntry(
        seq=seq,
        mode="append" if mode == "append" else "overwrite",
        files=tuple(_file(name, line) for line in rest),
        refresh_start=reader.optional_integer("refresh_start"),
        overwrite_start=reader.optional_integer("overwrite_start"),
        highest=Position(*highest) if highest else None,
        where=None if reader.value.get("where") is None else reader.text("where"),
        format=reader.integer("format"),
    )


def _file(name: str, line: str) -> FileEntry:
    reader = Reader(name, line)
    return FileEntry(
        modified_ms=reader.integer("modified"),
        path=reader.text("path"),
        size_bytes=reader.integer("size"),
        created_ms=reader.optional_integer("created"),
        content_md5=None if reader.value.get("md5") is None else reader.text("md5"),
    )
