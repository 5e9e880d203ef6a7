"""What a checkpoint no longer needs: decided from the log's numbers and the names of its files."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_scope.core.audit import Segment, named

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_provider_scope.core.files import FileEntry

LEFTOVER_MS = 7 * 24 * 3_600_000
"""How old a temporary file or a plan must be: a run that is going on may still have a younger one."""

_RECORD = re.compile(r"(offsets|commits|vacuumed)/(\d{20})")
_SEGMENT = re.compile(r"seen/((\d{20})(?:-\d+)?)/([^/]+)")
_TEMPORARY = re.compile(r"(?:.*/)?\.[0-9a-f]{32}\.tmp")
_BOUNDARY = re.compile(r"boundary/((\d+)-[^/]+)/.+")
_PLAN = re.compile(r"(?:intervals/[^/]+/)?plans/[^/]+")

RECORDS = ("offsets", "commits")
"""The folders of the records that are numbered by batch, and purged."""

WHY_KEPT = {
    "seen": "only the segments say which files purged batches loaded",
    "sources": "each run keeps the newest ones, as retention_files says",
    "attempts": "without its record, an attempt could be made, and its job submitted, a second time",
    "accepted": "decisions about the table",
    "quarantines": "places where rows may be that could not be loaded",
    "taken_over": "what dbt-scope loaded",
    "boundary": "rows that the next load reads again and leaves out",
    "intervals": "without segments, only the records say which files an interval loaded",
    "plans": "younger than 7 days",
    "vacuumed": "says what is purged",
}
"""Folder -> why the files that are left in it stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a pipeline has come."""

    newest_commit: int
    """The newest commit record, -1 if there is none."""
    epoch_start: int
    """The first entry whose files count as loaded."""
    in_segments: int
    """The first entry since then that no sound segment holds."""
    columns_from: int | None
    """The newest record that may name inferred columns; None if none does."""
    vacuumed: int
    """The number below which records are purged already."""


def purge_below(progress: Progress, retain: int) -> tuple[int, str]:
    """Give the number below which entries and commit records may go, and why no more of them.

    A run reads no entry below the newest batches but for the files that it loaded, which the segments of the
    epoch hold. Nothing reads records of before the epoch.
    """
    below, why = progress.newest_commit + 1 - retain, f"records of the newest {retain} committed batches"
    in_segments = max(progress.epoch_start, progress.in_segments)
    if in_segments < below:
        below, why = in_segments, "no segment in seen/ holds the files of these batches"
    if progress.columns_from is not None and progress.columns_from < below:
        below, why = progress.columns_from, "the inferred columns are in the first of these records"
    return max(below, progress.vacuumed), why


@dataclass(frozen=True, slots=True)
class Boundary:
    """The folders of boundary rows that are needed."""

    named: frozenset[str]
    """Names of those that a state names which may still be read."""
    newest_commit: int
    """A batch above it may be writing its folder, or be in the table without a record."""

    def needs(self, name: str, seq: int) -> bool:
        """Tell whether a folder has to stay.

        :param seq: The batch that wrote it.
        """
        return seq > self.newest_commit or name in self.named


@dataclass(frozen=True, slots=True)
class Group:
    """Files of one kind."""

    kind: str
    files: tuple[FileEntry, ...]
    first: int | None = None
    """The least of the numbers in their names, if they are records of batches."""
    last: int | None = None
    """The greatest."""

    @property
    def size_bytes(self) -> int:
        """Sum of their sizes."""
        return sum(file.size_bytes for file in self.files)


@dataclass(slots=True)
class _Found:
    files: list[FileEntry] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)


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
    """Give what may be deleted, kind by kind in the order of deletion, and what stays, folder by folder.

    :param files: All files of the checkpoint.
    :param location: URI of the checkpoint.
    :param below: Entries and commit records below this number may go, once a record in ``vacuumed/`` says so.
    :param epoch: The folder of the segments that count; None keeps all segments.
    :param chain: The segments of it that count.
    :param now_ms: The time, in milliseconds since 1970.
    :param boundary: Which folders of boundary rows are needed; None keeps all.
    """
    kinds = ["offsets", "commits", "vacuumed", "superseded segments", "boundary rows"]
    kinds += ["temporary files", "plans"]
    found = {kind: _Found() for kind in kinds}
    kept: dict[str, _Found] = {}
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
        to = found[kind] if kind else kept.setdefault(name.split("/")[0] if "/" in name else "", _Found())
        to.files.append(file)
        if record and record[1] in RECORDS:
            to.numbers.append(int(record[2]))
    return _groups(found), _groups(kept)


def _groups(found: dict[str, _Found]) -> list[Group]:
    return [
        Group(kind, tuple(one.files), min(one.numbers, default=None), max(one.numbers, default=None))
        for kind, one in found.items()
        if one.files
    ]


def _is_superseded(segment: re.Match[str], epoch: str, chain: Sequence[Segment]) -> bool:
    """Tell whether a segment is of an earlier epoch, or all of it is in one that counts."""
    if segment[1] != epoch:
        return int(segment[2]) < int(epoch[:20])
    return any(
        one not in chain and any(other.first <= one.first and one.last <= other.last for other in chain)
        for one in named([segment[3]])
    )
