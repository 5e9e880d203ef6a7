"""The table beside the target that takes what cannot be loaded, so that the rest can."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.core.sql import literal
from airflow_provider_scope.exceptions import BatchNotInTableError, InputError
from airflow_provider_scope.spark.delta_log import ConcurrentCommitError, DeltaLog, conflicts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_scope.core.records import OffsetEntry

COLUMNS = T.StructType(
    [
        T.StructField("pipeline", T.StringType()),
        T.StructField("batch", T.LongType()),
        T.StructField("file", T.StringType()),
        T.StructField("record", T.LongType()),
        T.StructField("rule", T.StringType()),
        T.StructField("value", T.StringType()),
        T.StructField("raw", T.StringType()),
        T.StructField("quarantined_at", T.TimestampType()),
    ]
)
"""Of the quarantine: one row for a record, for a row of the SELECT, or for a file."""
_TRIES_OF_A_BATCH = 1_000_000
"""``txnVersion`` is the batch's number times this, plus the number of the try."""


class Quarantine:
    """The rows that the batches of one pipeline have in the quarantine.

    They are written before the batch's commit to the target. If that commit never comes, because the
    application dies, the next try of the batch replaces them: they are those of the try whose rows are in
    the target.
    """

    def __init__(self, spark: SparkSession, pipeline: str, table: str) -> None:
        self.spark = spark
        self.pipeline = pipeline
        self.table = table
        self.log = DeltaLog(spark, table)
        self._app_id = f"{pipeline}.quarantine"
        self._is_clean = False
        """Whether it is known that no batch that is still to run has rows there."""

    def clear(self, entry: OffsetEntry) -> None:
        """Remove the rows of an earlier try of a batch, which never got to the target.

        :raises ConcurrentCommitError: Another application runs the batch, or a later one.
        """
        if self._is_clean:
            return
        newest = self._newest()
        if newest is not None and newest[0] == entry.seq:
            self.put(entry, self.spark.createDataFrame([], COLUMNS), 0)
        self._is_clean = True

    def put(self, entry: OffsetEntry, rows: DataFrame, count: int) -> int:
        """Commit the rows of a batch, in place of those of an earlier try of it.

        :param rows: With the columns in ``COLUMNS``.
        :param count: How many they are.
        :return: The number of this try.
        :raises ConcurrentCommitError: Another application runs the batch, or a later one.
        :raises BatchNotInTableError: Other rows were committed than were counted.
        """
        self._is_clean = False
        with conflicts():
            self._check_columns()
            seq, attempt = self._newest() or (-1, 0)
            if seq > entry.seq:
                raise ConcurrentCommitError(f"batch {seq} is in the quarantine already")
            number = attempt + 1 if seq == entry.seq else 0
            writer = (
                rows.select(*COLUMNS.names)
                .write.format("delta")
                .option("txnAppId", self._app_id)
                .option("txnVersion", str(entry.seq * _TRIES_OF_A_BATCH + number))
            )
            if number:
                mine = f"pipeline = {literal(self.pipeline)} AND batch = {entry.seq}"
                writer = writer.mode("overwrite").option("partitionOverwriteMode", "static")
                writer = writer.option("replaceWhere", mine)
            else:
                writer = writer.mode("append")
            version = self.log.save(writer)
        if version is None:
            raise ConcurrentCommitError("another application put the batch into the quarantine")
        written = self.log.written_rows(version)
        if written is not None and written != count:
            raise BatchNotInTableError(
                f"The quarantine {self.table} received {written:,} rows of batch {entry.seq}, but "
                f"{count:,} were counted.",
                kept="the table; no row of this batch was written there, and the batch stays logged",
                do="the next try runs it again, and replaces these rows; if it happens again, report it",
            )
        return number

    def holds(self, entry: OffsetEntry, number: int) -> bool:
        """Tell whether the rows of a batch there are those of a try of it."""
        newest = self._newest()
        return newest is not None and (newest[0] > entry.seq or newest == (entry.seq, number))

    def _newest(self) -> tuple[int, int] | None:
        """Give the newest batch of the pipeline in the quarantine, and the number of its newest try."""
        newest = self.log.newest_transaction(self._app_id)
        return None if newest is None else divmod(newest, _TRIES_OF_A_BATCH)

    def _check_columns(self) -> None:
        metadata = self.log.metadata()
        if metadata is None:
            return
        found = T.StructType.fromJson(json.loads(metadata["schemaString"])).names
        if [*found] != COLUMNS.names:
            raise InputError(
                f"The table {self.table} is not a quarantine table: it has the columns {', '.join(found)}.",
                kept="both tables; no row of this batch was written, and the batch stays logged",
                do="name another folder: table=TableSpec(quarantine=…)",
            )
