"""What becomes of the rows of a batch in the table: one module for each write, all with one signature."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.spark.writes import append, replace

if TYPE_CHECKING:
    from airflow_provider_scope.spark.commit import Write

WRITES: dict[str, Write] = {"append": append.write, "overwrite": replace.write}
"""The mode of an entry -> what its batch does."""


def without_rows(mode: str) -> Write:
    """Give the write of a batch that has no rows, or is given up.

    It replaces what an overwrite replaces. Else it changes nothing: some writes delete rows that a batch
    does not have, and this batch was not read.
    """
    return replace.write if mode == "overwrite" else append.write
