"""When a batch and its table are small: then Spark needs longer to spread the work than to do it."""

from __future__ import annotations

ROWS = 10_000
"""A batch of so many rows at the most is one partition: what looks at its keys need not shuffle them."""
TABLE_BYTES = 16 * 1024 * 1024
"""A MERGE rewrites this much in one task within a second or two."""

LOG_FILES = 10_000
"""Of so many files one task finds the newest actions within a second."""

SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""Of the session of a small MERGE, or while the state of a small log is computed.

Adaptive execution makes a job of each stage, and plans in between.
"""


def is_small_batch(rows: int) -> bool:
    """Tell whether one task can go over the rows of a batch."""
    return rows <= ROWS


def is_small_log(files: int) -> bool:
    """Tell whether one task can reconstruct the state of a table."""
    return files <= LOG_FILES


def is_small_merge(rows: int, table_bytes: int | None) -> bool:
    """Tell whether one task can do a MERGE.

    :param table_bytes: Of all files of the table; None if that is not known without a look at them.
    """
    return is_small_batch(rows) and table_bytes is not None and table_bytes <= TABLE_BYTES
