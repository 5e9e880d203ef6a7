"""The batch of an entry with a cursor: the rows that are new, and the state behind them."""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, CursorError
from airflow_provider_scope.spark import jdbc
from airflow_provider_scope.spark.causes import short_cause, whole_text
from airflow_provider_scope.spark.cursor_reading import Reading
from airflow_provider_scope.spark.delta_log import DeltaLog
from airflow_provider_scope.spark.events import emit
from airflow_provider_scope.spark.reading import checked, over_rows
from airflow_provider_scope.spark.structs import without_notes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_scope.core.plan import CursorPlan, Plan
    from airflow_provider_scope.core.records import OffsetEntry
    from airflow_provider_scope.core.slices import CursorSlice
    from airflow_provider_scope.spark.target import Target
    from airflow_provider_scope.spark.transaction import Transaction

_GONE = re.compile(
    r"FILE_NOT_EXIST|FileNotFoundException|DELTA_VERSION_NOT_FOUND|DELTA_LOG_FILE_NOT_FOUND|TIME_TRAVEL"
)
"""What Spark and Delta say of files, and of commits, that VACUUM and the cleaning of the log have deleted."""
_CHANGED = (
    "of the rows up to the last value ({count:,}), none is known from the last load, so all of them are "
    "loaded. That is right if they all changed. If a column of the source was dropped or renamed, they are "
    "loaded a second time: a cursor.dedup_key that is set from the first load on prevents that"
)
_COLUMNS_GONE = (
    "rows up to the last value ({count:,}) are loaded, and were perhaps loaded before: rows are compared by "
    "all columns, and the source no longer has {columns}. A cursor.dedup_key that is set from the first load "
    "on prevents that; Merge stores each key once"
)


def select(
    spark: SparkSession, plan: Plan, entry: OffsetEntry, until_read: ExitStack | None = None
) -> DataFrame:
    """Give the rows of the source, before the cursor looks at them; nothing is read yet.

    :param until_read: To be closed when the rows of a database were read.
    :raises CursorError: The table is not the one that the entry names.
    """
    found: CursorSlice = entry.slice  # type: ignore[assignment] # as the reader was chosen
    source = plan.cursor
    database = source.database
    with _of_a_version(source, found, entry.seq):
        if database is None:
            rows = _table(spark, source, found)
        else:
            rows = jdbc.rows(spark, source, database, found, entry.seq, until_read=until_read or ExitStack())
        rows = without_notes(rows)
    if source.pre_filter_sql:
        return over_rows(spark, source.pre_filter_sql, {}, rows, entry.seq)
    return rows


def _table(spark: SparkSession, source: CursorPlan, found: CursorSlice) -> DataFrame:
    reader = spark.read.format("delta")
    if source.is_named:
        # All that is read of it here is one version. Another try may read another one, and commits alone.
        newest = spark.sql(f"DESCRIBE HISTORY {source.table} LIMIT 1").first()
        version = newest["version"] if newest else None
        return spark.read.option("versionAsOf", version).table(source.table)
    there = (DeltaLog(spark, source.table).metadata() or {}).get("id")
    if there != found.source:
        raise CursorError(
            f"The table {source.table} was dropped and recreated: its id is {there}, and the batch is of "
            f"{found.source}.",
            kept=NO_ROW_WRITTEN,
            do="bring the table back; or abandon the batch with `airflow scope abandon`, and run the task "
            "once with full_refresh=True",
        )
    return reader.option("versionAsOf", found.version).load(source.table)


def commit(plan: Plan, target: Target, transaction: Transaction, rows: Callable[[], DataFrame]) -> int | None:
    """Commit the rows that are new, together with the state behind them.

    :param rows: Gives the rows of the source; of a database they are asked for here, for each try.
    :return: The table's version, or None if the batch was there.
    :raises CursorError: A row has no value of the cursor, or something does not fit together.
    """
    entry = transaction.entry
    found: CursorSlice = entry.slice  # type: ignore[assignment] # as the reader was chosen
    with ExitStack() as stack:
        with _of_a_version(plan.cursor, found, entry.seq):
            source, folder = plan.cursor, f"{plan.checkpoint}/boundary/{entry.seq}"
            # A version is the same whenever it is read; a SELECT over it may hold rand().
            is_alike = found.version is not None and source.pre_filter_sql is None
            until_read = stack.enter_context(ExitStack())
            if source.database:
                stack.enter_context(jdbc.errors(source.table))
                data = select(target.spark, plan, entry, until_read)
            else:
                data = rows()
            batch = Reading(target.spark, source, found, folder, data, is_alike=is_alike)
            new, state = stack.enter_context(batch.held())
            until_read.close()
        if batch.changed:
            told = _COLUMNS_GONE if batch.gone else _CHANGED
            told = told.format(count=batch.changed, columns=", ".join(map(repr, batch.gone)))
            emit(event="notice", seq=entry.seq, told=told)
        notes = {} if state is None else {"state": state}
        if not batch.count and entry.mode == "append" and target.log.metadata() is not None:
            return target.write_nothing(transaction, notes)
        result = over_rows(target.spark, plan.sql, plan.sql_params, new, entry.seq)
        return target.write(transaction, checked(plan, result), notes)


@contextmanager
def _of_a_version(source: CursorPlan, found: CursorSlice, seq: int) -> Iterator[None]:
    """Say so if the version of the source that a batch reads is not there any more.

    :raises CursorError: As said.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as err:
        if found.version is None or not _GONE.search(whole_text(err)):
            raise
        raise CursorError(
            f"Batch {seq} is of version {found.version} of {source.table}, which can no longer be read: "
            f"{short_cause(err)}.",
            kept=NO_ROW_WRITTEN,
            do=f"abandon it: `airflow scope abandon` for batch {seq}. The next run reads the newest "
            "version from the same state",
        ) from err
