"""Text files: one column, ``value``, one row for each line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.spark import listing
from airflow_provider_scope.spark.checks import Check, Records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_provider_scope.core.records import OffsetEntry
    from airflow_provider_scope.spark.source import Source


def records(spark: SparkSession, entry: OffsetEntry, source: Source) -> list[Records]:
    """Give the lines of all files; Spark hands their bytes on as they are, so they are checked here."""
    # Not by `text`, whose arguments have defaults that win over the options.
    paths = [file.path for file in entry.files]
    rows = listing.load(lambda: spark.read.format("text").options(**source.options), paths)
    valid = Check("it has bytes that are not UTF-8", "is_valid_utf8(value)", "make_valid_utf8(value)")
    name = source.columns.names[0] if source.columns else "value"
    return [Records(rows, [valid], "make_valid_utf8(value)", [(name, "value")])]
