"""What a cursor compares in the rows of a source: the value of a row, its group, and limits for them."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql import types as T  # noqa: N812

from airflow_provider_scope.delta import commit as delta_commit
from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, CursorError
from airflow_provider_scope.spark.structs import row_hash
from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from airflow_provider_scope.sources.cursor.spec import Cursor


Limit: TypeAlias = "str | Column"
"""A value of the cursor: one for all rows, as text; or one for each row's group, NULL if that has none."""
MARKS = ["_scope_at", "_scope_row"]
"""What a row is known by in the next load: its value of the cursor as text, and its hash with its group."""


@dataclass(frozen=True, slots=True)
class CursorColumns:
    """The columns of a cursor in the rows of a source.

    :param kind: The type of the cursor's column.
    :param stored: That column, as the source has it.
    :param value: The same, as it is compared.
    :param group: The key of a row's group; without ``per``, all rows are one.
    :param group_kind: The type of the column of ``per``.
    """

    data: DataFrame
    cursor: Cursor
    kind: str
    stored: Column
    value: Column
    group: Column
    group_kind: str | None

    @property
    def is_missing(self) -> Column:
        """Whether a row has no value that can be compared."""
        if self.kind not in ("float", "double"):
            return self.stored.isNull()
        return self.stored.isNull() | F.isnan(self.value) | F.abs(self.value).isin(float("inf"))

    @property
    def texts(self) -> dict[str | None, Column]:
        """The columns of text among these, by their names."""
        cursor = self.cursor
        columns = ((cursor.column, self.kind, self.stored), (cursor.per, self.group_kind, self.group))
        return {name: text for name, kind, text in columns if kind == "string"}

    @property
    def is_undecoded(self) -> Column:
        """Whether a text is not UTF-8: in the state it would be another, and its rows new in each load."""
        return ~F.is_valid_utf8(F.concat(F.lit(""), *self.texts.values()))

    def limit(
        self, values: Mapping[str, str | None], of_others: str | None = None, key: Column | None = None
    ) -> Limit | None:
        """Find the value of the cursor that holds for a row's group.

        :param values: The key of a group -> the value, as text.
        :param of_others: The value of all other groups; None: there is none.
        :param key: That of the row's group; None is that of a row which is read.
        :return: None if no group has one.
        """
        if not self.cursor.per:
            return values.get("", of_others)
        if not values:
            return of_others
        value = _value_by_key(self.data.sparkSession, values, self.group if key is None else key, self.kind)
        return value if of_others is None else F.coalesce(value, self.literal(of_others))

    def literal(self, limit: Limit) -> Column:
        return F.lit(limit).cast(self.kind) if isinstance(limit, str) else limit

    def text(self, value: Column) -> Column:
        """Write a value as text: an instant in the session's zone, which is UTC, and says so."""
        text = value.cast("string")
        return F.concat(text, F.lit("Z")) if self.kind == "timestamp" else text

    def furthest(self, value: Column) -> Column:
        return F.max(value) if self.cursor.is_rising else F.min(value)

    def is_beyond(self, last: Limit) -> Column:
        """Whether a row comes after the last value of its group, or its group has none."""
        limit = self.literal(last)
        is_beyond = self.value > limit if self.cursor.is_rising else self.value < limit
        return is_beyond if isinstance(last, str) else limit.isNull() | is_beyond

    def is_from(self, start: Limit | None, value: Column | None = None) -> Column:
        """Whether a row does not come before the start of its group, or its group has none.

        :param value: What is compared; None is the value of a row which is read.
        """
        compared = self.value if value is None else value
        if start is None:
            return compared.isNotNull()
        limit = self.literal(start)
        is_from = compared >= limit if self.cursor.is_rising else compared <= limit
        return is_from if isinstance(start, str) else limit.isNull() | is_from

    def is_near(self, limit: str, *, is_start: bool) -> Column:
        """Make the condition on the stored value by which Delta may leave files out."""
        is_least = is_start is self.cursor.is_rising
        near = delta_commit.loosened(self.kind, limit, -1 if is_least else 1)
        if near is None or delta_commit.are_exact(self.kind):
            return F.lit(col=True)  # the exact condition is enough, or none may be
        bound = self.literal(near)
        return self.stored >= bound if is_least else self.stored <= bound

    def marks(self) -> list[Column]:
        """Make the columns of ``MARKS``.

        :raises CursorError: ``dedup_key`` names a column that the rows do not have.
        """
        fields = self.data.schema.fields
        if self.cursor.dedup_key:
            named = {name.lower() for name in self.cursor.dedup_key}
            unknown = named - {field.name.lower() for field in fields}
            if unknown:
                raise CursorError(
                    f"cursor.dedup_key names {min(unknown)!r}, which is not a column of the rows: "
                    f"{', '.join(field.name for field in fields)}.",
                    kept=NO_ROW_WRITTEN,
                    do="correct it, or leave it out: then all columns are compared",
                )
            fields = [field for field in fields if field.name.lower() in named]
        at, row = self.text(self.value), F.concat(row_hash(fields), self.group)
        return [column.alias(name) for column, name in zip((at, row), MARKS, strict=True)]


def columns_of(data: DataFrame, cursor: Cursor) -> CursorColumns:
    """Find the columns of a cursor in the rows of a source.

    :raises CursorError: The rows do not have them.
    """
    stored, kind = _column_of(data, cursor.column)
    group, group_kind = F.lit(""), None
    if cursor.per:
        group_value, group_kind = _column_of(data, cursor.per, "per")
        group = F.coalesce(F.concat(F.lit("="), group_value.cast("string")), group)
    # By statistics that are rounded or cut, Delta would leave out files with new rows. It looks at none for a
    # value that is computed; see `is_near`. Spark's minus keeps 34 digits of a decimal.
    value = stored if delta_commit.are_exact(kind) else F.greatest(stored, stored)
    return CursorColumns(data, cursor, kind, stored, value, group, group_kind)


def _column_of(data: DataFrame, path: str, argument: str = "column") -> tuple[Column, str]:
    """Find a column of a cursor, and its type.

    :param path: The name of a column, or a path to a field, such as ``row.updated``.
    :param argument: The argument of the cursor that names it.
    :raises CursorError: There is no such column or field.
    """
    kind: T.DataType = data.schema
    value = F.lit(None)
    is_name = path.lower() in {name.lower() for name in data.columns}
    for depth, part in enumerate([path] if is_name else path.split(".")):
        fields = kind.fields if isinstance(kind, T.StructType) else []
        field = next((field for field in fields if field.name.lower() == part.lower()), None)
        if field is None:
            raise CursorError(
                f"cursor.{argument} is {path!r}, and there is no such column: {', '.join(data.columns)}.",
                kept=NO_ROW_WRITTEN,
                do="correct it in the Dag file, and abandon the batch with `airflow scope abandon`; or, if "
                "the source renamed it, give it its old name in pre_filter_sql or `query`",
            )
        value = value.getField(field.name) if depth else F.col(quoted(field.name))
        kind = field.dataType
    return value, kind.simpleString()


def _value_by_key(spark: SparkSession, values: Mapping[str, str | None], key: Column, kind: str) -> Column:
    """Find the value for a key; NULL if there is none. It takes as long with ten values as with ten thousand.

    :param values: The key -> the value, as text; at least one.
    :param kind: The type of the values.
    """
    # Spark searches a map from its beginning. So it is many small ones, each found by a hash of the key.
    maps = [dict[str, str | None]() for _ in values]
    for name, text in values.items():
        maps[zlib.crc32(name.encode()) % len(maps)][name] = text
    texts = F.from_json("maps", "array<map<string,string>>").cast(f"array<map<string,{kind}>>")
    # Not a literal: Spark would write it out in the text of each plan, which it keeps.
    table = spark.sql("SELECT * FROM VALUES (:maps) AS t(maps)", {"maps": json.dumps(maps)})
    return table.select(texts).scalar()[F.crc32(key) % len(maps)][key]
