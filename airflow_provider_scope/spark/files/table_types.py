"""The table's columns, whose types columns of files are read with that nobody declared."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pyspark.errors import AnalysisException
from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.delta import schema, write_rules
from airflow_provider_scope.spark.shaping import is_computed
from airflow_provider_scope.spark.structs import bare_type, is_nested, merge_types, of_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from airflow_provider_scope.spark.plan import Plan

_FILE_COLUMN = "scope_file_column"
"""Key in the metadata of a column for its name in the files.

Spark keeps the metadata of a column that a SELECT passes on or renames, and of none that it computes.
"""
_FROM = re.compile(r"\bfrom\b", re.IGNORECASE)
_READABLE = (T.NumericType, T.BooleanType, T.StringType, T.DateType, T.TimestampType, T.TimestampNTZType)
"""Types without types inside, as which every text is either one value or none."""


@dataclass(frozen=True, slots=True)
class TableTypes:
    """The columns of the table that the rows of a batch are added to."""

    columns: T.StructType
    nullable: frozenset[str]
    """The columns that are NULL in a row which has no value for them, in lower case."""
    select: Callable[[T.StructType], DataFrame]
    """Gives the user's SELECT over columns of files, without rows."""
    has_one_from: bool
    """Whether the SELECT has one FROM: in a subquery, a column that is added could mean something else."""
    widens: bool
    """Whether the table takes wider types of whole numbers."""

    def read_as(
        self, files: T.StructType, type_to_read: Callable[[T.DataType, T.DataType], T.DataType], *, adds: bool
    ) -> T.StructType:
        """Find the types to read the columns of the files of a batch with.

        A column that the SELECT passes on has the type of the table's column; one that it computes with, or
        that the table lacks, keeps its own.

        :param type_to_read: Gives the type to read, for the files' type and the table's.
        :param adds: Whether columns of the table that no file has are read, too: as NULL.
        """
        file_names = {field.name.lower() for field in files}
        added = [f for f in self.columns if f.name.lower() in self.nullable - file_names] if adds else []
        types_of_table = {field.name.lower(): field.dataType for field in self.columns}

        def with_type_of_table(field: T.StructField) -> T.StructField:
            kind = types_of_table.get(field.name.lower())
            return T.StructField(field.name, type_to_read(field.dataType, kind)) if kind else field

        columns = [*map(with_type_of_table, files)]
        result = self._select_marked(T.StructType([*columns, *added]))
        if result is None:
            added = []
            result = self._select_marked(T.StructType(columns)) or self._select_marked(files)
        target_types: dict[str, list[T.DataType]] = {}  # of the columns that the SELECT passes on
        for field in result.schema if result else ():
            source, kind = field.metadata.get(_FILE_COLUMN), types_of_table.get(field.name.lower())
            if source and kind:
                target_types.setdefault(source, []).append(kind)
        read = []
        for field in files:
            kinds = target_types.get(field.name, [])
            if kinds and all(kind == kinds[0] for kind in kinds):
                read.append(T.StructField(field.name, type_to_read(field.dataType, kinds[0])))
            else:
                read.append(field)
        return T.StructType([*read, *self._passed_on_once(result, added)])

    def _select_marked(self, columns: T.StructType) -> DataFrame | None:
        """Run the SELECT over columns with ``_FILE_COLUMN`` in their metadata; None if Spark refuses it."""
        marked = [T.StructField(f.name, f.dataType, metadata={_FILE_COLUMN: f.name}) for f in columns]
        try:
            return self.select(T.StructType(marked))
        except AnalysisException:
            return None

    def _passed_on_once(self, result: DataFrame | None, columns: list[T.StructField]) -> list[T.StructField]:
        """Find the columns that the SELECT passes on under their own names, each once; none in a join."""
        if result is None or not columns or not self.has_one_from:
            return []
        if result._jdf.queryExecution().analyzed().collectLeaves().size() != 1:
            return []
        counts = Counter(field.name.lower() for field in result.schema)
        passed_on = {field.name for field in result.schema if field.metadata.get(_FILE_COLUMN) == field.name}
        return [f for f in columns if f.name in passed_on and counts[f.name.lower()] == 1]


def table_types(
    plan: Plan, metadata: dict[str, Any], select: Callable[[T.StructType], DataFrame]
) -> TableTypes:
    """Describe the columns of a plan's table.

    :param metadata: The table's, as Delta's log has it.
    :param select: As ``TableTypes.select``.
    """
    columns = of_table(metadata)
    rule = write_rules.of_plan(write_rules.Scd2, plan.write) if plan.write.get("kind") == "scd2" else None
    of_others = {name.lower() for name in (*rule.validity_column_names, rule.version)} if rule else set()
    of_others |= {name.lower() for name in (*plan.partition_columns, *plan.rescued)}
    nullable = {field.name.lower() for field in columns if field.nullable and not is_computed(field)}
    kinds = T.StructType([T.StructField(f.name, bare_type(f.dataType)) for f in columns])
    return TableTypes(
        columns=kinds,
        nullable=frozenset(nullable - of_others),
        select=select,
        has_one_from=len(_FROM.findall(plan.sql)) == 1,
        widens=plan.schema_evolution == "widen",
    )


def type_of_texts(files: T.DataType, table: T.DataType, *, widens: bool = False) -> T.DataType:
    """Choose the type to read texts as: the table's, and for what the table lacks that of the files.

    :param widens: Whether the table takes wider types of whole numbers.
    """

    def leaf_type(table: T.DataType, files: T.DataType) -> T.DataType:
        if is_nested(table):
            return table
        if not isinstance(table, _READABLE):
            return files
        kinds = table.simpleString(), files.simpleString()
        return files if widens and schema.wider(*kinds) == kinds[1] else table

    return cast("T.DataType", merge_types(table, files, leaf_type, named_by_second=True))
