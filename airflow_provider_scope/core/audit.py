"""What the derived files hold, and which of them count.

``watermark.json`` and ``sources/`` (dbt-scope's keys, and ours beside them), and ``seen/``, the segments of
the loaded files, are derived from the log and can be rebuilt from it; nothing is decided by them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_scope.core.interval import iso_time
from airflow_provider_scope.core.takeover import epoch_start

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from airflow_provider_scope.core.records import CommitRecord, OffsetEntry
    from airflow_provider_scope.core.takeover import Takeover


def batch_id(seq: int, refresh_start: int | None, taken: Takeover | None = None) -> int:
    """Give dbt-scope's number of a batch: it restarts at 0 with every full refresh.

    :param taken: What was taken over from dbt-scope, if it counts for this batch: its numbers go on.
    """
    return seq - taken.seq + taken.next_batch_id if taken else seq - (refresh_start or 0)


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
    :param first: The first batch of ours. dbt-scope's snapshots below it stay; from there on they are of an
        earlier refresh, whose files dbt-scope would take for loaded.
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


# ---- Segments of the loaded files: all is decided from their names ----

MERGED_AT_MOST = 1_000_000
"""Rows of a merged segment: to write one takes about 400 bytes of memory for each."""

_NAME = re.compile(r"(\d{20})-(\d{20})-(\d+)-([0-9a-f]{8})\.parquet")


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """The files of the entries from ``first`` to ``last``."""

    first: int
    last: int
    rows: int
    crc: str = ""
    """The CRC-32 of its file, 8 hexadecimal digits: so damage is noticed before anything is decoded."""

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.first:020}-{self.last:020}-{self.rows}-{self.crc}.parquet"


def epoch(refresh_start: int | None, taken: Takeover | None) -> str:
    """Give the folder of the segments since a full refresh, or since a takeover."""
    first = epoch_start(refresh_start, taken)
    return f"{first:020}-{taken.number}" if taken else f"{first:020}"


def named(names: Iterable[str]) -> list[Segment]:
    """Give the segments among the files of a folder."""
    found = (_NAME.fullmatch(name) for name in names)
    return sorted(Segment(int(m[1]), int(m[2]), int(m[3]), m[4]) for m in found if m)


def chain(segments: Iterable[Segment], start: int) -> list[Segment]:
    """Give the segments that together hold most entries from ``start`` on, without a gap, in order.

    Two may overlap: a run that was stopped while it merged segments may delete those that led to a newer one.
    """
    left = sorted(segments)
    found: list[Segment] = []
    while fitting := [s for s in left if s.first <= start <= s.last]:
        found.append(max(fitting, key=lambda s: (s.last, s.first)))
        start = found[-1].last + 1
    return found


def to_merge(segments: Sequence[Segment], rows: int, fan_out: int) -> int:
    """Tell how many segments, from the end of a chain, are merged with the rows that come now.

    One that is ``fan_out`` times as large as what comes stays as it is. So a chain of ``n`` rows has about
    log(n) segments, and a row is written again a few times and not at each run.
    """
    merged = 0
    for segment in reversed(segments):
        if segment.rows > fan_out * rows or segment.rows + rows > MERGED_AT_MOST:
            break
        rows += segment.rows
        merged += 1
    return merged
