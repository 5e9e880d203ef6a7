"""What dbt-scope left beside a table: its watermark, and the files that it loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_scope.exceptions import CheckpointCorruptError, CheckpointVersionError, StorageError
from airflow_provider_scope.protocol import retention, takeover
from airflow_provider_scope.protocol.takeover import digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_provider_scope.protocol.takeover import LoadedFile, Watermark
    from airflow_provider_scope.stores.protocol import Storage

_COLUMNS = ("path", "modificationTime", "batchId", "batchProcessingTime", "uri", "size")
_AT_ONCE = 65_536
"""Rows that are turned into Python values together."""


@dataclass(frozen=True, slots=True)
class DbtScopeState:
    """dbt-scope's checkpoint at one moment."""

    watermark: Watermark
    watermark_digest: str
    files: tuple[LoadedFile, ...]
    """Each file once: of a file that was loaded again, the newest row."""
    batches: frozenset[int]
    """Batches of which ``sources/`` tells the files."""

    @property
    def missing(self) -> list[int]:
        """Batches of which it does not."""
        return sorted(set(range(self.watermark.batch_id + 1)) - self.batches)


def read_state(storage: Storage, location: str, store: str) -> DbtScopeState | None:
    """Read the checkpoint of dbt-scope; None if there is none.

    All files of ``sources/`` are read, not only the newest snapshot: dbt-scope leaves out of a snapshot
    what it cannot read, and its retention may delete the newest one first.

    :param location: Canonical URI of the checkpoint folder.
    :param store: What stands before the paths in URIs.
    :raises CheckpointCorruptError: A file is not what dbt-scope writes, or contradicts the watermark.
    :raises CheckpointVersionError: A full refresh of dbt-scope is going on, or has died.
    :raises StorageError: A file could not be read, or dbt-scope is writing.
    """
    name = f"{location}/watermark.json"
    before = storage.read(name)
    names = [n for n in storage.names(f"{location}/sources") if n.isdigit() or retention.is_snapshot(n)]
    if before is None and not names:
        return None
    if before is None:
        raise CheckpointVersionError(
            f"{location}/sources holds {len(names):,} files of another program, but there is no {name}: a "
            "full refresh of dbt-scope is running, or was interrupted.",
            kept="the table and the checkpoint; nothing was written",
            do="let dbt-scope complete the refresh, then run again. Or run the task once with "
            "full_refresh=True, which replaces the table's rows with those of all files",
        )
    watermark = takeover.decode_watermark(name, before)
    newest = max((_number(n) for n in names), default=-1)
    if newest > watermark.batch_id:
        raise takeover.damaged(
            f"{location}/sources", f"goes up to batch {newest}, but {name} ends at {watermark.batch_id}"
        )
    rows: dict[str, LoadedFile] = {}
    batches: set[int] = set()
    for file in _rows(storage, f"{location}/sources", names, store):
        batches.add(file.batch_id)
        older = rows.get(file.path)
        if older is None or older.batch_id <= file.batch_id:
            rows[file.path] = file
    if storage.read(name) != before:
        raise StorageError(
            f"{name} changed while it was read: dbt-scope is loading the table.",
            kept="the table and the checkpoint; nothing was written",
            do="stop dbt-scope: only one of the two may load a table",
        )
    state = DbtScopeState(watermark, digest(before), tuple(rows.values()), frozenset(batches))
    if watermark.modified_ms is None and state.missing:
        raise takeover.damaged(
            name,
            f"has no modifiedTime, and {location}/sources does not name the files of "
            f"{len(state.missing):,} of its {watermark.batch_id + 1:,} batches",
        )
    return state


def _number(name: str) -> int:
    return int(name.removesuffix(".parquet"))


def _rows(storage: Storage, folder: str, names: Sequence[str], store: str) -> Iterator[LoadedFile]:
    for name in names:
        path = f"{folder}/{name}"
        data = storage.read(path)
        if data is None:
            raise StorageError(
                f"{path} was listed but is missing now: dbt-scope is loading the table.",
                kept="the table and the checkpoint; nothing was written",
                do="stop dbt-scope: only one of the two may load a table",
            )
        if retention.is_snapshot(name):
            yield from _snapshot(path, data, _number(name), store)
        else:
            yield from takeover.decode_sources(path, data, _number(name), store)


def _snapshot(path: str, data: bytes, number: int, store: str) -> Iterator[LoadedFile]:
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        columns = [name for name in _COLUMNS if name in file.schema_arrow.names]
        for part in file.iter_batches(_AT_ONCE, columns=columns):
            for value in part.to_pylist():
                row = takeover.loaded_file(path, value, store)
                if row.batch_id > number:
                    raise takeover.damaged(path, f"holds a file of batch {row.batch_id}")
                yield row
    except CheckpointCorruptError:
        raise
    except (pa.ArrowException, ValueError, OSError) as err:
        raise takeover.damaged(path, f"cannot be read ({type(err).__name__}: {err})") from err
