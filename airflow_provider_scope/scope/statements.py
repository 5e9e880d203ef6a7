"""The statements that the product writes, and SCOPE's types, as values.

Every statement knows its place, which takes no part in comparisons. Of types, unsigned ones widen to the
next signed one that holds all their values; SCOPE's ``decimal`` has a floating scale and no exact image:
DECIMAL(38,18) is the nearest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from airflow_provider_scope.exceptions import InputError


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


# ---- types, and their Spark counterparts ----

_VALUE_TYPES = {
    "bool": "boolean",
    "sbyte": "tinyint",
    "short": "smallint",
    "int": "int",
    "long": "bigint",
    "byte": "smallint",
    "ushort": "int",
    "uint": "bigint",
    "ulong": "decimal(20,0)",
    "float": "float",
    "double": "double",
    "decimal": "decimal(38,18)",
    "DateTime": "timestamp",
    "Guid": "string",
}
_REFERENCE_TYPES = {"string": "string", "byte[]": "binary"}
_FROM_SPARK = {
    "boolean": "bool",
    "tinyint": "sbyte",
    "smallint": "short",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "timestamp": "DateTime",
    "string": "string",
    "binary": "byte[]",
}
_TOKEN = re.compile(r"\s*(SQL\.ARRAY|SQL\.MAP|SqlArray|SqlMap|[A-Za-z]\w*|\[\s*\]|[<>,?])")
_SPARK_DECIMAL = re.compile(r"decimal\(\d+,\d+\)")


@dataclass(frozen=True, slots=True)
class ScopeType:
    """A SCOPE type."""

    name: str
    """In its short form without the ``?``: ``int``, ``byte[]``, ``SQL.ARRAY<string>``."""
    nullable: bool
    spark: str
    """The Spark type, as ``simpleString`` gives it."""

    @property
    def text(self) -> str:
        """As SCOPE writes it."""
        return self.name + ("?" if self.nullable and self.name in _VALUE_TYPES else "")


def parse_type(text: str) -> ScopeType:
    """Read a SCOPE type.

    :raises InputError: It is not one, or cannot be a column of a Delta table.
    """
    words: list[str] = []
    place = 0
    stripped = text.strip()
    while place < len(stripped):
        match = _TOKEN.match(stripped, place)
        if match is None:
            raise _unknown(text)
        words.append("[]" if match.group(1).startswith("[") else match.group(1))
        place = match.end()
    column_type = _type(words, text)
    if words:
        raise _unknown(text)
    return column_type


def spark_type(text: str) -> str:
    """Give the Spark type of a SCOPE type."""
    return parse_type(text).spark


def scope_type(spark: str, *, nullable: bool = True) -> str:
    """Give the SCOPE type of a Spark type as ``simpleString`` gives it.

    :raises InputError: SCOPE has none.
    """
    kind = spark.strip().lower()
    name = "decimal" if _SPARK_DECIMAL.fullmatch(kind) else _FROM_SPARK.get(kind)
    if name is None:
        raise InputError(
            f"The Spark type {spark!r} has no SCOPE type.",
            kept="everything; no job was submitted",
            do="use one of: " + ", ".join([*_FROM_SPARK, "decimal(p,s)"]),
        )
    return name + ("?" if nullable and name in _VALUE_TYPES else "")


def _type(words: list[str], text: str) -> ScopeType:
    if not words:
        raise _unknown(text)
    word = words.pop(0)
    if word in ("SQL.ARRAY", "SqlArray"):
        (inner,) = _arguments(words, text, 1)
        return ScopeType(f"SQL.ARRAY<{inner.text}>", nullable=True, spark=f"array<{inner.spark}>")
    if word in ("SQL.MAP", "SqlMap"):
        key, value = _arguments(words, text, 2)
        return ScopeType(
            f"SQL.MAP<{key.text},{value.text}>", nullable=True, spark=f"map<{key.spark},{value.spark}>"
        )
    if words[:1] == ["[]"]:
        word += words.pop(0)
    if word in _REFERENCE_TYPES:
        return ScopeType(word, nullable=True, spark=_REFERENCE_TYPES[word])
    if word not in _VALUE_TYPES:
        raise _unknown(text)
    nullable = words[:1] == ["?"]
    if nullable:
        words.pop(0)
    return ScopeType(word, nullable=nullable, spark=_VALUE_TYPES[word])


def _arguments(words: list[str], text: str, count: int) -> list[ScopeType]:
    types = []
    for number in range(count):
        if not words or words.pop(0) != ("," if number else "<"):
            raise _unknown(text)
        types.append(_type(words, text))
    if not words or words.pop(0) != ">":
        raise _unknown(text)
    return types


def _unknown(text: str) -> InputError:
    return InputError(
        f"{text!r} is not a SCOPE type of a column.",
        kept="everything; no job was submitted",
        do="use one of: "
        + ", ".join([*_VALUE_TYPES, *_REFERENCE_TYPES])
        + ", SQL.ARRAY<T>, SQL.MAP<K,V>; all but string, byte[], arrays and maps take a ? for null",
    )
