"""``sources/<batchId>.parquet`` of version 0.1.0: all files since the last refresh.

Nothing writes them any more. The newest one is read once, so that the first segment need not read the log.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

_SEQ = b"airflow_provider_scope.seq"
_REFRESH_START = b"airflow_provider_scope.refresh_start"
_TAKEN_OVER = b"airflow_provider_scope.taken_over"
_COLUMNS = {
    "uri": "path",
    "modificationTime": "modified_ms",
    "size": "size_bytes",
    "md5": "content_md5",
    "seq": "seq",
}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a snapshot covers, and its rows."""

    seq: int
    """The newest entry in it."""
    refresh_start: int | None
    taken_over: int | None
    """The record in ``taken_over/`` whose files are in it."""
    rows: pa.Table
    """As ``checkpoint.seen.SCHEMA`` says."""


def decode_snapshot(data: bytes) -> Snapshot:
    """Read a snapshot.

    :raises ValueError: It is not one of this package. ``KeyError``, ``OSError`` and Arrow's own say so too.
    """
    table = pq.read_table(pa.BufferReader(data))
    metadata = table.schema.metadata or {}
    seq, start, taken = int(metadata[_SEQ]), metadata[_REFRESH_START], metadata.get(_TAKEN_OVER)
    if "md5" not in table.column_names:  # version 0.1.0
        table = table.append_column("md5", pa.nulls(table.num_rows, pa.string()))
    rows = table.select(list(_COLUMNS)).rename_columns(list(_COLUMNS.values())).replace_schema_metadata(None)
    return Snapshot(seq, int(start) if start else None, int(taken) if taken else None, rows)
