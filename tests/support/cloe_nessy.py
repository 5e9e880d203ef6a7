"""What cloe-nessy's CDF loader does, in version 1.0.14: its decisions, its metadata table, and its merge.

Names in a catalog are folders here. The rest follows ``DeltaCDFLoader``, ``DeltaLoader`` and
``WriteDeltaMergeAction``, with what they leave out.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

if TYPE_CHECKING:
    from pathlib import Path

METADATA = pa.schema(
    [
        pa.field("BK", pa.string()),
        pa.field("delta_load_identifier", pa.string()),
        pa.field("source_table_identifier", pa.string()),
        pa.field("is_processed", pa.bool_()),
        pa.field("is_stale", pa.bool_()),
        pa.field("last_read_timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("rows", pa.int64()),
        pa.field("start_commit_version", pa.int32()),
        pa.field("end_commit_version", pa.int32()),
        pa.field("start_commit_timestamp_utc", pa.timestamp("us", tz="UTC")),
        pa.field("end_commit_timestamp_utc", pa.timestamp("us", tz="UTC")),
        pa.field("__DCR", pa.timestamp("us", tz="UTC")),
        pa.field("__DMR", pa.timestamp("us", tz="UTC")),
    ]
)
"""The columns of ``DeltaLoaderMetadataTable``."""
_FIRST = (
    "operation LIKE 'CREATE%' OR operation = 'TRUNCATE' OR operationParameters.properties LIKE "
    "'%delta.enableChangeDataFeed%'"
)


@dataclass
class Loader:
    """A load of one table into another one by a key."""

    spark: Any
    source: Path
    target: Path
    metadata: Path
    name: str = "catalog.schema.orders"
    identifier: str = "nightly"
    key: str = "id"

    def __post_init__(self) -> None:
        write_deltalake(self.metadata, METADATA.empty_table())

    def run(self, *, dies: bool = False) -> None:
        """Read what is new, write it, and mark it as processed.

        :param dies: Whether it dies before it marks it.
        """
        start, end = self._versions()
        self._update("is_stale", "NOT is_processed AND NOT is_stale")
        number = self._enter(start, end)
        if start != end:
            self._merge(start + 1, end)
        if not dies:
            self._update("is_processed", f"\"BK\" = '{number}'")

    def _versions(self) -> tuple[int, int]:
        history = self.spark.sql(f"DESCRIBE HISTORY delta.`{self.source}`")
        first = history.where(_FIRST).selectExpr("max(version)").first()[0] or 0
        newest = history.selectExpr("max(version)").first()[0]
        done = [row["end_commit_version"] for row in self.entries() if self._counts(row)]
        begin = max(done, default=first)
        return max(begin, first), newest

    def _counts(self, row: dict[str, Any]) -> bool:
        return row["is_processed"] and not row["is_stale"] and row["delta_load_identifier"] == self.identifier

    def entries(self) -> list[dict[str, Any]]:
        return list(DeltaTable(self.metadata).to_pyarrow_table().to_pylist())

    def _enter(self, start: int, end: int) -> str:
        now = datetime.now(UTC)
        row = {
            "BK": str(len(self.entries())),
            "delta_load_identifier": self.identifier,
            "source_table_identifier": self.name,
            "is_processed": False,
            "is_stale": False,
            "rows": 0,
            "start_commit_version": start,
            "end_commit_version": end,
            "__DCR": now,
            "__DMR": now,
        }
        write_deltalake(self.metadata, pa.Table.from_pylist([row], schema=METADATA), mode="append")
        return str(row["BK"])

    def _update(self, column: str, where: str) -> None:
        DeltaTable(self.metadata).update(updates={column: "true"}, predicate=where)

    def _merge(self, first: int, last: int) -> None:
        """Return every change but older images to a MERGE as a row, the last one of each key."""
        feed = self.spark.read.format("delta").option("readChangeFeed", "true")
        feed = feed.option("startingVersion", first).option("endingVersion", last).load(str(self.source))
        feed.createOrReplaceTempView("cloe_feed")
        rows = self.spark.sql(
            f"SELECT * EXCEPT (n) FROM (SELECT *, row_number() OVER (PARTITION BY {self.key} "
            "ORDER BY _commit_version DESC) AS n FROM cloe_feed WHERE _change_type <> 'update_preimage') "
            "WHERE n = 1"
        ).drop("_commit_version", "_commit_timestamp", "_change_type")
        if not (self.target / "_delta_log").exists():
            rows.limit(0).write.format("delta").save(str(self.target))
        rows.createOrReplaceTempView("cloe_rows")
        self.spark.sql(
            f"MERGE INTO delta.`{self.target}` AS t USING cloe_rows AS s ON t.{self.key} = s.{self.key} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
