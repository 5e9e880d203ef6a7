"""The records of the checkpoint: as values, and as the bytes of their files.

A record's dataclass says which keys it has, of which types. Bytes are deterministic (sorted keys, fixed
separators, a newline at the end), so two runners that write the same record write the same bytes. Reading
is strict: the checkpoint is untrusted input, and a record that is cut short must never pass as a shorter
one. Keys that are not known are ignored: a newer version may have added them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from functools import cache
from itertools import product
from operator import itemgetter
from string import Formatter
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Protocol,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from airflow_provider_scope.exceptions import CheckpointCorruptError, CheckpointVersionError
from airflow_provider_scope.expectations import RuleCount  # noqa: TC001 - as above
from airflow_provider_scope.protocol.bad_records import Quarantined  # noqa: TC001 - as above
from airflow_provider_scope.values import KINDS, FileEntry, FileSlice, Slice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from _typeshed import DataclassInstance

    class Record(DataclassInstance, Protocol):
        """A record that is one JSON object."""

        PATH: ClassVar[str]
        """Its name in the checkpoint, with the keys that the name tells."""


# ---- records as bytes ----

FORMAT = 1
LEFT_OUT = {"left out if empty": True}
"""Metadata of a field that is written only if it is not empty; without its key it has its default."""
NEW_LOG = (
    "move the folder of the checkpoint away while nothing runs, and run the task once with "
    'full_refresh=True, which replaces all rows and begins a new log. With mode="data_interval", delete the '
    "rows of the interval from the table, move the folder away, and clear the interval's run"
)
"""What a person does about records that are lost and of which there is no copy."""

_R = TypeVar("_R", bound="DataclassInstance")
_Row = TypeVar("_Row")
_EXPECTED = {
    int: "a whole number",
    str: "text",
    bool: "true or false",
    tuple[int, ...]: "a list of numbers",
    tuple[str, ...]: "a list of texts",
    Mapping[str, int]: "a number for each name",
}
_TO_TEXT = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class _UnfitError(Exception):
    """A value is not of the type that the annotation says."""


# ---- writing -----------------------------------------------------------------------------------------


def line(value: object) -> str:
    """Return a value as one line of JSON, always the same."""
    return _TO_TEXT.encode(value)


def encode(record: DataclassInstance) -> bytes:
    """Return the bytes of a record that is one JSON object."""
    return f"{line(_without_empty(type(record), asdict(record)))}\n".encode()


def name_of(record: Record) -> dict[str, Any]:
    """Return the keys that a record's name tells, with their values."""
    keys = [key for _, key, _, _ in Formatter().parse(record.PATH) if key]
    return {key: getattr(record, key) for key in keys}


def _without_empty(kind: type[DataclassInstance], value: dict[str, Any]) -> dict[str, Any]:
    return {key.name: value[key.name] for key in _keys(kind) if value[key.name] or not key.may_be_missing}


def row_line(kind: type[DataclassInstance], row: Iterable[object]) -> str:
    """Return a tuple as one line of JSON.

    :param kind: The dataclass of a line, with the tuple's fields in their order.
    """
    keys = zip(_keys(kind), row, strict=True)
    return line({key.name: value for key, value in keys if value is not None or not key.may_be_missing})


# ---- reading -----------------------------------------------------------------------------------------


def decode(kind: type[_R], name: str, data: bytes, **expected: object) -> _R:
    """Read a record that is one JSON object.

    :param kind: The dataclass of the record: each field is a key, and only one that is ``LEFT_OUT`` may
        be missing.
    :param name: What errors call the record.
    :param expected: Fields that the record's name tells: the record must say the same.
    :raises CheckpointCorruptError: It was not written to its end, or says something that cannot be.
    :raises CheckpointVersionError: A newer version of this package wrote it.
    """
    record = typed(kind, name, parsed(name, text_of(name, data)))
    check_says(name, record, **expected)
    return record


def text_of(name: str, data: bytes) -> str:
    """Return the text of a record that was written to its end."""
    if not data.endswith(b"\n"):
        raise corrupt(name, f"is cut short ({len(data)} bytes, no newline at the end)")
    try:
        return data.decode()
    except UnicodeDecodeError as err:
        raise corrupt(name, f"is not UTF-8 ({err})") from err


def parsed(name: str, text: str) -> dict[str, Any]:
    """Return the JSON object of a record, of a format that this version reads."""
    value = _object(name, text)
    format_number = value.get("format")
    if type(format_number) is not int:
        raise corrupt(name, f"has format={format_number!r}, expected a whole number")
    if format_number > FORMAT:
        raise newer(name, f"has format {format_number}", f"formats up to {FORMAT}")
    return value


def newer(name: str, problem: str, supported: str) -> CheckpointVersionError:
    """Return the error for a record that only a newer version can read."""
    return CheckpointVersionError(
        f"The checkpoint record {name} {problem}; this version of airflow-provider-scope reads {supported}.",
        kept="the table and all records; nothing was written",
        do="install the version of airflow-provider-scope that wrote it, or a newer one",
    )


def typed(kind: type[_R], name: str, value: Mapping[str, Any], **field_values: object) -> _R:
    """Return a JSON object as its dataclass.

    :param field_values: Fields whose values the caller has made: the object has them in another form.
    """
    for key, annotation, plain, may_be_missing in _keys(kind):
        if key in field_values:
            continue
        if key not in value:
            if may_be_missing:
                continue
            raise corrupt(name, f"has no key {key!r}")
        json_value = field_values[key] = value[key]
        if type(json_value) not in plain:
            try:
                field_values[key] = _fitting(name, annotation, json_value)
            except _UnfitError:
                problem = f"has {key}={json_value!r}, expected {_expected(annotation)}"
                raise corrupt(name, problem) from None
    try:
        return kind(**field_values)
    except ValueError as err:
        raise corrupt(name, str(err)) from err


def check_says(name: str, record: object, **expected: object) -> None:
    """Refuse a record that says something else than its name."""
    actual = {key: getattr(record, key) for key in expected}
    if actual != expected:
        raise corrupt(name, "says " + ", ".join(f"{key}={value!r}" for key, value in actual.items()))


def rows(
    kind: type[DataclassInstance], row: Callable[..., _Row], name: str, lines: Iterable[str]
) -> list[_Row]:
    """Read lines that are one JSON object each; there may be a million of them.

    :param kind: The dataclass of a line.
    :param row: Makes the value of a line from the fields, in their order.
    """
    required_values = itemgetter(*(key.name for key in _keys(kind) if not key.may_be_missing))
    optional_names = [key.name for key in _keys(kind) if key.may_be_missing]
    usual_types = set(product(*(key.plain for key in _keys(kind))))
    decoded = []
    for text in lines:
        value = _object(name, text)
        try:
            values = (*required_values(value), *map(value.get, optional_names))
        except KeyError:
            values = ()
        if tuple(map(type, values)) not in usual_types:
            typed(kind, name, value)  # which tells what is wrong
        decoded.append(row(*values))
    return decoded


def corrupt(name: str, problem: str) -> CheckpointCorruptError:
    """Return the error for a record that says something that cannot be."""
    return CheckpointCorruptError(
        f"The checkpoint record {name} {problem}.",
        kept="the table and all records; nothing was written",
        do="restore the record from a copy of the checkpoint. Do not delete or edit it: that may lose or "
        f"double rows. If there is no copy, {NEW_LOG}",
    )


def notes(user_metadata: str | None) -> dict[str, Any]:
    """Return what we wrote into a commit of a Delta table; other writers put any text there."""
    try:
        value = json.loads(user_metadata or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        key = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {key!r} is there twice")
    return value


_FROM_TEXT = json.JSONDecoder(object_pairs_hook=_unique)


def _object(name: str, text: str) -> dict[str, Any]:
    try:
        # raw_decode() is the faster half of decode(); what that does besides is done here.
        text = text.strip(" \t\r\n")
        value, end = _FROM_TEXT.raw_decode(text)
        if end != len(text):
            raise json.JSONDecodeError("Extra data", text, end)
    except (ValueError, RecursionError) as err:
        raise corrupt(name, f"is not JSON ({err})") from err
    if not isinstance(value, dict):
        raise corrupt(name, f"holds {type(value).__name__}, not an object")
    return value


class _Key(NamedTuple):
    """A field of a dataclass."""

    name: str
    annotation: Any
    plain: tuple[type, ...]
    """Types whose values are as they are in JSON."""
    may_be_missing: bool


@cache
def _keys(kind: type[DataclassInstance]) -> list[_Key]:
    hints = get_type_hints(kind)
    keys = []
    for member in fields(kind):
        hint = hints[member.name]
        plain = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        keys.append(_Key(member.name, hint, plain, "left out if empty" in member.metadata))
    return keys


def _fitting(name: str, annotation: Any, value: Any) -> Any:
    """Convert a JSON value to the type of an annotation, of those that records have."""
    if type(value) is annotation:
        return value
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is UnionType:
        return None if value is None else _fitting(name, _not_none(annotation), value)
    if origin is Literal and type(value) is str and value in inner:
        return value
    if origin is tuple and inner[1:] == (...,) and type(value) is list:
        return tuple(_fitting(name, inner[0], item) for item in value)
    if type(value) is list and hasattr(annotation, "_fields") and len(value) == len(annotation._fields):
        hints = get_type_hints(annotation).values()
        return annotation(*(_fitting(name, *pair) for pair in zip(hints, value, strict=True)))
    if origin is Mapping and type(value) is dict:
        return {key: _fitting(name, inner[1], item) for key, item in value.items()}
    if type(value) is dict and isinstance(annotation, type) and is_dataclass(annotation):
        return typed(annotation, name, value)
    raise _UnfitError


def _not_none(annotation: Any) -> Any:
    return next(kind for kind in get_args(annotation) if kind is not NoneType)


def _expected(annotation: Any) -> str:
    if get_origin(annotation) is UnionType:
        return _expected(_not_none(annotation))
    if get_origin(annotation) is Literal:
        return " or ".join(map(repr, get_args(annotation)))
    if hasattr(annotation, "_fields"):
        return f"[{', '.join(annotation._fields)}]"
    return _EXPECTED.get(annotation, "an object" if is_dataclass(annotation) else str(annotation))


# ---- the records ----

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

    PATH: ClassVar[str] = "pipeline.json"
    pipeline: str
    """A UUID; the ``appId`` of all transactions in the table."""
    table: TableIdentity | None
    """The table when the pipeline was created; None if there was none yet."""
    table_version: int | None = None
    """The table's version at that time: transactions of this pipeline are all newer."""
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
    takeovers: int = field(default=0, metadata=LEFT_OUT)
    """How many records in ``taken_over/`` say, together with the entries, which files are loaded."""
    void_watermark: str | None = field(default=None, metadata=LEFT_OUT)
    """Digest of the ``watermark.json`` of dbt-scope that the entry ``overwrite_start`` makes void."""

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """The files of a batch, for what reads nothing else.

        :raises TypeError: It is a batch of something else.
        """
        if not isinstance(self.slice, FileSlice):
            msg = f"batch {self.seq} is a batch of {self.slice.kind}, not of files"
            raise TypeError(msg)
        return self.slice.files

    @property
    def paths(self) -> list[str]:
        return [file.path for file in self.files]

    def with_files(self, paths: Iterable[str]) -> OffsetEntry:
        """Return the same batch with those of its files alone that have these paths."""
        kept = {*paths}
        files = tuple(file for file in self.files if file.path in kept)
        return replace(self, slice=FileSlice(files, self.slice.highest))

    @property
    def overwrites_table(self) -> bool:
        """Whether the batch replaces everything that is in the table."""
        return self.mode == "overwrite" and self.where is None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    """``commits/<seq>``: the batch is in the table, or was abandoned."""

    PATH: ClassVar[str] = "commits/{seq:020}"
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
    warned: Mapping[str, RuleCount] = field(default_factory=dict, metadata=LEFT_OUT)
    """Rule of the level ``warn`` -> the rows of the batch that break it."""
    rescued: Mapping[str, int] = field(default_factory=dict, metadata=LEFT_OUT)
    """Keys and columns -> records of the batch with a value that is in the rescued data column."""
    changes: Mapping[str, int] = field(default_factory=dict, metadata=LEFT_OUT)
    """What a batch of a row-level write did: rows that were inserted, updated, deleted, deduplicated, …"""
    columns: str | None = field(default=None, metadata=LEFT_OUT)
    """The columns that the batches of this refresh have, as they were inferred from its first one."""
    state: str | None = field(default=None, metadata=LEFT_OUT)
    """The state of the source after the batch, as its commit says it; None if the source has none."""
    state_unknown: bool = field(default=False, metadata=LEFT_OUT)
    """Nothing tells the state after the batch: only a full refresh may go on."""
    format: int = FORMAT

    def __post_init__(self) -> None:
        """Refuse a batch that is in no table.

        :raises ValueError: As said.
        """
        if self.table is None and not self.abandoned:
            raise ValueError("names no table")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersion:
    """``schemas/<seq>``: the inferred columns from this batch on; written before its commit record."""

    PATH: ClassVar[str] = "schemas/{seq:020}"
    seq: int
    columns: str | None
    """All of them, as in the commit record; None: from here on, none are inferred."""
    format: int = FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """``accepted/<n>``: somebody accepted a table that had diverged."""

    PATH: ClassVar[str] = "accepted/{number:020}"
    number: int
    after_commit: int
    """The newest commit record at that time, -1 if there was none."""
    table: TableIdentity | None
    """None: it was gone, and the next batch, which replaces all rows, makes a new one."""
    table_version: int
    rolled_back: tuple[int, ...] = ()
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

    PATH: ClassVar[str] = "attempts/{seq:020}.{number}"
    seq: int
    number: int
    table_version: int
    """The table's version before the job; -1 if there was none. What it changes is above it."""
    void: bool = False
    """There is no job, and there must be none: the batch was abandoned, or a refresh overtook it."""
    account: str = field(default="", metadata=LEFT_OUT)
    """The host of the account that runs the job; another one does not know it."""
    format: int = FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """``attempts/<seq>.<k>.settled``: somebody looked at the table and decided what became of a job.

    It counts for that attempt alone, and before anything that the service or the table's log says.
    """

    PATH: ClassVar[str] = "attempts/{seq:020}.{number}.settled"
    seq: int
    number: int
    committed: bool
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

    PATH: ClassVar[str] = "vacuumed/{below:020}"
    below: int
    quarantined: tuple[int, ...] = ()
    """Purged batches since the last full refresh that are in the table, and of which something is in the
    quarantine."""
    format: int = FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineUse:
    """``quarantines/<n>``: from now on this table takes what cannot be loaded; written before the first."""

    PATH: ClassVar[str] = "quarantines/{number:020}"
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
    """Return the bytes of an entry: a header line; of files, then one line a file."""
    header = {key.name: getattr(entry, key.name) for key in _keys(OffsetEntry)}
    header = _without_empty(OffsetEntry, header) | {"format": FORMAT}
    batch_slice = header.pop("slice")
    if isinstance(batch_slice, FileSlice):
        header |= {"files": len(batch_slice.files), "highest": batch_slice.highest}
    else:
        header |= {"kind": batch_slice.kind, "slice": asdict(batch_slice)}
    lines = [line(header)]
    lines += [row_line(_FileLine, file) for file in batch_slice.audited]
    return ("\n".join(lines) + "\n").encode()


def decode_offset(name: str, data: bytes, seq: int) -> OffsetEntry:
    """Read ``offsets/<seq>``; the number of file lines must be the one in the header.

    :raises CheckpointCorruptError: It was not written to its end, or says something that cannot be.
    :raises CheckpointVersionError: A newer version of this package wrote it.
    """
    # Not splitlines(): a path may hold any of the other characters that it takes for line ends.
    first, *lines = text_of(name, data).split("\n")[:-1]
    header = parsed(name, first)
    batch_slice = (_of_a_kind if "kind" in header else _of_files)(name, header, lines)
    entry = typed(OffsetEntry, name, header, slice=batch_slice)
    check_says(name, entry, seq=seq)
    return entry


def _of_files(name: str, header: dict[str, Any], lines: list[str]) -> Slice:
    count = header.get("files")
    if type(count) is not int or count != len(lines):
        raise corrupt(name, f"lists {len(lines)} files, its header says {count!r}")
    files = tuple(rows(_FileLine, FileEntry, name, lines))
    return typed(FileSlice, name, header, files=files)


def _of_a_kind(name: str, header: dict[str, Any], lines: list[str]) -> Slice:
    kind, value = header["kind"], header.get("slice")
    if type(kind) is not str or type(value) is not dict or lines:
        content = f"has kind={kind!r}, slice={value!r} and {len(lines)} more lines"
        raise corrupt(name, f"{content}, expected text, an object and none")
    if kind not in KINDS:
        raise newer(name, f"is of a batch of {kind}", f"no batches of {kind}")
    decoded: Slice = typed(KINDS[kind], name, value)
    return decoded
