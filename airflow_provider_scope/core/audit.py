"""What the audit files hold: dbt-scope's keys, and ours beside them.

``watermark.json`` and ``sources/`` are derived from the log and can be rebuilt from it; nothing is
decided by them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_provider_scope.core.records import CommitRecord, OffsetEntry
    from airflow_provider_scope.core.takeover import Takeover


def batch_id(seq: int, refresh_start: int | None, taken: Takeover | None = None) -> int:
    """Give dbt-scope's number of a batch: it restarts at 0 with every full refresh.

    :param taken: What was taken over from dbt-scope, if it counts for this batch: its numbers go on.
    """
    return seq - taken.seq + taken.next_batch_id if taken else seq - (refresh_start or 0)


def iso_time(milliseconds: int) -> str:
    """Give an ISO-8601 time with microseconds and offset, as dbt-scope writes it."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="microseconds")


def duration_text(milliseconds: int) -> str:
    """Give how long something takes, in its two largest units: ``3 d 4 h``."""
    seconds = max(0, milliseconds) // 1000
    units = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")]
    parts = [
        (seconds // size % limit, unit)
        for (size, unit), limit in zip(units, (10**9, 24, 60, 60), strict=True)
    ]
    first = next((i for i, (value, _) in enumerate(parts) if value), len(parts) - 1)
    return " ".join(f"{value:,} {unit}" for value, unit in parts[first : first + 2] if value) or "0 s"


def uri_path(uri: str) -> str:
    """Give the path of a URI, with its leading slash."""
    rest = uri.split("://", 1)[1]
    return rest[rest.index("/") :]


def watermark(entry: OffsetEntry, taken: Takeover | None = None) -> bytes:
    """Give ``watermark.json`` after the batch of ``entry`` was committed.

    ``version``, ``modifiedTime`` and ``batchId`` are dbt-scope's; its reader ignores the others.
    """
    number = batch_id(entry.seq, entry.refresh_start, taken)
    highest = entry.slice.highest
    value = {
        "version": number,
        "modifiedTime": iso_time(highest.modified_ms) if highest else "",
        "batchId": number,
        "path": uri_path(highest.path) if highest else "",
        "refreshStart": entry.refresh_start,
        "seq": entry.seq,
    }
    return json.dumps(value, indent=2, ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One file of one batch, in the words of dbt-scope's audit, with its size and our number."""

    path: str
    modified_ms: int
    batch_id: int
    processed: str
    size_bytes: int | None
    seq: int
    uri: str


def audit_rows(entry: OffsetEntry, commit: CommitRecord, taken: Takeover | None = None) -> Iterator[AuditRow]:
    """Give the audit rows of a committed batch; an abandoned one has none."""
    if commit.abandoned:
        return
    number = batch_id(entry.seq, entry.refresh_start, taken)
    processed = iso_time(commit.committed_at_ms)
    for file in entry.slice.audited:
        yield AuditRow(
            uri_path(file.path),
            file.modified_ms,
            number,
            processed,
            file.size_bytes,
            entry.seq,
            file.path,
        )


def audit_lines(rows: Sequence[AuditRow]) -> bytes:
    """Give ``sources/<batchId>``: one object a line, and no newline at the end, as dbt-scope writes it."""
    return "\n".join(
        json.dumps(
            {
                "path": row.path,
                "modificationTime": row.modified_ms,
                "batchId": row.batch_id,
                "batchProcessingTime": row.processed,
                "size": row.size_bytes,
                "seq": row.seq,
                "uri": row.uri,
            },
            separators=(",", ":"),
            ensure_ascii=False,
        )
        for row in rows
    ).encode()


def expired(names: Sequence[str], newest: int, keep: int, first: int = 0) -> list[str]:
    """Give the files of ``sources/`` that are deleted: old ones, and those that an earlier refresh left.

    :param newest: The number of the newest batch.
    :param keep: How many of the newest are kept.
    :param first: The first batch of ours. Snapshots from there on are of version 0.1.0, or of an earlier
        refresh; dbt-scope's stay.
    """
    numbers = sorted(int(name) for name in names if name.isdigit())
    diffs = [str(number) for number in numbers if number > newest or number <= newest - keep]
    return diffs + [name for name in names if is_snapshot(name) and snapshot_number(name) >= first]


def is_snapshot(name: str) -> bool:
    """Tell whether a file of ``sources/`` is a snapshot."""
    return name.endswith(".parquet") and name.removesuffix(".parquet").isdigit()


def snapshot_number(name: str) -> int:
    """Give the batch id in a snapshot's name."""
    return int(name.removesuffix(".parquet"))
