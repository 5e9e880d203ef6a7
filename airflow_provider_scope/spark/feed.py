"""The changes of a Delta table as Spark reads them, or its rows as changes."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.core import changes
from airflow_provider_scope.core.changes import TIMESTAMP, TYPE, VERSION
from airflow_provider_scope.core.sql import quoted
from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, ChangeFeedError
from airflow_provider_scope.spark import files
from airflow_provider_scope.spark.causes import short_cause, whole_text
from airflow_provider_scope.spark.delta_log import DeltaLog
from airflow_provider_scope.spark.structs import noteless, without_notes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from airflow_provider_scope.core.plan import Plan
    from airflow_provider_scope.core.records import OffsetEntry
    from airflow_provider_scope.core.slices import VersionSlice

_MISSING = (
    "commits that it needs are missing in the log",
    "files of it were deleted: VACUUM removes what is older than delta.deletedFileRetentionDuration",
)
_CAUSES = {
    "DELTA_(LOG_FILE_NOT_FOUND|VERSIONS_NOT_CONTIGUOUS|TRUNCATED_TRANSACTION_LOG)": _MISSING[0],
    "FILE_NOT_EXIST|FileNotFoundException": _MISSING[1],
    "BEYOND_DELETED_FILE_RETENTION": "it is older than delta.deletedFileRetentionDuration, and VACUUM may "
    "have removed files of it",
    "DELTA_MISSING_CHANGE_DATA": "the feed was disabled for a while",
    "INCOMPATIBLE_(DATA_)?SCHEMA": (
        "the table's columns have changed, and not only by columns that were added"
    ),
}
"""What Delta says of a range that it cannot read, as patterns -> why."""


def select(spark: SparkSession, plan: Plan, entry: OffsetEntry) -> DataFrame:
    """Give the changes of a slice, or the rows of its snapshot as changes; nothing is read yet.

    :raises ChangeFeedError: The table is another one, or a commit is missing.
    """
    found: VersionSlice = entry.slice  # type: ignore[assignment] # as the reader was chosen
    source = plan.changes
    _check_there(spark, source.table, found)
    reader = spark.read.format("delta")
    with naming_causes(source.table, found):
        if found.snapshot:
            rows = reader.option("versionAsOf", found.last).load(source.table)
            rows = without_notes(rows)
            return rows if source.replaces else _as_changes(spark, rows, source.table, found)
        # Both ends: without the second one, each reading would go as far as the table does then.
        reader = reader.option("readChangeFeed", "true").option("startingVersion", found.first)
        return _directly(spark, reader.option("endingVersion", found.last).load(source.table))


def _directly(spark: SparkSession, feed: DataFrame) -> DataFrame:
    """Give the rows of a feed as Spark's own, where Delta makes a Java object of each value.

    Delta 4.4 checks the range and the columns, and then reads the feed by a plan of its own, of which it
    hands on ``Dataset.rdd`` (``DeltaCDFRelation.buildScan``; delta-io/delta pull request 5084 is to end it).
    That takes a third of the time of a read, and moves the dates from 5 to 14 October 1582 to the 15th, as
    Java's calendar does not have them. This is the same plan, with the columns that the feed has by Delta.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 - Delta's Python API has no way to it
    session = spark._jsparkSession  # noqa: SLF001
    relation = feed._jdf.queryExecution().analyzed().collectLeaves().head().relation()  # noqa: SLF001
    reader = getattr(jvm, "org.apache.spark.sql.delta.commands.cdc.CDCReader$")
    rows = getattr(reader, "MODULE$").changesToBatchDF(
        relation.deltaLog(),
        relation.startingVersion().get(),
        relation.endingVersion().get(),
        session,
        relation.catalogTableOpt(),
        jvm.scala.Option.apply(relation.snapshotForBatchSchema()),
        False,  # noqa: FBT003 - a Scala signature
        jvm.scala.Option.empty(),
    )
    in_order = DataFrame(rows, spark).select(*[F.col(quoted(name)) for name in feed.columns])
    values = in_order._jdf.queryExecution().toRdd()  # noqa: SLF001
    # The plan's columns have notes of Delta's in them, and so have the fields of their structs.
    schema = jvm.org.apache.spark.sql.types.DataType.fromJson(noteless(feed.schema).json())
    return DataFrame(session.internalCreateDataFrame(values, schema, False), spark)  # noqa: FBT003


def _check_there(spark: SparkSession, table: str, found: VersionSlice) -> None:
    """See that all commits of the range are there: Delta leaves one out that is not, without an error."""
    there = (DeltaLog(spark, table).metadata() or {}).get("id")
    if there != found.source:
        raise changes.recreated(table, there, found.source)
    for version in () if found.snapshot else range(found.first, found.last + 1):
        name = f"{table}/_delta_log/{version:020}.json"
        try:
            files.read(spark, name, at_most=1)
        except FileNotFoundError as err:
            raise changes.missing(table, version) from err


def _as_changes(spark: SparkSession, rows: DataFrame, table: str, found: VersionSlice) -> DataFrame:
    history = spark.sql(f"DESCRIBE HISTORY delta.{quoted(table)}").where(F.col("version") == found.last)
    told = history.select(F.date_format("timestamp", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX")).first()
    return rows.withColumns(
        {
            TYPE: F.lit("insert"),
            VERSION: F.lit(found.last).cast("bigint"),
            TIMESTAMP: F.lit(told[0] if told else None).cast("timestamp"),
        }
    )


@contextmanager
def naming_causes(table: str, found: VersionSlice) -> Iterator[None]:
    """Say of what fails while a range is read why it cannot be read, and what to do.

    :raises ChangeFeedError: Instead of Spark's error, if it is a known one.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as err:
        text = whole_text(err)
        why = next((why for pattern, why in _CAUSES.items() if re.search(pattern, text)), None)
        if why is None:
            raise
        raise ChangeFeedError(
            f"The {found.text()} ({table}) cannot be read: {why}. Delta says: {short_cause(err)}",
            kept=NO_ROW_WRITTEN,
            do=f"put these files back, from a copy of the source's folder; or {changes.START_OVER}"
            if why in _MISSING
            else changes.START_OVER,
        ) from err
