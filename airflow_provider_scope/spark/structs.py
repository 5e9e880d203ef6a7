"""Schemas of Spark: as users name them, the walks through their types, and hashes of rows and keys."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

from pyspark.errors import ParseException
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql import types as T  # noqa: N812

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession


def to_struct(columns: Mapping[str, str]) -> T.StructType:
    """Make the schema of columns: name -> Spark type, as text.

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


def of_table(metadata: Mapping[str, Any]) -> T.StructType:
    """Read the columns of a table from its metadata, as Delta's log has it."""
    return T.StructType.fromJson(json.loads(metadata["schemaString"]))


_UNQUOTED_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
"""A name that needs no quotes in a schema as text."""


def to_text(struct: T.StructType) -> str:
    """Write columns as text that Spark and ``columns`` read: ``id bigint, `a b` array<string>``."""
    return ", ".join(f"{_name_text(field.name)} {type_text(field.dataType)}" for field in struct)


def type_text(kind: T.DataType) -> str:
    """Write a type as text that Spark reads. ``simpleString`` is no such text: it quotes no field's name."""
    if isinstance(kind, T.StructType):
        fields = [f"{_name_text(field.name)}: {type_text(field.dataType)}" for field in kind]
        return f"struct<{', '.join(fields)}>"
    if isinstance(kind, T.ArrayType):
        return f"array<{type_text(kind.elementType)}>"
    if isinstance(kind, T.MapType):
        return f"map<{type_text(kind.keyType)}, {type_text(kind.valueType)}>"
    return kind.simpleString()


def _name_text(name: str) -> str:
    return name if _UNQUOTED_NAME.fullmatch(name) else quoted(name)


def from_text(text: str) -> dict[str, str]:
    """Read the columns that ``to_text`` wrote: name -> type."""
    return to_mapping(cast("T.StructType", T.StructType.fromDDL(text)))


def to_mapping(struct: T.StructType) -> dict[str, str]:
    """Write columns as ``to_struct`` reads them: name -> type."""
    return {field.name: type_text(field.dataType) for field in struct}


def literal_rows(spark: SparkSession, rows: Sequence[Mapping[str, object]], columns: str) -> DataFrame:
    """Make rows of Python's values: ``createDataFrame`` would start a Python worker, half a second each.

    :param columns: Names and types, as ``to_text`` writes them.
    """
    values = F.from_json(F.lit(json.dumps(rows)), f"array<struct<{columns}>>")
    return spark.range(1).select(F.inline(values))


def without_metadata(rows: DataFrame) -> DataFrame:
    """Remove the metadata of the columns, except comments: their reader, or another table, wrote it.

    A table made of the columns would inherit it: a default of the source, which the table cannot read, or
    the length of a varchar. ``coalesce`` of one column is that column without its metadata; with the alias
    alone, Spark 4.0 keeps the metadata.
    """
    columns = []
    for field in schema_without_metadata(rows.schema):
        value = F.coalesce(F.col(quoted(field.name)))
        columns.append(value.alias(field.name, metadata=field.metadata))
    return rows.select(*columns)


def schema_without_metadata(schema: T.StructType) -> T.StructType:
    """Remove the metadata of all columns, except comments."""
    fields = []
    for field in schema.fields:
        comment = {name: text for name, text in field.metadata.items() if name == "comment"}
        fields.append(T.StructField(field.name, field.dataType, field.nullable, comment))
    return T.StructType(fields)


def is_nested(kind: T.DataType) -> bool:
    """Return whether a type has types inside."""
    return isinstance(kind, (T.StructType, T.ArrayType, T.MapType))


def map_leaves(
    kind: T.DataType,
    change: Callable[[T.DataType], T.DataType],
    *,
    keys: T.DataType | None = None,
    keeps_not_null: bool = False,
) -> T.DataType:
    """Change each leaf of a type: each type in it that has no types inside.

    :param keys: The type that all keys of maps get, in place of a change.
    :param keeps_not_null: Whether NOT NULL and the metadata of fields stay, which are left out otherwise.
    """

    def inside(kind: T.DataType) -> T.DataType:
        return map_leaves(kind, change, keys=keys, keeps_not_null=keeps_not_null)

    if isinstance(kind, T.StructType):
        fields = [T.StructField(f.name, inside(f.dataType), f.nullable, f.metadata) for f in kind]
        if not keeps_not_null:
            fields = [T.StructField(f.name, f.dataType) for f in fields]
        return T.StructType(fields)
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(inside(kind.elementType), kind.containsNull or not keeps_not_null)
    if isinstance(kind, T.MapType):
        key = keys or inside(kind.keyType)
        return T.MapType(key, inside(kind.valueType), kind.valueContainsNull or not keeps_not_null)
    return change(kind)


def merge_types(
    first: T.DataType,
    second: T.DataType,
    merge_leaves: Callable[[T.DataType, T.DataType], T.DataType | None],
    *,
    named_by_second: bool = False,
) -> T.DataType | None:
    """Make a type of two: the fields of the first, and those of the second that the first lacks.

    :param merge_leaves: Gives the type for two types that are not both structs, both arrays or both maps;
        None if there is none.
    :param named_by_second: Whether a field of both is spelled as in the second.
    :return: None if there is no type for two types inside.
    """

    def merge_inner(first: T.DataType, second: T.DataType) -> T.DataType | None:
        return merge_types(first, second, merge_leaves, named_by_second=named_by_second)

    if isinstance(first, T.StructType) and isinstance(second, T.StructType):
        second_fields = {field.name.lower(): field for field in second}
        fields = []
        for field in first:
            partner = second_fields.pop(field.name.lower(), None)
            kind = merge_inner(field.dataType, partner.dataType) if partner else field.dataType
            if kind is None:
                return None
            fields.append(T.StructField(partner.name if partner and named_by_second else field.name, kind))
        return T.StructType([*fields, *(T.StructField(f.name, f.dataType) for f in second_fields.values())])
    if isinstance(first, T.ArrayType) and isinstance(second, T.ArrayType):
        element = merge_inner(first.elementType, second.elementType)
        return None if element is None else T.ArrayType(element)
    if isinstance(first, T.MapType) and isinstance(second, T.MapType):
        key = merge_inner(first.keyType, second.keyType)
        value = merge_inner(first.valueType, second.valueType)
        return None if key is None or value is None else T.MapType(key, value)
    return merge_leaves(first, second)


def paths_of(kind: T.DataType, outer: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Walk through the fields at any depth; a path has the names of the fields around one, and its own last.

    :param outer: The path of the field that has this type.
    """
    if isinstance(kind, T.StructType):
        for field in kind:
            yield (*outer, field.name)
            yield from paths_of(field.dataType, (*outer, field.name))
    elif isinstance(kind, T.ArrayType):
        yield from paths_of(kind.elementType, outer)
    elif isinstance(kind, T.MapType):
        yield from paths_of(kind.keyType, outer)
        yield from paths_of(kind.valueType, outer)


def without_lengths(columns: T.StructType) -> T.StructType:
    """Make texts of CHAR and VARCHAR: Spark makes no rows of their own with these types, not even none."""
    return T.StructType(
        [T.StructField(f.name, bare_type(f.dataType), f.nullable, f.metadata) for f in columns.fields]
    )


def bare_type(kind: T.DataType) -> T.DataType:
    """Leave out what does not change values: whether NULL is allowed, comments, lengths of texts."""
    return map_leaves(kind, without_length)


def without_length(leaf: T.DataType) -> T.DataType:
    return T.StringType() if isinstance(leaf, (T.CharType, T.VarcharType)) else leaf


def repeated_names(names: Sequence[str]) -> list[str]:
    """Find the names that occur more than once, whatever their case.

    A name may be a path with points: ``a.b`` is left out if ``a`` is repeated, since it differs with ``a``.
    """
    counts = Counter(name.lower() for name in names)
    repeated = [name for name in names if name and counts[name.lower()] > 1]
    outer = tuple(f"{name.lower()}." for name in repeated)
    return [name for name in repeated if not name.lower().startswith(outer)]


# ---- One text for the values of a row: the same for equal values, however they are written ----

_HASH_LENGTH = 32
"""Hexadecimal digits of the SHA-256 that are kept: 128 bits."""
_WHOLE = 1e15
"""Below it each whole double is one bigint, whose text is that of the same value as an integer."""


def row_hash(fields: Iterable[T.StructField], column: Callable[[str], str] = quoted) -> Column:
    """Hash a row's values.

    It does not see the order of the columns, the letter case of their names, or columns that are NULL: a row
    without such a column is the same row. Nor does it see types where the value is equal: 1, 1.0 and 1.00;
    one instant in two zones; a date and its first instant without zone.

    :param column: Gives the column of a field, as SQL names it.
    """
    values = [(f.name, F.col(column(f.name)), f.dataType) for f in fields]
    return F.substring(F.sha2(_json(values), 256), 1, _HASH_LENGTH)


def _json(values: list[tuple[str, Column, T.DataType]]) -> Column:
    return F.to_json(_struct(values), {"ignoreNullFields": "true"})


def _struct(values: list[tuple[str, Column, T.DataType]]) -> Column:
    named = sorted((name.lower(), value, kind) for name, value, kind in values)
    return F.struct(*[_value_text(value, kind).alias(name) for name, value, kind in named])


def _value_text(value: Column, kind: T.DataType) -> Column:
    match kind:
        case T.StructType():
            inner = [(field.name, value.getField(field.name), field.dataType) for field in kind]
            # Of fields that are NULL and of a struct that is NULL, one is there.
            return F.when(value.isNotNull(), _struct(inner)) if inner else value.cast("string")
        case T.ArrayType():
            return F.transform(value, lambda element: _value_text(element, kind.elementType))
        case T.MapType():
            entries = F.transform(
                F.map_entries(value),
                lambda entry: F.struct(
                    _value_text(entry["key"], kind.keyType).alias("key"),
                    _value_text(entry["value"], kind.valueType).alias("value"),
                ),
            )
            return F.array_sort(entries)
        case T.DecimalType():
            return F.regexp_replace(value.cast("string"), r"\.0+$|(\.\d*?[1-9])0+$", "$1")
        case T.FloatType() | T.DoubleType():
            double = value.cast("double")
            is_whole = (double == F.floor(double)) & (F.abs(double) < _WHOLE)
            return F.when(is_whole, double.cast("bigint").cast("string")).otherwise(double.cast("string"))
        case T.DateType():
            return value.cast("timestamp_ntz").cast("string")
        case T.TimestampType():
            return F.unix_micros(value).cast("string")
    to_text = _TEXTS.get(type(kind))
    return to_text(value) if to_text else value.cast("string")


def _of_text(value: Column) -> Column:
    """Write bytes that are not UTF-8 as digits: JSON has the same replacement for all of them."""
    text = value.cast("string")
    return F.when(F.is_valid_utf8(text), text).otherwise(F.concat(F.lit("\0\ufffd"), F.hex(text)))


_TEXTS: dict[type[T.DataType], Callable[[Column], Column]] = {
    T.BinaryType: F.hex,
    T.StringType: _of_text,
    T.VariantType: F.to_json,
}
"""Type -> how its values are written, if not by a cast."""
