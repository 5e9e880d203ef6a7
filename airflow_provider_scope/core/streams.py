"""What an EXTRACT reads, as plain values: files, the columns in them, and those that tell about a file."""

from __future__ import annotations

from dataclasses import dataclass

VIRTUAL = {
    "FILE.URI": ("string", "uri", "string"),
    "FILE.LENGTH": ("long?", "length", "bigint"),
    "FILE.CREATED": ("DateTime?", "created", "timestamp"),
    "FILE.MODIFIED": ("DateTime?", "modified", "timestamp"),
}
"""Function -> SCOPE type, what it tells of a file, Spark type."""


@dataclass(frozen=True, slots=True)
class Stream:
    """One file of an EXTRACT."""

    uri: str
    """As the script names it."""
    parts: tuple[str, ...]
    """Local paths of the files that hold its rows; those without any byte are left out."""
    size_bytes: int
    """Its own length and that of its parts."""
    modified_ms: int


@dataclass(frozen=True, slots=True)
class StreamColumn:
    """A column of files, or of a table."""

    name: str
    type: str
    """The SCOPE type, for messages."""
    spark: str
    """The Spark type."""
    nullable: bool


@dataclass(frozen=True, slots=True)
class Extraction:
    """Which columns are read of which files."""

    streams: tuple[Stream, ...]
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    """Spark's format and the parts of that format with the same types: read with one schema."""
    columns: tuple[StreamColumn, ...]
    virtual: tuple[tuple[str, str], ...]
    """Names of the columns that tell about the file of a row, with a function of ``VIRTUAL``."""

    @property
    def types(self) -> dict[str, str]:
        """Column -> SCOPE type, in order."""
        read = {column.name: column.type for column in self.columns}
        return read | {name: VIRTUAL[function][0] for name, function in self.virtual}
