"""The values that all parts share: files of a source, times and intervals, and slices, which batches read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol
from unicodedata import is_normalized

from airflow_provider_scope.exceptions import SourceFileChangedError, SourceFileGoneError, SourceNotFoundError
from airflow_provider_scope.stores.kinds import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


OTHERS_NAMED = 5
"""How many more files an error about one file names."""

TEXT_FORMATS = ("csv", "json", "text")
"""Formats whose files Spark unpacks according to their names."""
_COMPRESSED = (".gz", ".gzip", ".bz2", ".deflate")
"""Endings, in any case, that Spark's readers of text unpack: each fails if the file's end is missing."""
_PACKED = (
    *(".7z", ".rar", ".tar", ".taz", ".tbz", ".tbz2", ".tgz", ".txz", ".tzst", ".zip"),
    *(".bz", ".lz", ".lz4", ".lzma", ".lzo", ".snappy", ".xz", ".z", ".zlib", ".zst", ".zstd"),
)
_ENDINGS = {
    "parquet": ("parquet",),
    "orc": ("orc",),
    "avro": ("avro",),
    "csv": ("csv",),
    "json": ("json", "jsonl", "ndjson"),
    "text": ("txt", "text", "log"),
}


class FileEntry(NamedTuple):
    """One file.

    A tuple, because a plan holds a million of them; the order of its fields is the order in which
    files are ingested.
    """

    modified_ms: int
    """Modification time, milliseconds since the epoch, UTC."""
    path: str
    """Canonical, unencoded URI, such as ``file:///landing/2013/01/01/flights.parquet``."""
    size_bytes: int
    """Length. That of a structured stream ``X.ss`` includes all files below the folder ``X`` beside it."""
    created_ms: int | None = None
    """Creation time in milliseconds since the epoch, or None where the store does not tell it."""
    content_md5: str | None = None
    """The store's checksum of the content, in base64; None where it keeps none, or does not tell it."""

    def is_still(self, modified_ms: int, size_bytes: int) -> bool:
        """Tell, just before the file is read, whether it is as it was when it was logged."""
        # The size of a structured stream includes its folder's; its own time tells enough.
        is_same_size = size_bytes == self.size_bytes or self.path.endswith(".ss")
        return modified_ms == self.modified_ms and is_same_size


class Position(NamedTuple):
    """A place in the order of ingestion."""

    modified_ms: int
    path: str


def position(file: FileEntry) -> Position:
    return Position(file.modified_ms, file.path)


def base_name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def is_hidden(name: str) -> bool:
    """Return whether Spark reads no rows from a file of this name, silently.

    Measured on Spark 4.2.0: names that start with ``.``, or with ``_`` unless they hold ``=``, names
    that end in ``._COPYING_``, and all that start with ``_metadata`` or ``_common_metadata``.
    """
    if name.startswith((".", "_metadata", "_common_metadata")) or name.endswith("._COPYING_"):
        return True
    return name.startswith("_") and "=" not in name


def is_readable(path: str) -> bool:
    """Whether Spark and the stores themselves can read a listed file by its own name.

    * A disk may hold names whose bytes are not UTF-8.
    * Hadoop's ``Path`` takes the text before a colon in the last part for a scheme.
    * A flat store may have names with empty parts, or with ``.`` and ``..``; every client leaves them out.
    * A namenode leads to the datanode by a URL in which composed and decomposed letters (NFC, NFD) are the
      same: ``OPEN`` gives another file, or none.
    """
    # Called for each of a million files: finding is fast, and slashes that follow the scheme end at ``:///``.
    if path.rfind(":") > path.rfind("/") or path.rfind("//") > path.find(":") + 2:
        return False
    if "/." in path and ("/./" in path or "/../" in path):
        return False
    if path.isascii():
        return True
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return is_normalized("NFC", path) or kind_of(path).reads_decomposed


def is_packed(name: str) -> bool:
    """Whether a reader of text would read wrong rows from a file with this name.

    Measured on Spark 4.2.0, with FAILFAST: an archive, and a compression that it does not know, is read as
    lines of its bytes; of two layers one is unpacked. What ``snappy`` writes gives no rows, and what ``lz4``
    writes fills the memory: Hadoop's files of these names are others. A Zstandard file of several frames that
    is cut off after the first gives the rows that are there, without an error.
    """
    lower = name.lower()
    if not lower.endswith(_COMPRESSED):
        return lower.endswith(_PACKED)
    return lower.rpartition(".")[0].endswith(_COMPRESSED + _PACKED)


def usual_pattern(source_format: str) -> str:
    """Return the regular expression for the usual names of a format's files.

    Compressed text matches, too, also with a compression that cannot be read, so that a report names it.
    """
    if source_format not in _ENDINGS:
        return r".*\.ss$"
    endings = _ENDINGS[source_format]
    pattern = rf"\.{endings[0]}" if len(endings) == 1 else rf"\.({'|'.join(endings)})"
    if source_format in TEXT_FORMATS:
        pattern += f"({'|'.join(map(re.escape, _COMPRESSED + _PACKED))})?"
    return f"(?i){pattern}$"


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""Characters that end a line, or tell a terminal what to do."""


def encodable(path: str) -> str:
    r"""Make a path one that JSON and UTF-8 can hold: a byte that is not UTF-8 becomes ``\udcff``."""
    return path.encode(errors="backslashreplace").decode()


def printable(path: str) -> str:
    r"""Make a path one for people, in one line: also, a line break becomes ``\n``."""
    text = encodable(path)
    return text if text.isprintable() else _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def some_names(paths: Sequence[str], at_most: int) -> str:
    """Name some files: ``a, b and 3 more``."""
    more = f" and {len(paths) - at_most:,} more" if len(paths) > at_most else ""
    return ", ".join(map(printable, paths[:at_most])) + more


def and_others(paths: Sequence[str], happened: str) -> str:
    """Return the sentence that names more files in an error about one file; empty if there are none.

    :param happened: What happened to them, as the predicate of the sentence.
    """
    if not paths:
        return ""
    return f" Others {happened}, too ({len(paths):,}): {some_names(paths, OTHERS_NAMED)}."


def is_below(path: str, roots: tuple[str, ...]) -> bool:
    """Whether a path lies below one of the roots; ``..`` and ``.`` parts never do."""
    if any(part in ("..", ".") for part in path.split("/")):
        return False
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def no_root(
    root: str,
    advice: str = "If the folder appears later, create it empty first, or wait for it with a sensor",
) -> SourceNotFoundError:
    """Return the error for a folder of the source that does not exist.

    :param advice: Another possible cause in this store, and what to do about it.
    """
    return SourceNotFoundError(
        f"The source folder {root} does not exist.",
        kept="the table and the checkpoint; nothing was written",
        do=f"check `roots`. {advice}",
    )


def check_as_logged(
    seq: int, statuses: Iterable[tuple[FileEntry, tuple[int, int] | None]], *, kept: str
) -> None:
    """Refuse files that have changed, or are missing, since their batch was logged.

    :param seq: The batch's number.
    :param statuses: Its files, each with its present modification time (ms) and size (bytes); None if it is
        missing.
    :param kept: What the error says is kept.
    :raises SourceFileGoneError: The first such file is missing.
    :raises SourceFileChangedError: The first such file has another time or size.
    """
    differing = [(file, status) for file, status in statuses if status is None or not file.is_still(*status)]
    if not differing:
        return
    (file, status), *more_files = differing
    name = f"The file {printable(file.path)} of batch {seq}"
    more = and_others([changed.path for changed, _ in more_files], "of the batch are missing or have changed")
    restore = (
        "restore the files as they were, with their times"
        if more_files
        else "restore the file as it was, with its modification time"
    )
    abandon = (
        "abandon the batch with `airflow scope abandon`: the next run loads its files as they are then. "
        f"Or {restore}"
    )
    if status is None:
        raise SourceFileGoneError(f"{name} is missing.{more}", kept=kept, do=abandon)
    modified_ms, size_bytes = status
    raise SourceFileChangedError(
        f"{name} is there, but it has changed since it was logged: it had {file.size_bytes:,} bytes, "
        f"modified at {iso_time(file.modified_ms)}; it now has {size_bytes:,} bytes, modified at "
        f"{iso_time(modified_ms)}.{more}",
        kept=kept,
        do=f"if the new content is right, {abandon}",
    )


# ---- times as text, and the interval that one run of ``mode="data_interval"`` loads ----

_MOMENT = r"\d{8}T\d{9}Z"
_NAME = re.compile(rf"({_MOMENT})_({_MOMENT})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """Files modified at ``start_ms`` or later, and before ``end_ms``; milliseconds since the epoch."""

    start_ms: int
    end_ms: int

    def __contains__(self, modified_ms: int) -> bool:
        return self.start_ms <= modified_ms < self.end_ms

    @property
    def name(self) -> str:
        """The name in the checkpoint: names sort as the windows do, and need no quoting in a URI."""
        return f"{_compact(self.start_ms)}_{_compact(self.end_ms)}"

    def overlaps(self, other: Window) -> bool:
        return self.start_ms < other.end_ms and other.start_ms < self.end_ms


def milliseconds(moment: datetime) -> int:
    """Convert a time to milliseconds since the epoch, rounded down."""
    # Not by subtraction: Airflow's times are pendulum's, whose differences are not divided by a timedelta.
    # Not by `timestamp() * 1000` either: the float is often 1 ms less.
    return int(moment.replace(microsecond=0).timestamp()) * 1000 + moment.microsecond // 1000


def window_of(name: str) -> Window | None:
    """Read the name of a window; None for any other text."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    try:
        window = Window(*(milliseconds(_moment(text)) for text in match.groups()))
    except ValueError:
        return None
    return window if window.start_ms < window.end_ms else None


def window_of_log(location: str) -> Window | None:
    """Return the interval to which a log's folder belongs; None for the log of ``mode="incremental"``."""
    folder, _, name = location.rpartition("/")
    return window_of(name) if folder.endswith("/intervals") else None


def overlapping(window: Window, windows: Iterable[Window]) -> Window | None:
    """Return the earliest of the other windows that shares time with this one."""
    return next((w for w in sorted(windows) if w != window and w.overlaps(window)), None)


def _compact(moment_ms: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=moment_ms)
    # strftime("%Y") gives years before 1000 fewer digits on some systems.
    return f"{moment.year:04}{moment:%m%dT%H%M%S}{moment.microsecond // 1000:03}Z"


def _moment(text: str) -> datetime:
    return datetime.strptime(f"{text[:-1]}000+0000", "%Y%m%dT%H%M%S%f%z")


_LAST_MS = 253_402_300_799_999
"""The last moment of the year 9999: ``datetime`` knows none after it."""


def iso_time(milliseconds: int) -> str:
    """Format a time as ISO-8601 with microseconds and offset, as dbt-scope writes it.

    A time after the year 9999, which a storage may give for a file, is the end of that year.
    """
    moment = datetime.fromtimestamp(min(milliseconds, _LAST_MS) / 1000, UTC)
    return moment.isoformat(timespec="microseconds")


def counted(number: int, singular: str, plural: str = "") -> str:
    """Format a number and its noun: ``1 file``, ``2,000 files``; without ``plural`` it ends with s."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def duration_text(milliseconds: int) -> str:
    """Format a duration in its two largest units: ``3 d 4 h``."""
    minutes, seconds = divmod(max(0, milliseconds) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    first = next((index for index, (value, _) in enumerate(parts) if value), len(parts) - 1)
    return " ".join(f"{value:,} {unit}" for value, unit in parts[first : first + 2] if value) or "0 s"


# ---- slices: the part of a log entry whose meaning only its source knows ----


class Slice(Protocol):
    """One kind of slice: a frozen dataclass whose fields are keys of the record."""

    kind: ClassVar[str]
    """Its name in records and messages; it must never change, or the records cannot be read."""
    has_state: ClassVar[bool]
    """Whether the source has a state, which tells how much of it is in the table."""

    @property
    def needs_record(self) -> bool:
        """Whether its own record alone says that it was loaded: neither a list of files nor a state does."""

    @property
    def size_bytes(self) -> int:
        """Bytes to read, as far as the source tells them; else 0."""

    @property
    def audited(self) -> tuple[FileEntry, ...]:
        """The files of the slice, for the audit and the report; none if the source has no files."""

    @property
    def highest(self) -> Position | None:
        """The largest (modified, path) of all files since ``refresh_start``; None without files."""

    @property
    def before(self) -> str | None:
        """The state of the source before the batch; None if it has none, or none yet."""

    def text(self) -> str:
        """Name the slice for people, on one line."""


@dataclass(frozen=True, slots=True)
class FileSlice:
    """Files, in the order of ingestion. Its records have no key for the kind."""

    kind: ClassVar[str] = "files"
    has_state: ClassVar[bool] = False
    needs_record: ClassVar[bool] = False
    before: ClassVar[str | None] = None
    files: tuple[FileEntry, ...]
    highest: Position | None
    """The largest (modified, path) of all entries since ``refresh_start``, this one included."""

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def audited(self) -> tuple[FileEntry, ...]:
        return self.files

    def text(self) -> str:
        """Name the first file and the last."""
        names = [printable(file.path) for file in (*self.files[:1], *self.files[-1:])]
        return " … ".join(dict.fromkeys(names)) or "no files"


def slice_of(files: Sequence[FileEntry], before: Position | None = None) -> FileSlice:
    """Make the slice of some files, which are in the order of ingestion.

    :param before: The largest (modified, path) of the earlier entries since ``refresh_start``.
    """
    last = position(files[-1])
    return FileSlice(tuple(files), max(last, before) if before else last)


class WithoutFiles:
    """The members of ``Slice`` that are alike in all slices without files."""

    __slots__ = ()
    has_state: ClassVar[bool] = True
    audited: ClassVar[tuple[FileEntry, ...]] = ()
    highest: ClassVar[Position | None] = None

    @property
    def needs_record(self) -> bool:
        return not self.has_state

    @property
    def size_bytes(self) -> int:
        return 0


class WithoutState(WithoutFiles):
    """The members that are alike in all slices without files and without a state."""

    __slots__ = ()
    has_state: ClassVar[bool] = False
    before: ClassVar[str | None] = None


@dataclass(frozen=True, slots=True)
class RowSlice(WithoutState):
    """Rows that a caller passed to ``spark.load``: they cannot be read again from anywhere else."""

    kind: ClassVar[str] = "rows"
    load: str
    """The id of the load."""

    def text(self) -> str:
        return f"rows of load {self.load}"


@dataclass(frozen=True, slots=True)
class CursorSlice(WithoutFiles):
    """Rows of a table or a database that are beyond a cursor's state; see ``sources.cursor.state``."""

    kind: ClassVar[str] = "cursor"
    before: str | None
    """The state before the batch, as its commit holds it; None: the batch begins at the initial value."""
    column: str
    first: str | None
    """The initial value, or the first of a range (``sources.cursor.bounds.Bound.encode``); None: no bound."""
    end: str | None
    """The end of a range, in the same form; None: no bound."""
    source: str | None
    """The id of the Delta table that is read; None if it cannot be read again as it was."""
    version: int | None
    """The version of that table."""

    @property
    def needs_record(self) -> bool:
        """A range leaves the state as it is."""
        return self.end is not None

    def text(self) -> str:
        ends = [f"{word} {value.partition(':')[2]}" for word, value in self._ends() if value]
        pinned = "" if self.version is None else f", version {self.version} of the source"
        beginning = "from the last value on" if self.before else "from the beginning"
        return f"{self.column} {' '.join(ends) or beginning}{pinned}"

    def _ends(self) -> tuple[tuple[str, str | None], tuple[str, str | None]]:
        after = "after" if (self.first or "").startswith("open ") else "from"
        before = "up to" if (self.end or "").startswith("closed ") else "before"
        begins_here = self.before is None or self.end is not None
        return (after, self.first if begins_here else None), (before, self.end)


@dataclass(frozen=True, slots=True)
class VersionSlice(WithoutFiles):
    """Changes of a Delta table by version, or the table as it was at one; see ``sources.feed.state``."""

    kind: ClassVar[str] = "versions"
    before: str | None
    """The state before the batch, as its commit holds it; None: nothing was read before."""
    identifier: str
    """The name of the load."""
    source: str
    """The id of the Delta table that is read."""
    location: str
    """The URI of that table, for commands that show how far its newest version is ahead."""
    first: int
    """The first version whose changes are read."""
    last: int
    """The last version whose changes are read, or the version of the snapshot."""
    snapshot: bool
    """Whether the rows of version ``last`` are read in place of changes."""
    changed_bytes: int
    """Bytes of the changes, according to the source's log."""
    first_ms: int | None = None
    """When version ``first`` was committed; None: not known."""
    last_ms: int | None = None
    """When version ``last`` was committed; None: not known."""

    @property
    def size_bytes(self) -> int:
        return self.changed_bytes

    def text(self) -> str:
        if self.snapshot:
            return f"all rows of version {self.last} of the source"
        if self.first == self.last:
            return f"changes of version {self.first} of the source"
        return f"changes of versions {self.first:,} to {self.last:,} of the source"


KINDS: dict[str, Any] = {cls.kind: cls for cls in (RowSlice, CursorSlice, VersionSlice)}
"""Kind -> class of the slices whose records name their kind: all but files."""
