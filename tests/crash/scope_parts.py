"""The parts of the check that are about jobs."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.crash import scope_exhaustive as exhaustive
from tests.crash.scope_emulator import emulator_points, kill_emulator
from tests.crash.scope_schedules import play_many

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.crash.share import Share
    from tests.crash.tally import Tally

SCOPE = "SCOPE, "
PAIRS = 16
SCHEDULES = 1500
EMULATOR_KILLS = 8


def scope_parts() -> Iterator[tuple[str, str]]:
    """Return what is done on a disk, and with which scenario or switch."""
    for what in ("killed once", "killed twice", "no answer"):
        for name in exhaustive.BY_NAME:
            yield SCOPE + what, name
    for restart in ("rerun", "fail"):
        for mode in ("append", "refresh"):
            yield SCOPE + "emulator killed", f"{restart}, {mode}"


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
        case "schedules":
            seeds = share.seeds(SCHEDULES)
            return play_many(name, seeds), f"{len(seeds)} schedules"
    restart, _, mode = name.partition(", ")
    refresh = mode == "refresh"
    points = emulator_points(restart, refresh=refresh)
    if share.size is None:
        some = sorted(random.Random(1).sample(points, min(EMULATOR_KILLS, len(points))))
    else:
        some = share.of(points)[:1]  # each starts an emulator twice
    tally, ended = kill_emulator(restart, some, refresh=refresh)
    return tally, f"the process, with -9; jobs: {dict(sorted(ended.items()))}"
