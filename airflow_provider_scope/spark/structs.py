"""Schemas of Spark: as users name them, and the walks through their types."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

from pyspark.errors import ParseException
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql import types as T  # noqa: N812

from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, CursorError, InputError
from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import Column as Value
    from pyspark.sql import DataFrame

    from airflow_provider_scope.delta.schema import Column


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


def of_table(metadata: Mapping[str, Any]) -> T.StructType:
    """Give the columns of a table from its metadata as Delta's log has it."""
    return T.StructType.fromJson(json.loads(metadata["schemaString"]))


def to_columns(struct: T.StructType) -> list[Column]:
    """Give the names and types of a schema's columns."""
    return [(field.name, field.dataType.simpleString()) for field in struct.fields]


_PLAIN = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def to_text(struct: T.StructType) -> str:
    """Give columns as text that Spark and ``columns`` read: ``id bigint, `a b` array<string>``."""
    return ", ".join(
        f"{name} {kind}" for name, kind in ((_named(f.name), type_text(f.dataType)) for f in struct)
    )


def type_text(kind: T.DataType) -> str:
    """Give a type as text that Spark reads; ``simpleString`` leaves the names of fields without quotes."""
    if isinstance(kind, T.StructType):
        return f"struct<{', '.join(f'{_named(f.name)}: {type_text(f.dataType)}' for f in kind)}>"
    if isinstance(kind, T.ArrayType):
        return f"array<{type_text(kind.elementType)}>"
    if isinstance(kind, T.MapType):
        return f"map<{type_text(kind.keyType)}, {type_text(kind.valueType)}>"
    return kind.simpleString()


def _named(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quoted(name)


def from_text(text: str) -> dict[str, str]:
    """Give the columns that ``to_text`` wrote: name -> type."""
    found = cast("T.StructType", T.StructType.fromDDL(text))
    return {field.name: type_text(field.dataType) for field in found}


def without_notes(rows: DataFrame) -> DataFrame:
    """Give the columns without what their reader or another table notes in their metadata, but for comments.

    A table made of them would get it: a default of the source, which it cannot read; the length of a varchar.
    ``coalesce`` of one column is that column without notes, which Spark 4.0 keeps in spite of the alias.
    """
    return rows.select(
        *[F.coalesce(F.col(quoted(f.name))).alias(f.name, metadata=f.metadata) for f in noteless(rows.schema)]
    )


def noteless(schema: T.StructType) -> T.StructType:
    """Give a schema whose columns have no metadata but comments."""
    fields = []
    for field in schema.fields:
        comment = {name: text for name, text in field.metadata.items() if name == "comment"}
        fields.append(T.StructField(field.name, field.dataType, field.nullable, comment))
    return T.StructType(fields)


def column_of(data: DataFrame, path: str) -> tuple[Value, str]:
    """Give the column of a cursor by its name, or the field of a path, and its type.

    :raises CursorError: There is none.
    """
    kind: T.DataType = data.schema
    value = F.lit(None)
    is_name = path.lower() in {name.lower() for name in data.columns}
    for depth, part in enumerate([path] if is_name else path.split(".")):
        fields = kind.fields if isinstance(kind, T.StructType) else []
        field = next((field for field in fields if field.name.lower() == part.lower()), None)
        if field is None:
            raise CursorError(
                f"cursor.column is {path!r}, and there is no such column: {', '.join(data.columns)}.",
                kept=NO_ROW_WRITTEN,
                do="correct it in the Dag file, and abandon the batch with `airflow scope abandon`",
            )
        value = value.getField(field.name) if depth else F.col(quoted(field.name))
        kind = field.dataType
    return value, kind.simpleString()


def mapped(
    kind: T.DataType, change: Callable[[T.DataType], T.DataType], *, keys: T.DataType | None = None
) -> T.DataType:
    """Give a type in which each type that has no others inside is changed.

    :param keys: What all keys of maps become instead.
    """
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(f.name, mapped(f.dataType, change, keys=keys)) for f in kind])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(mapped(kind.elementType, change, keys=keys))
    if isinstance(kind, T.MapType):
        key = keys or mapped(kind.keyType, change)
        return T.MapType(key, mapped(kind.valueType, change, keys=keys))
    return change(kind)


def zipped(
    first: T.DataType,
    second: T.DataType,
    joined: Callable[[T.DataType, T.DataType], T.DataType | None],
    *,
    named_by_second: bool = False,
) -> T.DataType | None:
    """Give a type made of two: the fields of the first, and those of the second that the first lacks.

    :param joined: Gives the type for two that are not alike structs, arrays or maps; None if there is none.
    :param named_by_second: Whether a field of both is spelled as in the second.
    :return: None if two types in it have none together.
    """

    def inner(one: T.DataType, other: T.DataType) -> T.DataType | None:
        return zipped(one, other, joined, named_by_second=named_by_second)

    if isinstance(first, T.StructType) and isinstance(second, T.StructType):
        others = {field.name.lower(): field for field in second}
        fields = []
        for field in first:
            other = others.pop(field.name.lower(), None)
            kind = inner(field.dataType, other.dataType) if other else field.dataType
            if kind is None:
                return None
            fields.append(T.StructField(other.name if other and named_by_second else field.name, kind))
        return T.StructType([*fields, *(T.StructField(f.name, f.dataType) for f in others.values())])
    if isinstance(first, T.ArrayType) and isinstance(second, T.ArrayType):
        element = inner(first.elementType, second.elementType)
        return None if element is None else T.ArrayType(element)
    if isinstance(first, T.MapType) and isinstance(second, T.MapType):
        key, value = inner(first.keyType, second.keyType), inner(first.valueType, second.valueType)
        return None if key is None or value is None else T.MapType(key, value)
    return joined(first, second)


def paths_of(kind: T.DataType, outer: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Give the names of all fields at any depth, each behind those of the fields that it is in."""
    if isinstance(kind, T.StructType):
        for field in kind:
            yield (*outer, field.name)
            yield from paths_of(field.dataType, (*outer, field.name))
    elif isinstance(kind, T.ArrayType):
        yield from paths_of(kind.elementType, outer)
    elif isinstance(kind, T.MapType):
        yield from paths_of(kind.keyType, outer)
        yield from paths_of(kind.valueType, outer)


def bare(kind: T.DataType) -> T.DataType:
    """Leave out what does not change values: whether NULL is allowed, comments, lengths of texts."""
    return mapped(kind, _any_length)


def _any_length(kind: T.DataType) -> T.DataType:
    return T.StringType() if isinstance(kind, (T.CharType, T.VarcharType)) else kind


def alike(names: Sequence[str]) -> list[str]:
    """Give the names that are there more than once, whatever their case."""
    often = Counter(name.lower() for name in names)
    found = [name for name in names if name and often[name.lower()] > 1]
    # What lies below such a key differs with it.
    outer = tuple(f"{name.lower()}." for name in found)
    return [name for name in found if not name.lower().startswith(outer)]
