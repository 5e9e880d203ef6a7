"""Write the rows as they are: beside what is in the table, or in the place of what the batch replaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    if batch.where:
        writer = writer.option("replaceWhere", batch.where)
    elif batch.partition_by is not None:
        writer = writer.option("overwriteSchema", "true")
    return commit.save(writer)
