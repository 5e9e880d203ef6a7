"""Which files count as loaded, as they were then; and which a run left out, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Literal, TypeVar

from airflow_provider_scope.values import encodable, is_below

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from airflow_provider_scope.values import FileEntry

Item = TypeVar("Item")

# ---- loaded ----

LISTED_AT_ONCE = 16_384
"""How many files of a listing are compared at once with those that are loaded."""

Status = tuple[int, int | None, str | None]
"""modified_ms, size_bytes and content_md5 of a file when it was loaded.

The size is None where dbt-scope loaded it: it notes no size.
"""

Seen = dict[str, Status]
"""Path -> status of every file that counts as loaded."""


def in_parts(items: Iterable[Item], size: int = LISTED_AT_ONCE) -> Iterator[list[Item]]:
    """Cut files or paths into lists of so many: a step over all of a list costs less than one for each."""
    remaining = iter(items)
    while part := list(islice(remaining, size)):
        yield part


def status(file: FileEntry) -> Status:
    """Return the values by which a later change of a file is recognized."""
    return file.modified_ms, file.size_bytes, file.content_md5


def is_changed(file: FileEntry, before: Status) -> bool:
    """Return whether a file has changed since it was loaded.

    Its content decides where a checksum was noted then and is told now: in Azure a file's time changes with
    its metadata, too.
    """
    modified_ms, size_bytes, md5 = before
    if size_bytes is None:
        # dbt-scope cuts a float of milliseconds off, which can make it one less.
        return file.modified_ms - modified_ms not in (0, 1)
    if md5 and file.content_md5:
        return (size_bytes, md5) != (file.size_bytes, file.content_md5)
    return (modified_ms, size_bytes) != (file.modified_ms, file.size_bytes)


class History:
    """The status of each file when it was loaded; of a file that was loaded twice, when it was loaded last.

    There may be millions: ``protocol.derived.SeenFiles`` keeps most of them in columns.
    """

    def __init__(self) -> None:
        self._files: Seen = {}
        self._removed: set[str] = set()

    def update(self, files: Iterable[FileEntry]) -> None:
        """Let files count as loaded, as they are in a slice."""
        added = {file.path: status(file) for file in files}
        self._files.update(added)
        self._removed.difference_update(added)

    def remove(self, files: Iterable[FileEntry]) -> None:
        """Let files count as not loaded."""
        for file in files:
            self._files.pop(file.path, None)
            self._removed.add(file.path)

    def __bool__(self) -> bool:
        return bool(self._files)

    def items(self) -> Iterator[tuple[str, Status]]:
        return self.outside(())

    def find(self, paths: Sequence[str]) -> Seen:
        """Return those of some files that are loaded."""
        return {path: self._files[path] for path in paths if path in self._files}

    def outside(self, roots: tuple[str, ...]) -> Iterator[tuple[str, Status]]:
        """Return those that lie below none of some folders."""
        return ((path, before) for path, before in self._files.items() if not is_below(path, roots))

    def without_same(self, files: Sequence[FileEntry]) -> list[FileEntry]:
        """Leave out files that are loaded and have not changed since, as far as that is plain to see."""
        return [file for file in files if self._files.get(file.path) != status(file)]


# ---- left out ----

NAMED_AT_MOST = 20
"""Names that a report keeps for each reason; further files are only counted."""

Reason = Literal[
    "too young",
    "zero length",
    "hidden name",
    "hidden folder",
    "unreadable name",
    "archive or unreadable compression",
    "no modification time",
    "loaded before, or late",
    "changed after it was loaded",
    "changed after it was logged",
    "before starting_timestamp",
    "before the watermark taken over",
    "at the watermark taken over",
    "outside the interval",
]


@dataclass
class Tally:
    """Files that were left out, by reason: how many, and the first names."""

    counts: dict[str, int] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)
    times: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The first and the last modification time, of those that are held."""

    def add(self, reason: Reason, path: str) -> None:
        self.add_unnamed(reason, 1)
        named = self.names.setdefault(reason, [])
        if len(named) < NAMED_AT_MOST:
            named.append(encodable(path))

    def hold(self, reason: Reason, file: FileEntry) -> None:
        """Count and name one file, and note its time."""
        self.add(reason, file.path)
        first, last = self.times.get(reason, (file.modified_ms, file.modified_ms))
        self.times[reason] = (min(first, file.modified_ms), max(last, file.modified_ms))

    def add_unnamed(self, reason: Reason, count: int) -> None:
        """Count files whose names say nothing."""
        if count:
            self.counts[reason] = self.counts.get(reason, 0) + count
