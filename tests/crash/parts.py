"""The parts of the check that need no JVM, by name, so that a pool of processes can share them."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.crash import interval_schedules, scenarios, schedules, scope_scenarios, scope_schedules
from tests.crash.damage import damage_everything
from tests.crash.exhaustive import kill_once, kill_twice, lose_answers
from tests.crash.share import EVERYTHING, Share
from tests.crash.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator

PAIRS = 24
SCHEDULES = 1000
SCENARIOS = {one.name: one for one in (*scenarios.SCENARIOS, *scope_scenarios.SCENARIOS)}


@dataclass(frozen=True)
class Part:
    """What is done, and with which scenario or kind of schedule."""

    what: str
    name: str = ""


@dataclass(frozen=True)
class Finding:
    """What a part found."""

    part: Part
    tally: Tally
    text: str
    seconds: float

    @property
    def line(self) -> str:
        title = f"{self.part.what}: {self.part.name}" if self.part.name else self.part.what
        return (
            f"{title:52} {self.tally.kill_points:5} kill points {self.seconds:6.1f} s  {self.text}".rstrip()
        )


def all_parts() -> Iterator[Part]:
    yield from parts_on_disk()
    yield from parts_in_memory()


def parts_on_disk() -> Iterator[Part]:
    """Each builds a table and starts processes: a second, whatever the share."""
    for what in ("killed once", "killed twice", "no answer"):
        for name in SCENARIOS:
            yield Part(what, name)


def parts_in_memory() -> Iterator[Part]:
    for kind in schedules.KINDS:
        yield Part("random schedules", kind)
    for kind in scope_schedules.KINDS:
        yield Part("random schedules of jobs", kind)
    yield Part("random schedules of intervals")
    yield Part("damaged records")


def do(part: Part, share: Share = EVERYTHING) -> Finding:
    """Do a part, or a share of it."""
    logging.disable(logging.WARNING)  # a thousand full refreshes each say that the old rows can be restored
    began = time.monotonic()
    try:
        tally, text = _do(part, share)
    except Exception as err:  # noqa: BLE001 - the other parts still have something to say
        tally, text = Tally(failures=[f"ended with {err!r}"]), "not done"
    finally:
        logging.disable(logging.NOTSET)
    return Finding(part, tally, text, time.monotonic() - began)


def _do(part: Part, share: Share) -> tuple[Tally, str]:
    seeds = share.seeds(SCHEDULES)
    pairs = PAIRS if share.size is None else share.size
    match part.what:
        case "killed once":
            return kill_once(SCENARIOS[part.name], share), "before, torn, after"
        case "killed twice":
            return kill_twice(SCENARIOS[part.name], pairs, seed=1 + share.turn), "a sample of pairs"
        case "no answer":
            tally, lost = lose_answers(SCENARIOS[part.name], share)
            return tally, f"{lost} answers lost; nobody dies"
        case "random schedules":
            return schedules.play_many(part.name, seeds), f"{len(seeds)} schedules"
        case "random schedules of jobs":
            return scope_schedules.play_many(part.name, seeds), f"{len(seeds)} schedules"
        case "random schedules of intervals":
            return interval_schedules.play_many("intervals", seeds), f"{len(seeds)} schedules"
    tally, damages = damage_everything()
    return tally, f"{damages} damages"
