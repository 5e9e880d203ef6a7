"""Worlds of sources that are no files: the feed of a table, a table by a cursor, a database by a cursor.

A run is put together as the operator does it, but for the gate in front of the checkpoint.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from airflow_provider_scope.engines.assembly import RunContext, assemble
from airflow_provider_scope.specs import SparkEngine
from airflow_provider_scope.specs.ingest import ARGUMENTS, SELECT_ALL, ingest_from
from tests.crash.spark_world import SparkWorld, server_wanted
from tests.crash.world import NOW_MS
from tests.support.faulty_storage import FaultyStorage

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_provider_scope.protocol.run import MicroBatchExecution
    from airflow_provider_scope.sources.files.discovery import Rules
    from tests.crash.world import Row
    from tests.support.batch_loop import BatchLoop
    from tests.support.faulty_storage import Gate

CONF = {"spark.sql.shuffle.partitions": "2"}
CONNECTION = "AIRFLOW_CONN_SHOP"


class SourceWorld(SparkWorld):
    """A source of which a run makes two batches, and the table that it loads."""

    name: ClassVar[str]
    """A file of this name in a world's folder says that it is this one."""
    arguments: ClassVar[dict[str, Any]]
    always_looks: ClassVar[bool] = False
    """Whether a run with nothing new logs a batch: only a batch can tell."""

    def fill(self) -> None:
        """Make the source."""
        raise NotImplementedError

    def of_source(self) -> dict[str, Any]:
        raise NotImplementedError

    @property
    def source_path(self) -> Path:
        return self.folder / "source"

    def rows(self) -> Counter[Row]:
        """Return the table's rows, each with all of its values."""
        path = str(self.folder / "table")
        if not DeltaTable.is_deltatable(path):
            return Counter()
        found = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t").read_all()
        return Counter(tuple(sorted(row.items())) for row in pa.table(found).to_pylist())  # type: ignore[misc]

    def records(self) -> dict[str, list[Any]]:
        """Return the records; of a source that is always looked at, the newest state alone."""
        if not self.always_looks:
            return super().records()
        log = self.log()
        done = log.committed()
        return {"state": [json.loads(log.commit(done[-1]).state or "null")] if done else []}

    def audit(self) -> dict[str, Any]:
        return {} if self.always_looks else super().audit()

    def _execution(self, rules: Rules, gate: Gate, engine: BatchLoop | None = None) -> MicroBatchExecution:
        raw: dict[str, Any] = dict.fromkeys(ARGUMENTS)
        raw |= {"delta_location": self.table, "sql": SELECT_ALL, "write": "append", "full_refresh": False}
        raw |= {"engine": SparkEngine(conf=CONF, server=server_wanted()), "source": self.of_source()}
        raw |= self.arguments
        ingest = ingest_from(raw)
        assert ingest is not None
        log_file = self.folder / "spark.log"
        context = RunContext(task="dag.load", log_file=log_file, report=lambda _line: None)
        execution, _, runner = assemble(ingest, context)
        execution.log.storage = FaultyStorage(execution.log.storage, gate)
        runner.storage = execution.log.storage  # type: ignore[union-attr] # that of Spark has one
        execution.now_ms = lambda: NOW_MS
        return execution


class FeedWorld(SourceWorld):
    """Rows that another writer inserts, updates, deletes, and gives other keys."""

    name = "feed"
    arguments: ClassVar[dict[str, Any]] = {
        "write": {"kind": "merge", "primary_key": ["id"], "strategy": "upsert"},
    }

    def of_source(self) -> dict[str, Any]:
        return {"table": str(self.source_path), "max_commits_per_batch": 3}

    def fill(self) -> None:
        path = str(self.source_path)
        feed = {"delta.enableChangeDataFeed": "true"}
        write_deltalake(path, _texts(1, 2, 3, 4, 5, 6), configuration=feed)
        write_deltalake(path, _texts(7, 8), mode="append")
        table = DeltaTable(path)
        table.update(predicate="id < 3", updates={"t": "'updated'"})
        table.delete("id = 3 OR id = 7")
        merge = table.merge(
            _texts(4, 9, t="merged"), "t.id = s.id", source_alias="s", target_alias="t"
        ).when_matched_update_all()
        merge.when_not_matched_insert_all().execute()
        table.update(predicate="id = 5", updates={"id": "105"})


class CursorWorld(SourceWorld):
    """Rows of which several have one value of the cursor."""

    name = "cursor"
    arguments: ClassVar[dict[str, Any]] = {}

    def of_source(self) -> dict[str, Any]:
        return {"table": str(self.source_path), "cursor": {"column": "n"}, "max_rows_per_batch": 6}

    def fill(self) -> None:
        for half in (range(6), range(6, 10)):
            rows = _texts(*half).append_column("n", _halves(half))
            odd = pa.array([number % 2 == 1 for number in half])
            write_deltalake(str(self.source_path), rows.append_column("odd", odd), mode="append")


class GroupsWorld(CursorWorld):
    """The same rows, of which the odd ones have a last value of their own."""

    name = "groups"

    def of_source(self) -> dict[str, Any]:
        return {**super().of_source(), "cursor": {"column": "n", "per": "odd"}}


class DatabaseWorld(SourceWorld):
    """The same rows in a file of SQLite."""

    name = "database"
    arguments: ClassVar[dict[str, Any]] = {}
    always_looks = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        os.environ[CONNECTION] = json.dumps({"conn_type": "sqlite", "host": str(self.source_path)})

    def of_source(self) -> dict[str, Any]:
        return {"conn_id": "shop", "table": "orders", "cursor": {"column": "n"}, "max_rows_per_batch": 6}

    def fill(self) -> None:
        with closing(sqlite3.connect(self.source_path)) as connection:
            connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, n BIGINT NOT NULL, t TEXT)")
            rows = [(number, number // 2, f"row {number}") for number in range(10)]
            connection.executemany("INSERT INTO orders VALUES (?, ?, ?)", rows)
            connection.commit()


WORLDS: tuple[type[SourceWorld], ...] = (FeedWorld, CursorWorld, GroupsWorld, DatabaseWorld)


def world_of(folder: Path) -> SparkWorld:
    """Return the world that a folder says it is."""
    return next((world(folder) for world in WORLDS if (folder / world.name).exists()), SparkWorld(folder))


def _texts(*ids: int, t: str = "row") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "t": [f"{t} {number}" for number in ids]})


def _halves(ids: range) -> pa.Array:
    return pa.array([number // 2 for number in ids], pa.int64())
