"""A run that writes nothing and loads nothing: it tells what the next run will do."""

from __future__ import annotations

import zlib
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from airflow_provider_scope.exceptions import ScopeProviderError
from airflow_provider_scope.protocol import recovery
from airflow_provider_scope.protocol.engine import Engine
from airflow_provider_scope.protocol.records import TableIdentity
from airflow_provider_scope.protocol.recovery import Baseline, CommittedBatch, TableState
from airflow_provider_scope.stores.protocol import CONTROL_FILE_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_provider_scope.protocol.engine import More, Work
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.report import RunReport
    from airflow_provider_scope.protocol.run import MicroBatchExecution
    from airflow_provider_scope.protocol.source import Request, Source
    from airflow_provider_scope.stores.protocol import Storage
    from airflow_provider_scope.values import FileEntry

_NEW_TABLE = TableIdentity("of the table that the run creates", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What the next run will do with each batch, in the order of their numbers."""

    report: RunReport
    """What it will say of its source; of batches, it has those that it will record."""
    recorded: tuple[OffsetEntry, ...] = ()
    """In the table already: only their commit records are missing."""
    opened: tuple[OffsetEntry, ...] = ()
    """Logged by an earlier run: loaded first, as they were logged."""
    new: tuple[OffsetEntry, ...] = ()
    """Logged and loaded."""
    superseded: tuple[OffsetEntry, ...] = ()
    """Open, and never loaded: a full refresh replaces what they would have added."""
    blocked: tuple[OffsetEntry, ...] = ()
    """Open or logged, and not loaded: the error stops the run at the first of them."""
    error: ScopeProviderError | None = None
    """How the run will end, if it is known that it fails."""
    is_complete: bool = True
    """False if more batches may follow: only the rows of the last one tell."""


def preview(execution: MicroBatchExecution, request: Request) -> Preview:
    """Do the steps of a run: its records stay in memory, its batches are checked and not loaded.

    The execution cannot be used for a run afterwards.
    """
    records = InMemory(execution.log.storage)
    execution.log.storage = records
    engine = _Checks(execution.engine, execution.source)
    execution.engine, execution.audits, execution.after = engine, False, None
    error: ScopeProviderError | None = None
    try:
        execution.run(request)
    except ScopeProviderError as err:
        error = err
    except _RowsTellError:
        engine.is_complete = False
    logged = {int(name) for name in records.written[f"{execution.log.location}/offsets"]}
    committed = {int(name) for name in records.written[f"{execution.log.location}/commits"]}
    view = execution.view
    waiting = [entry for entry in view.open if entry.seq not in engine.loaded]
    return Preview(
        report=execution.report,
        recorded=tuple(execution.log.offset(seq) for seq in sorted(committed - {*engine.loaded})),
        opened=tuple(entry for seq, entry in engine.loaded.items() if seq not in logged),
        new=tuple(entry for seq, entry in engine.loaded.items() if seq in logged),
        superseded=tuple(e for e in view.uncommitted if e not in view.open),
        blocked=tuple(waiting),
        error=error,
        is_complete=engine.is_complete,
    )


class _RowsTellError(Exception):
    """Where the next batch begins, only the rows of this one tell."""


class InMemory:
    """A storage whose writes stay in memory."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.written: dict[str, dict[str, bytes | None]] = defaultdict(dict)
        """Folder -> name -> content, compressed (there may be a million files); None if it was deleted."""

    def walk(self, root: str) -> Iterator[FileEntry]:
        """List the source, in which no run writes."""
        return self.storage.walk(root)

    def names(self, folder: str) -> list[str]:
        written = self.written[folder]
        stored = {name for name in self.storage.names(folder) if name not in written}
        return sorted(stored | {name for name, data in written.items() if data is not None})

    def read(self, path: str, at_most: int = CONTROL_FILE_LIMIT_BYTES) -> bytes | None:
        folder, _, name = path.rpartition("/")
        if name not in self.written[folder]:
            return self.storage.read(path, at_most)
        data = self.written[folder][name]
        return data and zlib.decompress(data)

    def put_if_absent(self, path: str, data: bytes) -> bytes:
        stored = self.read(path)
        if stored is None:
            self.replace(path, data)
        return data if stored is None else stored

    def replace(self, path: str, data: bytes | None) -> None:
        folder, _, name = path.rpartition("/")
        self.written[folder][name] = data and zlib.compress(data, level=1)

    def delete(self, path: str) -> None:
        self.replace(path, None)


@dataclass
class _Checks(Engine):
    """An engine that checks each batch, and takes those that can be loaded for committed."""

    engine: Engine
    source: Source
    fences_without_table: ClassVar[bool] = True
    state: TableState = recovery.MISSING_TABLE
    loaded: dict[int, OffsetEntry] = field(default_factory=dict)
    committed: dict[int, CommittedBatch] = field(default_factory=dict)
    is_complete: bool = True

    def probe(self, location: str, pipeline: str | None, baseline: Baseline) -> TableState:
        """Look at the table, and add what was taken for committed."""
        if not self.committed:
            self.state = self.engine.probe(location, pipeline, baseline)
            return self.state
        return replace(
            self.state,
            identity=self.state.identity or _NEW_TABLE,
            version=self.state.version + len(self.committed),
            txn=max(self.committed),
            committed={**self.state.committed, **self.committed},
        )

    def run(self, work: Work, entries: Sequence[OffsetEntry], more: More | None = None) -> None:
        """Check the batches in order.

        :raises ScopeProviderError: As the engine will.
        """
        while entries:
            for entry in entries:
                self.check(work, entry)
            entries = more() if more else ()

    def check(self, work: Work, entry: OffsetEntry) -> None:
        """Check one batch, and take it for committed."""
        newest = max(self.committed, default=self.state.txn)
        if newest is not None and newest >= entry.seq:
            return  # engines skip it, too
        if not recovery.may_run(entry, newest, work.first):
            kind = recovery.out_of_order(newest, entry, work.first)
            raise kind(
                f"Batch {entry.seq} cannot be loaded into {work.table}: its newest batch is {newest}.",
                kept="the table and all records",
                do="run the task: it reads the log again",
            )
        state = self.source.state_after(entry)
        self.engine.check(work, entry)
        self.loaded[entry.seq] = entry
        if entry.slice.has_state and state is None:
            raise _RowsTellError
        self._take(entry, state=state)

    def _take(self, entry: OffsetEntry, *, state: str | None = None, abandoned: bool = False) -> None:
        version = self.state.version + len(self.committed) + 1
        self.committed[entry.seq] = CommittedBatch(version, None, None, abandoned, state=state)

    def fence(self, work: Work, entry: OffsetEntry) -> None:  # noqa: ARG002 - a protocol
        """Take a batch for abandoned."""
        self._take(entry, abandoned=True)
