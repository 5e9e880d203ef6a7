"""Columns of files that nobody declared: where the table has them, its types are the reader's."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pyspark.errors import AnalysisException
from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.core import scd2, schema
from airflow_provider_scope.spark.shaping import COMPUTED
from airflow_provider_scope.spark.structs import bare, of_table, zipped

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from airflow_provider_scope.core.plan import Plan

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
    rule = scd2.rule_from(plan.write) if plan.write.get("kind") == "scd2" else None
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
