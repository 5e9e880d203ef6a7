"""A source, a table and a checkpoint that runs are killed in."""

from __future__ import annotations

import copy
import json
import os
import shutil
import tempfile
import uuid
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.protocol import acceptance, repair, vacuum
from airflow_provider_scope.protocol.derived import AuditFiles
from airflow_provider_scope.protocol.dry_run import Preview, preview
from airflow_provider_scope.protocol.intervals import IntervalLog, NoAuditFiles
from airflow_provider_scope.protocol.log import CheckpointLog
from airflow_provider_scope.protocol.run import MicroBatchExecution
from airflow_provider_scope.protocol.source import Request
from airflow_provider_scope.sources.files.source import Files
from airflow_provider_scope.sources.files.spec import FileSource
from airflow_provider_scope.stores.local import LocalStorage
from airflow_provider_scope.values import FileEntry, iso_time
from tests.support.dbt_scope import DbtScopeOnMemory
from tests.support.delta_engine import SOURCE, TABLE, DeltaEngine, local
from tests.support.faulty_storage import FaultyStorage, Gate, open_gate
from tests.support.memory_engine import MemoryEngine, MemoryStorage, MemoryTable, Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_scope.protocol.records import CommitRecord
    from airflow_provider_scope.protocol.report import RunReport
    from airflow_provider_scope.protocol.source import Source
    from airflow_provider_scope.stores.protocol import Storage
    from airflow_provider_scope.values import Window
    from tests.support.batch_loop import BatchLoop

NOW_MS = 1_700_000_000_000
"""The time at which everything happens."""


class World:
    """What all worlds can do. Nothing here is cleverer than a DAG that calls the package.

    :param root: URI of the source.
    :param table: URI of the table; the checkpoint lies in it.
    """

    def __init__(self, storage: Storage, root: str, table: str, *, interval: int, retention: int) -> None:
        self.storage = storage
        self.root = root
        self.roots: tuple[str, ...] = ()
        """The folders that are listed, if not the root."""
        self.table = table
        self.checkpoint = f"{table}/_checkpoint"
        self.interval = interval
        self.retention = retention
        self.max_files = 2
        self.window: Window | None = None

    def of(self, window: Window) -> Self:
        """Return the same files and table, with the pipeline of an interval."""
        other = copy.copy(self)
        other.window = window
        other.checkpoint = f"{self.table}/_checkpoint/intervals/{window.name}"
        return other

    def engine(self, gate: Gate) -> BatchLoop:
        raise NotImplementedError

    def rows(self) -> Counter[Row]:
        """Return all rows of the table, each with how often it is there."""
        raise NotImplementedError

    # ---- what users do ---------------------------------------------------------------------------

    def log(self, gate: Gate = open_gate) -> CheckpointLog:
        storage = FaultyStorage(self.storage, gate)
        if self.window:
            return IntervalLog(storage, f"{self.table}/_checkpoint", self.window)
        return CheckpointLog(storage, self.checkpoint)

    def audit_files(self, log: CheckpointLog) -> AuditFiles:
        if self.window:
            return NoAuditFiles(log)
        return AuditFiles(log, compaction_interval=self.interval, retention_files=self.retention)

    def run(self, gate: Gate = open_gate, *, engine: BatchLoop | None = None, **asked: Any) -> RunReport:
        """Do what a run does; see ``asked`` for what may be asked of it."""
        request, spec = self.asked(**asked)
        return self._execution(spec, gate, engine).run(request)

    def plan(self, **asked: Any) -> Preview:
        """Do what ``airflow scope plan`` does."""
        request, spec = self.asked(**asked)
        return preview(self._execution(spec, open_gate), request)

    def new_id(self) -> str:
        return str(uuid.uuid4())

    def _execution(
        self, spec: FileSource, gate: Gate, engine: BatchLoop | None = None
    ) -> MicroBatchExecution:
        log = self.log(gate)
        return MicroBatchExecution(
            log,
            self.audit_files(log),
            self.source(log, spec),
            engine or self.engine(gate),
            now_ms=lambda: NOW_MS,
            new_id=self.new_id,
        )

    def source(self, log: CheckpointLog, spec: FileSource) -> Source:
        return Files(spec=spec, log=log, listing=log.storage, now_ms=NOW_MS, window=self.window)

    def asked(
        self,
        *,
        refresh: bool = False,
        where: str | None = None,
        adds_to_rows: bool = False,
        max_batches: int | None = None,
        late_files: str = "ingest",
        starting_at_ms: int | None = None,
        first_batch: int | None = None,
        is_snapshot: bool = False,
        on_changed_file: str = "ignore",
    ) -> tuple[Request, FileSource]:
        spec = FileSource(
            roots=self.roots or (self.root,),
            patterns=".",
            format="parquet",
            safety_buffer_seconds=0,
            max_files_per_trigger=self.max_files,
            late_files=late_files,  # type: ignore[arg-type]
            starting_timestamp=None if starting_at_ms is None else iso_time(starting_at_ms),
            on_changed_file=on_changed_file,  # type: ignore[arg-type]
        )
        request = Request(
            table=self.table,
            max_batches=max_batches,
            refresh=refresh or where is not None,
            where=where,
            is_snapshot=is_snapshot,
            adds_to_rows=adds_to_rows,
            first_batch=first_batch,
        )
        return request, spec

    def abandon(self, seq: int, gate: Gate = open_gate) -> CommitRecord:
        log = self.log(gate)
        return repair.abandon(
            log, self.audit_files(log), self.engine(gate), self.table, seq, now_ms=lambda: NOW_MS
        )

    def vacuum(self, gate: Gate = open_gate, *, retain: int = 1) -> vacuum.Purge:
        log = self.log(gate)
        purge = vacuum.purge_of(
            log, self.audit_files(log), self.engine(gate), self.table, retain=retain, now_ms=NOW_MS
        )
        vacuum.run(log, purge)
        return purge

    def accept(self, gate: Gate = open_gate, *, reload_undecidable: bool = False) -> None:
        acceptance.accept_table(
            self.log(gate), self.engine(gate), self.table, reload_undecidable=reload_undecidable
        )

    # ---- what is there ---------------------------------------------------------------------------

    def record_names(self) -> list[str]:
        """Return the names of all records of the log, ``offsets/00000000000000000000`` and such."""
        found = [
            f"{folder}/{name}"
            for folder in ("offsets", "commits", "accepted", "vacuumed")
            for name in self.storage.names(f"{self.checkpoint}/{folder}")
        ]
        return ["pipeline.json", *found] if self.storage.read(f"{self.checkpoint}/pipeline.json") else found

    def read(self, name: str) -> bytes:
        data = self.storage.read(f"{self.checkpoint}/{name}")
        assert data is not None, name
        return data

    def records(self) -> dict[str, list[Any]]:
        """Return all records as values, without what differs between two runs of the same thing."""
        return {name: self._values(self.read(name).decode().splitlines()) for name in self.record_names()}

    def audit(self) -> dict[str, Any]:
        """Return ``watermark.json`` and ``sources/`` as values."""
        found: dict[str, Any] = {}
        watermark = self.storage.read(f"{self.checkpoint}/watermark.json")
        if watermark is not None:
            found["watermark.json"] = json.loads(watermark)
        for name in self.storage.names(f"{self.checkpoint}/sources"):
            if not name.endswith(".parquet"):  # dbt-scope's
                data = self.read(f"sources/{name}")
                found[name] = [json.loads(line) for line in data.decode().split("\n")]
        return found

    def _values(self, lines: list[str]) -> list[Any]:
        values = [json.loads(line) for line in lines]
        for value in values:
            value.pop("committed_at_ms", None)
            if isinstance(value.get("table"), dict):
                value["table"]["table_id"] = self._known_id(value["table"]["table_id"])
            if "pipeline" in value:
                value["pipeline"] = "the pipeline"
        return values

    def _known_id(self, table_id: str) -> str:
        return table_id


class DeltaWorld(World):
    """Files on a disk and a Delta table, below one folder."""

    def __init__(self, folder: Path, *, interval: int = 3, retention: int = 100) -> None:
        self.folder = folder
        super().__init__(
            LocalStorage(),
            f"file://{folder}/landing",
            f"file://{folder}/table",
            interval=interval,
            retention=retention,
        )

    def engine(self, gate: Gate) -> BatchLoop:
        return DeltaEngine(gate)

    def drop(self, name: str, at: int, *, day: int = 1, ids: int = 2) -> str:
        """Put a file into the source, modified ``at`` seconds before now."""
        path = self.folder / "landing" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": range(ids), "day": [day] * ids}, schema=SOURCE), path)
        modified = NOW_MS // 1000 - at
        os.utime(path, (modified, modified))
        return f"file://{path}"

    def hide(self, name: str) -> None:
        """Take a file out of the source; ``show`` brings it back as it was."""
        (self.folder / "landing" / name).rename(self.folder / name)

    def show(self, name: str) -> None:
        (self.folder / name).rename(self.folder / "landing" / name)

    def rows(self) -> Counter[Row]:
        path = local(self.table)
        if not DeltaTable.is_deltatable(path):
            return Counter()
        table = DeltaTable(path).to_pyarrow_table()
        return Counter(zip(*(table[name].to_pylist() for name in ("file", "id", "day")), strict=True))

    def add_foreign_rows(self, *days: int) -> None:
        """Let another writer append a row for each day, without a transaction."""
        rows = pa.table(
            {"id": [-1] * len(days), "day": list(days), "file": ["elsewhere"] * len(days)}, schema=TABLE
        )
        write_deltalake(local(self.table), rows, mode="append")

    def version(self) -> int:
        return DeltaTable(local(self.table)).version()

    def restore(self, version: int) -> None:
        DeltaTable(local(self.table)).restore(version)

    def recreate(self) -> None:
        """Drop the table and create it again without rows; the checkpoint stays."""
        self.drop_table()
        write_deltalake(local(self.table), TABLE.empty_table(), mode="error")

    def drop_table(self) -> None:
        """Drop the table; the checkpoint stays."""
        shutil.rmtree(self.folder / "table" / "_delta_log")
        for path in (self.folder / "table").glob("*.parquet"):
            path.unlink()

    def _known_id(self, table_id: str) -> str:
        newest = DeltaTable(local(self.table)).metadata().id
        return "the table" if table_id == newest else "another table"


class MemoryWorld(World):
    """The same without a disk."""

    has_state: ClassVar[bool] = False
    """Whether what is new follows from a state in the table, and not from the log."""
    says_what_is_left: ClassVar[bool] = True
    """Whether a report says how much is left for the next run."""
    loaded_by_dbt_scope: frozenset[str] = frozenset()
    """Paths of the files that were in the table before the first run."""

    def __init__(self, *, interval: int = 3, retention: int = 100) -> None:
        self.memory = MemoryStorage()
        self.delta = MemoryTable()
        super().__init__(
            self.memory, "file:///landing", "file:///table", interval=interval, retention=retention
        )

    def engine(self, gate: Gate) -> BatchLoop:
        return MemoryEngine(self.delta, self.memory, gate)

    def drop(self, name: str, at: int, *, day: int = 1, ids: int = 1) -> str:
        path = f"{self.root}/{name}"
        self.memory.source[path] = FileEntry(NOW_MS - at * 1000, path, ids)
        self.memory.content[path] = [(path, number, day) for number in range(ids)]
        return path

    def hide(self, name: str) -> None:
        self.memory.source.pop(f"{self.root}/{name}")

    def rows(self) -> Counter[Row]:
        return self.delta.rows.copy()

    def drop_source(self) -> None:
        """Let the source be gone."""
        self.memory.source.clear()

    def left(self, report: RunReport) -> int:
        """Return how much a report says is left for the next run."""
        return report.pending_files

    def name_of(self, row: Row) -> Any:
        """Return what a slice calls the thing that a row came from."""
        return row[0]

    def version(self) -> int:
        return len(self.delta.versions) - 1

    def restore(self, version: int) -> None:
        self.delta.restore(version)

    def recreate(self) -> None:
        self.delta.recreate()


class TakenOverWorld(MemoryWorld):
    """A table that dbt-scope has loaded: the first runs take it over."""

    def __init__(self, *, interval: int = 3, retention: int = 100) -> None:
        super().__init__(interval=interval, retention=retention)
        self.loaded_by_dbt_scope = frozenset(self.drop(f"theirs{n}", at=2_000 - n) for n in range(4))
        DbtScopeOnMemory(self).run(max_files=1)


@contextmanager
def fast_folder() -> Iterator[Path]:
    """Return a temporary folder, in memory where the machine has such a place."""
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="airflow-provider-scope-crash-", dir=place) as folder:
        yield Path(folder)
