"""Read a batch of a cursor: the rows of its source that are new, and the state after them."""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, CursorError
from airflow_provider_scope.sources.cursor import state as cursor_state
from airflow_provider_scope.sources.cursor import values as cursor_values
from airflow_provider_scope.sources.cursor.bounds import Bound, check_times
from airflow_provider_scope.sources.cursor.spec import JdbcSource
from airflow_provider_scope.spark import databases, settings, user_sql
from airflow_provider_scope.spark.boundary import Boundary, boundary_of
from airflow_provider_scope.spark.commit import DeltaLog
from airflow_provider_scope.spark.cursor_columns import CursorColumns, Limit, columns_of
from airflow_provider_scope.spark.held import hold, read_once
from airflow_provider_scope.spark.session import SPARK_ERRORS, emit, short_cause, whole_text
from airflow_provider_scope.spark.structs import without_metadata
from airflow_provider_scope.spark.user_sql import over_rows, selected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.sources.cursor.spec import TableSource
    from airflow_provider_scope.sources.cursor.state import CursorState
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
            reading = reading_of(
                source, cursor_slice, folder, data, checkpoint=root, is_repeatable=is_repeatable
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


@dataclass(frozen=True, slots=True)
class NewRows:
    """The rows that a batch loads."""

    rows: DataFrame
    count: int
    state: str | None
    """The state after them; None if the batch leaves none."""
    notice: str
    """What to tell of rows that are loaded since they could not be compared; empty if there are none."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Rows of a source, as the cursor of one batch sees them; ``reading_of`` makes it.

    :param first: The first value that is read if no last one is known; None if that is any.
    :param end: The end of a range, which is loaded whatever was loaded before; None if this is none.
    :param folder: Where a boundary is kept that is too large for the state; see ``noted_in_folder``.
    :param is_repeatable: Whether the rows are the same whenever they are read. Else they are read once, and
        held.
    """

    source: TableSource | JdbcSource
    cursor_slice: CursorSlice
    columns: CursorColumns
    boundary: Boundary
    first: Bound | None
    end: Bound | None
    folder: str
    is_repeatable: bool

    def held(self, block: ExitStack) -> NewRows:
        """Read the new rows once, and hold them until the block ends.

        :raises CursorError: A row has no value, and those are not left out.
        """
        columns = self.columns
        if columns.kind == "string" and self.end and self.end.kind == "instant":
            largest = columns.data.agg(F.max(columns.stored)).first()[0]  # type: ignore[index] # an aggregate has a row
            check_times(columns.cursor.column, largest)
        candidates, more = self._candidates(), False
        if self.source.max_rows_per_batch is not None:
            if not self.is_repeatable:
                candidates = hold(block, candidates)
            candidates, more = self._cut(candidates, self.source.max_rows_per_batch)
        rows, counts = self._read_once(candidates, block)
        self._check(rows, counts)
        if self.end:
            return NewRows(rows, int(counts["rows"]), self.cursor_slice.before, "")
        state = self._state(rows, counts["last"], more=more)
        return self._without_loaded(rows, counts, state, block)

    def _without_loaded(
        self, rows: DataFrame, counts: Mapping[str, Any], state: CursorState, block: ExitStack
    ) -> NewRows:
        """Leave out the rows that were loaded before, and note those that the next load reads again."""
        boundary, again, is_keyed = self.boundary, self.boundary.is_again, bool(self.columns.cursor.dedup_key)
        read_again = int(counts["again"])
        count, notice = int(counts["rows"]) - read_again, ""
        new = rows.where(~again) if read_again else rows
        next_state = boundary.noted_in_state(rows, state, again, count)
        if next_state is None and read_again:
            # Some of these may be new, or they are too many for the state: each is compared.
            late, beyond = boundary.unknown(rows.where(again)), count
            new, new_counts = self._read_once(new.unionByName(late), block)
            count = int(new_counts["rows"])
            notice = self._notice(read_again, count - beyond)
            next_state = boundary.noted_in_state(new if is_keyed else rows, state, F.lit(col=False), count)
        if next_state is None:
            next_state = boundary.noted_in_folder(new if is_keyed else rows, state, count, self.folder)
        return NewRows(new, count, next_state.encode(), notice)

    def _notice(self, again: int, late: int) -> str:
        """Tell of rows that are loaded since they could not be compared, or perhaps could not.

        :param again: How many rows were read again.
        :param late: How many of these are loaded.
        """
        before, names = self.boundary.before, {name.lower() for name in self.columns.data.columns}
        missing_columns = [name for name in before.columns if name.lower() not in names]
        if not late:
            return ""
        if missing_columns:
            return _COLUMNS_MISSING.format(count=late, columns=", ".join(map(repr, missing_columns)))
        were_several_known = before.boundary_folder or len(before.boundary_rows) > 1
        none_is_known = late == again and were_several_known
        return _CHANGED.format(count=late) if none_is_known else ""

    def _read_once(self, rows: DataFrame, block: ExitStack) -> tuple[DataFrame, dict[str, Any]]:
        """Read rows once, hold them, and count them on the way."""
        columns = self.columns
        values = (
            F.count(F.lit(1)).alias("rows"),
            F.count_if(columns.is_missing).alias("missing"),
            F.count_if(columns.is_undecoded).alias("undecoded"),
            F.count_if(self.boundary.is_again).alias("again"),
            columns.text(columns.furthest(F.when(~columns.is_missing, columns.value))).alias("last"),
        )
        if self.is_repeatable and not (self.boundary.before.reached and columns.cursor.compares):
            # All rows of a table, as a rule: to read one column of it twice costs less than to hold them.
            counts: dict[str, Any] = rows.agg(*values).first().asDict()  # type: ignore[union-attr] # there is one
            if not settings.is_small_batch(counts["rows"]):
                return rows, counts
        return read_once(block, rows, values)

    def _candidates(self) -> DataFrame:
        """Leave out the rows before the beginning of the load, and from its end on."""
        columns = self.columns
        starts = cursor_state.starts_of(columns.cursor, self.boundary.before, columns.kind, self.first)
        of_others = cursor_state.start_of(columns.cursor, None, columns.kind, self.first)
        rows = columns.data
        if self.end:
            end = cursor_values.value_of("end_value", self.end, columns.kind)
            is_after = columns.is_beyond(end) if self.end.side == "closed" else columns.is_from(end)
            is_before = ~is_after & columns.is_near(end, is_start=False)
            rows = rows.where(is_before | columns.is_missing)
        return self._from(rows, columns.limit(starts, of_others))

    def _from(self, rows: DataFrame, start: Limit | None) -> DataFrame:
        columns = self.columns
        if start is not None:
            # The first value was logged; loads that go on from a last one begin as the user wrote it now.
            is_first = self.end or not self.boundary.before.reached
            side = (self.first.side if self.first else "") if is_first else columns.cursor.range_start
            is_from = columns.is_beyond(start) if side == "open" else columns.is_from(start)
            if isinstance(start, str):
                is_from &= columns.is_near(start, is_start=True)
            rows = rows.where(is_from | columns.is_missing)
        return rows.where(~columns.is_missing) if columns.cursor.excludes_missing else rows

    def _cut(self, rows: DataFrame, max_rows: int) -> tuple[DataFrame, bool]:
        """Leave out what is too much for one batch: rows with one value of the cursor stay together."""
        columns, last = self.columns, self.boundary.reached
        present = rows.where(~columns.is_missing)
        fresh = present if last is None else present.where(columns.is_beyond(last))
        if fresh.count() <= max_rows:
            return rows, False
        is_within = ~columns.is_beyond(self._nth(fresh, max_rows))
        if columns.cursor.on_cursor_value_missing == "include":
            # Those come once with each load: with its last batch.
            return rows.where(~columns.is_missing & is_within), True
        return rows.where(columns.is_missing | is_within), True

    def _nth(self, rows: DataFrame, number: int) -> str:
        """Find the value of a row by its number in the cursor's order; exactly, or a cut could be empty."""
        columns, value = self.columns, F.col("v")
        ordered = rows.select(columns.value.alias("v")).orderBy(
            value.asc() if columns.cursor.is_rising else value.desc()
        )
        last_row = ordered.limit(number).agg(columns.text(columns.furthest(value)).alias("v")).first()
        return str(last_row["v"])  # type: ignore[index] # an aggregate has a row

    # ---- state ---------------------------------------------------------------------------------

    def _state(self, rows: DataFrame, newest: str | None, *, more: bool) -> CursorState:
        """Make the state after the batch, without the rows that the next load reads again.

        :raises CursorError: There are more groups than it holds.
        """
        columns, cursor = self.columns, self.columns.cursor
        names, name = columns.data.columns, cursor.column
        state = replace(
            self.boundary.before,
            # As the source writes it: a database that is asked later tells letter cases apart.
            column=next((stored for stored in names if stored.lower() == name.lower()), name),
            func=cursor.last_value_func,
            kind=columns.kind,
            per_kind=columns.group_kind,
            source=self.cursor_slice.source,
            version=self.cursor_slice.version,
            more=more,
            dedup=cursor_state.compared_by(cursor),
            columns=tuple(names) if cursor.dedup_key is None else (),
        )
        return cursor_state.moved(cursor, state, self._newest(rows, newest), columns.kind, self.first)

    def _newest(self, rows: DataFrame, newest: str | None) -> dict[str, str]:
        """Find the last value of each group; no more of them than show that they are too many.

        :param newest: The last value of all rows; None if none has one.
        """
        columns = self.columns
        if newest is None:
            return {}
        if not columns.cursor.per:
            return {"": newest}
        of_groups = (
            rows.where(~columns.is_missing)
            .groupBy(columns.group.alias("key"))
            .agg(columns.text(columns.furthest(columns.value)).alias("last"))
            .limit(cursor_state.MOST_GROUPS + 1)
        )
        return {row["key"]: row["last"] for row in of_groups.collect()}

    # ---- checks --------------------------------------------------------------------------------

    def _check(self, rows: DataFrame, counts: Mapping[str, Any]) -> None:
        """Refuse rows with which, or without which, a cursor cannot go on.

        :raises CursorError: As said.
        """
        columns, column = self.columns, repr(self.columns.cursor.column)
        if counts["missing"] and columns.cursor.on_cursor_value_missing == "raise":
            raise self._refused(
                rows.where(columns.is_missing),
                f"no value in {column} (NULL, NaN or infinite)",
                'give them a value in pre_filter_sql; or set on_cursor_value_missing="exclude" (they are '
                'left out) or "include" (they are loaded in every run)',
            )
        if counts["undecoded"]:
            raise self._refused(
                rows.where(columns.is_undecoded),
                f"bytes that are not UTF-8 in {' or '.join(map(repr, columns.texts))}",
                "leave them out in pre_filter_sql, with is_valid_utf8; or decode them there",
            )
        if isinstance(self.source, JdbcSource) and cursor_values.is_end_of_time(counts["last"], columns.kind):
            raise self._refused(
                rows.where(columns.value == columns.literal(counts["last"])),
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


def reading_of(
    source: TableSource | JdbcSource,
    cursor_slice: CursorSlice,
    folder: str,
    data: DataFrame,
    *,
    checkpoint: str | None,
    is_repeatable: bool = False,
) -> Reading:
    """Make the reading of a batch: find the columns of its cursor, and what was loaded before.

    :param folder: As ``Reading`` has it.
    :param data: The rows of the source.
    :param checkpoint: Where the folders of earlier batches are; None: where their states say.
    :raises CursorError: The rows do not fit the cursor, or the state of before is that of another one.
    """
    columns = columns_of(data, replace(source.cursor, column=cursor_slice.column))
    before = cursor_state.decode(cursor_slice.before, "the log", checkpoint)
    first, end = (Bound.decode(bound) if bound else None for bound in (cursor_slice.first, cursor_slice.end))
    boundary = boundary_of(columns, None if end else before)
    return Reading(source, cursor_slice, columns, boundary, first, end, folder, is_repeatable)
