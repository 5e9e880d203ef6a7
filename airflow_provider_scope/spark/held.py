"""Rows that Spark has read once and holds until they are written."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.delta import merge_rule
from airflow_provider_scope.spark.values import INSTANT_FORMAT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import Column, DataFrame


@contextmanager
def released(held: DataFrame) -> Iterator[DataFrame]:
    """Let go of a local checkpoint when the block ends.

    Spark itself does so when the JVM collects its garbage: after many batches.
    """
    try:
        yield held
    finally:
        held._jdf.queryExecution().analyzed().rdd().unpersist(False)  # noqa: SLF001, FBT003 - Scala's


@dataclass(frozen=True, slots=True)
class Keys:
    """What was seen of the columns of a key while the rows were read.

    :param kinds: The columns -> their types.
    :param found: What ``looks`` found of them.
    """

    kinds: Mapping[str, str]
    found: Mapping[str, Any]

    @property
    def rows(self) -> int:
        """All rows, with those to be deleted."""
        return int(self.found["rows"])

    @property
    def gone(self) -> int:
        """Rows that tell a key to be deleted."""
        return int(self.found["gone"])

    def nulls(self, column: str) -> int:
        """Give how many rows that are there have no value in a column."""
        return int(self.found[f"nulls {column}"])

    def range(self, column: str) -> tuple[str, str] | None:
        """Give the least and the greatest value of a column as text, if files can be left out by them."""
        low, high = (self.found.get(f"{end} {column}") for end in ("low", "high"))
        return None if low is None or high is None else (low, high)


def looks(keys: Mapping[str, tuple[Column, str]], there: Column, gone: Column) -> list[Column]:
    """Give what to find out about keys while rows are read; ``Keys`` takes it.

    :param keys: Columns of the key, by name, and their types.
    :param there: Whether a row is one to be written.
    :param gone: Whether it tells a key to be deleted.
    """
    values = [F.count(F.lit(1)).alias("rows"), F.count_if(gone).alias("gone")]
    for name, (column, kind) in keys.items():
        values.append(F.count_if(there & column.isNull()).alias(f"nulls {name}"))
        if merge_rule.RANGED.fullmatch(kind):
            values.append(as_text(F.min(column), kind).alias(f"low {name}"))
            values.append(as_text(F.max(column), kind).alias(f"high {name}"))
    return values


def as_text(value: Column, kind: str) -> Column:
    """Give a value as text that is the same for whoever reads it."""
    return F.date_format(value, INSTANT_FORMAT) if kind == "timestamp" else value.cast("string")
