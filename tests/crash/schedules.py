"""Runs that take turns in a random order, die, lose answers, and are overtaken by each other.

Each run is a greenlet that stops at every operation on something shared; a seeded scheduler says who
goes on, and what becomes of the operation. One seed is one schedule: ``python -m tests.crash.schedules
KIND SEED`` prints its steps.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent, greenlet

from airflow_provider_scope.exceptions import ScopeProviderError, SparkJobFailedError, TableDivergedError
from tests.crash.judging import judge, rows_doubled
from tests.crash.tally import Tally
from tests.crash.world import MemoryWorld
from tests.support.faulty_storage import Call, LostAnswer
from tests.support.memory_engine import MemoryEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_provider_scope.core.records import OffsetEntry
    from airflow_provider_scope.execution.engine import Work


STEPS = 5000
"""More than any schedule takes."""


@dataclass(frozen=True)
class Story:
    """What may happen in a schedule, at most so often."""

    runs: int = 3
    kills: int = 2
    lost: int = 1
    failures: int = 1
    """Applications that fail in one step; the runner lives on."""
    refreshes: int = 0
    ranges: int = 0
    """Runs that replace a range."""
    divergences: int = 0
    """Somebody RESTOREs the table, or drops and creates it again."""
    late_files: str = "ingest"
    engine: type[MemoryEngine] = MemoryEngine
    sticky: tuple[float, ...] = (0.0, 0.5, 0.9)
    """How likely the same run takes the next step too; one is drawn for each schedule."""


class SloppyEngine(MemoryEngine):
    """An application that goes on with the next batch after one failed, as none of ours does."""

    def run(self, work: Work, entries: Sequence[OffsetEntry]) -> None:
        failure: ScopeProviderError | None = None
        for entry in entries:
            try:
                self.run_batch(work, entry, fence=False)
            except ScopeProviderError as err:
                failure = failure or err
        if failure:
            raise failure


KINDS = {
    "append": Story(),
    "refresh": Story(runs=4, refreshes=2),
    "range": Story(runs=4, refreshes=1, ranges=2),
    "skip": Story(runs=4, refreshes=1, late_files="skip"),
    "sloppy": Story(failures=3, engine=SloppyEngine),
    "diverge": Story(runs=4, refreshes=1, divergences=1),
}


@dataclass(eq=False)
class Actor:
    """A run, or what is left of one."""

    name: str
    thread: greenlet
    call: Call
    """What it is about to do."""
    orphaned: bool = False
    """The runner is dead; its application lives on until it is done."""


@dataclass
class Schedule:
    """One world, and everything that happens in it."""

    story: Story
    chance: random.Random
    trace: list[str] = field(default_factory=list)
    kills: int = 0
    diverged: bool = False
    problems: list[str] = field(default_factory=list)
    doubled: int = 0

    def __post_init__(self) -> None:
        chance = self.chance
        self.world = MemoryWorld(interval=chance.randint(1, 3), retention=chance.choice([1, 3, 100]))
        self.world.max_files = chance.randint(1, 2)
        count = chance.randint(2, 5)
        self.arriving = [*range(count)]
        if self.story.late_files == "ingest":
            chance.shuffle(self.arriving)  # the number is the age: some come late
        self.same_time = chance.choice([1, 2])
        for _ in range(chance.randint(1, count)):
            self.arrive()
        self.budget = {
            "run": self.story.runs,
            "kill": self.story.kills,
            "lose": self.story.lost,
            "fail": self.story.failures,
            "refresh": self.story.refreshes,
            "range": self.story.ranges,
            "diverge": self.story.divergences,
        }
        self.sticky = chance.choice(self.story.sticky)
        self.actors: list[Actor] = []
        if self.story.divergences and chance.random() < 0.7:
            self.world.run()

    # ---- the steps -------------------------------------------------------------------------------

    def play(self) -> None:
        """Let things happen until nobody is left."""
        last: Actor | None = None
        for _ in range(STEPS):
            if not self.actors and not self.budget["run"]:
                return
            if self.chance.random() < 0.05:
                self.disturb()
            living = [actor for actor in self.actors if not actor.orphaned]
            if self.budget["run"] and len(living) < 2 and (not self.actors or self.chance.random() < 0.15):
                self.start()
            if not self.actors:
                continue
            if last not in self.actors or self.chance.random() >= self.sticky:
                last = self.chance.choice(self.actors)
            self.step(last)
        self.problems.append(f"the runs did not end within {STEPS} steps")

    def arrive(self) -> None:
        number = self.arriving.pop(0)
        self.world.drop(f"f{number}.parquet", at=1000 - number // self.same_time)
        self.trace.append(f"f{number} appears")

    def disturb(self) -> None:
        if self.arriving:
            self.arrive()
        elif self.world.version() > 0 and self.spend("diverge"):
            self.diverged = True
            # Before the first commit record a table that was created again cannot be told.
            if self.chance.random() < 0.5 or not self.world.log().committed():
                to = self.chance.randrange(self.world.version())
                self.trace.append(f"somebody RESTOREs version {to}")
                self.world.restore(to)
            else:
                self.trace.append("somebody drops the table and creates it again")
                self.world.recreate()

    def start(self) -> None:
        self.spend("run")
        kwargs: dict[str, Any] = {"late_files": self.story.late_files}
        if self.chance.random() < 0.4 and self.spend("refresh"):
            kwargs["refresh"] = True
        elif self.chance.random() < 0.4 and self.spend("range"):
            kwargs["where"] = "day = 1"
        if self.chance.random() < 0.3:
            kwargs["max_batches"] = self.chance.randint(1, 2)
        name = "ABCDEFGH"[self.story.runs - self.budget["run"] - 1]
        gate = Turns()
        engine = self.story.engine(self.world.delta, self.world.memory, gate)
        thread = greenlet(lambda _order: self.world.run(gate, engine=engine, **kwargs))
        actor = Actor(name, thread, Call("start"))
        self.trace.append(f"{name} starts {kwargs}")
        self.actors.append(actor)
        self.resume(actor, "go")

    def step(self, actor: Actor) -> None:
        call, orders = actor.call, ["go"] * 12
        if not actor.orphaned:
            orders += ["kill"] + ["orphan"] * call.by_application
        orders += ["lost before"] + ["lost after"] * call.writes + ["fail"] * call.by_application
        order = self.chance.choice(orders)
        kind = {"kill": "kill", "orphan": "kill", "fail": "fail"}.get(order, "lose")
        if order == "go" or not self.spend(kind):
            self.resume(actor, "go")
        elif order == "orphan":
            self.kills += 1
            actor.orphaned = True
            self.trace.append(f"{actor.name} dies, its application lives on")
        elif order == "kill":
            self.kill(actor)
        else:
            self.resume(actor, order)

    def kill(self, actor: Actor) -> None:
        self.kills += 1
        self.trace.append(f"{actor.name} dies before '{actor.call.name}'")
        self.actors.remove(actor)
        actor.thread.throw(GreenletExit)

    def resume(self, actor: Actor, order: str) -> None:
        call = actor.call
        self.trace.append(f"{actor.name} {call.name}{'' if order == 'go' else ': ' + order}")
        try:
            reached = actor.thread.switch(order)
        except ScopeProviderError as err:
            self.ended_with(actor, err)
        except Exception as err:  # noqa: BLE001 - whatever it is, it is a finding
            self.actors.remove(actor)
            self.problems.append(f"{actor.name} ended with {err!r}")
        else:
            if actor.thread.dead:
                self.trace.append(f"{actor.name} ends")
                self.actors.remove(actor)
            elif actor.orphaned and not reached.by_application:
                actor.call = reached
                self.actors.remove(actor)
                actor.thread.throw(GreenletExit)
            else:
                actor.call = reached
        if call.by_application and call.writes and not self.diverged:
            found = rows_doubled(self.world)
            self.doubled = max(self.doubled, found)

    def ended_with(self, actor: Actor, err: ScopeProviderError) -> None:
        self.trace.append(f"{actor.name} ends with {err!r}")
        self.actors.remove(actor)
        expected = self.diverged and isinstance(err, TableDivergedError)
        if not err.is_retryable and not expected and not actor.orphaned:
            self.problems.append(f"{actor.name} ended with {err!r}, which a retry does not mend")

    def spend(self, what: str) -> bool:
        left = self.budget[what]
        self.budget[what] = max(0, left - 1)
        return left > 0


class Turns:
    """A gate at which a run waits until it is its turn."""

    def __call__(self, call: Call, effect: Callable[[], Any], torn: Callable[[], None] | None = None) -> Any:
        order = getcurrent().parent.switch(call)  # type: ignore[union-attr]
        if order == "fail":
            raise SparkJobFailedError(f"failed in '{call.name}'")
        if order == "lost after":
            effect()
        if order != "go":
            raise LostAnswer(call.name)
        return effect()


def play(kind: str, seed: int) -> tuple[Tally, list[str]]:
    """Play one schedule to its end, then run undisturbed, and judge what is there.

    :return: What was found, and the steps.
    """
    schedule = Schedule(KINDS[kind], random.Random(f"{kind} {seed}"))
    schedule.play()
    verdict = judge(schedule.world, late_files=schedule.story.late_files, diverged=schedule.diverged)
    problems = [f"{kind} {seed}: {text}" for text in [*schedule.problems, *verdict.problems]]
    doubled = max(schedule.doubled, verdict.doubled)
    if schedule.doubled and not verdict.doubled:
        problems.append(f"{kind} {seed}: {schedule.doubled} rows were doubled for a while")
    return Tally(schedule.kills, verdict.lost, doubled, problems), schedule.trace


def play_many(kind: str, seeds: range) -> Tally:
    """Play many schedules of a kind."""
    tally = Tally()
    for seed in seeds:
        tally.add(play(kind, seed)[0])
    return tally


if __name__ == "__main__":
    found, steps = play(sys.argv[1], int(sys.argv[2]))
    print(*steps, replace(found, kill_points=0), sep="\n")  # noqa: T201
