"""Read a batch of a cursor: the rows of its source that are new, and the state after them."""

from __future__ import annotations

import json
import re
import uuid
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.delta import commit as delta_commit
from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, CursorError
from airflow_provider_scope.sources.cursor import state as cursor_state
from airflow_provider_scope.sources.cursor import values as cursor_values
from airflow_provider_scope.sources.cursor.bounds import Bound, check_times
from airflow_provider_scope.sources.cursor.spec import JdbcSource
from airflow_provider_scope.sources.cursor.state import CursorState
from airflow_provider_scope.spark import databases, settings, user_sql
from airflow_provider_scope.spark.commit import DeltaLog
from airflow_provider_scope.spark.held import hold, read_once
from airflow_provider_scope.spark.session import SPARK_ERRORS, emit, short_cause, whole_text
from airflow_provider_scope.spark.structs import (
    column_of,
    in_type,
    literal_rows,
    row_hash,
    value_by_key,
    without_metadata,
)
from airflow_provider_scope.spark.user_sql import over_rows, selected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.sources.cursor.spec import TableSource
    from airflow_provider_scope.spark.commit import Transaction
    from airflow_provider_scope.spark.plan import Plan
    from airflow_provider_scope.spark.target import Target
    from airflow_provider_scope.values import CursorSlice


_MISSING_DATA = re.compile(
    r"FILE_NOT_EXIST|FileNotFoundException|DELTA_VERSION_NOT_FOUND|DELTA_LOG_FILE_NOT_FOUND|TIME_TRAVEL"
)
"""What Spark and Delta say of files, and of commits, that VACUUM and the cleaning of the log have deleted."""
_CHANGED = (
    "of the {count:,} rows up to the last value, none is known from the last load, so all of them are "
    "loaded. That is right if they all changed. If a column of the source was dropped or renamed, they are "
    "loaded a second time: a cursor.dedup_key that is set from the first load on prevents that"
)
_COLUMNS_MISSING = (
    "{count:,} rows up to the last value are loaded, and were perhaps loaded before: rows are compared by "
    "all columns, and the source no longer has {columns}. A cursor.dedup_key that is set from the first load "
    "on prevents that; Merge stores each key once"
)


def read(spark: SparkSession, plan: Plan, entry: OffsetEntry) -> DataFrame:
    """Select the rows of a table, before the cursor looks at them; no row is read yet.

    :raises CursorError: The table is not the one that the entry names.
    """
    cursor_slice: CursorSlice = entry.slice  # type: ignore[assignment] # as the reader was chosen
    source: TableSource = plan.cursor  # type: ignore[assignment] # `commit` reads databases itself
    with _of_a_version(source, cursor_slice, entry.seq):
        return _filtered(spark, source, _table(spark, source, cursor_slice), entry.seq)


def _filtered(spark: SparkSession, source: TableSource | JdbcSource, rows: DataFrame, seq: int) -> DataFrame:
    rows = without_metadata(rows)
    return over_rows(spark, source.pre_filter_sql, {}, rows, seq) if source.pre_filter_sql else rows


def _table(spark: SparkSession, source: TableSource, cursor_slice: CursorSlice) -> DataFrame:
    if source.is_named:
        # All that is read of it here is one version. Another try may read another one, and commits alone.
        newest = spark.sql(f"DESCRIBE HISTORY {source.table} LIMIT 1").first()
        version = newest["version"] if newest else None
        return spark.read.option("versionAsOf", version).table(source.table)
    table_id = (DeltaLog(spark, source.table).metadata() or {}).get("id")
    if table_id != cursor_slice.source:
        raise cursor_state.recreated(source.table, table_id, cursor_slice.source)
    return spark.read.format("delta").option("versionAsOf", cursor_slice.version).load(source.table)


def commit(plan: Plan, target: Target, transaction: Transaction, rows: Callable[[], DataFrame]) -> int | None:
    """Commit the rows that are new, together with the state after them.

    :param rows: Gives the result of ``read``; the rows of a database are asked for here, for each try.
    :return: The table's version, or None if the batch was there.
    :raises CursorError: A row has no value of the cursor, or something does not fit together.
    """
    entry = transaction.entry
    cursor_slice: CursorSlice = entry.slice  # type: ignore[assignment] # as the reader was chosen
    with ExitStack() as stack:
        with _of_a_version(plan.cursor, cursor_slice, entry.seq), ExitStack() as until_read:
            source, folder = plan.cursor, f"{plan.checkpoint}/boundary/{entry.seq}"
            # A version is the same whenever it is read; a SELECT over it may hold rand().
            is_repeatable = cursor_slice.version is not None and source.pre_filter_sql is None
            if isinstance(source, JdbcSource):
                opened = databases.opened(target.spark, source, cursor_slice, entry.seq)
                data = _filtered(target.spark, source, until_read.enter_context(opened), entry.seq)
            else:
                data = rows()
            root = None if plan.reads_only else plan.checkpoint
            reading = Reading(
                target.spark, source, cursor_slice, folder, data, checkpoint=root, is_repeatable=is_repeatable
            )
            new = reading.held(stack)
        if new.notice:
            emit(event="notice", seq=entry.seq, message=new.notice)
        notes = {} if new.state is None else {"state": new.state}
        if not new.count and entry.mode == "append" and target.log.metadata() is not None:
            return target.write_nothing(transaction, notes)
        result = selected(target.spark, plan, new.rows, entry.seq)
        return user_sql.write(plan, target, transaction, result, notes)


@contextmanager
def _of_a_version(source: TableSource | JdbcSource, cursor_slice: CursorSlice, seq: int) -> Iterator[None]:
    """Turn Spark's errors for a version of the source that can no longer be read into our own.

    :raises CursorError: The version, or a file of it, is missing.
    """
    try:
        yield
    except SPARK_ERRORS as err:
        if cursor_slice.version is None or not _MISSING_DATA.search(whole_text(err)):
            raise
        raise cursor_state.unreadable(seq, cursor_slice.version, source.rows_of, short_cause(err)) from err


_EXAMPLES = 3
_MARKS = ["_scope_at", "_scope_row"]
_ADDED = (*_MARKS, "_scope_n", "_scope_number")
_BOUNDARY = "_scope_at string, _scope_row string, _scope_n bigint"
Limit: TypeAlias = "str | Column"
"""A value of the cursor: one for all rows, as text; or one for each row's group, NULL if that has none."""


@dataclass(frozen=True, slots=True)
class NewRows:
    """The rows that a batch loads."""

    rows: DataFrame
    count: int
    state: str | None
    """The state after them; None if the batch leaves none."""
    notice: str
    """What to tell of rows that are loaded since they could not be compared; empty if there are none."""


class Reading:
    """Rows of a source, as the cursor of one batch sees them.

    :param folder: Where a boundary is kept that is too large for the state; a UUID is put after it.
    :param data: The rows of the source.
    :param checkpoint: Where the folders of earlier batches are; None: where their states say.
    :param is_repeatable: Whether these are the same whenever they are read. Else they are read once and held.
    """

    def __init__(
        self,
        spark: SparkSession,
        source: TableSource | JdbcSource,
        cursor_slice: CursorSlice,
        folder: str,
        data: DataFrame,
        *,
        checkpoint: str | None,
        is_repeatable: bool = False,
    ) -> None:
        self.spark, self.data, self.folder = spark, data, folder
        self.cursor_slice, self.is_repeatable = cursor_slice, is_repeatable
        self.max_rows, self.is_of_database = source.max_rows_per_batch, isinstance(source, JdbcSource)
        self.cursor = replace(source.cursor, column=self.cursor_slice.column)
        self.value, self.kind = column_of(data, self.cursor.column)
        before = cursor_state.decode(cursor_slice.before, "the log", checkpoint)
        self.end = Bound.decode(self.cursor_slice.end) if self.cursor_slice.end else None
        self.first = Bound.decode(self.cursor_slice.first) if self.cursor_slice.first else None
        # A range is loaded whatever was loaded before.
        self.before = (None if self.end else before) or CursorState(
            column=self.cursor.column, per=self.cursor.per
        )
        cursor_state.check_column(self.before, self.cursor, "the log")
        cursor_state.check_dedup(self.before, self.cursor, "the log")
        cursor_state.check_kind(self.cursor.column, self.kind, self.before)
        self.is_retyped = self.before.kind not in (None, self.kind)
        if self.is_retyped:
            self.before = self._retyped(self.before)
        self.stored = self.value
        self.group = F.lit("")
        """The key of a row's group; without ``per``, all rows are one."""
        self.group_kind: str | None = None
        if self.cursor.per:
            group, self.group_kind = column_of(data, self.cursor.per, "per")
            cursor_state.check_group_kind(self.cursor.per, self.group_kind, self.before)
            self.group = F.coalesce(F.concat(F.lit("="), group.cast("string")), self.group)
        if not delta_commit.are_exact(self.kind):
            # By statistics that are rounded or cut, Delta would leave out files with new rows. It looks at
            # none for a value that is computed; see `_near`. Spark's minus keeps 34 digits of a decimal.
            self.value = F.greatest(self.value, self.value)
        self.is_missing = self.stored.isNull()
        texts = ((self.cursor.column, self.kind, self.stored), (self.cursor.per, self.group_kind, self.group))
        self.texts = {name: text for name, kind, text in texts if kind == "string"}
        # In the state, such bytes would be another text, and the rows with them be new in each load.
        self.is_undecoded = ~F.is_valid_utf8(F.concat(F.lit(""), *self.texts.values()))
        if self.kind in ("float", "double"):
            self.is_missing = self.is_missing | F.isnan(self.value) | F.abs(self.value).isin(float("inf"))

    # ---- rows ----------------------------------------------------------------------------------

    def held(self, block: ExitStack) -> NewRows:
        """Read the new rows once, and hold them until the block ends.

        :raises CursorError: A row has no value, and those are not left out.
        """
        if self.kind == "string" and self.end and self.end.kind == "instant":
            largest = self.data.agg(F.max(self.stored)).first()[0]  # type: ignore[index] # an aggregate has a row
            check_times(self.cursor.column, largest)
        candidates, more = self._candidates(), False
        if self.max_rows is not None:
            if not self.is_repeatable:
                candidates = hold(block, candidates)
            candidates, more = self._cut(candidates, self.max_rows)
        rows, counts = self._read_once(candidates, block)
        self._check(rows, counts)
        state = self._state(rows, counts["last"], more=more)
        read_again, again = int(counts["again"]), self._is_again()
        count, notice = int(counts["rows"]) - read_again, ""
        new = rows.where(~again) if read_again else rows
        next_state = self._remembering(rows, state, again, count)
        if next_state is None and read_again:
            late = self._unknown(rows.where(again))
            new, late_counts = self._read_once(new.unionByName(late), block)
            notice = self._notice(read_again, int(late_counts["rows"]) - count)
            count = int(late_counts["rows"])
            noted = new if self.cursor.dedup_key else rows
            next_state = self._remembering(noted, state, F.lit(col=False), count)
        if next_state is None:
            next_state = self._in_folder(new if self.cursor.dedup_key else rows, state, count)
        return NewRows(new, count, self.cursor_slice.before if self.end else next_state.encode(), notice)

    def _notice(self, again: int, late: int) -> str:
        """Tell of rows that are loaded since they could not be compared, or perhaps could not.

        :param again: How many rows were read again.
        :param late: How many of these are loaded.
        """
        names = {name.lower() for name in self.data.columns}
        missing_columns = [name for name in self.before.columns if name.lower() not in names]
        if not late:
            return ""
        if missing_columns:
            return _COLUMNS_MISSING.format(count=late, columns=", ".join(map(repr, missing_columns)))
        were_several_known = self.before.boundary_folder or len(self.before.boundary_rows) > 1
        none_is_known = late == again and were_several_known
        return _CHANGED.format(count=late) if none_is_known else ""

    def _read_once(self, rows: DataFrame, block: ExitStack) -> tuple[DataFrame, dict[str, Any]]:
        """Read rows once, hold them, and count them on the way."""
        values = (
            F.count(F.lit(1)).alias("rows"),
            F.count_if(self.is_missing).alias("missing"),
            F.count_if(self.is_undecoded).alias("undecoded"),
            F.count_if(self._is_again()).alias("again"),
            self._text(self._furthest(F.when(~self.is_missing, self.value))).alias("last"),
        )
        if self.is_repeatable and not (self.before.reached and self.cursor.compares):
            # All rows of a table, as a rule: to read one column of it twice costs less than to hold them.
            counts: dict[str, Any] = rows.agg(*values).first().asDict()  # type: ignore[union-attr] # there is one
            if not settings.is_small_batch(counts["rows"]):
                return rows, counts
        return read_once(block, rows, values)

    def _candidates(self) -> DataFrame:
        """Leave out the rows before the beginning of the load, and from its end on."""
        starts = cursor_state.starts_of(self.cursor, self.before, self.kind, self.first)
        of_others = cursor_state.start_of(self.cursor, None, self.kind, self.first)
        rows = self.data
        if self.end:
            end = cursor_values.value_of("end_value", self.end, self.kind)
            is_after = self._is_beyond(end) if self.end.side == "closed" else self._is_from(end)
            is_before = ~is_after & self._near(end, is_start=False)
            rows = rows.where(is_before | self.is_missing)
        return self._from(rows, self._limit(starts, of_others))

    def _reached(self) -> Limit | None:
        """Find the last value of a row's group; None if no group has one yet."""
        return self._limit(self.before.lasts)

    def _since(self, state: CursorState, key: Column | None = None) -> Limit | None:
        """Find the value from which on the rows of a group are to be noted.

        :param key: That of the group; None is that of a row which is read.
        """
        return self._limit({key: group.since for key, group in state.reached.items()}, key=key)

    def _is_again(self) -> Column:
        """Check whether a row is not beyond the last value, so that it may have been loaded."""
        last = self._reached()
        if last is None or not self.cursor.compares:
            return F.lit(col=False)
        return ~self.is_missing & ~self._is_beyond(last)

    def _from(self, rows: DataFrame, start: Limit | None) -> DataFrame:
        if start is not None:
            # The first value was logged; loads that go on from a last one begin as the user wrote it now.
            is_first = self.end or not self.before.reached
            side = (self.first.side if self.first else "") if is_first else self.cursor.range_start
            is_from = self._is_beyond(start) if side == "open" else self._is_from(start)
            if isinstance(start, str):
                is_from &= self._near(start, is_start=True)
            rows = rows.where(is_from | self.is_missing)
        return rows.where(~self.is_missing) if self.cursor.excludes_missing else rows

    def _unknown(self, rows: DataFrame) -> DataFrame:
        """Leave out so many equal rows as were loaded; of a key that was loaded, all rows.

        Equal rows may be counted: whichever of them comes is the same. Rows with one key are not equal.
        """
        marked = rows.select("*", *self._marks())
        number = F.lit(1)
        if not self.cursor.dedup_key:
            number = F.row_number().over(Window.partitionBy(*_MARKS).orderBy(F.lit(1)))
        if self.before.boundary_folder:
            stored = self._loaded_before()
            numbered = marked.withColumn("_scope_number", number).join(stored, _MARKS, "left")
            return numbered.where("_scope_number > coalesce(_scope_n, 0)").drop(*_ADDED)
        # Few rows, as a rule: one partition spares a shuffle, and a literal a join.
        loaded_counts = {f"{at}\0{row}": n for at, row, n in self.before.boundary_rows}
        counts = F.from_json(F.lit(json.dumps(loaded_counts)), "map<string,bigint>")
        loaded = F.coalesce(counts[F.concat_ws("\0", *_MARKS)], F.lit(0))
        numbered = marked.coalesce(1).withColumn("_scope_number", number)
        return numbered.where(F.col("_scope_number") > loaded).drop(*_ADDED)

    def _cut(self, rows: DataFrame, max_rows: int) -> tuple[DataFrame, bool]:
        """Leave out what is too much for one batch: rows with one value of the cursor stay together."""
        last = self._reached()
        present = rows.where(~self.is_missing)
        fresh = present if last is None else present.where(self._is_beyond(last))
        if fresh.count() <= max_rows:
            return rows, False
        is_within = ~self._is_beyond(self._nth(fresh, max_rows))
        if self.cursor.on_cursor_value_missing == "include":
            # Those come once with each load: with its last batch.
            return rows.where(~self.is_missing & is_within), True
        return rows.where(self.is_missing | is_within), True

    def _nth(self, rows: DataFrame, number: int) -> str:
        """Find the value of a row by its number in the cursor's order; exactly, or a cut could be empty."""
        value = F.col("v")
        ordered = rows.select(self.value.alias("v")).orderBy(
            value.asc() if self.cursor.is_rising else value.desc()
        )
        last_row = ordered.limit(number).agg(self._text(self._furthest(value)).alias("v")).first()
        return str(last_row["v"])  # type: ignore[index] # an aggregate has a row

    # ---- state ---------------------------------------------------------------------------------

    def _state(self, rows: DataFrame, newest: str | None, *, more: bool) -> CursorState:
        """Make the state after the batch, without the rows that the next load reads again.

        :raises CursorError: There are more groups than it holds.
        """
        state = replace(
            self.before,
            # As the source writes it: a database that is asked later tells letter cases apart.
            column=next(filter(self._is_cursor, self.data.columns), self.cursor.column),
            func=self.cursor.last_value_func,
            kind=self.kind,
            per_kind=self.group_kind,
            source=self.cursor_slice.source,
            version=self.cursor_slice.version,
            more=more,
            dedup=cursor_state.compared_by(self.cursor),
            columns=tuple(self.data.columns) if self.cursor.dedup_key is None else (),
        )
        return cursor_state.moved(self.cursor, state, self._newest(rows, newest), self.kind, self.first)

    def _is_cursor(self, name: str) -> bool:
        return name.lower() == self.cursor.column.lower()

    def _newest(self, rows: DataFrame, newest: str | None) -> dict[str, str]:
        """Find the last value of each group; no more of them than show that they are too many.

        :param newest: The last value of all rows; None if none has one.
        """
        if newest is None:
            return {}
        if not self.cursor.per:
            return {"": newest}
        of_groups = (
            rows.where(~self.is_missing)
            .groupBy(self.group.alias("key"))
            .agg(self._text(self._furthest(self.value)).alias("last"))
            .limit(cursor_state.MOST_GROUPS + 1)
        )
        return {row["key"]: row["last"] for row in of_groups.collect()}

    def _remembering(
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
        if self.end or not state.reached or not self.cursor.compares:
            return replace(state, boundary_rows=(), boundary_folder=None)
        if state.boundary_folder:
            return None
        to_note = rows.where(~self.is_missing & (self._is_from(self._since(state)) | again))
        most = 2 * cursor_state.MOST_BOUNDARY_ROWS  # those of the last value, and those of the next
        marks = to_note.select(again, *self._marks()).limit(most + 1).collect()
        read_marks = [(bool(is_again), str(at), str(row)) for is_again, at, row in marks]
        if len(read_marks) > most:
            return None
        return cursor_state.remembered(state, read_marks, self.cursor, self.kind, loads=count > 0)

    def _in_folder(self, rows: DataFrame, state: CursorState, count: int) -> CursorState:
        """Note the rows that the next load reads again, where they may be many; see ``_remembering``."""
        if not count and self.before.lasts == state.lasts and not self.is_retyped:
            return state
        read = rows.where(~self.is_missing & self._is_from(self._since(state))).select(*self._marks())
        kept = self._loaded_before()
        key = F.expr(f"substr(_scope_row, {cursor_state.HASH_LENGTH + 1})")
        if not self.cursor.dedup_key:
            place = [F.col("_scope_at"), key.alias("_scope_key")]
            same_value = kept.select("*", place[1]).join(
                read.select(place).distinct(), ["_scope_at", "_scope_key"], "left_anti"
            )
            kept = same_value.select(*kept.columns)
        loaded = read.select("*", F.lit(1).cast("bigint").alias("_scope_n")).unionByName(kept)
        at = F.col("_scope_at").cast(self.kind)
        loaded = (
            loaded.where(self._is_from(self._since(state, key), at))
            .groupBy(*_MARKS)
            .agg(F.sum("_scope_n").alias("_scope_n"))
        )
        few = cursor_state.MOST_BOUNDARY_ROWS
        folder = f"{self.folder}-{uuid.uuid4()}"
        loaded.write.mode("errorifexists").parquet(folder)
        stored = [(row[0], row[1], int(row[2])) for row in self._stored(folder).limit(few + 1).collect()]
        if len(stored) <= few:
            return replace(state, boundary_rows=tuple(sorted(stored)), boundary_folder=None)
        return replace(state, boundary_rows=(), boundary_folder=folder)

    def _loaded_before(self) -> DataFrame:
        if self.before.boundary_folder:
            stored = self._stored(self.before.boundary_folder)
            if not self.is_retyped:
                return stored
            return stored.withColumn(_MARKS[0], self._in_own_type(F.col(_MARKS[0])))
        names = (*_MARKS, "_scope_n")
        rows = [dict(zip(names, loaded_row, strict=True)) for loaded_row in self.before.boundary_rows]
        return literal_rows(self.spark, rows, _BOUNDARY)

    def _stored(self, folder: str) -> DataFrame:
        return self.spark.read.schema(_BOUNDARY).parquet(folder)

    def _marks(self) -> list[Column]:
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
        row = F.concat(row_hash(fields), self.group)
        return [self._text(self.value).alias("_scope_at"), row.alias("_scope_row")]

    def _retyped(self, state: CursorState) -> CursorState:
        """Write the values of a state as the type that the column has now writes them: 5, 5.0 or 5.00.

        :raises CursorError: It does not hold one of them.
        """
        old = cursor_state.values_in(state)
        texts = F.transform(F.from_json(F.lit(json.dumps(old)), "array<string>"), self._in_own_type)
        now = self.spark.range(1).select(texts).first()[0]  # type: ignore[index] # there is one row
        if state.boundary_folder:
            lost = self._stored(state.boundary_folder).where(self._in_own_type(F.col(_MARKS[0])).isNull())
            if not lost.isEmpty():
                raise cursor_state.type_error(self.cursor.column, self.kind, state.kind)
        return cursor_state.with_values(state, dict(zip(old, now, strict=True)), self.kind)

    def _in_own_type(self, text: Column) -> Column:
        return in_type(text, str(self.before.kind), self.kind)

    # ---- values --------------------------------------------------------------------------------

    def _literal(self, limit: Limit) -> Column:
        return F.lit(limit).cast(self.kind) if isinstance(limit, str) else limit

    def _limit(
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
        value = value_by_key(self.spark, values, self.group if key is None else key, str(self.kind))
        return value if of_others is None else F.coalesce(value, self._literal(of_others))

    def _text(self, value: Column) -> Column:
        """Write a value as text: an instant in the session's zone, which is UTC, and says so."""
        text = value.cast("string")
        return F.concat(text, F.lit("Z")) if self.kind == "timestamp" else text

    def _is_beyond(self, last: Limit) -> Column:
        limit = self._literal(last)
        is_beyond = self.value > limit if self.cursor.is_rising else self.value < limit
        return is_beyond if isinstance(last, str) else limit.isNull() | is_beyond

    def _is_from(self, start: Limit | None, value: Column | None = None) -> Column:
        compared = self.value if value is None else value
        if start is None:
            return compared.isNotNull()
        limit = self._literal(start)
        is_from = compared >= limit if self.cursor.is_rising else compared <= limit
        return is_from if isinstance(start, str) else limit.isNull() | is_from

    def _near(self, limit: str, *, is_start: bool) -> Column:
        """Make the condition on the stored value by which Delta may leave files out."""
        is_least = is_start is self.cursor.is_rising
        near = delta_commit.loosened(self.kind, limit, -1 if is_least else 1)
        if near is None or delta_commit.are_exact(self.kind):
            return F.lit(col=True)  # the exact condition is enough, or none may be
        bound = self._literal(near)
        return self.stored >= bound if is_least else self.stored <= bound

    def _furthest(self, value: Column) -> Column:
        return F.max(value) if self.cursor.is_rising else F.min(value)

    def _check(self, rows: DataFrame, counts: Mapping[str, Any]) -> None:
        """Refuse rows with which, or without which, a cursor cannot go on.

        :raises CursorError: As said.
        """
        column = repr(self.cursor.column)
        if counts["missing"] and self.cursor.on_cursor_value_missing == "raise":
            raise self._refused(
                rows.where(self.is_missing),
                f"no value in {column} (NULL, NaN or infinite)",
                'give them a value in pre_filter_sql; or set on_cursor_value_missing="exclude" (they are '
                'left out) or "include" (they are loaded in every run)',
            )
        if counts["undecoded"]:
            raise self._refused(
                rows.where(self.is_undecoded),
                f"bytes that are not UTF-8 in {' or '.join(map(repr, self.texts))}",
                "leave them out in pre_filter_sql, with is_valid_utf8; or decode them there",
            )
        if self.is_of_database and cursor_values.is_end_of_time(counts["last"], self.kind):
            raise self._refused(
                rows.where(self.value == self._literal(counts["last"])),
                f"{counts['last']} in {column} (no row could ever be newer)",
                "leave out such rows, or give them another value, in `query` or pre_filter_sql",
            )

    def _refused(self, rows: DataFrame, what: str, do: str) -> CursorError:
        """Make the error for rows with which, or without which, a cursor cannot go on."""
        texts = rows.select(F.to_json(F.struct("*")).alias("row")).limit(_EXAMPLES).collect()
        examples, count = "; ".join(str(row["row"])[:200] for row in texts), rows.count()
        if self.cursor_slice.version is not None:
            do += (
                f". The batch keeps version {self.cursor_slice.version} of the source: if you correct the "
                "source, abandon the batch with `airflow scope abandon`"
            )
        return CursorError(
            f"{count:,} row{' has' if count == 1 else 's have'} {what}, such as {examples}.",
            kept=NO_ROW_WRITTEN,
            do=do,
        )
