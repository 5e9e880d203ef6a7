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
    """Rows of a table or a database that are beyond a cursor's state; see ``core.cursor``."""

    kind: ClassVar[str] = "cursor"
    before: str | None
    """The state before the batch, as its commit says it; None is the initial value."""
    column: str
    first: str | None
    """The initial value, or the first of a range (``core.cursor.Bound.encode``); None is none."""
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
    """Changes of a Delta table by version, or the table as it was at one; see ``core.changes``."""

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
