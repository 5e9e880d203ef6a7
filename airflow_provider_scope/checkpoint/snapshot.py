"""``sources/<batchId>.parquet``: all files since the last refresh, instead of reading the whole log."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_scope.core.discovery import is_returned

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_scope.core.audit import AuditRow
    from airflow_provider_scope.core.discovery import Seen

logger = logging.getLogger(__name__)

_SEQ = b"airflow_provider_scope.seq"
_REFRESH_START = b"airflow_provider_scope.refresh_start"
_TAKEN_OVER = b"airflow_provider_scope.taken_over"
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
        ("md5", pa.string()),
    ]
)
_WITHOUT_MD5 = _SCHEMA.remove(_SCHEMA.get_field_index("md5"))
"""The columns of version 0.1.0."""

_AT_ONCE = 65_536
"""Rows that are turned into Python values together."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a snapshot covers, and its table."""

    seq: int
    """The newest entry in it."""
    refresh_start: int | None
    table: pa.Table
    taken_over: int | None = None
    """The record in ``taken_over/`` whose files are in it."""


@dataclass(frozen=True, slots=True)
class SeenFiles:
    """What a snapshot covers, and the files that it says are loaded."""

    seq: int
    """The newest entry in it."""
    refresh_start: int | None
    files: Seen
    taken_over: int | None = None
    """The record in ``taken_over/`` whose files are in it."""


def encode_snapshot(
    older: Snapshot | None,
    rows: Sequence[AuditRow],
    seq: int,
    refresh_start: int | None,
    taken_over: int | None = None,
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
            "md5": [row.content_md5 for row in rows],
        },
        schema=_SCHEMA,
    )
    whole = pa.concat_tables([older.table, added]) if older else added
    whole = whole.replace_schema_metadata(
        {_SEQ: _digits(seq), _REFRESH_START: _digits(refresh_start), _TAKEN_OVER: _digits(taken_over)}
    )
    sink = pa.BufferOutputStream()
    pq.write_table(whole, sink, compression="zstd")
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def decode_snapshot(name: str, data: bytes) -> Snapshot | None:
    """Read a whole snapshot; None for one that is damaged or was not written by this package.

    A snapshot is a cache of the log, so a damaged one costs time and nothing else.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        seq, start, taken = _covered(file)
        table = file.read().replace_schema_metadata(None)
        if "md5" not in table.column_names:
            table = table.append_column("md5", pa.nulls(table.num_rows, pa.string()))
        return Snapshot(seq, start, table, taken)
    except _DAMAGED as err:
        _report(name, err)
        return None


def era_of(name: str, data: bytes) -> tuple[int | None, int | None] | None:
    """Give the refresh and the takeover that a snapshot belongs to; None as for ``decode_snapshot``."""
    try:
        _, start, taken = _covered(pq.ParquetFile(pa.BufferReader(data)))
    except _DAMAGED as err:
        _report(name, err)
        return None
    return start, taken


def decode_seen(name: str, data: bytes, returned: Mapping[str, int] | None = None) -> SeenFiles | None:
    """Read of a snapshot what tells which files are loaded; None as for ``decode_snapshot``.

    Of a file that was loaded again, the newest counts. A part at a time: a million files take half of
    the memory that they take as a table and a dict.

    :param returned: Files that were given back, and the newest entry at that time.
    """
    seen: Seen = {}
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        seq, start, taken = _covered(file)
        names = ["uri", "modificationTime", "size", *(["seq"] if returned else [])]
        names += ["md5"] if "md5" in file.schema.names else []
        for part in file.iter_batches(_AT_ONCE, columns=names):
            columns = {name: part[name].to_pylist() for name in names}
            sums = columns.get("md5", repeat(None, part.num_rows))
            uris = columns["uri"]
            statuses = zip(columns["modificationTime"], columns["size"], sums, strict=True)
            if not returned:
                seen.update(zip(uris, statuses, strict=True))
                continue
            for uri, status, number in zip(uris, statuses, columns["seq"], strict=True):
                if not is_returned(uri, number, returned):
                    seen[uri] = status
    except _DAMAGED as err:
        _report(name, err)
        return None
    return SeenFiles(seq, start, seen, taken)


_DAMAGED = (pa.ArrowException, KeyError, ValueError, OSError)


def _digits(number: int | None) -> bytes:
    return b"" if number is None else str(number).encode()


def _covered(file: pq.ParquetFile) -> tuple[int, int | None, int | None]:
    """Give the newest entry in a snapshot, the refresh and the takeover it belongs to."""
    schema = file.schema_arrow
    metadata = schema.metadata or {}
    seq, start, taken = int(metadata[_SEQ]), metadata[_REFRESH_START], metadata.get(_TAKEN_OVER)
    if schema.remove_metadata() not in (_SCHEMA, _WITHOUT_MD5):
        raise ValueError(f"columns {schema.names}")
    return seq, int(start) if start else None, int(taken) if taken else None


def _report(name: str, err: Exception) -> None:
    logger.warning("The snapshot %s is not used, the log is read instead: %s", name, err)
