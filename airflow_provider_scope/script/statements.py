"""The statements that the product writes, as values.

Every statement knows its place, which takes no part in comparisons.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Place(NamedTuple):
    """Where a statement starts: line and column, from 1."""

    line: int
    column: int


_NOWHERE = Place(0, 0)
VIRTUAL_FUNCTIONS = {
    "source_file_uri": "FILE.URI",
    "source_file_length": "FILE.LENGTH",
    "source_file_created": "FILE.CREATED",
    "source_file_modified": "FILE.MODIFIED",
}
"""Virtual column -> the function that gives it."""
Value = str | bool | int | float
"""What a setting, a constant or a table property can hold."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table or of files."""

    name: str
    type: str
    """The SCOPE type as written, ``int?`` for example."""
    nullable: bool
    """Whether it can hold null: by its type, ``int`` cannot, ``int?`` and ``string`` can."""


@dataclass(frozen=True, slots=True)
class VirtualColumn:
    """A column that tells about the file of a row."""

    name: str
    function: str
    """``FILE.URI``, ``FILE.LENGTH``, ``FILE.CREATED`` or ``FILE.MODIFIED``."""


@dataclass(frozen=True, slots=True)
class SetVariable:
    """``SET @@name = value;``."""

    name: str
    value: Value
    at: Place = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class DeclareConstant:
    """``#DECLARE @name type = value;``."""

    name: str
    type: str
    value: Value
    at: Place = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class CreateTable:
    """``CREATE TABLE [IF NOT EXISTS] @name (…) [PARTITIONED BY (…)] LOCATION … OPTIONS (…);``."""

    name: str
    columns: tuple[Column, ...]
    partition_by: tuple[str, ...]
    location: str
    """The location itself; a constant is resolved."""
    if_not_exists: bool
    at: Place = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class AlterTable:
    """``ALTER TABLE @table SET TBLPROPERTIES ("key" = value, …);``."""

    table: str
    properties: tuple[tuple[str, Value], ...]
    at: Place = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class AddColumn:
    """``ALTER TABLE @table ADD COLUMN [IF NOT EXISTS] name type;``."""

    table: str
    column: Column
    if_not_exists: bool
    at: Place = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class DeclareTable:
    """``DECLARE TABLE @name LOCATION … OPTIONS (LAYOUT = DELTA);``: bind a table that exists."""

    name: str
    location: str
    at: Place = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Delete:
    """``DELETE FROM @table WHERE …;``."""

    table: str
    where: str
    """The predicate as written."""
    at: Place = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Extract:
    """``@rowset = EXTRACT … FROM "…", … USING Extractor();``."""

    rowset: str
    columns: tuple[Column, ...]
    virtual: tuple[VirtualColumn, ...]
    files: tuple[str, ...]
    extractor: str
    """With dots, without its parentheses: ``Extractors.SStream``."""
    at: Place = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Assign:
    """``@rowset = SELECT …;``."""

    rowset: str
    select: str
    """The query as written, from its first to its last token."""
    at: Place = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Insert:
    """``INSERT INTO @table [(column, …)] SELECT …;``."""

    table: str
    select: str
    columns: tuple[str, ...] = ()
    """The columns of the table that the SELECT gives, in its order; empty is the table's, by position."""
    at: Place = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class NoOp:
    """A lone ``;``."""

    at: Place = field(default=_NOWHERE, compare=False)


Statement = (
    SetVariable
    | DeclareConstant
    | CreateTable
    | AlterTable
    | AddColumn
    | DeclareTable
    | Delete
    | Extract
    | Assign
    | Insert
    | NoOp
)
