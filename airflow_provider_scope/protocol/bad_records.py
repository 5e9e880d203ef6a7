"""How much of a batch is in the quarantine, and when that is too much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping  # noqa: TC003 - the annotations are read at run time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_scope.values import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

RECORDS, ROWS, FILES = "records", "rows", "files"
"""Units: records of files, rows of the SELECT, and whole files."""
UNITS = (RECORDS, ROWS, FILES)
"""In the order in which people are told of them; a record of the log has its keys sorted."""
WARN_ABOVE = 0.1
"""The share of bad records, rows or files above which a run warns."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """The records, the rows or the files of a batch that are in the quarantine."""

    out_of: int
    """How many the batch has: records of the files that could be read, rows of the SELECT, or files."""
    rules: Mapping[str, int]
    """Rule -> how many violate it."""

    @property
    def count(self) -> int:
        """How many are in the quarantine."""
        return sum(self.rules.values())


def share(quarantined: Mapping[str, Quarantined]) -> float:
    """Compute the largest share that is bad, of the records, of the rows or of the files."""
    return max((bad.count / max(bad.out_of, 1) for bad in quarantined.values()), default=0.0)


def total(quarantined: Iterable[Mapping[str, Quarantined]]) -> dict[str, Quarantined]:
    """Add up what several batches have in the quarantine, unit by unit."""
    sums: dict[str, Quarantined] = {}
    for units in quarantined:
        for unit, bad in units.items():
            so_far = sums.get(unit, Quarantined(0, {}))
            rules = Counter(so_far.rules)
            rules.update(bad.rules)
            sums[unit] = Quarantined(so_far.out_of + bad.out_of, dict(rules))
    return sums


def text(quarantined: Mapping[str, Quarantined]) -> str:
    """Write the sums for people: ``3 of 40 records, 1 of 2 files``."""
    units = [(unit.removesuffix("s"), quarantined[unit]) for unit in UNITS if unit in quarantined]
    return ", ".join(f"{bad.count:,} of {counted(bad.out_of, unit)}" for unit, bad in units)


def rule_lines(quarantined: Mapping[str, Quarantined]) -> list[str]:
    """Write a line for each rule, ``2 records: amount is not int``, the most frequent first."""
    counts = [
        (count, f"{counted(count, unit.removesuffix('s'))}: {rule}")
        for unit, bad in quarantined.items()
        for rule, count in bad.rules.items()
    ]
    return [line for _, line in sorted(counts, key=lambda pair: -pair[0])]


def exceeded(
    quarantined: Mapping[str, Quarantined], max_bad_records: int | None, max_bad_share: float | None
) -> str | None:
    """Find the limit that a batch exceeds, as the user wrote it; None if it does not exceed any."""
    count = sum(bad.count for bad in quarantined.values())
    if max_bad_records is not None and count > max_bad_records:
        return f"max_bad_records={max_bad_records}"
    if max_bad_share is not None and share(quarantined) > max_bad_share:
        return f"max_bad_share={max_bad_share:g}"
    return None
