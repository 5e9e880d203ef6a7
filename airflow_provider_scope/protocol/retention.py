"""What a checkpoint still needs: which segments of the loaded files count, and what may be purged.

``seen/``, the segments, is derived from the log; until records are purged, it can be rebuilt from them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_provider_scope.values import FileEntry

# ---- segments: all is decided from their names ----

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
        return f"{self.first:020}-{self.last:020}-{self.rows}-{self.crc}.parquet"


def named(names: Iterable[str]) -> list[Segment]:
    """Return the segments among the files of a folder."""
    matches = (_NAME.fullmatch(name) for name in names)
    return sorted(
        Segment(int(match[1]), int(match[2]), int(match[3]), match[4]) for match in matches if match
    )


def chain(segments: Iterable[Segment], start: int) -> list[Segment]:
    """Return the segments that together hold most entries from ``start`` on, without a gap, in order.

    Two may overlap: a run that was stopped while it merged segments may delete those that led to a newer one.
    """
    ordered = sorted(segments)
    chosen: list[Segment] = []
    while fitting := [s for s in ordered if s.first <= start <= s.last]:
        chosen.append(max(fitting, key=lambda s: (s.last, s.first)))
        start = chosen[-1].last + 1
    return chosen


def to_merge(segments: Sequence[Segment], rows: int, fan_out: int) -> int:
    """Return how many segments, from the end of a chain, are merged with the rows that come now.

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


# ---- what may be purged: decided from the log's numbers and the names of its files ----

LEFTOVER_MS = 7 * 24 * 3_600_000
"""How old a temporary file or a plan must be: a run that is going on may still have a younger one."""

_NUMBER = re.compile(r"\d{20}")
_RECORD = re.compile(r"(offsets|commits|vacuumed)/(\d{20})")
_SEGMENT = re.compile(r"seen/((\d{20})(?:-\d+)?)/([^/]+)")
_TEMPORARY = re.compile(r"(?:.*/)?\.[0-9a-f]{32}\.tmp")
_BOUNDARY = re.compile(r"boundary/((\d+)-[^/]+)/.+")
_PLAN = re.compile(r"(?:intervals/[^/]+/)?plans/[^/]+")

RECORDS = ("offsets", "commits")
"""The folders of the records that are numbered by batch, and purged."""
_DELETED = (*RECORDS, "vacuumed", "superseded segments", "boundary rows", "temporary files", "plans")
"""Kinds of files, in the order of deletion."""

WHY_KEPT = {
    "seen": "only the segments say which files purged batches loaded",
    "sources": "each run keeps the newest ones, as retention_files says",
    "attempts": "without its record, an attempt could be made, and its job submitted, a second time",
    "accepted": "decisions about the table",
    "quarantines": "places where rows may be that could not be loaded",
    "schemas": "the columns that were inferred, and each change of them",
    "taken_over": "what dbt-scope loaded",
    "boundary": "rows that the next load reads again and leaves out",
    "intervals": "without segments, only the records say which files an interval loaded",
    "plans": "younger than 7 days",
    "vacuumed": "says what is purged",
}
"""Folder -> why the files that are left in it stay."""


def purge_below(
    *, newest_commit: int, first_needed: int, columns_from: int | None, vacuumed: int, retain: int
) -> tuple[int, str]:
    """Return the number below which entries and commit records may go, and why no more of them.

    A run reads no entry below the newest batches but for the files that it loaded, which the segments of the
    epoch hold. Nothing reads records of before the epoch.

    :param newest_commit: The newest commit record, -1 if there is none.
    :param first_needed: The first entry without which it is not known what was loaded.
    :param columns_from: The newest record that may name inferred columns; None if none does.
    :param vacuumed: The number below which records are purged already.
    :param retain: Committed batches whose records stay.
    """
    below, why = newest_commit + 1 - retain, f"records of the newest {retain} committed batches"
    if first_needed < below:
        below, why = first_needed, "no segment in seen/ and no state says what these batches loaded"
    if columns_from is not None and columns_from < below:
        below, why = columns_from, "the inferred columns are in the first of these records"
    return max(below, vacuumed), why


@dataclass(frozen=True, slots=True)
class Boundary:
    """What tells which folders of boundary rows are needed."""

    states: frozenset[str]
    """Those that may still be read: JSON, which names a folder by its URI."""
    newest_commit: int
    """A batch above it may be writing its folder, or be in the table without a record."""

    def needs(self, name: str, seq: int) -> bool:
        """Return whether a folder has to stay.

        :param seq: The batch that wrote it.
        """
        return seq > self.newest_commit or any(f'/{name}"' in state for state in self.states)


@dataclass(frozen=True, slots=True)
class Group:
    """Files of one kind."""

    kind: str
    files: tuple[FileEntry, ...]

    @property
    def numbers(self) -> list[int]:
        """The batches of these records, in order; none if they are other files."""
        names = (file.path.rpartition(f"/{self.kind}/")[2] for file in self.files if self.kind in RECORDS)
        return [int(name) for name in names if _NUMBER.fullmatch(name)]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def purgeable(
    files: Iterable[FileEntry],
    location: str,
    *,
    below: int,
    epoch: str | None,
    chain: Sequence[Segment],
    now_ms: int,
    boundary: Boundary | None = None,
) -> tuple[list[Group], list[Group]]:
    """Return what may be deleted, kind by kind in the order of deletion, and what stays, folder by folder.

    :param files: All files of the checkpoint.
    :param location: URI of the checkpoint.
    :param below: Entries and commit records below this number may go, once a record in ``vacuumed/`` says so.
    :param epoch: The folder of the segments that count; None keeps all segments.
    :param chain: The segments of it that count.
    :param now_ms: The time, in milliseconds since 1970.
    :param boundary: Which folders of boundary rows are needed; None keeps all.
    """
    purged: dict[str, list[FileEntry]] = {kind: [] for kind in _DELETED}
    kept: dict[str, list[FileEntry]] = {}
    for file in sorted(files, key=lambda file: file.path):
        name = file.path.removeprefix(f"{location}/")
        record = _RECORD.fullmatch(name)
        segment = _SEGMENT.fullmatch(name)
        is_old = file.modified_ms < now_ms - LEFTOVER_MS
        kind = None
        if record and int(record[2]) < below:
            kind = record[1]
        elif segment and epoch is not None and _is_superseded(segment, epoch, chain):
            kind = "superseded segments"
        elif boundary and (rows := _BOUNDARY.fullmatch(name)) and not boundary.needs(rows[1], int(rows[2])):
            kind = "boundary rows"
        elif is_old and _TEMPORARY.fullmatch(name):
            kind = "temporary files"
        elif is_old and _PLAN.fullmatch(name):
            kind = "plans"
        folder = name.split("/")[0] if "/" in name else ""
        (purged[kind] if kind else kept.setdefault(folder, [])).append(file)
    return _groups(purged), _groups(kept)


def _groups(files_by_kind: dict[str, list[FileEntry]]) -> list[Group]:
    return [Group(kind, tuple(files)) for kind, files in files_by_kind.items() if files]


def _is_superseded(segment: re.Match[str], epoch: str, chain: Sequence[Segment]) -> bool:
    """Return whether a segment is of an earlier epoch, or all of it is in one that counts."""
    if segment[1] != epoch:
        return int(segment[2]) < int(epoch[:20])
    return any(
        candidate not in chain
        and any(kept.first <= candidate.first and candidate.last <= kept.last for kept in chain)
        for candidate in named([segment[3]])
    )
