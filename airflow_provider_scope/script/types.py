"""SCOPE types: reading them, and their Spark counterparts.

Unsigned types widen to the next signed one that holds all their values. SCOPE's ``decimal`` has a
floating scale and no exact image; DECIMAL(38,18) is the nearest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_provider_scope.exceptions import InputError

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
    found = _type(words, text)
    if words:
        raise _unknown(text)
    return found


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
    found = []
    for number in range(count):
        if not words or words.pop(0) != ("," if number else "<"):
            raise _unknown(text)
        found.append(_type(words, text))
    if not words or words.pop(0) != ">":
        raise _unknown(text)
    return found


def _unknown(text: str) -> InputError:
    return InputError(
        f"{text!r} is not a SCOPE type of a column.",
        kept="everything; no job was submitted",
        do="use one of: "
        + ", ".join([*_VALUE_TYPES, *_REFERENCE_TYPES])
        + ", SQL.ARRAY<T>, SQL.MAP<K,V>; all but string, byte[], arrays and maps take a ? for null",
    )
