"""Put the rows in the place of all rows of the table, or of those of a range."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.spark.writes import append

if TYPE_CHECKING:
    from airflow_provider_scope.spark.commit import Batch, Commit


def write(batch: Batch, commit: Commit) -> int | None:
    """Replace what ``where`` names by the rows of a batch; without it the table, which may change then."""
    if batch.creates:
        return append.write(batch, commit)
    # Said in words: a session's dynamic mode would leave partitions without new rows alone.
    writer = batch.writer().mode("overwrite").option("partitionOverwriteMode", "static")
    if batch.where:
        writer = writer.option("replaceWhere", batch.where)
    elif batch.partition_by is not None:
        writer = writer.option("overwriteSchema", "true")
    return commit.save(writer)
