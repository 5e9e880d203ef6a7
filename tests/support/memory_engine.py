"""A storage and a table in memory, for schedules by the thousand.

Both pass the suites that the real ones pass, so what a runner does on them it does on those.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.exceptions import (
    BatchOutcomeUnknownError,
    InputError,
    SourceNotFoundError,
    SparkJobFailedError,
)
from airflow_provider_scope.protocol.records import TableIdentity
from airflow_provider_scope.protocol.recovery import MISSING_TABLE, CommittedBatch, Restored, TableState
from airflow_provider_scope.stores.protocol import CONTROL_FILE_LIMIT_BYTES
from airflow_provider_scope.values import FileEntry, check_as_logged
from tests.support.batch_loop import BatchLoop, ConflictError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_scope.protocol.engine import Work
    from airflow_provider_scope.protocol.records import OffsetEntry
    from tests.support.faulty_storage import Gate

Row = tuple[str, int, int]
"""File, id, day."""


@dataclass
class MemoryStorage:
    """Control files and a source, in memory."""

    control: dict[str, bytes] = field(default_factory=dict)
    source: dict[str, FileEntry] = field(default_factory=dict)
    content: dict[str, list[Row]] = field(default_factory=dict)

    def walk(self, root: str) -> Iterator[FileEntry]:
        below = [file for path, file in self.source.items() if path.startswith(f"{root}/")]
        below += [
            FileEntry(0, path, len(data))
            for path, data in self.control.items()
            if path.startswith(f"{root}/")
        ]
        if not below:
            raise SourceNotFoundError(f"{root} does not exist")
        yield from below

    def names(self, folder: str) -> list[str]:
        start = f"{folder}/"
        rest = [path[len(start) :] for path in self.control if path.startswith(start)]
        return sorted(name for name in rest if "/" not in name)

    def read(self, path: str, at_most: int = CONTROL_FILE_LIMIT_BYTES) -> bytes | None:
        return self.control.get(path)

    def put_if_absent(self, path: str, data: bytes) -> bytes:
        return self.control.setdefault(path, data)

    def replace(self, path: str, data: bytes) -> None:
        self.control[path] = data

    def delete(self, path: str) -> None:
        self.control.pop(path, None)


@dataclass(frozen=True)
class Version:
    """One commit of a table: the rows after it, and what its log says of it."""

    rows: Counter[Row]
    txn: dict[str, int]
    pipeline: str | None = None
    seq: int | None = None
    added: int = 0
    abandoned: bool = False
    restored: int | None = None
    state: str | None = None


@dataclass
class MemoryTable:
    """A Delta table as far as the protocol sees it."""

    versions: list[Version] = field(default_factory=list)
    created: int = 0
    """How often the table was created: its id."""
    oldest: int = 0
    """The version from which on the log is there: what commits below it say is gone."""

    @property
    def rows(self) -> Counter[Row]:
        return self.versions[-1].rows if self.versions else Counter()

    def restore(self, version: int) -> None:
        """Bring back the rows of a version; transactions stay, as with Delta."""
        old, newest = self.versions[version], self.versions[-1]
        self.versions.append(Version(old.rows, newest.txn, restored=version))

    def recreate(self) -> None:
        """Drop the table and create it again without rows."""
        self.versions = [Version(Counter(), {})]
        self.created += 1
        self.oldest = 0


class MemoryEngine(BatchLoop):
    """Runs batches on a table in memory."""

    def __init__(self, table: MemoryTable, storage: MemoryStorage, gate: Gate | None = None) -> None:
        if gate:
            super().__init__(gate)
        else:
            super().__init__()
        self.table = table
        self.storage = storage

    def look(self, location: str, pipeline: str | None, baseline: Any) -> TableState:
        versions = self.table.versions
        if not versions:
            return MISSING_TABLE
        expected, since = baseline
        table_id = f"table-{self.table.created}"
        same = expected is not None and expected.table_id == table_id
        first = since + 1 if same else 0
        oldest = max(first, self.table.oldest)
        if same and oldest > first:
            raise BatchOutcomeUnknownError(f"the log of {location} no longer holds version {first}")
        looked_at = list(enumerate(versions))[oldest:]
        restores = tuple(Restored(n, v.restored) for n, v in looked_at if v.restored is not None)
        newest = max((r.version for r in restores), default=expected.restore_version if same else None)
        committed = {
            v.seq: CommittedBatch(n, v.added, None, v.abandoned, state=v.state)
            for n, v in looked_at
            if v.seq is not None and v.pipeline == pipeline
        }
        txn = versions[-1].txn.get(pipeline) if pipeline else None
        has_rows = pipeline is None and bool(versions[-1].rows)
        identity = TableIdentity(table_id, newest)
        return TableState(identity, len(versions) - 1, txn, committed, restores, has_rows, oldest=oldest)

    def open(self, work: Work) -> tuple[Any, int | None]:
        if not self.table.versions:
            return None, None
        newest = self.table.versions[-1]
        return newest, newest.txn.get(work.pipeline)

    def read(self, entry: OffsetEntry) -> Any:
        found = ((file, self.storage.source.get(file.path)) for file in entry.files)
        looks = ((file, now and (now.modified_ms, now.size_bytes)) for file, now in found)
        check_as_logged(entry.seq, looks, kept="everything")
        return [row for file in entry.files for row in self.storage.content[file.path]]

    def no_rows(self) -> Any:
        return []

    def state(self, entry: OffsetEntry, rows: Any) -> str | None:
        """Return the state of the source after the rows of a batch; None if it has none."""
        return None

    def commit(self, work: Work, handle: Any, entry: OffsetEntry, rows: Any, *, abandoned: bool) -> None:
        newest = self.table.versions[-1] if self.table.versions else None
        if newest is None and abandoned:
            raise InputError(f"there is no table to give batch {entry.seq} up in")
        txn = dict(newest.txn) if newest else {}
        if txn.get(work.pipeline) != (handle.txn.get(work.pipeline) if handle else None):
            raise ConflictError(f"the transaction is {txn.get(work.pipeline)} now")
        if (newest is None) != (handle is None):
            raise ConflictError("another writer created the table, or dropped it")
        if entry.where and not all(_inside(row, entry.where) for row in rows):
            raise SparkJobFailedError(f"a row of batch {entry.seq} lies outside of {entry.where}")
        before = newest.rows if newest else Counter()
        if entry.mode == "overwrite":
            kept = {row: n for row, n in before.items() if entry.where and not _inside(row, entry.where)}
            before = Counter(kept)
        txn[work.pipeline] = self.txn_version(entry)
        added, state = len(rows), None if abandoned else self.state(entry, rows)
        self.table.versions.append(
            Version(before + Counter(rows), txn, work.pipeline, entry.seq, added, abandoned, state=state)
        )


def _inside(row: Row, where: str) -> bool:
    return where == f"day = {row[2]}"
