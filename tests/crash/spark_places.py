"""Where real runs of real Spark are killed, and how the disk shows that it was there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Seen:
    """What the disk shows of a run, relative to the state that it started from."""

    logged: int
    versions: int
    stray: bool
    """Data files that no commit names."""
    recorded: int
    aside: int = 0
    """Versions of the table beside: the quarantine, or the tombstones."""
    aside_stray: bool = False
    """Data files in that before its first version."""


@dataclass(frozen=True)
class Place:
    """Where to kill a run: watched for from outside, or met by the runner itself."""

    name: str
    step: str
    hit: Callable[[Seen], bool]
    """Whether the disk shows the place, after the kill."""
    now: Callable[[Seen], bool] | None = None
    """When to kill; None if the runner meets the place itself."""
    die_at: tuple[str, ...] = ()
    application: bool = True
    """The application is killed too."""


def _no_record(logged: int, versions: int, *, stray: bool) -> Callable[[Seen], bool]:
    expected = (logged, versions, stray, 0)
    return lambda seen: (seen.logged, seen.versions, seen.stray, seen.recorded) == expected


BATCHES = 3
PLACES = (
    Place("before submit", "run", _no_record(3, 0, stray=False), die_at=("replace plans/", "after")),
    Place(
        "data files, no commit",
        "run",
        _no_record(3, 0, stray=True),
        now=lambda seen: seen.stray and seen.versions == 0,
    ),
    Place(
        "between two batches",
        "run",
        lambda seen: (seen.logged, seen.versions, seen.recorded) == (3, 1, 0),
        now=lambda seen: seen.versions == 1,
    ),
    Place(
        "runner dead, its application alive",
        "run",
        lambda seen: seen.logged == BATCHES and seen.versions in (1, 2) and seen.recorded == 0,
        now=lambda seen: seen.versions == 1,
        application=False,
    ),
    Place(
        "after the Delta commit",
        "run",
        lambda seen: (seen.logged, seen.versions, seen.recorded) == (3, 3, 0),
        now=lambda seen: seen.versions == BATCHES,
    ),
    Place("before the commit record", "run", _no_record(3, 3, stray=False), die_at=("put commits/",)),
    Place(
        "full refresh, inside the first batch",
        "refresh",
        _no_record(3, 0, stray=True),
        now=lambda seen: seen.stray and seen.versions == 0,
    ),
    Place(
        "full refresh, inside the second batch",
        "refresh",
        _no_record(3, 1, stray=True),
        now=lambda seen: seen.stray and seen.versions == 1,
    ),
)

ASIDE_PLACES = (
    Place(
        "data files in the quarantine, no commit",
        "run",
        lambda seen: (seen.logged, seen.versions, seen.aside, seen.aside_stray) == (3, 0, 0, True),
        now=lambda seen: seen.aside_stray,
    ),
    Place(
        "in the quarantine, not in the table",
        "run",
        lambda seen: (seen.logged, seen.versions, seen.aside) == (3, 0, 1),
        now=lambda seen: seen.aside == 1,
    ),
    Place(
        "in the quarantine, its application alive",
        "run",
        lambda seen: (seen.logged, seen.recorded) == (3, 0) and seen.aside - seen.versions in (0, 1),
        now=lambda seen: seen.aside == 1,
        application=False,
    ),
    Place(
        "in both tables, no record",
        "run",
        lambda seen: (seen.logged, seen.versions, seen.recorded) == (3, 1, 0) and seen.aside in (1, 2),
        now=lambda seen: seen.versions == 1,
    ),
    Place(
        "full refresh, in the quarantine alone",
        "refresh",
        lambda seen: (seen.logged, seen.versions, seen.aside) == (3, 0, 1),
        now=lambda seen: seen.aside == 1,
    ),
)


MERGE_PLACES = (
    Place(
        "inside of the first MERGE",
        "run",
        _no_record(3, 1, stray=True),
        now=lambda seen: seen.stray and seen.versions == 1,
    ),
    Place(
        "inside of a MERGE, its application alive",
        "run",
        lambda seen: (seen.logged, seen.recorded) == (3, 0) and seen.versions in (1, 2),
        now=lambda seen: seen.stray and seen.versions == 1,
        application=False,
    ),
    Place(
        "between two MERGEs",
        "run",
        lambda seen: (seen.logged, seen.versions, seen.recorded) == (3, 2, 0),
        now=lambda seen: seen.versions == 2,
    ),
    Place("MERGE done, before its record", "run", _no_record(3, 3, stray=False), die_at=("put commits/",)),
    Place(
        "full refresh, inside the first MERGE",
        "refresh",
        _no_record(3, 1, stray=True),
        now=lambda seen: seen.stray and seen.versions == 1,
    ),
)

IN_ORDER_PLACES = (
    *MERGE_PLACES,
    *(
        Place(
            f"deletes of batch {batch}, not its rows{'' if dies else ', its application alive'}",
            "run",
            # What lives on may have gone on meanwhile.
            lambda seen, batch=batch, dies=dies: (  # type: ignore[misc]
                (seen.logged, seen.recorded) == (3, 0)
                and ((seen.versions, seen.aside) == (batch, batch + 1) or (not dies and seen.aside > batch))
            ),
            now=lambda seen, batch=batch: (seen.versions, seen.aside) == (batch, batch + 1),  # type: ignore[misc]
            application=dies,
        )
        for batch, dies in ((0, True), (1, True), (1, False))
    ),
    Place(
        "full refresh, the deletes alone",
        "refresh",
        lambda seen: (seen.logged, seen.versions, seen.aside) == (3, 0, 1),
        now=lambda seen: seen.aside == 1,
    ),
)
"""Of a Merge with tombstones."""

SOURCE_PLACES = (
    Place("before submit", "run", _no_record(1, 0, stray=False), die_at=("replace plans/", "after")),
    Place(
        "data files of the second batch",
        "run",
        lambda seen: seen == Seen(2, 1, stray=True, recorded=1),
        now=lambda seen: seen.stray and seen.versions == 1,
    ),
    Place(
        "runner dead, its application alive",
        "run",
        lambda seen: (seen.logged, seen.recorded) == (2, 1) and seen.versions in (1, 2),
        now=lambda seen: seen.stray and seen.versions == 1,
        application=False,
    ),
    Place(
        "after the second commit",
        "run",
        lambda seen: (seen.logged, seen.versions, seen.recorded) == (2, 2, 1),
        now=lambda seen: seen.versions == 2,
    ),
    Place(
        "before the second record",
        "run",
        lambda seen: seen == Seen(2, 2, stray=False, recorded=1),
        die_at=(f"put commits/{1:020}",),
    ),
)
"""Of a source whose batches follow from each other: an application runs one."""
