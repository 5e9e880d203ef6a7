"""The columns of a table, without a JVM."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltalake.exceptions import DeltaError

from airflow_provider_scope.table.opening import open_table, unreadable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_scope.storage.protocol import Storage


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of a table that exists, as (name, Spark type)."""

    version: int
    columns: tuple[tuple[str, str], ...]
    partition_by: tuple[str, ...]
    not_null: frozenset[str] = frozenset()


_SPARK_NAMES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}


def table_columns(location: str, storage: Storage | None = None) -> TableColumns | None:
    """Give the columns of a table with their Spark types; None if there is no table.

    :param location: Canonical URI of the table.
    :param storage: Where the table is; None is a disk of this machine.
    :raises TableUnreadableError: The log could not be read. That never means "no table".
    """
    with open_table(location, storage) as table:
        if table is None:
            return None
        try:
            fields = json.loads(table.delta.schema().to_json())["fields"]
            partitions = tuple(table.delta.metadata().partition_columns)
        except (DeltaError, OSError, ValueError) as err:
            raise unreadable(location, err) from err
        version = table.delta.version()
    return TableColumns(
        version=version,
        columns=columns_of(fields),
        partition_by=partitions,
        not_null=frozenset(field["name"] for field in fields if not field["nullable"]),
    )


def columns_of(fields: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    """Give the names and Spark types of the fields of a Delta schema."""
    return tuple((field["name"], _spark_type(field["type"])) for field in fields)


def _spark_type(kind: Any) -> str:
    """Give a type of Delta's schema as Spark's ``simpleString`` does."""
    if isinstance(kind, str):
        return _SPARK_NAMES.get(kind, kind)
    match kind["type"]:
        case "array":
            return f"array<{_spark_type(kind['elementType'])}>"
        case "map":
            return f"map<{_spark_type(kind['keyType'])},{_spark_type(kind['valueType'])}>"
        case _:
            fields = (f"{field['name']}:{_spark_type(field['type'])}" for field in kind["fields"])
            return f"struct<{','.join(fields)}>"
