"""The boundary of a cursor: rows that are loaded, and that the next load reads again and leaves out."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.sources.cursor import state as cursor_state
from airflow_provider_scope.sources.cursor.state import CursorState
from airflow_provider_scope.spark.cursor_columns import MARKS
from airflow_provider_scope.spark.structs import literal_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from airflow_provider_scope.spark.cursor_columns import CursorColumns, Limit


_COUNT = "_scope_n"
_NUMBER = "_scope_number"
_STORED = "_scope_at string, _scope_row string, _scope_n bigint"


@dataclass(frozen=True, slots=True)
class Boundary:
    """The rows that were loaded before and are read again, as the state before has them.

    :param before: That state, with the values as the type that the column has now writes them. ``kind`` is
        the type that it had.
    """

    columns: CursorColumns
    before: CursorState

    @property
    def reached(self) -> Limit | None:
        """The last value of a row's group; None if no group has one yet."""
        return self.columns.limit(self.before.lasts)

    @property
    def is_again(self) -> Column:
        """Whether a row is not beyond the last value, so that it may have been loaded."""
        last = self.reached
        if last is None or not self.columns.cursor.compares:
            return F.lit(col=False)
        return ~self.columns.is_missing & ~self.columns.is_beyond(last)

    def unknown(self, rows: DataFrame) -> DataFrame:
        """Leave out so many equal rows as were loaded; of a key that was loaded, all rows.

        Equal rows may be counted: whichever of them comes is the same. Rows with one key are not equal.
        """
        marked = rows.select("*", *self.columns.marks())
        number = F.lit(1)
        if not self.columns.cursor.dedup_key:
            number = F.row_number().over(Window.partitionBy(*MARKS).orderBy(F.lit(1)))
        if self.before.boundary_folder:
            numbered = marked.withColumn(_NUMBER, number).join(self._loaded_before(), MARKS, "left")
            loaded = F.coalesce(F.col(_COUNT), F.lit(0))
        else:
            # Few rows, as a rule: one partition spares a shuffle, and a literal a join.
            loaded_counts = {f"{at}\0{row}": n for at, row, n in self.before.boundary_rows}
            counts = F.from_json(F.lit(json.dumps(loaded_counts)), "map<string,bigint>")
            numbered = marked.coalesce(1).withColumn(_NUMBER, number)
            loaded = F.coalesce(counts[F.concat_ws("\0", *MARKS)], F.lit(0))
        return numbered.where(F.col(_NUMBER) > loaded).drop(*MARKS, _COUNT, _NUMBER)

    def noted_in_state(
        self, rows: DataFrame, state: CursorState, again: Column, count: int
    ) -> CursorState | None:
        """Note the rows that the next load reads again, so that it leaves them out.

        Of each value that was read, these are the rows that it has now: one that changed, and changed back,
        is new again. Keys of rows stay known.

        :param rows: All rows that were read; with ``dedup_key`` those that are new.
        :param again: Tells which rows may have been loaded, if that was not looked at.
        :param count: How many rows are loaded.
        :return: None if one of these was not loaded, or if more are to be noted than the state holds.
        """
        if not state.reached or not self.columns.cursor.compares:
            return replace(state, boundary_rows=(), boundary_folder=None)
        if state.boundary_folder:
            return None
        is_noted = ~self.columns.is_missing & (self.columns.is_from(self._since(state)) | again)
        most = 2 * cursor_state.MOST_BOUNDARY_ROWS  # those of the last value, and those of the next
        marks = rows.where(is_noted).select(again, *self.columns.marks()).limit(most + 1).collect()
        read_marks = [(bool(is_again), str(at), str(row)) for is_again, at, row in marks]
        if len(read_marks) > most:
            return None
        return cursor_state.remembered(
            state, read_marks, self.columns.cursor, self.columns.kind, loads=count > 0
        )

    def noted_in_folder(self, rows: DataFrame, state: CursorState, count: int, folder: str) -> CursorState:
        """Note the rows that the next load reads again, where they may be many; see ``noted_in_state``.

        :param folder: Where they are written; a UUID is put after it.
        """
        columns = self.columns
        if not count and self.before.lasts == state.lasts and not self._is_retyped:
            return state
        read = rows.where(~columns.is_missing & columns.is_from(self._since(state))).select(*columns.marks())
        kept = self._loaded_before()
        group = F.expr(f"substr(_scope_row, {cursor_state.HASH_LENGTH + 1})")
        if not columns.cursor.dedup_key:
            place = [F.col("_scope_at"), group.alias("_scope_group")]
            same_value = kept.select("*", place[1]).join(
                read.select(place).distinct(), ["_scope_at", "_scope_group"], "left_anti"
            )
            kept = same_value.select(*kept.columns)
        loaded = read.select("*", F.lit(1).cast("bigint").alias(_COUNT)).unionByName(kept)
        at = F.col("_scope_at").cast(columns.kind)
        loaded = (
            loaded.where(columns.is_from(self._since(state, group), at))
            .groupBy(*MARKS)
            .agg(F.sum(_COUNT).alias(_COUNT))
        )
        few = cursor_state.MOST_BOUNDARY_ROWS
        folder = f"{folder}-{uuid.uuid4()}"
        loaded.write.mode("errorifexists").parquet(folder)
        written = _stored(rows.sparkSession, folder).limit(few + 1).collect()
        if len(written) > few:
            return replace(state, boundary_rows=(), boundary_folder=folder)
        boundary_rows = tuple(sorted((at, row, int(n)) for at, row, n in written))
        return replace(state, boundary_rows=boundary_rows, boundary_folder=None)

    def _since(self, state: CursorState, key: Column | None = None) -> Limit | None:
        """Find the value from which on the rows of a group are to be noted.

        :param key: That of the group; None is that of a row which is read.
        """
        return self.columns.limit({key: group.since for key, group in state.reached.items()}, key=key)

    @property
    def _is_retyped(self) -> bool:
        return self.before.kind not in (None, self.columns.kind)

    def _loaded_before(self) -> DataFrame:
        spark, before = self.columns.data.sparkSession, self.before
        if before.boundary_folder:
            stored = _stored(spark, before.boundary_folder)
            at = _in_type(F.col("_scope_at"), str(before.kind), self.columns.kind)
            return stored.withColumn("_scope_at", at) if self._is_retyped else stored
        rows = [dict(zip((*MARKS, _COUNT), row, strict=True)) for row in before.boundary_rows]
        return literal_rows(spark, rows, _STORED)


def boundary_of(columns: CursorColumns, before: CursorState | None) -> Boundary:
    """Find what was loaded before, after a check that it is known of the same cursor.

    :param before: The state before; None if nothing was loaded, or whatever was loaded before is.
    :raises CursorError: The state is that of another cursor, or no cursor can follow the columns.
    """
    cursor, kind = columns.cursor, columns.kind
    state = before or CursorState(column=cursor.column, per=cursor.per)
    cursor_state.check_column(state, cursor, "the log")
    cursor_state.check_dedup(state, cursor, "the log")
    cursor_state.check_kind(cursor.column, kind, state)
    if cursor.per:
        cursor_state.check_group_kind(cursor.per, str(columns.group_kind), state)
    return Boundary(columns, state if state.kind in (None, kind) else _retyped(columns, state))


def _retyped(columns: CursorColumns, state: CursorState) -> CursorState:
    """Write the values of a state as the type that the column has now writes them: 5, 5.0 or 5.00.

    :raises CursorError: It does not hold one of them.
    """
    spark, before, now = columns.data.sparkSession, str(state.kind), columns.kind
    old = cursor_state.values_in(state)
    texts = F.from_json(F.lit(json.dumps(old)), "array<string>")
    converted = F.transform(texts, lambda text: _in_type(text, before, now))
    new = spark.range(1).select(converted).first()[0]  # type: ignore[index] # there is one row
    if state.boundary_folder:
        stored = _stored(spark, state.boundary_folder)
        if not stored.where(_in_type(F.col("_scope_at"), before, now).isNull()).isEmpty():
            raise cursor_state.type_error(columns.cursor.column, now, before)
    return cursor_state.with_values(state, dict(zip(old, new, strict=True)), now)


def _in_type(text: Column, before: str, now: str) -> Column:
    """Return the text of a value in another type; NULL if it would be another value."""
    value = text.try_cast(before)
    converted = value.try_cast(now)
    return F.when(converted.try_cast(before) == value, converted.cast("string"))


def _stored(spark: SparkSession, folder: str) -> DataFrame:
    return spark.read.schema(_STORED).parquet(folder)
