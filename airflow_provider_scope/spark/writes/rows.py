"""Write the rows as they are: beside what is in the table, or in the place of what the batch replaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider_scope.spark.commit import Batch, Commit


def write(batch: Batch, commit: Commit) -> int | None:
    """Add the rows of a batch, or make the table with them; a batch that overwrites replaces rows by them."""
    writer = batch.writer()
    if batch.creates:
        # Another pipeline may make the table now. To append then would skip the check of the columns.
        return commit.save(writer.mode("errorifexists"))
    if not batch.overwrites:
        return commit.save(writer.mode("append"))
    # Said in words: a session's dynamic mode would leave partitions without new rows alone.
    writer = writer.mode("overwrite").option("partitionOverwriteMode", "static")
    if batch.partition_by is None:
        # Delta drops the clustering of a table that is overwritten without a predicate.
        return commit.save(writer.option("replaceWhere", batch.where or "true"))
    clustering = [] if batch.partition_by else commit.log.clustering()
    version = commit.save(writer.option("overwriteSchema", "true"))
    if version is not None:
        # With other columns no predicate is taken: a second commit clusters by those that are still there.
        commit.log.cluster_by([column for column in clustering if _has(batch.rows, column)])
    return version


def _has(rows: DataFrame, column: str) -> bool:
    try:
        rows.select(column)
    except AnalysisException:
        return False
    return True
