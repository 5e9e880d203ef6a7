"""The rows of a batch in the shape of the table that they go to, and columns in the types that it has."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, UnsupportedOperationException
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql import types as T  # noqa: N812

from airflow_provider_scope.delta.schema import (
    COMPUTED,
    IDENTITY,
    Array,
    Evolution,
    Field,
    Kind,
    Map,
    Struct,
    evolve,
    text,
)
from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, InputError
from airflow_provider_scope.spark.structs import (
    of_table,
    paths_of,
    to_struct,
    without_lengths,
    without_metadata,
)
from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from airflow_provider_scope.spark.plan import Plan


_INVALID_NAMES = "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"
"""Delta's error condition for column names that a table without column mapping cannot have."""
_APPEND_ONLY = "DELTA_CANNOT_MODIFY_APPEND_ONLY"
_INVALID_CHARACTERS = frozenset(" ,;{}()\n\t=")
_NO_TYPES = (
    "UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE",
    "DELTA_GEOSPATIAL_NOT_SUPPORTED",
    "DELTA_UNSUPPORTED_DATA_TYPES",  # of a MERGE, and of texts with a collation
    "UNSUPPORTED_TIME_TYPE",
)
"""Error conditions for columns of types that no Delta table has."""
_NOT_IN_DELTA = re.compile(r'ype":"(interval|time\(|geometry|geography)|"__COLLATIONS":')
"""How Spark's JSON of a column says that it, an element or a value is of such a type."""

_TYPE_WITH_LENGTH = "__CHAR_VARCHAR_TYPE_STRING"
"""Key in the metadata of a string column for its type with a length, such as ``char(3)``."""
_CHAR = re.compile(r"\bchar\(")

_TIMESTAMP_NTZ = 'ype":"timestamp_ntz"'
"""How Spark's JSON of a schema says that a column, an element or a value is of this type."""


def fit_to_table(plan: Plan, rows: DataFrame, metadata: dict[str, Any] | None) -> tuple[DataFrame, Evolution]:
    """Return rows the names, order and types that the table has after the batch.

    A column of the table that the SELECT may lack is left out: Delta fills it with NULL, or with what the
    table computes.

    :param metadata: The table's, as Delta's log has it; None if there is no table yet.
    :return: And how the table's columns change.
    :raises SchemaMismatchError: The SELECT does not fit the table.
    """
    select = _to_fields(rows.schema)
    table = _to_fields(of_table(metadata)) if metadata else None
    declared = _to_fields(without_lengths(to_struct(plan.table_columns))) if plan.table_columns else None
    if plan.schema_evolution == "fail":
        table, declared = table or declared, None
    evolution = evolve(
        plan.schema_evolution,
        select,
        table,
        plan.table,
        declared=declared,
        partitions=metadata["partitionColumns"] if metadata else (),
    )
    row_columns = select.by_name()
    values = [
        _convert(F.col(quoted(source.name)), source.kind, column.kind).alias(column.name)
        for column in evolution.columns.fields
        if (source := row_columns.get(column.name.lower()))
    ]
    return without_metadata(rows.select(*values)), evolution


def needed_properties(rows: DataFrame, metadata: dict[str, Any], *, widens: bool = False) -> dict[str, str]:
    """Find the table properties that a batch needs before its commit: a feature that its columns use.

    :param rows: The rows of the batch, in the shape of the table after it.
    :param widens: Whether the batch widens the type of a column.
    """
    properties = {}
    if widens and metadata.get("configuration", {}).get("delta.enableTypeWidening") != "true":
        properties["delta.enableTypeWidening"] = "true"
    if _TIMESTAMP_NTZ in rows.schema.json() and _TIMESTAMP_NTZ not in metadata["schemaString"]:
        properties["delta.feature.timestampNtz"] = "supported"
    return properties


def char_types(metadata: dict[str, Any] | None) -> dict[str, T.DataType]:
    """Find the columns of a table that are CHAR, or have CHAR inside: name in lower case -> type."""
    columns = of_table(metadata).fields if metadata else []
    texts = {column.name.lower(): str(column.metadata.get(_TYPE_WITH_LENGTH, "")) for column in columns}
    return {name: T.DataType.fromDDL(text) for name, text in texts.items() if _CHAR.search(text)}


def chars_of(types: Mapping[str, T.DataType]) -> list[str]:
    """List those of the columns that are CHAR themselves."""
    return [name for name, kind in types.items() if isinstance(kind, T.CharType)]


def pad_chars(rows: DataFrame, types: Mapping[str, T.DataType]) -> DataFrame:
    """Pad texts with blanks, as Spark reads them from CHAR columns: else they do not equal the stored ones.

    A text that is longer than its column stays as it is: Delta refuses it.

    :param types: As ``char_types`` finds them.
    """
    fields = [field for field in rows.schema if field.name.lower() in types]
    return rows.withColumns(
        {f.name: _padded(F.col(quoted(f.name)), f.dataType, types[f.name.lower()]) for f in fields}
    )


def _padded(value: Column, kind: T.DataType, char: T.DataType | None) -> Column:
    match kind, char:
        case T.StringType(), T.CharType():
            return F.when(F.length(value) < char.length, F.rpad(value, char.length, " ")).otherwise(value)
        case T.StructType(), T.StructType():
            types = {field.name.lower(): field.dataType for field in char}
            parts = [
                _padded(value.getField(f.name), f.dataType, types.get(f.name.lower())).alias(f.name)
                for f in kind
            ]
            return F.when(value.isNotNull(), F.struct(*parts))
        case T.ArrayType(), T.ArrayType():
            return F.transform(value, lambda part: _padded(part, kind.elementType, char.elementType))
        case T.MapType(), T.MapType():
            values = F.transform_values(value, lambda _, part: _padded(part, kind.valueType, char.valueType))
            return F.transform_keys(values, lambda key, _: _padded(key, kind.keyType, char.keyType))
    return value


def check_range(spark: SparkSession, where: str | None, metadata: dict[str, Any] | None, table: str) -> None:
    """Refuse to replace a range that depends on a CHAR column.

    Some files of the table have its texts padded with blanks, and others do not, so that Delta would leave
    some rows of the range.

    :param where: The range as SQL; None if the batch replaces none.
    :raises InputError: The range depends on a CHAR column.
    """
    chars = chars_of(char_types(metadata)) if where else []
    if not (where and metadata and chars):
        return
    columns = of_table(metadata)
    spark.createDataFrame([], columns).where(where)  # which fails if it names no columns of the table
    for name in chars:
        other_columns = T.StructType([column for column in columns if column.name.lower() != name])
        try:
            spark.createDataFrame([], other_columns).where(where)
        except AnalysisException as err:
            raise InputError(
                f"The range to replace, {where}, depends on {name}, which is CHAR in the table {table}: "
                "Delta would leave some of its rows.",
                kept=NO_ROW_WRITTEN,
                do="abandon the batch with `airflow scope abandon`. Name the range by other columns; or "
                "use write=Merge(merge_key=…), which replaces the rows that have values of the batch",
            ) from err


def missing_columns(rows: DataFrame, metadata: dict[str, Any]) -> list[str]:
    """Find the columns of the table that the rows do not have, and that the table does not compute."""
    row_columns = {name.lower() for name in rows.columns}
    return [
        column.name
        for column in of_table(metadata).fields
        if column.name.lower() not in row_columns and not is_computed(column)
    ]


def computed_columns(rows: DataFrame, metadata: dict[str, Any] | None) -> dict[str, Column]:
    """Return what the table computes for rows that lack a column, but for identities: name -> value."""
    names = {name.lower() for name in rows.columns}
    columns = [c for c in of_table(metadata).fields if c.name.lower() not in names] if metadata else []
    return {
        column.name: F.expr(expression).cast(column.dataType)
        for column in columns
        for key in COMPUTED
        if isinstance(expression := column.metadata.get(key), str)
    }


def without_identities(columns: T.StructType) -> T.StructType:
    """Leave out the columns for which only the table has values."""
    return T.StructType([column for column in columns if IDENTITY not in column.metadata])


def is_computed(column: T.StructField) -> bool:
    return any(key in column.metadata for key in COMPUTED)


def _to_kind(spark_type: T.DataType) -> Kind:
    if isinstance(spark_type, T.ArrayType):
        return Array(_to_kind(spark_type.elementType))
    if isinstance(spark_type, T.MapType):
        return Map(_to_kind(spark_type.keyType), _to_kind(spark_type.valueType))
    if isinstance(spark_type, T.StructType):
        return _to_fields(spark_type)
    return spark_type.simpleString()


def _to_fields(struct: T.StructType) -> Struct:
    return Struct(
        tuple(
            Field(
                column.name,
                _to_kind(column.dataType),
                required=not column.nullable and not is_computed(column),
            )
            for column in struct.fields
        )
    )


def _convert(value: Column, source: Kind, target: Kind) -> Column:
    """Convert a value to a type that fits it; a NULL stays NULL at every depth."""
    if text(source) == text(target):
        return value
    match source, target:
        case Struct(), Struct():
            source_fields = source.by_name()
            parts = []
            for field in target.fields:
                source_field = source_fields.get(field.name.lower())
                part = (
                    _convert(value.getField(source_field.name), source_field.kind, field.kind)
                    if source_field
                    else F.lit(None).cast(text(field.kind, quoted))
                )
                parts.append(part.alias(field.name))
            # A cast would make a struct of NULLs out of a NULL.
            return F.when(value.isNotNull(), F.struct(*parts))
        case Array(), Array():
            return F.transform(value, lambda element: _convert(element, source.element, target.element))
        case Map(), Map():
            return F.transform_values(value, lambda _, part: _convert(part, source.value, target.value))
    return value.cast(text(target, quoted))


@contextmanager
def naming_unfit_columns(rows: DataFrame, table: str) -> Iterator[None]:
    """Name the columns that Delta refuses before it writes: by their names, or by their types.

    :raises InputError: In place of Delta's error, which does not say how the columns can be changed. Also if
        the table takes no other rows than new ones.
    """
    try:
        yield
    except (AnalysisException, UnsupportedOperationException) as err:
        condition, refusal = err.getCondition(), None
        if condition == _INVALID_NAMES:
            refusal = _invalid_names(rows.schema)
        elif condition in _NO_TYPES:
            refusal = _types_of_no_table(rows.schema)
        elif condition == _APPEND_ONLY:
            statement = f"ALTER TABLE delta.{quoted(table)} UNSET TBLPROPERTIES ('delta.appendOnly')"
            refusal = (
                "rows changed or removed: it has delta.appendOnly.",
                f"use write='append'; or {statement}",
            )
        if refusal is None:
            raise
        problem, advice = refusal
        raise InputError(f"The table {table} cannot have {problem}", kept=NO_ROW_WRITTEN, do=advice) from err


def _invalid_names(columns: T.StructType) -> tuple[str, str] | None:
    """Say which names a table without column mapping cannot have, and what to do."""
    invalid = [name for *_, name in paths_of(columns) if _INVALID_CHARACTERS & {*name}]
    if not invalid:
        return None
    names = ", ".join(quoted(name) for name in invalid)
    valid_name = re.sub(r"\W+", "_", invalid[0]).strip("_") or "name"
    problem = (
        f"columns with these names: {names}. Without column mapping, Delta allows no column name with a "
        "blank, a line break, a tab or one of , ; { } ( ) =."
    )
    advice = (
        f"rename them in `sql`: SELECT {quoted(invalid[0])} AS {valid_name}, …; for a key inside an object, "
        "declare its column as string. Or allow such names with "
        'TableSpec(properties={"delta.columnMapping.mode": "name"}); the table\'s readers have to support '
        "this, too"
    )
    return problem, advice


def _types_of_no_table(columns: T.StructType) -> tuple[str, str] | None:
    """Say which columns have a type that Delta does not know, and what to do."""
    unfit = [column for column in columns if _NOT_IN_DELTA.search(column.json())]
    if not unfit:
        return None
    types = ", ".join(f"{quoted(column.name)} {column.dataType.simpleString()}" for column in unfit)
    return (
        f"columns of these types, which Delta does not know: {types}.",
        f"cast them before they are written, such as CAST({quoted(unfit[0].name)} AS string)",
    )
