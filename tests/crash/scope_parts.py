"""The parts of the check that are about jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.crash import scope_exhaustive as exhaustive
from tests.crash.scope_schedules import play_many

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.crash.share import Share
    from tests.crash.tally import Tally

SCOPE = "SCOPE, "
PAIRS = 16
SCHEDULES = 1500


def scope_parts() -> Iterator[tuple[str, str]]:
    """Return what is done on a disk, and with which scenario."""
    for what in ("killed once", "killed twice", "no answer"):
        for name in exhaustive.BY_NAME:
            yield SCOPE + what, name


def do_scope(what: str, name: str, share: Share) -> tuple[Tally, str]:
    """Do a part, and say in words what it was."""
    match what.removeprefix(SCOPE):
        case "killed once":
            text = "every change, before, torn, after; jobs stand still or go on"
            return exhaustive.kill_once(name, share), text
        case "killed twice":
            pairs = PAIRS if share.size is None else share.size
            return exhaustive.kill_twice(name, pairs, seed=1 + share.turn), "a sample of pairs"
        case "no answer":
            tally, lost = exhaustive.lose_answers(name, share)
            return tally, f"{lost} answers lost; nobody dies"
        case _:
            seeds = share.seeds(SCHEDULES)
            return play_many(name, seeds), f"{len(seeds)} schedules"
