"""Text files: one column, ``value``, one row for each line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.spark import listing
from airflow_provider_scope.spark.records import Check, Records

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession


def read(
    spark: SparkSession, paths: Sequence[str], options: Mapping[str, str], name: str = "value"
) -> Records:
    """Give the lines of all files; Spark hands their bytes on as they are, so they are checked here."""
    # Not by `text`, whose arguments have defaults that win over the options.
    rows = listing.load(lambda: spark.read.format("text").options(**options), paths)
    valid = Check("it has bytes that are not UTF-8", "is_valid_utf8(value)", "make_valid_utf8(value)")
    return Records(rows, [valid], "make_valid_utf8(value)", [(name, "value")])
