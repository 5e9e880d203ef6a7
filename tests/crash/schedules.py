"""Runs that take turns in a random order, die, lose answers, and are overtaken by each other.

``python -m tests.crash.schedules KIND SEED`` prints the steps of a schedule.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.exceptions import (
    BatchOutcomeUnknownError,
    InputError,
    ScopeProviderError,
    StateUnknownError,
    TableDivergedError,
)
from tests.crash.judging import judge, rows_doubled
from tests.crash.number_world import NumberWorld
from tests.crash.table_world import CursorWorld, FeedWorld
from tests.crash.turns import STEPS, Actor, Turns, TurnTaking, add_up, play_to_its_end, show
from tests.crash.world import MemoryWorld, TakenOverWorld
from tests.support.memory_engine import MemoryEngine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_scope.protocol.engine import Work
    from airflow_provider_scope.protocol.records import OffsetEntry
    from tests.crash.judging import Verdict
    from tests.crash.tally import Tally
    from tests.support.batch_loop import BatchLoop
    from tests.support.faulty_storage import Gate


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
    vacuums: int = 0
    """Each keeps the records of one batch, or of two: runs that are behind it have none left."""
    divergences: int = 0
    """Somebody RESTOREs the table, or drops and creates it again."""
    accepts: int = 0
    """Commands that accept the table, beside runs and what is left of them."""
    abandons: int = 0
    """Commands that give up the oldest open batch."""
    late_files: str = "ingest"
    world: type[MemoryWorld] = MemoryWorld
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


class SloppyWorld(MemoryWorld):
    """Its batches are loaded by such applications."""

    def engine(self, gate: Gate) -> BatchLoop:
        return SloppyEngine(self.delta, self.memory, gate)


KINDS = {
    "append": Story(),
    "refresh": Story(runs=4, refreshes=2),
    "abandon": Story(runs=5, kills=3, refreshes=1, abandons=3),
    "after dbt-scope": Story(runs=4, refreshes=1, abandons=1, world=TakenOverWorld),
    "range": Story(runs=4, refreshes=1, ranges=2),
    "skip": Story(runs=4, refreshes=1, late_files="skip"),
    "sloppy": Story(failures=3, world=SloppyWorld),
    "vacuum": Story(runs=8, vacuums=6),
    "vacuum and refresh": Story(runs=8, refreshes=2, ranges=1, vacuums=6),
    "vacuum and skip": Story(runs=8, refreshes=1, vacuums=6, late_files="skip"),
    "vacuum and diverge": Story(runs=8, refreshes=1, divergences=1, vacuums=6),
    "diverge": Story(runs=4, refreshes=1, divergences=1),
    "numbers": Story(runs=4, refreshes=1, ranges=1, world=NumberWorld),
    "numbers diverge": Story(runs=4, refreshes=1, divergences=1, world=NumberWorld),
    "feed": Story(runs=4, refreshes=1, ranges=1, abandons=1, world=FeedWorld),
    "cursor": Story(runs=4, refreshes=1, ranges=1, abandons=1, world=CursorWorld),
    "cursor diverge": Story(runs=5, refreshes=1, divergences=2, accepts=3, abandons=1, world=CursorWorld),
    "feed diverge": Story(runs=5, refreshes=1, divergences=2, accepts=3, abandons=1, world=FeedWorld),
}


class ApplicationTurns(TurnTaking):
    """Runs that start an application for their batches: it may fail, and outlive the run."""

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

    def resume(self, actor: Actor, order: str) -> None:
        call = actor.call
        super().resume(actor, order)
        if call.by_application and call.writes and not self.diverged:
            self.doubled = max(self.doubled, rows_doubled(self.world))


class Schedule(ApplicationTurns):
    """One world, and everything that happens in it."""

    story: Story

    def __post_init__(self) -> None:
        chance = self.chance
        self.world = self.story.world(interval=chance.randint(1, 3), retention=chance.choice([1, 3, 100]))
        self.world.max_files = 1 if self.story.vacuums else chance.randint(1, 2)
        count = chance.randint(4, 9) if self.story.vacuums else chance.randint(2, 5)
        self.arriving = [*range(count)]
        if self.story.late_files == "ingest":
            chance.shuffle(self.arriving)  # the number is the age: some come late
        self.same_time = chance.choice([1, 2])
        for _ in range(chance.randint(1, count - 1 if self.story.vacuums else count)):
            self.arrive()
        self.budget = {
            "run": self.story.runs,
            "kill": self.story.kills,
            "lose": self.story.lost,
            "fail": self.story.failures,
            "refresh": self.story.refreshes,
            "range": self.story.ranges,
            "vacuum": self.story.vacuums,
            "diverge": self.story.divergences,
            "accept": self.story.accepts,
            "abandon": self.story.abandons,
        }
        self.sticky = chance.choice(self.story.sticky)
        self.asleep: set[Actor] = set()
        """Runs that hardly move, while others do much: what they have read may be purged meanwhile."""
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
            if self.story.vacuums and self.chance.random() < 0.04 and self.world.version() > 0:
                self.vacuum()
            if (self.story.accepts or self.story.abandons) and self.chance.random() < 0.08:
                self.repair()
            living = [actor for actor in self.actors if not actor.orphaned and actor not in self.asleep]
            if self.budget["run"] and len(living) < 2 and (not self.actors or self.chance.random() < 0.15):
                self.start()
            if not self.actors:
                continue
            if last not in self.actors or self.chance.random() >= self.sticky:
                last = self.chance.choice(self.awake() or self.actors)
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
            # Before the first commit record a table that was created again cannot be told.
            self.restore_or_recreate(may_recreate=bool(self.world.log().committed()))

    def repair(self) -> None:
        """Let somebody run a command that repairs."""
        gate = Turns()
        if self.diverged and self.spend("accept"):
            name, again = f"accept {self.budget['accept']}", self.chance.random() < 0.2
            self.trace.append(f"{name} starts{', reload' if again else ''}")
            self.enter(name, lambda: self.world.accept(gate, reload_undecidable=again))
        elif self.world.delta.versions and (still_open := self.world.log().open_entries()):
            seq = still_open[0].seq
            if not still_open[0].overwrites_table and self.spend("abandon"):
                name = f"abandon {seq}"
                self.trace.append(f"{name} starts")
                self.enter(name, lambda: self.world.abandon(seq, gate))

    def start(self) -> None:
        self.spend("run")
        kwargs: dict[str, Any] = {"late_files": self.story.late_files}
        if self.chance.random() < 0.4 and self.spend("refresh"):
            kwargs["refresh"] = True
        elif self.chance.random() < 0.4 and self.spend("range"):
            kwargs["where"] = "day = 1"
        if self.chance.random() < 0.3:
            kwargs["max_batches"] = self.chance.randint(1, 2)
        name = self.next_name()
        gate = Turns()
        self.trace.append(f"{name} starts {kwargs}")
        self.enter(name, lambda: self.world.run(gate, **kwargs))
        if self.story.vacuums and len(self.awake()) == len(self.actors) and self.chance.random() < 0.5:
            actor = self.actors[-1]
            for _ in range(self.chance.randint(1, 40)):
                if actor in self.actors:
                    self.resume(actor, "go")
            self.asleep.add(actor)

    def awake(self) -> list[Actor]:
        if self.asleep and self.chance.random() < 0.01:
            self.asleep.clear()
        return [actor for actor in self.actors if actor not in self.asleep]

    def vacuum(self) -> None:
        if not self.spend("vacuum"):
            return
        name, gate, retain = f"vacuum {self.budget['vacuum']}", Turns(), self.chance.randint(1, 2)
        self.trace.append(f"{name} starts")
        if self.world.log().pipeline():
            self.enter(name, lambda: self.world.vacuum(gate, retain=retain))

    def is_expected(self, actor: Actor, err: ScopeProviderError) -> bool:
        if actor.name.startswith(("abandon", "accept")) and isinstance(
            err, InputError | BatchOutcomeUnknownError
        ):
            return True  # somebody was faster, or did a full refresh meanwhile
        if self.story.accepts and isinstance(err, BatchOutcomeUnknownError | StateUnknownError):
            return self.diverged
        return actor.orphaned or (self.diverged and isinstance(err, TableDivergedError))

    def judge(self) -> Verdict:
        story = self.story
        lists = not (story.vacuums or story.abandons)
        return judge(self.world, late_files=story.late_files, diverged=self.diverged, lists=lists)


def play(kind: str, seed: int) -> tuple[Tally, list[str]]:
    """Play one schedule to its end.

    :return: What was found, and the steps.
    """
    return play_to_its_end(Schedule(KINDS[kind], random.Random(f"{kind} {seed}")), f"{kind} {seed}")


def play_many(kind: str, seeds: range) -> Tally:
    """Play many schedules of a kind."""
    return add_up(play, kind, seeds)


if __name__ == "__main__":
    show(play)
