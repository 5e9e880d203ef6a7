"""``sources/<batchId>.parquet`` as version 0.1.0 wrote it, and as the versions after it did."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_scope.core.files import FileEntry

SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("modificationTime", pa.int64()),
        ("batchId", pa.int64()),
        ("batchProcessingTime", pa.string()),
        ("size", pa.int64()),
        ("seq", pa.int64()),
        ("uri", pa.string()),
        ("md5", pa.string()),
    ]
)


def snapshot_of(
    files: Iterable[FileEntry], seq: int, refresh_start: int | None = None, *, sums: bool = True
) -> bytes:
    """Give the bytes of a snapshot.

    :param sums: False as version 0.1.0 wrote it.
    """
    rows = [
        (f.path.partition("://")[2], f.modified_ms, 0, "", f.size_bytes, seq, f.path, f.content_md5)
        for f in files
    ]
    table = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)
    start = "" if refresh_start is None else str(refresh_start)
    values = {"seq": str(seq), "refresh_start": start, "taken_over": ""}
    table = table.replace_schema_metadata({f"airflow_provider_scope.{k}": v for k, v in values.items()})
    sink = pa.BufferOutputStream()
    pq.write_table(table if sums else table.drop(["md5"]), sink, compression="zstd")
    return sink.getvalue().to_pybytes()
