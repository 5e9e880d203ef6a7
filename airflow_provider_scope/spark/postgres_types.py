"""The types of PostgreSQL: what a table gets of each, and the SQL by which no value changes on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.core.databases import MARK, named
from airflow_provider_scope.spark.jdbc_types import DIGITS, no_type_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_scope.spark.jdbc_types import Column

KINDS = {
    "int2": "smallint",
    "smallserial": "smallint",
    "int4": "int",
    "serial": "int",
    "int8": "bigint",
    "bigserial": "bigint",
    "float4": "float",
    "float8": "double",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
}
_AS_IT_IS = {*KINDS, "bool", "bytea", "text", "varchar", "bpchar", "name"}
_ARRAYS = {"_int2", "_int4", "_int8", "_float4", "_float8", "_bool", "_text", "_varchar", "_bpchar"}
TEXTS = ("text", "varchar", "bpchar")
TIMES = ("date", "timestamp", "timestamptz")
_NEGATIVE = 1024
"""The scale, in 11 bits, from which on it is one below zero."""


def value_of(column: Column, custom: T.DataType | None) -> str:
    """Give the SQL for a column's value: what Spark would change is text, or an error of the database."""
    name, kind = named(column.name), column.kind
    if isinstance(custom, T.StringType):
        return f"{name}::text"
    if isinstance(custom, T.DecimalType):
        whole = custom.precision - custom.scale
        fits = f"{name} = trunc({name}, {custom.scale}) AND abs({name}) < 1e{whole}"
        return _checked(column, fits, f"numeric({custom.precision},{custom.scale})")
    if kind == "numeric":
        return _checked(column, f"{name} <> 'NaN'", f"numeric({column.precision},{column.scale})")
    if kind in TIMES:
        low = f"{name} >= '0001-01-01{' 00:00:00+00' if kind == 'timestamptz' else ''}'"
        fits = f"isfinite({name}) AND {low} AND {name} < '10000-01-01'"
        if kind == "date":
            return _checked(column, fits, "integer", f"{name} - DATE '1970-01-01'")
        return _checked(column, fits, "bigint", f"extract(epoch FROM {name}) * 1000000")
    if kind in _AS_IT_IS or kind in _ARRAYS:
        return name
    return f"{name}::text{'[]' if column.is_array else ''}"


def _checked(column: Column, condition: str, kind: str, value: str = "") -> str:
    """Give a value, or an error of the database that names it: no other way asks all values, and once."""
    name = named(column.name)
    told = f"{MARK}column {column.name} has the value ".replace("'", "''")
    return (
        f"CASE WHEN {name} IS NULL OR ({condition}) THEN ({value or name})::{kind} "
        f"ELSE ('{told}' || {name}::text)::{kind} END"
    )


def as_decimal(column: Column) -> Column:
    """Give a number the digits that a decimal needs for the same values.

    PostgreSQL has numbers that end before the point, and others that begin behind it: numeric(5,-2) is
    decimal(7,0), numeric(2,5) is decimal(5,5). The driver tells the scale without its sign, in 11 bits.
    """
    if column.kind != "numeric" or not column.precision:
        return column
    scale = column.scale - (2048 if column.scale >= _NEGATIVE else 0)
    precision = max(column.precision - min(scale, 0), scale)
    return column._replace(precision=precision, scale=max(scale, 0))


def check(columns: Sequence[Column], given: Mapping[str, T.DataType]) -> None:
    """Refuse columns that no type of the table holds as they are.

    :param given: Column -> the type that the user names.
    :raises CursorError: It names them all.
    """
    unfit = [has for one in columns if (has := _unfit(one, given.get(one.name)))]
    if unfit:
        raise no_type_for(
            unfit, "DECIMAL(p,s) with at most 38 digits for numeric (what would be cut is refused)"
        )


def _unfit(column: Column, custom: T.DataType | None) -> str:
    """Name a column that no type of the table holds as it is, and say why; empty if one does."""
    is_number = column.kind == "numeric"
    if custom is not None:
        fits = isinstance(custom, T.StringType) or (isinstance(custom, T.DecimalType) and is_number)
        return "" if fits else f"{column.name!r} ({column.kind}, read as {custom.simpleString()})"
    if is_number and not column.precision:
        return f"{column.name!r} (numeric without a precision)"
    if is_number and column.precision > DIGITS:
        return f"{column.name!r} (numeric of {column.precision} digits)"
    return ""
