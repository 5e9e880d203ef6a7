"""Between columns as users name them and Spark's schemas."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from pyspark.errors import ParseException
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql import types as T  # noqa: N812

from airflow_provider_scope.core.sql import quoted
from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, CursorError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column as Value
    from pyspark.sql import DataFrame

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


_PLAIN = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def to_text(struct: T.StructType) -> str:
    """Give columns as text that Spark and ``specs.columns`` read: ``id bigint, `a b` array<string>``."""
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
