"""One text for the values of a row: the same for equal values, however they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql import types as T  # noqa: N812

from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column

LENGTH = 32
"""Hexadecimal digits of the SHA-256 that are kept: 128 bits."""
_WHOLE = 1e15
"""Below it each whole double is one bigint, whose text is that of the same value as an integer."""


def row_hash(fields: Iterable[T.StructField]) -> Column:
    """Hash a row's values.

    It does not see the order of the columns, the letter case of their names, or columns that are NULL: a row
    without such a column is the same row. Nor does it see types where the value is equal: 1, 1.0 and 1.00;
    one instant in two zones; a date and its first instant without zone.
    """
    return F.substring(
        F.sha2(_json([(f.name, F.col(quoted(f.name)), f.dataType) for f in fields]), 256), 1, LENGTH
    )


def _json(values: list[tuple[str, Column, T.DataType]]) -> Column:
    return F.to_json(_struct(values), {"ignoreNullFields": "true"})


def _struct(values: list[tuple[str, Column, T.DataType]]) -> Column:
    named = sorted((name.lower(), value, kind) for name, value, kind in values)
    return F.struct(*[_text(value, kind).alias(name) for name, value, kind in named])


def _text(value: Column, kind: T.DataType) -> Column:
    match kind:
        case T.StructType():
            inner = [(field.name, value.getField(field.name), field.dataType) for field in kind]
            # Of fields that are NULL and of a struct that is NULL, one is there.
            return F.when(value.isNotNull(), _struct(inner)) if inner else value.cast("string")
        case T.ArrayType():
            return F.transform(value, lambda element: _text(element, kind.elementType))
        case T.MapType():
            entries = F.transform(
                F.map_entries(value),
                lambda entry: F.struct(
                    _text(entry["key"], kind.keyType).alias("key"),
                    _text(entry["value"], kind.valueType).alias("value"),
                ),
            )
            return F.array_sort(entries)
        case T.DecimalType():
            return F.regexp_replace(value.cast("string"), r"\.0+$|(\.\d*?[1-9])0+$", "$1")
        case T.FloatType() | T.DoubleType():
            double = value.cast("double")
            is_whole = (double == F.floor(double)) & (F.abs(double) < _WHOLE)
            return F.when(is_whole, double.cast("bigint").cast("string")).otherwise(double.cast("string"))
        case T.BinaryType():
            return F.hex(value)
        case T.DateType():
            return value.cast("timestamp_ntz").cast("string")
        case T.TimestampType():
            return F.unix_micros(value).cast("string")
        case T.VariantType():
            return F.to_json(value)
    return value.cast("string")
