"""Add the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_scope.spark.commit import Batch, Commit


def write(batch: Batch, commit: Commit) -> int | None:
    """Add the rows of a batch, or make the table with them."""
    # Another pipeline may make the table now. To append then would skip the check of the columns.
    return commit.save(batch.writer().mode("errorifexists" if batch.creates else "append"))
