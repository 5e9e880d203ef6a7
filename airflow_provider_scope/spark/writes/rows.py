"""Write the rows as they are: they are added to the table, or replace what the batch replaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider_scope.spark.commit import Batch, Commit


def write(batch: Batch, commit: Commit) -> int | None:
    """Add the rows of a batch, replace rows by them if it overwrites, or make the table with them."""
    writer = batch.writer()
    if batch.creates:
        # Another pipeline may make the table now; an append would then skip the check of the columns.
        return commit.save(writer.mode("errorifexists"))
    if not batch.overwrites:
        return commit.save(writer.mode("append"))
    # Set explicitly: in a session with the dynamic mode, partitions without new rows would keep their rows.
    writer = writer.mode("overwrite").option("partitionOverwriteMode", "static")
    if batch.partition_by is None:
        # Delta drops the clustering of a table that is overwritten without a predicate.
        return commit.save(writer.option("replaceWhere", batch.where or "true"))
    clustering = [] if batch.partition_by else commit.log.clustering()
    version = commit.save(writer.option("overwriteSchema", "true"))
    if version is not None:
        # Delta takes no predicate together with other columns: a second commit sets the clustering again, by
        # those of its columns that the table still has.
        commit.log.cluster_by([column for column in clustering if _has_column(batch.rows, column)])
    return version


def _has_column(rows: DataFrame, column: str) -> bool:
    """Check whether rows have a column, or a field of a struct such as ``struct.field``."""
    try:
        rows.select(column)
    except AnalysisException:
        return False
    return True
