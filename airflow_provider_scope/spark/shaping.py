"""The rows of a batch in the shape of the table that they go to, and columns in the types that it has."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql import types as T  # noqa: N812

from airflow_provider_scope.delta import scd2_rule, schema
from airflow_provider_scope.delta.schema import Array, Evolution, Field, Kind, Map, Struct, evolve, text
from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, InputError
from airflow_provider_scope.spark.structs import bare, of_table, paths_of, to_columns, to_struct, zipped
from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from airflow_provider_scope.spark.plan import Plan


COMPUTED = ("delta.generationExpression", "delta.identity.start", "CURRENT_DEFAULT")
"""Keys in the metadata of a column for which Delta finds the value if a row does not bring it."""

_ODD_NAMES = "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"
"""Delta's condition for a table without column mapping."""
_ODD = frozenset(" ,;{}()\n\t=")

_WITH_LENGTH = "__CHAR_VARCHAR_TYPE_STRING"
"""Key in the metadata of a column of texts for the type that has a length."""
_CHAR = re.compile(r"char\((\d+)\)")

_WITHOUT_ZONE = 'ype":"timestamp_ntz"'
"""How Spark's JSON of a schema says that a column, an element or a value is of this type."""


def grown(plan: Plan, rows: DataFrame, metadata: dict[str, Any] | None) -> tuple[DataFrame, Evolution]:
    """Give the rows in the shape of the table after the batch, and what is new in the table.

    :param metadata: The table's, as Delta's log has it; None if there is no table yet.
    :raises SchemaMismatchError: The SELECT does not fit the table.
    """
    declared = plan.table_columns
    if plan.schema_evolution == "fail":
        names = to_columns(rows.schema)
        table = of_table(metadata) if metadata else to_struct(declared) if declared else rows.schema
        fits = schema.fit(names, to_columns(table), plan.table)
        return rows.select(*map(_fitted, fits)), Evolution(Struct(), (), (), ())
    select = to_fields(rows.schema)
    after = evolve(
        plan.schema_evolution,
        select,
        to_fields(of_table(metadata)) if metadata else None,
        plan.table,
        declared=to_fields(to_struct(declared)) if declared else None,
        partitions=metadata["partitionColumns"] if metadata else (),
    )
    return shaped(rows, select, after.columns), after


def _fitted(fit: schema.Fit) -> Column:
    value = F.col(quoted(fit.source))
    return (value.cast(fit.cast_to) if fit.cast_to else value).alias(fit.target)


def needed_properties(rows: DataFrame, metadata: dict[str, Any], *, widens: bool = False) -> dict[str, str]:
    """Give what a table has to allow before Delta changes its columns in a batch's commit."""
    needed = {}
    if widens and metadata.get("configuration", {}).get("delta.enableTypeWidening") != "true":
        needed["delta.enableTypeWidening"] = "true"
    if _WITHOUT_ZONE in rows.schema.json() and _WITHOUT_ZONE not in metadata["schemaString"]:
        needed["delta.feature.timestampNtz"] = "supported"
    return needed


def char_lengths(metadata: dict[str, Any] | None) -> dict[str, int]:
    """Give the columns of a table that are CHAR: name in lower case -> length."""
    columns = of_table(metadata).fields if metadata else []
    chars = ((column.name, _CHAR.fullmatch(column.metadata.get(_WITH_LENGTH, ""))) for column in columns)
    return {name.lower(): int(match[1]) for name, match in chars if match}


def padded(rows: DataFrame, lengths: Mapping[str, int]) -> DataFrame:
    """Fill texts up with blanks as Spark reads them from CHAR columns: only so are they equal to stored ones.

    A text that is longer than its column stays as it is: Delta refuses it.
    """
    texts = {name for name, kind in rows.dtypes if kind == "string" and name.lower() in lengths}
    return rows.withColumns({name: _filled(F.col(quoted(name)), lengths[name.lower()]) for name in texts})


def _filled(text: Column, length: int) -> Column:
    return F.when(F.length(text) < length, F.rpad(text, length, " ")).otherwise(text)


def check_range(spark: SparkSession, where: str | None, metadata: dict[str, Any] | None, table: str) -> None:
    """Refuse to replace a range by a CHAR column: some files have its texts with blanks, and others without.

    :raises InputError: As said.
    """
    lengths = char_lengths(metadata) if where else {}
    if not (where and metadata and lengths):
        return
    columns = of_table(metadata)
    spark.createDataFrame([], columns).where(where)  # which fails if it names no columns of the table
    for name in lengths:
        others = T.StructType([column for column in columns if column.name.lower() != name])
        try:
            spark.createDataFrame([], others).where(where)
        except AnalysisException as err:
            raise InputError(
                f"The range to replace, {where}, depends on {name}, which is CHAR in the table {table}: "
                "Delta would leave some of its rows.",
                kept=NO_ROW_WRITTEN,
                do="abandon the batch with `airflow scope abandon`. Name the range by other columns; or "
                "use write=Merge(merge_key=…), which replaces the rows that have values of the batch",
            ) from err


def lacking(rows: DataFrame, metadata: dict[str, Any]) -> list[str]:
    """Give the columns of the table that the rows do not have, and that the table does not compute."""
    there = {name.lower() for name in rows.columns}
    return [
        item.name
        for item in of_table(metadata).fields
        if item.name.lower() not in there and not any(key in item.metadata for key in COMPUTED)
    ]


def to_kind(spark_type: T.DataType) -> Kind:
    """Give a type of Spark as a value."""
    if isinstance(spark_type, T.ArrayType):
        return Array(to_kind(spark_type.elementType))
    if isinstance(spark_type, T.MapType):
        return Map(to_kind(spark_type.keyType), to_kind(spark_type.valueType))
    if isinstance(spark_type, T.StructType):
        return to_fields(spark_type)
    return spark_type.simpleString()


def to_fields(struct: T.StructType) -> Struct:
    """Give the columns of a schema."""
    return Struct(
        tuple(
            Field(
                item.name,
                to_kind(item.dataType),
                required=not item.nullable and not any(key in item.metadata for key in COMPUTED),
            )
            for item in struct.fields
        )
    )


def shaped(rows: DataFrame, select: Struct, columns: Struct) -> DataFrame:
    """Give the rows with the names, order and types of the table's columns.

    A column of the table that the SELECT lacks is left out: Delta fills it with NULL, or with what the
    table computes.
    """
    there = select.by_name()
    values = []
    for item in columns.fields:
        found = there.get(item.name.lower())
        if found:
            values.append(_value(F.col(quoted(found.name)), found.kind, item.kind).alias(item.name))
    return rows.select(*values)


def _value(value: Column, source: Kind, target: Kind) -> Column:
    """Convert a value whose type fits; a NULL stays one at every depth."""
    if text(source) == text(target):
        return value
    match source, target:
        case Struct(), Struct():
            there = source.by_name()
            parts = []
            for item in target.fields:
                found = there.get(item.name.lower())
                part = (
                    _value(value.getField(found.name), found.kind, item.kind)
                    if found
                    else F.lit(None).cast(_spark_type(item.kind))
                )
                parts.append(part.alias(item.name))
            # A cast would make a struct of NULLs out of a NULL.
            return F.when(value.isNotNull(), F.struct(*parts))
        case Array(), Array():
            return F.transform(value, lambda element: _value(element, source.element, target.element))
        case Map(), Map():
            return F.transform_values(value, lambda _, part: _value(part, source.value, target.value))
    return value.cast(_spark_type(target))


@contextmanager
def naming_odd_columns(rows: DataFrame, table: str) -> Iterator[None]:
    """Name the columns that a table without column mapping cannot have; Delta refuses them before it writes.

    :raises InputError: As said.
    """
    try:
        yield
    except AnalysisException as err:
        odd = [name for *_, name in paths_of(rows.schema) if _ODD & {*name}]
        if err.getCondition() != _ODD_NAMES or not odd:
            raise
        named = ", ".join(quoted(name) for name in odd)
        plain = re.sub(r"\W+", "_", odd[0]).strip("_") or "name"
        raise InputError(
            f"The table {table} cannot have columns with these names: {named}. Without column mapping, "
            "Delta allows no column name with a blank, a line break, a tab or one of , ; { } ( ) =.",
            kept=NO_ROW_WRITTEN,
            do=f"rename them in `sql`: SELECT {quoted(odd[0])} AS {plain}, …; for a key inside an object, "
            "declare its column as string. Or allow such names with "
            'TableSpec(properties={"delta.columnMapping.mode": "name"}); the table\'s readers have to '
            "support this, too",
        ) from err


def _spark_type(kind: Kind) -> T.DataType:
    match kind:
        case Struct():
            return T.StructType([T.StructField(item.name, _spark_type(item.kind)) for item in kind.fields])
        case Array():
            return T.ArrayType(_spark_type(kind.element))
        case Map():
            return T.MapType(_spark_type(kind.key), _spark_type(kind.value))
    return T.DataType.fromDDL(kind)


# ---- columns of files that nobody declared: the table's types are the reader's ----

_FILE_COLUMN = "scope_file_column"
"""Spark keeps the metadata of a column that a SELECT passes on or renames, and of none that it computes."""
_FROM = re.compile(r"\bfrom\b", re.IGNORECASE)
_READABLE = (T.NumericType, T.BooleanType, T.StringType, T.DateType, T.TimestampType, T.TimestampNTZType)
"""Types without parts of which the value of a text is known, or that it has none."""


@dataclass(frozen=True, slots=True)
class TableTypes:
    """The columns of the table that the rows of a batch are added to."""

    columns: T.StructType
    nullable: frozenset[str]
    """The columns that are NULL in a row which has no value for them, in lower case."""
    select: Callable[[T.StructType], DataFrame]
    """Gives the user's SELECT over columns of files, without rows."""
    is_plain: bool
    """Whether the SELECT has one FROM: with a subquery, a column more could mean something else."""
    widens: bool
    """Whether the table takes wider types of whole numbers."""

    def read_as(
        self, files: T.StructType, typed: Callable[[T.DataType, T.DataType], T.DataType], *, adds: bool
    ) -> T.StructType:
        """Give the columns to read, for the columns that the files of a batch have.

        A column that the SELECT passes on has the type of the table's column; one that it computes with, or
        that the table lacks, keeps its own.

        :param typed: Gives the type to read, for the files' type and the table's.
        :param adds: Whether columns of the table that no file has are read, too: as NULL.
        """
        own = {field.name.lower() for field in files}
        further = [f for f in self.columns if f.name.lower() in self.nullable - own] if adds else []
        table = {field.name.lower(): field.dataType for field in self.columns}

        def as_table(field: T.StructField) -> T.StructField:
            kind = table.get(field.name.lower())
            return T.StructField(field.name, typed(field.dataType, kind)) if kind else field

        first = T.StructType([*map(as_table, files), *further])
        result = self._selected(first)
        if result is None:
            further = []
            result = self._selected(T.StructType([*map(as_table, files)])) or self._selected(files)
        passed_on: dict[str, list[T.DataType]] = {}
        for field in result.schema if result else ():
            source, kind = field.metadata.get(_FILE_COLUMN), table.get(field.name.lower())
            if source and kind:
                passed_on.setdefault(source, []).append(kind)
        read = []
        for field in files:
            kinds = passed_on.get(field.name, [])
            is_one = bool(kinds) and all(kind == kinds[0] for kind in kinds)
            read.append(T.StructField(field.name, typed(field.dataType, kinds[0])) if is_one else field)
        return T.StructType([*read, *self._named_once(result, further)])

    def _selected(self, columns: T.StructType) -> DataFrame | None:
        """Give the SELECT over columns that can be told in its result; None if it cannot be run."""
        marked = [T.StructField(f.name, f.dataType, metadata={_FILE_COLUMN: f.name}) for f in columns]
        try:
            return self.select(T.StructType(marked))
        except AnalysisException:
            return None

    def _named_once(self, result: DataFrame | None, columns: list[T.StructField]) -> list[T.StructField]:
        """Give the columns that the SELECT passes on under their names, and names once; none in a join."""
        if result is None or not columns or not self.is_plain:
            return []
        if result._jdf.queryExecution().analyzed().collectLeaves().size() != 1:  # noqa: SLF001 - no Python API
            return []
        counts = Counter(field.name.lower() for field in result.schema)
        passed_on = {field.name for field in result.schema if field.metadata.get(_FILE_COLUMN) == field.name}
        return [f for f in columns if f.name in passed_on and counts[f.name.lower()] == 1]


def types_of(plan: Plan, metadata: dict[str, Any], select: Callable[[T.StructType], DataFrame]) -> TableTypes:
    """Give the columns of a table.

    :param metadata: The table's, as Delta's log has it.
    """
    columns = of_table(metadata)
    rule = scd2_rule.rule_from(plan.write) if plan.write.get("kind") == "scd2" else None
    of_write = {name.lower() for name in (*rule.validity, rule.version)} if rule else set()
    nullable = {
        f.name.lower() for f in columns if f.nullable and not any(key in f.metadata for key in COMPUTED)
    }
    kinds = T.StructType([T.StructField(f.name, bare(f.dataType)) for f in columns])
    is_plain = len(_FROM.findall(plan.sql)) == 1
    widens = plan.schema_evolution == "widen"
    return TableTypes(kinds, frozenset(nullable - of_write), select, is_plain, widens)


def of_text(files: T.DataType, table: T.DataType, *, widens: bool = False) -> T.DataType:
    """Give the type to read texts as: the table's, and for what the table lacks that of the files.

    :param widens: Whether the table takes wider types of whole numbers.
    """

    def read_as(table: T.DataType, files: T.DataType) -> T.DataType:
        if isinstance(table, (T.StructType, T.ArrayType, T.MapType)):
            return table
        if not isinstance(table, _READABLE):
            return files
        kinds = table.simpleString(), files.simpleString()
        return files if widens and schema.wider(*kinds) == kinds[1] else table

    return cast("T.DataType", zipped(table, files, read_as, named_by_second=True))
