"""Worlds whose source is a Delta table, by its feed or by a cursor: each version adds a row.

In memory the table is a log alone. By the cursor two neighbours have the same value, so that a batch often
ends between them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.exceptions import SourceFileGoneError
from airflow_provider_scope.sources.cursor import state as cursor_state
from airflow_provider_scope.sources.cursor.source import CursorRows
from airflow_provider_scope.sources.cursor.spec import Cursor, TableSource
from airflow_provider_scope.sources.cursor.state import CursorState
from airflow_provider_scope.sources.feed import state as feed_state
from airflow_provider_scope.sources.feed.source import ChangeRows
from airflow_provider_scope.sources.feed.spec import CdfSource
from airflow_provider_scope.stores.local import LocalStorage
from airflow_provider_scope.values import CursorSlice, VersionSlice
from tests.crash.world import NOW_MS, DeltaWorld, MemoryWorld
from tests.support.delta_engine import TABLE as TARGET
from tests.support.delta_engine import DeltaEngine, local
from tests.support.faulty_storage import open_gate
from tests.support.memory_engine import MemoryEngine
from tests.support.numbers import row_of

if TYPE_CHECKING:
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.report import RunReport
    from airflow_provider_scope.protocol.source import Source
    from airflow_provider_scope.sources.files.spec import FileSource
    from airflow_provider_scope.stores.protocol import Storage
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
                    "fields": [
                        {"name": name, "type": "long", "nullable": True, "metadata": {}}
                        for name in ("id", "n")
                    ],
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


# ---- by a cursor -----------------------------------------------------------------------------------

CURSOR = Cursor(column="n")
AT_MOST = 2
"""Rows beyond the last value that a batch reads: those with one value."""


def value_of(number: int) -> int:
    """Return the cursor's value of the row that a version adds."""
    return number // 2


def read_by(batch: CursorSlice) -> range:
    """Return the numbers of the rows that a batch reads: at the last value, and beyond it."""
    last = _before(batch).last
    start = 0 if last is None else 2 * int(last)
    fresh = start if last is None else start + 2
    return range(start, min(fresh + AT_MOST - 1, batch.version or 0) + 1)


def numbers_of(batch: CursorSlice) -> list[int]:
    """Return the numbers of the rows that a batch loads: those that it reads and that are not loaded."""
    loaded = {row for _, row, _ in _before(batch).boundary_rows}
    return [number for number in read_by(batch) if _hash(number) not in loaded]


def state_after(batch: CursorSlice) -> str:
    """Return the state after a batch, by the rules of the application."""
    read = read_by(batch)
    state = replace(
        _before(batch),
        func="max",
        kind="bigint",
        source=batch.source,
        version=batch.version,
        more=read[-1] < (batch.version or 0),
        dedup=cursor_state.compared_by(CURSOR),
    )
    state = cursor_state.moved(CURSOR, state, {"": str(value_of(read[-1]))}, "bigint", None)
    marks = [(False, str(value_of(number)), _hash(number)) for number in read]
    noted = cursor_state.remembered(state, marks, CURSOR, "bigint", loads=True)
    assert noted is not None
    return noted.encode()


def _before(batch: CursorSlice) -> CursorState:
    return cursor_state.decode(batch.before, "here") or CursorState(column=CURSOR.column)


def _hash(number: int) -> str:
    return f"{number:0{cursor_state.HASH_LENGTH}x}"


class CursorInMemory(FeedInMemory):
    def read(self, entry: OffsetEntry) -> Any:
        if self.storage.read(name_of(entry.slice.version)) is None:
            raise cursor_state.recreated(TABLE, None, entry.slice.source)
        return [row_of(number) for number in numbers_of(entry.slice)]

    def state(self, entry: OffsetEntry, rows: Any) -> str:
        return state_after(entry.slice)


class CursorWorld(FeedWorld):
    wrong: ClassVar[Any] = CursorSlice("no state", CURSOR.column, None, None, None, 1)
    says_what_is_left = False

    def source(self, log: CheckpointLog, spec: FileSource) -> Source:
        return cursor_rows(TABLE, log, self.memory)

    def engine(self, gate: Gate) -> BatchLoop:
        return CursorInMemory(self.delta, self.memory, gate)


def cursor_rows(table: str, log: CheckpointLog, storage: Storage) -> CursorRows:
    spec = TableSource(table=table, cursor=CURSOR, max_rows_per_batch=AT_MOST)
    return CursorRows(spec=spec, log=log, storage=storage)


class CursorInDelta(DeltaEngine):
    """Reads a version of a Delta table."""

    def __init__(self, gate: Gate, source: str) -> None:
        super().__init__(gate)
        self.source = source

    def read(self, entry: OffsetEntry) -> pa.Table:
        version = DeltaTable(local(self.source), version=entry.slice.version).to_pyarrow_table()
        present = {*version["id"].to_pylist()}
        rows = [row_of(number) for number in numbers_of(entry.slice) if number in present]
        files, ids, days = zip(*rows, strict=True) if rows else ((), (), ())
        return pa.table({"id": ids, "day": days, "file": files}, schema=TARGET)

    def notes(self, entry: OffsetEntry, rows: pa.Table) -> dict[str, Any]:
        return {"state": state_after(entry.slice)}


class CursorDeltaWorld(DeltaWorld):
    """On a disk; what is dropped is the next version of the table."""

    @property
    def source_table(self) -> str:
        return f"file://{self.folder}/source"

    def source(self, log: CheckpointLog, spec: FileSource) -> Source:
        return cursor_rows(self.source_table, log, LocalStorage())

    def engine(self, gate: Gate) -> BatchLoop:
        return CursorInDelta(gate, self.source_table)

    def drop(self, name: str, at: int, *, day: int = 1, ids: int = 1) -> str:
        path = local(self.source_table)
        number = DeltaTable(path).version() + 1 if DeltaTable.is_deltatable(path) else 0
        row = pa.table({"id": [number], "n": [value_of(number)]})
        write_deltalake(path, row, mode="append")
        return path


def without_three(world: MemoryWorld | DeltaWorld) -> BatchLoop:
    """Return an engine that cannot read the batch with the row of version 3, by a cursor."""
    engine = world.engine(open_gate)
    read = engine.read

    def read_others(entry: OffsetEntry) -> Any:
        if 3 in numbers_of(entry.slice):  # type: ignore[arg-type] # as its kind says
            raise SourceFileGoneError(f"batch {entry.seq} cannot be read")
        return read(entry)

    engine.read = read_others  # type: ignore[method-assign]
    return engine
