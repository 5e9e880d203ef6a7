"""Between columns as users name them and Spark's schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import ParseException
from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.exceptions import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_scope.core.schema import Column


def to_struct(columns: Mapping[str, str]) -> T.StructType:
    """Give the schema for column names and Spark types.

    :raises InputError: A type is not one of Spark's.
    """
    struct = T.StructType()
    for name, kind in columns.items():
        try:
            struct = struct.add(name, T.DataType.fromDDL(kind))
        except ParseException as err:
            raise InputError(
                f"The column {name!r} has the type {kind!r}, which Spark does not know.",
                kept="the table; no row was written, and the batch stays logged",
                do="write one of Spark's types: string, int, bigint, double, decimal(10,2), date, timestamp, "
                "array<string>, struct<a:int>, ...",
            ) from err
    return struct


def to_columns(struct: T.StructType) -> list[Column]:
    """Give the names and types of a schema's columns."""
    return [(field.name, field.dataType.simpleString()) for field in struct.fields]
