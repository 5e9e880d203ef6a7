"""The keys that were deleted, beside the rows that are left: no late row that is older brings one back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.delta.write_rules import TOMBSTONES
from airflow_provider_scope.spark.commit import OF_OWN_TABLES
from airflow_provider_scope.spark.structs import to_struct
from airflow_provider_scope.sql import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider_scope.spark.commit import DeltaLog

_COLUMNS = {
    "key": "string",
    "sequence": "string",
    "pipeline": "string",
    "batch": "bigint",
    "deleted_at": "timestamp",
}


@dataclass(frozen=True, slots=True)
class Tombstones:
    """A Delta table with one row for each key that a batch deleted.

    The rows of a batch are written before its commit to the table. If that commit never comes, they are true
    all the same: the next try of the batch replaces them, and if it is abandoned, they are removed.

    :param log: Of the tombstones' own table.
    :param number: The pipeline, and the number of the batch.
    """

    log: DeltaLog
    number: tuple[str, int]

    @classmethod
    def of(cls, target: DeltaLog, number: tuple[str, int]) -> Tombstones:
        return cls(target.beside(TOMBSTONES), number)

    def _of_batch(self, or_else: str = "false") -> str:
        """Write the condition for the tombstones of the batch, or others of its pipeline alone."""
        return f"pipeline = {literal(self.number[0])} AND (batch = {self.number[1]} OR {or_else})"

    def read(self) -> DataFrame | None:
        """Read the keys (``key``) and the sequences of their deletes as text; None if there never was one."""
        if self.log.metadata() is None:
            return None
        return self.log.spark.read.format("delta").load(self.log.table)

    def put(self, keys: DataFrame, count: int, now: str, days: int) -> None:
        """Write the keys that a batch deletes, in place of those of an earlier try of it.

        :param keys: With ``key`` and ``sequence``.
        :param count: How many they are.
        :param now: When they are deleted; those that the pipeline deleted some days before are removed.
        """
        if not count:
            self.clear()
            return
        instant = datetime.fromisoformat(now)
        values: dict[str, Any] = {"pipeline": self.number[0], "batch": self.number[1], "deleted_at": instant}
        rows = keys.withColumns({name: F.lit(value).cast(_COLUMNS[name]) for name, value in values.items()})
        is_expired = f"deleted_at < TIMESTAMP '{(instant - timedelta(days=days)).isoformat()}'"
        self._replace(rows, self._of_batch(is_expired))

    def clear(self, *, anew: bool = False) -> None:
        """Remove the tombstones of the batch, or all of them; without any nothing is written.

        :param anew: Whether the batch replaces the table, by whatever write: then no tombstone counts.
        """
        stored = self.read()
        where = "true" if anew else self._of_batch()
        if stored is not None and not stored.where(where).isEmpty():
            self._replace(self.log.spark.createDataFrame([], to_struct(_COLUMNS)), where)

    def _replace(self, rows: DataFrame, where: str) -> None:
        writer = rows.select(*_COLUMNS).write.format("delta").mode("overwrite")
        writer = writer.option("partitionOverwriteMode", "static")
        # A batch adds one small file: Delta itself brings many of them together.
        writer = writer.options(**{**OF_OWN_TABLES, "delta.autoOptimize.autoCompact": "true"})
        self.log.save(writer.option("replaceWhere", where))
