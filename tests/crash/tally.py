"""What a part of the check found."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Tally:
    """Numbers that add up, and every difference in words."""

    kill_points: int = 0
    lost: int = 0
    doubled: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.kill_points += other.kill_points
        self.lost += other.lost
        self.doubled += other.doubled
        self.failures += other.failures
