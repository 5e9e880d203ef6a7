"""Which segments of the loaded files count, and which are merged: decided from their names alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_scope.core.takeover import epoch_start

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_provider_scope.core.takeover import Takeover

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
