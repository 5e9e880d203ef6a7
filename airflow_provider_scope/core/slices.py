"""What one batch reads: the part of an entry that only its source knows the meaning of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from airflow_provider_scope.core.files import FileEntry, Position, position, printable

if TYPE_CHECKING:
    from collections.abc import Sequence


class Slice(Protocol):
    """One kind of slice: a frozen dataclass whose fields are keys of the record."""

    kind: ClassVar[str]
    """What the record and the messages call it; never another one, or the records cannot be read."""

    @property
    def size_bytes(self) -> int:
        """Bytes to read, as far as the source tells; else 0."""

    @property
    def audited(self) -> tuple[FileEntry, ...]:
        """The files in it, for the audit and the report; none if the source has no files."""

    @property
    def highest(self) -> Position | None:
        """The largest (modified, path) of all files since ``refresh_start``; None without files."""

    def text(self) -> str:
        """Name it for people, on one line."""


@dataclass(frozen=True, slots=True)
class FileSlice:
    """Files, in the order of ingestion. Its records have no key for the kind: the first were all of it."""

    kind: ClassVar[str] = "files"
    files: tuple[FileEntry, ...]
    highest: Position | None
    """The largest (modified, path) of all entries since ``refresh_start``, this one included."""

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


@dataclass(frozen=True, slots=True)
class RowSlice(WithoutFiles):
    """Rows that a caller of ``spark.load`` gave: nobody else has them."""

    kind: ClassVar[str] = "rows"
    load: str
    """The id of the load."""

    def text(self) -> str:
        """Name the load."""
        return f"rows of load {self.load}"


KINDS: dict[str, Any] = {RowSlice.kind: RowSlice}
"""Kind -> class of the slices whose records name their kind: all but files."""
