"""Rows that Spark has read once and holds until they are written."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame


@contextmanager
def released(held: DataFrame) -> Iterator[DataFrame]:
    """Let go of a local checkpoint when the block ends.

    Spark itself does so when the JVM collects its garbage: after many batches.
    """
    try:
        yield held
    finally:
        held._jdf.queryExecution().analyzed().rdd().unpersist(False)  # noqa: SLF001, FBT003 - Scala's
