"""The writes, by which the rows of a batch go into the table: one module for each, all with one signature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_scope.spark.writes import merge, rows, scd2

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

    from airflow_provider_scope.spark.commit import Write

WRITES: dict[str, Write] = {"append": rows.write, "merge": merge.write, "scd2": scd2.write}
"""The ``kind`` of a plan's write -> what commits its batches."""
PREPARE: dict[str, Callable[[DataFrame, Mapping[str, Any]], DataFrame]] = {"scd2": scd2.prepare}
"""The ``kind`` of a write -> what changes the rows before they get the shape of the table."""
