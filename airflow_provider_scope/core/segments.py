"""Which segments of the loaded files count, and which are merged: decided from their names alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_provider_scope.core.takeover import Takeover

MERGED_AT_MOST = 1_000_000
"""Rows of a merged segment: to write one takes about 400 bytes of memory for each."""

_NAME = re.compile(r"(\d{20})-(\d{20})-(\d+)\.parquet")


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """The files of the entries from ``first`` to ``last``."""

    first: int
    last: int
    rows: int

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.first:020}-{self.last:020}-{self.rows}.parquet"


def epoch(refresh_start: int | None, taken: Takeover | None) -> str:
    """Give the folder of the segments since a full refresh, or since a takeover."""
    return f"{taken.seq:020}-{taken.number}" if taken else f"{refresh_start or 0:020}"


def named(names: Iterable[str]) -> list[Segment]:
    """Give the segments among the files of a folder."""
    found = (_NAME.fullmatch(name) for name in names)
    return sorted(Segment(int(match[1]), int(match[2]), int(match[3])) for match in found if match)


def chain(segments: Iterable[Segment], start: int) -> list[Segment]:
    """Give the segments that together hold most entries from ``start`` on, without a gap, in order."""
    longest: dict[int, Segment] = {}
    for segment in sorted(segments):
        longest[segment.first] = segment
    found: list[Segment] = []
    while start in longest and longest[start].last >= start:
        found.append(longest[start])
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
