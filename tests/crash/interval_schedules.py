"""Runs of several intervals into one table at once, which die, lose answers and overtake each other.

``python -m tests.crash.interval_schedules intervals SEED`` prints the steps of a schedule.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.values import Window
from tests.crash.judging import Verdict, landed_rows
from tests.crash.schedules import ApplicationTurns
from tests.crash.turns import STEPS, Actor, Turns, add_up, play_to_its_end, show
from tests.crash.world import NOW_MS, MemoryWorld
from tests.support.faulty_storage import Counting

if TYPE_CHECKING:
    from airflow_provider_scope.exceptions import ScopeProviderError
    from tests.crash.tally import Tally

OLDEST_SECONDS = 20


@dataclass(frozen=True)
class Story:
    """What may happen in a schedule, at most so often."""

    runs: int = 8
    kills: int = 2
    lost: int = 2
    failures: int = 1
    at_once: int = 4


class Schedule(ApplicationTurns):
    """One source and one table, cut into intervals; each run is of one of them."""

    story: Story

    def __post_init__(self) -> None:
        chance = self.chance
        self.world = MemoryWorld()
        self.world.max_files = chance.randint(1, 2)
        cuts = sorted({0, OLDEST_SECONDS, *(chance.randint(1, OLDEST_SECONDS - 1) for _ in range(3))})
        ends = [NOW_MS - (OLDEST_SECONDS - cut) * 1000 for cut in cuts]
        self.worlds = [self.world.of(Window(start, end)) for start, end in pairwise(ends)]
        self.arriving = [chance.randint(1, OLDEST_SECONDS) for _ in range(chance.randint(2, 8))]
        for _ in range(chance.randint(1, len(self.arriving))):
            self.arrive()
        self.budget = {
            "run": self.story.runs,
            "kill": self.story.kills,
            "lose": self.story.lost,
            "fail": self.story.failures,
        }
        self.sticky = chance.choice((0.0, 0.5, 0.9))

    def play(self) -> None:
        last: Actor | None = None
        for _ in range(STEPS):
            if not self.actors and not self.budget["run"]:
                return
            if self.arriving and self.chance.random() < 0.05:
                self.arrive()
            living = [actor for actor in self.actors if not actor.orphaned]
            if len(living) < self.story.at_once and self.chance.random() < 0.3 and self.spend("run"):
                self.start()
            if not self.actors:
                continue
            if last not in self.actors or self.chance.random() >= self.sticky:
                last = self.chance.choice(self.actors)
            self.step(last)
        self.problems.append(f"the runs did not end within {STEPS} steps")

    def arrive(self) -> None:
        age = self.arriving.pop(0)
        name = f"f{len(self.world.memory.source)}"
        self.world.drop(name, at=age)
        self.trace.append(f"{name} appears, {age} s old")

    def start(self) -> None:
        number = self.chance.randrange(len(self.worlds))
        name = self.next_name()
        gate = Turns()
        self.trace.append(f"{name} starts with interval {number}")
        self.enter(name, lambda: self.worlds[number].run(gate))

    def is_expected(self, actor: Actor, err: ScopeProviderError) -> bool:
        return actor.orphaned

    def judge(self) -> Verdict:
        """Run each interval once more, undisturbed; then once more, which must find nothing to do."""
        verdict = Verdict()
        while self.arriving:
            self.arrive()
        for world in self.worlds:
            world.run()
        found, expected = self.world.rows(), landed_rows(self.world)
        verdict.lost, verdict.doubled = (expected - found).total(), (found - expected).total()
        if found != expected:
            verdict.problems.append(f"the rows are {found}, not {expected}")
        for world in self.worlds:
            again = Counting()
            world.run(again)
            if again.writes:
                verdict.problems.append(f"a run with nothing to do wrote {again.writes}")
        return verdict


def play(kind: str, seed: int) -> tuple[Tally, list[str]]:
    """Play one schedule to its end.

    :return: What was found, and the steps.
    """
    schedule: Any = Schedule(Story(), random.Random(f"{kind} {seed}"))
    return play_to_its_end(schedule, f"{kind} {seed}")


def play_many(kind: str, seeds: range) -> Tally:
    """Play many schedules."""
    return add_up(play, kind, seeds)


if __name__ == "__main__":
    show(play)
