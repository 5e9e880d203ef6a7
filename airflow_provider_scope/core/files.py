"""A file of the source, as one listing saw it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from unicodedata import is_normalized

from airflow_provider_scope.core.interval import iso_time
from airflow_provider_scope.core.stores import kind_of
from airflow_provider_scope.exceptions import SourceFileChangedError, SourceFileGoneError, SourceNotFoundError

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
