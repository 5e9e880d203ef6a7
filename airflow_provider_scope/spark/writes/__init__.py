"""What becomes of the rows of a batch in the table: one module for each write, all with one signature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_scope.spark.writes import merge, rows, scd2

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

    from airflow_provider_scope.spark.commit import Write

WRITES: dict[str, Write] = {"append": rows.write, "merge": merge.write, "scd2": scd2.write}
"""The ``kind`` of a plan's write -> what its batches do."""
PREPARE: dict[str, Callable[[DataFrame, Mapping[str, Any]], DataFrame]] = {"scd2": scd2.prepare}
"""What is done with the rows before they are put in the shape of the table, if anything is."""
