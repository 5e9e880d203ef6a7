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


APPEARS_LATER = "If the folder appears later, create it empty first, or wait for it with a sensor"

OTHERS_NAMED = 5
"""Other files that an error about one file names."""

TEXT_FORMATS = ("csv", "json", "text")
"""Formats whose files Spark unpacks as their names say."""
_COMPRESSED = (".gz", ".gzip", ".bz2", ".deflate")
"""What Spark's readers of text unpack, whatever the case: each of these fails if its end is missing."""
_PACKED = (
    *(".7z", ".rar", ".tar", ".taz", ".tbz", ".tbz2", ".tgz", ".txz", ".tzst", ".zip"),
    *(".bz", ".lz", ".lz4", ".lzma", ".lzo", ".snappy", ".xz", ".z", ".zlib", ".zst", ".zstd"),
)
_ENDINGS = {
    "parquet": ("parquet",),
    "orc": ("orc",),
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
    """Length; of a structured stream ``X.ss`` with a folder ``X`` beside it, with all files below it."""
    created_ms: int | None = None
    """Creation time in milliseconds since the epoch, or None where the store does not tell."""
    content_md5: str | None = None
    """The store's sum of the content, in base64; None where it keeps none, or does not tell."""

    def is_still(self, modified_ms: int, size_bytes: int) -> bool:
        """Tell whether a file that is looked at again, just before it is read, is what was logged."""
        # The size of a structured stream is that of its folder too; its own time tells enough.
        is_same_size = size_bytes == self.size_bytes or self.path.endswith(".ss")
        return modified_ms == self.modified_ms and is_same_size


class Position(NamedTuple):
    """A place in the order of ingestion."""

    modified_ms: int
    path: str


def position(file: FileEntry) -> Position:
    """Give the place of a file in the order of ingestion."""
    return Position(file.modified_ms, file.path)


def base_name(path: str) -> str:
    """Give the last part of a path or URI."""
    return path.rsplit("/", 1)[-1]


def is_readable(path: str) -> bool:
    """Tell whether Spark and the stores themselves read a listed file under the very name that it has.

    * A disk may hold names whose bytes are not UTF-8.
    * Hadoop's ``Path`` takes what stands before a colon in the last part for a scheme.
    * A flat store may have names with empty parts, or with ``.`` and ``..``; every client leaves them out.
    * A namenode leads to the datanode by a URL in which composed and decomposed letters (NFC, NFD) are the
      same: ``OPEN`` gives another file, or none.
    """
    # Of a million files each is asked: finding is fast, and slashes that follow the scheme end at ``:///``.
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
    """Tell whether a reader of text would take a file of this name for other rows than are in it.

    Measured on Spark 4.2.0, with FAILFAST: an archive, and a compression that it does not know, is read as
    lines of its bytes; of two layers one is unpacked. What ``snappy`` writes gives no rows, and what ``lz4``
    writes fills the memory: Hadoop's files of these names are others. A Zstandard file of several frames that
    is cut off behind the first gives the rows that are there, without an error.
    """
    rest = name.lower()
    if not rest.endswith(_COMPRESSED):
        return rest.endswith(_PACKED)
    return rest.rpartition(".")[0].endswith(_COMPRESSED + _PACKED)


def usual_pattern(source_format: str) -> str:
    """Give the regular expression for the usual names of a format's files.

    Text counts with a compression, too; with one that cannot be read as well, so that a report names it.
    """
    if source_format not in _ENDINGS:
        return r".*\.ss$"
    endings = _ENDINGS[source_format]
    pattern = rf"\.{endings[0]}" if len(endings) == 1 else rf"\.({'|'.join(endings)})"
    if source_format in TEXT_FORMATS:
        pattern += f"({'|'.join(map(re.escape, _COMPRESSED + _PACKED))})?"
    return f"(?i){pattern}$"


def printable(path: str) -> str:
    r"""Give a path as text that can be written anywhere: a byte that is not UTF-8 becomes ``\udcff``."""
    return path.encode(errors="backslashreplace").decode()


def some_names(paths: Sequence[str], at_most: int) -> str:
    """Name some files: ``a, b and 3 more``."""
    more = f" and {len(paths) - at_most:,} more" if len(paths) > at_most else ""
    return ", ".join(map(printable, paths[:at_most])) + more


def and_others(paths: Sequence[str], what: str) -> str:
    """Give the sentence of an error about one file that names others; empty if there are none.

    :param what: What became of them.
    """
    if not paths:
        return ""
    return f" Others {what}, too ({len(paths):,}): {some_names(paths, OTHERS_NAMED)}."


def is_below(path: str, roots: tuple[str, ...]) -> bool:
    """Tell whether a path lies below one of the roots; ``..`` and ``.`` parts never do."""
    if any(part in ("..", ".") for part in path.split("/")):
        return False
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def no_root(root: str, advice: str = APPEARS_LATER) -> SourceNotFoundError:
    """Give the error for a folder of the source that does not exist.

    :param advice: What else may be the cause in this store, and what to do about it.
    """
    return SourceNotFoundError(
        f"The source folder {root} does not exist.",
        kept="the table and the checkpoint; nothing was written",
        do=f"check `roots`. {advice}",
    )


def check_as_logged(
    seq: int, looks: Iterable[tuple[FileEntry, tuple[int, int] | None]], *, kept: str
) -> None:
    """Refuse files that are not what they were when their batch was logged.

    :param seq: The batch's number.
    :param looks: Its files; the modification time (ms) and size (bytes) of each now, None if it is missing.
    :param kept: What the error says is kept.
    :raises SourceFileGoneError: The first of them is missing.
    :raises SourceFileChangedError: It is there, with another time or size.
    """
    odd = [(file, status) for file, status in looks if status is None or not file.is_still(*status)]
    if not odd:
        return
    (file, status), *others = odd
    name = f"The file {printable(file.path)} of batch {seq}"
    too = and_others([other.path for other, _ in others], "of the batch are missing or have changed")
    restore = (
        "restore the files as they were, with their times"
        if others
        else ("restore the file as it was, with its modification time")
    )
    abandon = (
        "abandon the batch with `airflow scope abandon`: the next run loads its files as they are then. "
        f"Or {restore}"
    )
    if status is None:
        raise SourceFileGoneError(f"{name} is missing.{too}", kept=kept, do=abandon)
    modified_ms, size_bytes = status
    raise SourceFileChangedError(
        f"{name} is there, but it has changed since it was logged: it had {file.size_bytes:,} bytes, "
        f"modified at {iso_time(file.modified_ms)}; it now has {size_bytes:,} bytes, modified at "
        f"{iso_time(modified_ms)}.{too}",
        kept=kept,
        do=f"if the new content is right, {abandon}",
    )


# ---- times as text, and the part of time that one run of ``mode="data_interval"`` loads ----

_MOMENT = r"\d{8}T\d{9}Z"
_NAME = re.compile(rf"({_MOMENT})_({_MOMENT})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """Files modified at ``start_ms`` or later, and before ``end_ms``; milliseconds since the epoch."""

    start_ms: int
    end_ms: int

    def __contains__(self, modified_ms: int) -> bool:
        """Tell whether a file of this time is in it."""
        return self.start_ms <= modified_ms < self.end_ms

    @property
    def name(self) -> str:
        """Its name in the checkpoint: names sort as the windows do, and need no quoting in a URI."""
        return f"{_compact(self.start_ms)}_{_compact(self.end_ms)}"

    def overlaps(self, other: Window) -> bool:
        """Tell whether a file can be in both."""
        return self.start_ms < other.end_ms and other.start_ms < self.end_ms


def milliseconds(moment: datetime) -> int:
    """Give a time in milliseconds since the epoch, rounded down."""
    # Not by subtraction: Airflow's times are pendulum's, whose differences are not divided by a timedelta.
    return int(moment.replace(microsecond=0).timestamp()) * 1000 + moment.microsecond // 1000


def window_of(name: str) -> Window | None:
    """Give the window of a name; None for any other text."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    try:
        window = Window(*(milliseconds(_moment(text)) for text in match.groups()))
    except ValueError:
        return None
    return window if window.start_ms < window.end_ms else None


def window_of_log(location: str) -> Window | None:
    """Give the interval whose log is in a folder; None if it is the log of ``mode="incremental"``."""
    folder, _, name = location.rpartition("/")
    return window_of(name) if folder.endswith("/intervals") else None


def overlapping(window: Window, others: Iterable[Window]) -> Window | None:
    """Give the first other window that shares time with this one."""
    return next((other for other in sorted(others) if other != window and other.overlaps(window)), None)


def _compact(moment_ms: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=moment_ms)
    # strftime("%Y") gives years before 1000 fewer digits on some systems.
    return f"{moment.year:04}{moment:%m%dT%H%M%S}{moment.microsecond // 1000:03}Z"


def _moment(text: str) -> datetime:
    return datetime.strptime(f"{text[:-1]}000+0000", "%Y%m%dT%H%M%S%f%z")


def iso_time(milliseconds: int) -> str:
    """Give an ISO-8601 time with microseconds and offset, as dbt-scope writes it."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="microseconds")


def duration_text(milliseconds: int) -> str:
    """Give how long something takes, in its two largest units: ``3 d 4 h``."""
    seconds = max(0, milliseconds) // 1000
    units = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")]
    parts = [
        (seconds // size % limit, unit)
        for (size, unit), limit in zip(units, (10**9, 24, 60, 60), strict=True)
    ]
    first = next((i for i, (value, _) in enumerate(parts) if value), len(parts) - 1)
    return " ".join(f"{value:,} {unit}" for value, unit in parts[first : first + 2] if value) or "0 s"


# ---- slices: the part of an entry that only its source knows the meaning of ----


class Slice(Protocol):
    """One kind of slice: a frozen dataclass whose fields are keys of the record."""

    kind: ClassVar[str]
    """What the record and the messages call it; never another one, or the records cannot be read."""
    has_state: ClassVar[bool]
    """Whether the source has a state, which says what of it is in the table."""

    @property
    def size_bytes(self) -> int:
        """Bytes to read, as far as the source tells; else 0."""

    @property
    def audited(self) -> tuple[FileEntry, ...]:
        """The files in it, for the audit and the report; none if the source has no files."""

    @property
    def highest(self) -> Position | None:
        """The largest (modified, path) of all files since ``refresh_start``; None without files."""

    @property
    def before(self) -> str | None:
        """The state of the source before the batch; None if it has none, or none yet."""

    def text(self) -> str:
        """Name it for people, on one line."""


@dataclass(frozen=True, slots=True)
class FileSlice:
    """Files, in the order of ingestion. Its records have no key for the kind."""

    kind: ClassVar[str] = "files"
    has_state: ClassVar[bool] = False
    files: tuple[FileEntry, ...]
    highest: Position | None
    """The largest (modified, path) of all entries since ``refresh_start``, this one included."""

    @property
    def before(self) -> str | None:
        """None: what is new follows from the files alone."""
        return None

    @property
    def size_bytes(self) -> int:
        """Sum of the files' sizes."""
        return sum(file.size_bytes for file in self.files)

    @property
    def audited(self) -> tuple[FileEntry, ...]:
        """The files."""
        return self.files

    def text(self) -> str:
        """Give the first name and the last."""
        names = [printable(file.path) for file in (*self.files[:1], *self.files[-1:])]
        return " … ".join(dict.fromkeys(names)) or "no files"


def slice_of(files: Sequence[FileEntry], before: Position | None = None) -> FileSlice:
    """Give the slice of some files, in the order of ingestion.

    :param before: The largest (modified, path) of the entries before it, since ``refresh_start``.
    """
    last = position(files[-1])
    return FileSlice(tuple(files), max(last, before) if before else last)


class WithoutFiles:
    """The members of ``Slice`` that are alike in all slices without files."""

    __slots__ = ()
    has_state: ClassVar[bool] = True

    @property
    def size_bytes(self) -> int:
        """Not known."""
        return 0

    @property
    def audited(self) -> tuple[FileEntry, ...]:
        """There are no files."""
        return ()

    @property
    def highest(self) -> Position | None:
        """There are no files."""
        return None


class WithoutState(WithoutFiles):
    """The same of slices of which none follows from the rows of another."""

    __slots__ = ()
    has_state: ClassVar[bool] = False

    @property
    def before(self) -> str | None:
        """There is no state."""
        return None


@dataclass(frozen=True, slots=True)
class RowSlice(WithoutState):
    """Rows that a caller of ``spark.load`` gave: nobody else has them."""

    kind: ClassVar[str] = "rows"
    load: str
    """The id of the load."""

    def text(self) -> str:
        """Name the load."""
        return f"rows of load {self.load}"


@dataclass(frozen=True, slots=True)
class CursorSlice(WithoutFiles):
    """Rows of a table or a database that are beyond a cursor's state; see ``sources.cursor.state``."""

    kind: ClassVar[str] = "cursor"
    before: str | None
    """The state before the batch, as its commit says it; None is the initial value."""
    column: str
    first: str | None
    """The initial value, or the first of a range (``sources.cursor.state.Bound.encode``); None is none."""
    end: str | None
    """The end of a range, which is not in it; None is all that there is."""
    source: str | None
    """The id of the Delta table that is read; None if it cannot be read again as it was."""
    version: int | None
    """Its version."""

    def text(self) -> str:
        """Name the rows."""
        ends = [f"{word} {value.partition(':')[2]}" for word, value in self._ends() if value]
        pinned = "" if self.version is None else f", version {self.version} of the source"
        rest = "from the last value on" if self.before else "from the beginning"
        return f"{self.column} {' '.join(ends) or rest}{pinned}"

    def _ends(self) -> tuple[tuple[str, str | None], tuple[str, str | None]]:
        return ("from", self.first if self.before is None else None), ("before", self.end)


@dataclass(frozen=True, slots=True)
class VersionSlice(WithoutFiles):
    """Changes of a Delta table by version, or the table as it was at one; see ``sources.feed.state``."""

    kind: ClassVar[str] = "versions"
    before: str | None
    """The state before the batch, as its commit says it; None is that nothing was read."""
    identifier: str
    """The name of the load."""
    source: str
    """The id of the Delta table that is read."""
    location: str
    """Its URI, for those who look how far it is."""
    first: int
    """The first version whose changes are read."""
    last: int
    """The last one; that of the snapshot."""
    snapshot: bool
    """Whether the rows of version ``last`` are read in place of changes."""
    changed_bytes: int
    """Bytes of the changes, as the source's log tells them."""
    first_ms: int | None = None
    """When version ``first`` was committed; None is unknown."""
    last_ms: int | None = None
    """When version ``last`` was committed; None is unknown."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the changes."""
        return self.changed_bytes

    def text(self) -> str:
        """Name the versions."""
        if self.snapshot:
            return f"all rows of version {self.last} of the source"
        if self.first == self.last:
            return f"changes of version {self.first} of the source"
        return f"changes of versions {self.first:,} to {self.last:,} of the source"


KINDS: dict[str, Any] = {one.kind: one for one in (RowSlice, CursorSlice, VersionSlice)}
"""Kind -> class of the slices whose records name their kind: all but files."""
