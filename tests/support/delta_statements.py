"""Simple statements on a plain Delta table, by delta-rs: Spark needs a second or two for each.

What is not simple (another statement, a table with other types or with features) is left to Spark.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable, Field, QueryBuilder, Schema, write_deltalake
from deltalake.schema import PrimitiveType

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_TYPES = {"INT": "integer", "STRING": "string"}
_WRITERS = 4
"""The last version of the protocol that has no list of features."""
_INSERT = re.compile(r"INSERT INTO @s (VALUES .+)")
_DELETE = re.compile(r"DELETE FROM @s(?: WHERE (.+))?")
_UPDATE = re.compile(r"UPDATE @s SET (.+?)(?: WHERE (.+))?")
_ASSIGNMENT = re.compile(r"(\w+) = ((?:'[^']*'|\((?:[^()]|\([^()]*\))*\)|[^,'(])+)(?:, |$)")


def create(path: Path, columns: str, properties: Mapping[str, str]) -> bool:
    """Make a table; False if Spark has to."""
    pairs = [column.split(" ") for column in columns.split(", ")]
    if not all(len(pair) == 2 and pair[0].islower() and pair[1] in _TYPES for pair in pairs):
        return False
    if {*properties} - {"delta.enableChangeDataFeed"}:
        return False
    schema = Schema([Field(name, PrimitiveType(_TYPES[kind])) for name, kind in pairs])
    DeltaTable.create(str(path), schema, configuration=dict(properties))
    return True


def run(path: Path, statement: str) -> bool:
    """Run a statement on the table ``@s``; False if Spark has to."""
    matches = [pattern.fullmatch(statement) for pattern in (_INSERT, _DELETE, _UPDATE)]
    if not any(matches):
        return False
    table = DeltaTable(str(path))
    schema = pa.schema(table.schema().to_arrow())
    is_plain = table.protocol().min_writer_version <= _WRITERS and not table.metadata().partition_columns
    if not is_plain or not {field.type for field in schema} <= {pa.int32(), pa.string(), pa.string_view()}:
        return False
    inserted, deleted, updated = matches
    if inserted:
        rows = pa.table(QueryBuilder().execute(f"SELECT * FROM ({inserted[1]}) AS t").read_all())
        write_deltalake(table, rows.rename_columns(schema.names).cast(schema), mode="append")
    elif deleted:
        table.delete(deleted[1])
    elif updated:
        table.update(updates=dict(_ASSIGNMENT.findall(updated[1])), predicate=updated[2])
    return True
