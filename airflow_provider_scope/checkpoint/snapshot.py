"""``sources/<batchId>.parquet``: all files since the last refresh, instead of reading the whole log."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_scope.core.audit import AuditRow

logger = logging.getLogger(__name__)

_SEQ = b"airflow_provider_scope.seq"
_REFRESH_START = b"airflow_provider_scope.refresh_start"
_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("modificationTime", pa.int64()),
        ("batchId", pa.int64()),
        # Text, not a timestamp: dbt-scope fails at its second compaction on a timestamp.
        ("batchProcessingTime", pa.string()),
        ("size", pa.int64()),
        ("seq", pa.int64()),
        ("uri", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a snapshot covers, and its table."""

    seq: int
    """The newest entry in it."""
    refresh_start: int | None
    table: pa.Table

    def seen(self) -> dict[str, tuple[int, int]]:
        """Give path -> (modified_ms, size_bytes); of a file that was loaded again, the newest."""
        seen: dict[str, tuple[int, int]] = {}
        for batch in self.table.select(["uri", "modificationTime", "size"]).to_batches(65_536):
            columns = [column.to_pylist() for column in batch.columns]
            seen.update(zip(columns[0], zip(columns[1], columns[2], strict=True), strict=True))
        return seen


def encode_snapshot(
    older: Snapshot | None, rows: Sequence[AuditRow], seq: int, refresh_start: int | None
) -> bytes:
    """Give the bytes of a snapshot: an older one of the same refresh, and the rows after it."""
    added = pa.table(
        {
            "path": [row.path for row in rows],
            "modificationTime": [row.modified_ms for row in rows],
            "batchId": [row.batch_id for row in rows],
            "batchProcessingTime": [row.processed for row in rows],
            "size": [row.size_bytes for row in rows],
            "seq": [row.seq for row in rows],
            "uri": [row.uri for row in rows],
        },
        schema=_SCHEMA,
    )
    whole = pa.concat_tables([older.table, added]) if older else added
    start = b"" if refresh_start is None else str(refresh_start).encode()
    whole = whole.replace_schema_metadata({_SEQ: str(seq).encode(), _REFRESH_START: start})
    sink = pa.BufferOutputStream()
    pq.write_table(whole, sink, compression="zstd")
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def decode_snapshot(name: str, data: bytes) -> Snapshot | None:
    """Read a snapshot; None for one that is damaged or was not written by this package.

    A snapshot is a cache of the log, so a damaged one costs time and nothing else.
    """
    try:
        table = pq.read_table(pa.BufferReader(data))
        metadata = table.schema.metadata or {}
        seq = int(metadata[_SEQ])
        start = metadata[_REFRESH_START]
        plain = table.replace_schema_metadata(None)
        if not plain.schema.equals(_SCHEMA):
            raise ValueError(f"columns {plain.schema.names}")  # noqa: TRY301 - same answer as the others
        return Snapshot(seq, int(start) if start else None, plain)
    except (pa.ArrowException, KeyError, ValueError, OSError) as err:
        logger.warning("The snapshot %s is not used, the log is read instead: %s", name, err)
        return None
