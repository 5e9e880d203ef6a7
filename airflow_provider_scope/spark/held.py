"""Rows that Spark has read once and holds until they are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.delta import write_rules
from airflow_provider_scope.spark import settings
from airflow_provider_scope.spark.session import with_settings
from airflow_provider_scope.spark.values import INSTANT_FORMAT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import ExitStack

    from pyspark import StorageLevel
    from pyspark.sql import Column, DataFrame

_WITHOUT_CONSTRAINTS = {"spark.sql.constraintPropagation.enabled": "false"}
"""Spark carries what it can prove of rows, such as that two columns are equal, over to those that are held:
of a hundred columns that are made of one text, more than a heap can hold (SPARK-42438)."""


def hold(block: ExitStack, rows: DataFrame, level: StorageLevel | None = None) -> DataFrame:
    """Read rows, and hold what was read until the block ends.

    Spark itself would release it only when the JVM collects its garbage: after many batches.

    :param level: Where it is held; None is in memory, and on disks what memory has no room for.
    """
    with with_settings(rows.sparkSession, _WITHOUT_CONSTRAINTS):
        held = rows.localCheckpoint(eager=True, storageLevel=level)
    block.callback(held._jdf.queryExecution().analyzed().rdd().unpersist, False)  # noqa: FBT003 - Scala's
    return held


def read_once(
    block: ExitStack, rows: DataFrame, aggregates: Iterable[Column], level: StorageLevel | None = None
) -> tuple[DataFrame, dict[str, Any]]:
    """Read rows once, hold them until the block ends, and compute aggregates of them on the way.

    :param aggregates: One of them is ``rows``, their number: few rows become one partition, whose keys need
        no shuffle, and which is one file in the table.
    :param level: As ``hold`` takes it.
    :return: The rows, and the values of the aggregates by their names.
    """
    observation = Observation()
    held = hold(block, rows.observe(observation, *aggregates), level)
    values = observation.get
    return held.coalesce(1) if settings.is_small_batch(values["rows"]) else held, values


@dataclass(frozen=True, slots=True)
class Keys:
    """Counts and ranges of the columns of a key, which Spark computed while it read the rows.

    :param kinds: The columns -> their types.
    :param aggregates: The values of ``key_aggregates``, by their names.
    """

    kinds: Mapping[str, str]
    aggregates: Mapping[str, Any]

    @property
    def rows(self) -> int:
        """How many rows there are, with those that stand for a key to be deleted."""
        return int(self.aggregates["rows"])

    @property
    def deleted(self) -> int:
        """How many rows stand for a key to be deleted."""
        return int(self.aggregates["deleted"])

    def nulls(self, column: str) -> int:
        """Count the rows to be written that have no value in a column."""
        return int(self.aggregates[f"nulls {column}"])

    def range(self, column: str) -> tuple[str, str] | None:
        """Find the least and the greatest value of a column as text; None if it is of no use."""
        low, high = (self.aggregates.get(f"{end} {column}") for end in ("low", "high"))
        return None if low is None or high is None else (low, high)


def key_aggregates(
    keys: Mapping[str, tuple[Column, str]], is_written: Column, is_deleted: Column
) -> list[Column]:
    """List the aggregates of keys that Spark computes while it reads rows; ``Keys`` takes their values.

    :param keys: Name of a column of the key -> the column and its type.
    :param is_written: Whether a row is to be written.
    :param is_deleted: Whether a row stands for a key to be deleted.
    """
    values = [F.count(F.lit(1)).alias("rows"), F.count_if(is_deleted).alias("deleted")]
    for name, (column, kind) in keys.items():
        values.append(F.count_if(is_written & column.isNull()).alias(f"nulls {name}"))
        if write_rules.RANGED.fullmatch(kind):
            # Bytes that are not UTF-8 would be others as text here, and in the statistics of files.
            is_exact = F.bool_and(F.is_valid_utf8(column) if kind == "string" else F.lit(col=True))
            for end, value in (("low", F.min(column)), ("high", F.max(column))):
                values.append(F.when(is_exact, as_text(value, kind)).alias(f"{end} {name}"))
    return values


def as_text(value: Column, kind: str) -> Column:
    """Write a value as text that does not depend on the settings of a session."""
    return F.date_format(value, INSTANT_FORMAT) if kind == "timestamp" else value.cast("string")
