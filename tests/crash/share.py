"""The share of the crash suite that ``make test-slow`` runs: a few points of every eighth part on a disk.

Which parts and points turns with the commit, so that all of them are tried over time. ``CRASH_TURN`` sets
the turn: a failure names it, and the same turn tries the same points again.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

T = TypeVar("T")

TURNS = 8
"""Turns in which every part on a disk has had its own."""
SCHEDULES_PER_POINT = 6
"""A schedule in memory takes about a tenth of the time of a killed process."""
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Share:
    """So many points of each part, or all of them."""

    size: int | None = None
    turn: int = 0

    def parts(self, parts: Iterable[T]) -> list[T]:
        """Pick the parts whose turn it is."""
        return [*parts][self.turn % TURNS :: TURNS]

    def of(self, points: Sequence[T]) -> list[T]:
        """Pick points that are spread over all of them."""
        if self.size is None or len(points) <= self.size:
            return list(points)
        round_ = self.turn // TURNS  # a part is tried once in it
        picked = {(round_ + part * len(points) // self.size) % len(points) for part in range(self.size)}
        return [points[number] for number in sorted(picked)]

    def seeds(self, of_everything: int) -> range:
        """Return the seeds of random schedules: those of the whole suite, or later ones."""
        if self.size is None:
            return range(of_everything)
        count = self.size * SCHEDULES_PER_POINT
        first = of_everything + self.turn * count
        return range(first, first + count)


EVERYTHING = Share()


def turn_of_commit() -> int:
    """Return a number that is another one for each commit; 0 where git does not know one."""
    if "CRASH_TURN" in os.environ:
        return int(os.environ["CRASH_TURN"])
    command = ["git", "rev-parse", "HEAD"]
    try:
        commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(commit[:4], 16)
