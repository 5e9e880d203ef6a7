"""Worlds whose source is a table, by its feed or by a cursor: a log in memory; each version adds a row."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_scope.sources.cursor import state as cursor_state
from airflow_provider_scope.sources.cursor.source import CursorRows
from airflow_provider_scope.sources.cursor.spec import Cursor, TableSource
from airflow_provider_scope.sources.cursor.state import CursorState
from airflow_provider_scope.sources.feed import state as feed_state
from airflow_provider_scope.sources.feed.source import ChangeRows
from airflow_provider_scope.sources.feed.spec import CdfSource
from airflow_provider_scope.values import CursorSlice, VersionSlice
from tests.crash.world import NOW_MS, MemoryWorld
from tests.support.memory_engine import MemoryEngine
from tests.support.numbers import row_of

if TYPE_CHECKING:
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.report import RunReport
    from airflow_provider_scope.protocol.source import Source
    from airflow_provider_scope.sources.files.spec import FileSource
    from tests.support.batch_loop import BatchLoop
    from tests.support.faulty_storage import Gate
    from tests.support.memory_engine import Row

TABLE = "memory:///source"
"""No disk: deltalake reads a copy of the log."""
FIRST: tuple[dict[str, Any], ...] = (
    {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}},
    {
        "metaData": {
            "id": "5c0e9b0a-0000-4000-8000-000000000000",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(
                {
                    "type": "struct",
                    "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
                }
            ),
            "partitionColumns": [],
            "configuration": {"delta.enableChangeDataFeed": "true"},
            "createdTime": NOW_MS,
        }
    },
)
"""What the first commit of a table says beside its rows."""


def name_of(version: int) -> str:
    return f"{TABLE}/_delta_log/{version:020}.json"


class FeedInMemory(MemoryEngine):
    """Reads a row for each version."""

    def read(self, entry: OffsetEntry) -> Any:
        versions = range(entry.slice.first, entry.slice.last + 1)
        for version in versions:
            if self.storage.read(name_of(version)) is None:
                raise feed_state.missing(TABLE, version)
        return [row_of(version) for version in versions]

    def state(self, entry: OffsetEntry, rows: Any) -> str:
        return feed_state.state_after(entry.slice)  # type: ignore[arg-type] # as its kind says


class FeedWorld(MemoryWorld):
    """What is dropped is the next version of the table."""

    has_state = True
    wrong: ClassVar[Any] = VersionSlice(
        "no state", "default", "x", TABLE, 0, 1, snapshot=False, changed_bytes=0
    )
    """A slice that the source cannot have."""

    def source(self, log: CheckpointLog, spec: FileSource) -> Source:
        return ChangeRows(
            spec=CdfSource(table=TABLE, max_commits_per_batch=self.max_files),
            place=log.location,
            storage=self.memory,
        )

    def engine(self, gate: Gate) -> BatchLoop:
        return FeedInMemory(self.delta, self.memory, gate)

    def drop(self, name: str, at: int, *, day: int = 1, ids: int = 1) -> str:
        version = len(self.memory.names(f"{TABLE}/_delta_log"))
        file = {"path": f"{version}.parquet", "partitionValues": {}, "size": 10, "modificationTime": NOW_MS}
        operation = "WRITE" if version else "CREATE TABLE AS SELECT"
        actions = [
            {"commitInfo": {"timestamp": NOW_MS + version, "operation": operation}},
            *(() if version else FIRST),
            {"add": {**file, "dataChange": True}},
        ]
        text = "\n".join(json.dumps(action) for action in actions)
        self.memory.replace(name_of(version), text.encode())
        path = super().drop(f"{version}", at)
        self.memory.content[path] = [row_of(version)]
        return path

    def drop_source(self) -> None:
        """Let somebody delete the table."""
        for name in self.memory.names(f"{TABLE}/_delta_log"):
            self.memory.delete(f"{TABLE}/_delta_log/{name}")

    def left(self, report: RunReport) -> int:
        """Return how many versions the report says are left."""
        told = report.text().partition("left for the next run: ")[2]
        return int(told.split(" ", 1)[0]) if told else 0

    def name_of(self, row: Row) -> Any:
        return row[1]


class CursorInMemory(FeedInMemory):
    """Reads, of a version of the table, the rows beyond the last value, two at most."""

    def read(self, entry: OffsetEntry) -> Any:
        if self.storage.read(name_of(entry.slice.version)) is None:
            raise cursor_state.recreated(TABLE, None, entry.slice.source)
        return [row_of(number) for number in numbers_of(entry.slice)]

    def state(self, entry: OffsetEntry, rows: Any) -> str:
        last = max([last_value(entry.slice.before), *(number for _, number, _ in rows)])
        read = entry.slice
        return CursorState(
            column="id",
            func="max",
            kind="bigint",
            last=str(last),
            source=read.source,
            version=read.version,
            more=last < read.version,
        ).encode()


def numbers_of(batch: CursorSlice) -> range:
    """Return the values that a batch takes."""
    first = last_value(batch.before) + 1
    return range(first, min(first + 1, batch.version or 0) + 1)


def last_value(state: str | None) -> int:
    """Return the last value that is loaded; -1 before the first one."""
    decoded = cursor_state.decode(state, "here")
    return -1 if decoded is None else int(decoded.last or -1)


class CursorWorld(FeedWorld):
    """A row's id, by which the cursor goes, is the number of the version that added it."""

    wrong: ClassVar[Any] = CursorSlice("no state", "id", None, None, None, 1)
    says_what_is_left = False

    def source(self, log: CheckpointLog, spec: FileSource) -> Source:
        table = TableSource(table=TABLE, cursor=Cursor(column="id"), max_rows_per_batch=self.max_files)
        return CursorRows(spec=table, log=log, storage=self.memory)

    def engine(self, gate: Gate) -> BatchLoop:
        return CursorInMemory(self.delta, self.memory, gate)
