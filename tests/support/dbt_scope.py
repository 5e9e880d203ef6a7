"""dbt-scope, as far as its checkpoint goes: what it writes, byte for byte, and how it reads.

Written after the facts in the reference, not after this package: it shares no code with what it tests.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.memory_engine import Version

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_provider_scope.stores.protocol import Storage
    from tests.crash.world import MemoryWorld

Crash = Literal["before the watermark", "before the sources"]
FIRST_RUN = datetime(2023, 11, 1, 12, tzinfo=UTC)


class CrashedError(Exception):
    """dbt-scope died, or failed with an error of its own."""


class DbtScope:
    """One table's checkpoint, seen with dbt-scope's eyes.

    :param location: URI of the folder ``_checkpoint``.
    :param times: What DuckDB makes of ``batchProcessingTime`` in a snapshot. With timestamps dbt-scope
        fails when it reads a snapshot back, so no snapshot follows the first one.
    """

    def __init__(
        self,
        storage: Storage,
        location: str,
        *,
        interval: int = 10,
        retention: int = 100,
        times: Literal["text", "timestamp"] = "text",
    ) -> None:
        self.storage = storage
        self.location = location
        self.interval = interval
        self.retention = retention
        self.times = times
        self.clock = FIRST_RUN

    # ---- reading -------------------------------------------------------------------------------------

    def watermark(self) -> tuple[int, str, int] | None:
        data = self.storage.read(f"{self.location}/watermark.json")
        if data is None:
            return None
        value = json.loads(data.decode("utf-8"))
        return value.get("version", 0), value.get("modifiedTime", ""), value.get("batchId", 0)

    def unprocessed(self, files: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Return the files, path and milliseconds, that it would load, oldest first."""
        known = self.watermark()
        since = datetime.fromisoformat(known[1]) if known and known[1] else None
        left = [(path, ms) for path, ms in files if since is None or moment(ms) > since]
        return sorted(left, key=lambda file: file[1])

    def batch(self, batch_id: int) -> list[dict[str, Any]]:
        """Read the files of one batch: the diff, or else the snapshot of that name, filtered."""
        diff = self.storage.read(f"{self.location}/sources/{batch_id}")
        if diff is not None:
            return [json.loads(line) for line in diff.decode("utf-8").strip().split("\n") if line.strip()]
        snapshot = self.storage.read(f"{self.location}/sources/{batch_id}.parquet")
        if snapshot is None:
            return []
        return [row for row in rows_of(snapshot) if row.get("batchId") == batch_id]

    def history(self) -> list[dict[str, Any]]:
        """Read what its next snapshot begins with: the newest snapshot and the diffs after it."""
        names = self.storage.names(f"{self.location}/sources")
        snapshots = sorted(int(n.removesuffix(".parquet")) for n in names if n.endswith(".parquet"))
        newest = snapshots[-1] if snapshots else -1
        rows: list[dict[str, Any]] = []
        if snapshots:
            rows += rows_of(self.storage.read(f"{self.location}/sources/{newest}.parquet") or b"")
        for number in sorted(int(name) for name in names if name.isdigit()):
            if number > newest:
                rows += self.batch(number)
        return rows

    # ---- writing -------------------------------------------------------------------------------------

    def loaded(self, files: Sequence[tuple[str, int]], crash: Crash | None = None) -> None:
        """Write what it writes after a job that loaded these files, path and milliseconds."""
        if crash == "before the watermark":
            raise CrashedError
        known = self.watermark()
        batch_id = known[2] + 1 if known else 0
        value = {
            "version": known[0] + 1 if known else 0,
            "modifiedTime": moment(max(ms for _, ms in files)).isoformat(),
            "batchId": batch_id,
        }
        self.storage.replace(f"{self.location}/watermark.json", json.dumps(value, indent=2).encode())
        if crash == "before the sources":
            raise CrashedError
        self._write_sources(batch_id, files)
        self._retain()

    def _write_sources(self, batch_id: int, files: Sequence[tuple[str, int]]) -> None:
        self.clock += timedelta(minutes=1)
        rows = [
            {
                "path": path,
                "modificationTime": int(moment(ms).timestamp() * 1000),
                "batchId": batch_id,
                "batchProcessingTime": self.clock.isoformat(),
            }
            for path, ms in files
        ]
        if batch_id == 0 or batch_id % self.interval:
            lines = "\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
            self.storage.replace(f"{self.location}/sources/{batch_id}", lines.encode())
            return
        try:
            everything = [json.loads(json.dumps(row)) for row in [*self.history(), *rows]]
        except TypeError as err:  # a datetime, which DuckDB made of the text
            raise CrashedError from err
        self.storage.replace(f"{self.location}/sources/{batch_id}.parquet", snapshot(everything, self.times))

    def _retain(self) -> None:
        names = self.storage.names(f"{self.location}/sources")
        oldest_first = sorted(names, key=lambda n: (0, f"{int(n):020}") if n.isdigit() else (1, n))
        for name in oldest_first[: max(0, len(names) - self.retention)]:
            self.storage.delete(f"{self.location}/sources/{name}")

    def begin_refresh(self) -> None:
        """Delete the watermark, and die before ``sources/`` is deleted."""
        self.storage.delete(f"{self.location}/watermark.json")


class DbtScopeOnMemory(DbtScope):
    """The same with a source and a table: jobs that append rows without a transaction."""

    def __init__(self, world: MemoryWorld, **kwargs: Any) -> None:
        super().__init__(world.memory, world.checkpoint, **kwargs)
        self.world = world

    def run(self, *, max_files: int = 2, max_batches: int = 10**6, crash: Crash | None = None) -> None:
        """Load what is new in batches; ``crash`` strikes after the first job."""
        for _ in range(max_batches):
            files = [
                (path.removeprefix("file://"), f.modified_ms) for path, f in self.world.memory.source.items()
            ]
            batch = self.unprocessed(files)[:max_files]
            if not batch:
                return
            self._append(path for path, _ in batch)
            self.loaded(batch, crash)

    def _append(self, paths: Iterable[str]) -> None:
        versions = self.world.delta.versions
        before = versions[-1].rows if versions else Counter()
        added = Counter(row for path in paths for row in self.world.memory.content[f"file://{path}"])
        versions.append(Version(before + added, dict(versions[-1].txn) if versions else {}))


def moment(milliseconds: int) -> datetime:
    """Return the time that dbt-scope makes of a listing's milliseconds."""
    return datetime.fromtimestamp(milliseconds / 1000, tz=UTC)


def snapshot(rows: Sequence[dict[str, Any]], times: Literal["text", "timestamp"] = "text") -> bytes:
    """Return the bytes of a snapshot; DuckDB's columns come in the order of the keys."""
    processed: list[Any] = [row["batchProcessingTime"] for row in rows]
    kind = pa.string()
    if times == "timestamp":
        processed = [datetime.fromisoformat(text) for text in processed]
        kind = pa.timestamp("us", tz="UTC")
    table = pa.table(
        {
            "path": pa.array([row["path"] for row in rows], pa.string()),
            "modificationTime": pa.array([row["modificationTime"] for row in rows], pa.int64()),
            "batchId": pa.array([row["batchId"] for row in rows], pa.int64()),
            "batchProcessingTime": pa.array(processed, kind),
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def rows_of(parquet: bytes) -> list[dict[str, Any]]:
    return pq.read_table(pa.BufferReader(parquet)).to_pylist()
