"""A table that follows a change data feed, with an engine that needs no JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.exceptions import SparkJobFailedError
from airflow_provider_scope.sources.feed import state as feed_state
from airflow_provider_scope.sources.feed.metadata import FeedMetadata
from airflow_provider_scope.sources.feed.source import ChangeRows, SourceLog
from airflow_provider_scope.sources.feed.spec import CdfSource
from tests.crash.world import DeltaWorld
from tests.support.delta_engine import SOURCE, TABLE, DeltaEngine, local

if TYPE_CHECKING:
    from airflow_provider_scope.protocol.records import OffsetEntry

FEED = {"delta.enableChangeDataFeed": "true"}


class ChangeEngine(DeltaEngine):
    """Appends the rows that the versions of a feed inserted."""

    def __init__(self, gate: Any, source: str, fails_at: int = -1) -> None:
        super().__init__(gate)
        self.source = source
        self.fails_at = fails_at

    def read(self, entry: OffsetEntry) -> pa.Table:
        if entry.seq == self.fails_at:
            raise SparkJobFailedError(f"batch {entry.seq} cannot be read")
        found: Any = entry.slice
        feed = DeltaTable(local(self.source)).load_cdf(found.first, found.last)
        rows = pa.table(feed.read_all()).select(SOURCE.names)
        return rows.append_column("file", pa.array([self.source] * len(rows), pa.string())).cast(TABLE)

    def notes(self, entry: OffsetEntry, rows: pa.Table) -> dict[str, Any]:
        found: Any = entry.slice
        return {"state": feed_state.state_after(found)}


class ChangeWorld(DeltaWorld):
    """A source with a feed, and a pipeline that loads two of its versions in a batch."""

    now_ms = 0
    has_metadata = False
    """Whether runs write the table for people."""
    fails_at = -1
    """The batch that cannot be read."""

    @property
    def metadata(self) -> str:
        return f"file://{self.folder}/metadata"

    @property
    def orders(self) -> str:
        return f"file://{self.folder}/orders"

    def engine(self, gate: Any) -> ChangeEngine:
        return ChangeEngine(gate, self.orders, self.fails_at)

    def source(self, log: Any, spec: Any) -> ChangeRows:
        return ChangeRows(
            spec=CdfSource(table=self.orders, max_commits_per_batch=2),
            place=log.location,
            storage=self.storage,
        )

    def order(self, *ids: int, **settings: str) -> None:
        rows = pa.table({"id": ids, "day": [1] * len(ids)}, schema=SOURCE)
        there = DeltaTable.is_deltatable(local(self.orders))
        more = {} if there else {"configuration": {**FEED, **settings}}
        write_deltalake(local(self.orders), rows, mode="append", **more)

    def committed_ms(self, version: int) -> int:
        return SourceLog.of(self.orders, self.storage).needed(version).time_ms or 0

    def _execution(self, *given: Any) -> Any:
        made = super()._execution(*given)
        made.now_ms = lambda: self.now_ms
        if self.has_metadata:
            made.after = FeedMetadata(self.log(), self.metadata, self.storage).after
        return made
