"""Runs of the SCOPE engine and their jobs, taking turns in a random order, dying, failing, coming late.

Each run is a greenlet that stops at every operation on something shared, as in ``schedules``; the jobs
take their own turns, and so do submissions whose sender is dead. One seed is one schedule:
``python -m tests.crash.scope_schedules KIND SEED`` prints its steps.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent, greenlet

from airflow_provider_scope.exceptions import (
    BatchOutcomeUnknownError,
    InputError,
    ScopeProviderError,
    TableDivergedError,
)
from tests.crash.judging import rows_doubled
from tests.crash.schedules import STEPS, Actor, Turns
from tests.crash.scope_judging import judge
from tests.crash.scope_world import ScopeWorld
from tests.crash.tally import Tally
from tests.support.faulty_storage import Call, LostAnswer

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_scope.core.jobs import NewJob
    from tests.crash.scope_service import Flaw
    from tests.support.faulty_storage import Gate


@dataclass(frozen=True)
class Story:
    """What may happen in a schedule, at most so often."""

    runs: int = 3
    kills: int = 2
    lost: int = 2
    """Answers; a submission without an answer may arrive later, or never."""
    flaws: int = 1
    """Jobs that fail."""
    refreshes: int = 0
    abandons: int = 0
    deferrals: float = 0.3
    """How likely a run does not wait for a job that runs."""
    loaded: bool = False
    """There is a table already; without one nothing can be given up."""
    divergences: int = 0
    """Somebody RESTOREs the table, or drops and creates it again."""
    timeouts: bool = False
    """Jobs are cancelled that run longer than their time."""
    sticky: tuple[float, ...] = (0.0, 0.5, 0.9)


KINDS = {
    "append": Story(),
    "refresh": Story(runs=4, refreshes=2),
    "abandon": Story(runs=5, kills=3, abandons=3, loaded=True),
    "everything": Story(runs=5, kills=3, refreshes=2, abandons=2, flaws=2, loaded=True),
    "diverge": Story(runs=4, refreshes=1, divergences=1, loaded=True),
    "timeout": Story(runs=4, refreshes=1, timeouts=True),
}


@dataclass
class Schedule:
    """One world, and everything that happens in it."""

    story: Story
    chance: random.Random
    trace: list[str] = field(default_factory=list)
    kills: int = 0
    problems: list[str] = field(default_factory=list)
    doubled: int = 0
    diverged: bool = False

    def __post_init__(self) -> None:
        chance = self.chance
        self.world = ScopeWorld(interval=chance.randint(1, 3), retention=chance.choice([1, 3, 100]))
        self.world.max_files = chance.randint(1, 2)
        if self.story.timeouts:
            self.world.timeout = 30.0
        self.service = self.world.service
        count = chance.randint(2, 5)
        self.arriving = [*range(count)]
        chance.shuffle(self.arriving)
        if self.story.loaded:
            self.arrive()
            self.world.run()
        self.service.flaw = self.flaw_of
        for _ in range(chance.randint(1, len(self.arriving))):
            self.arrive()
        self.budget = {
            "run": self.story.runs,
            "kill": self.story.kills,
            "lose": self.story.lost,
            "flaw": self.story.flaws,
            "refresh": self.story.refreshes,
            "abandon": self.story.abandons,
            "diverge": self.story.divergences,
        }
        self.sticky = chance.choice(self.story.sticky)
        self.hurry = chance.choice([0.05, 0.3, 0.7])
        """How likely the service takes the next step."""
        self.actors: list[Actor] = []
        self.commands: set[str] = set()
        """Names of those that give a batch up."""

    # ---- the steps -------------------------------------------------------------------------------

    def play(self) -> None:
        """Let things happen until no run is left."""
        last: Actor | None = None
        with self.world.patched():
            for _ in range(STEPS):
                if not self.actors and not self.budget["run"]:
                    break
                if self.chance.random() < 0.03:
                    self.disturb()
                if self.chance.random() < self.hurry:
                    self.serve()
                if (
                    self.budget["run"]
                    and len(self.actors) < 2
                    and (not self.actors or self.chance.random() < 0.1)
                ):
                    self.start()
                if not self.actors:
                    continue
                if last not in self.actors or self.chance.random() >= self.sticky:
                    last = self.chance.choice(self.actors)
                self.step(last)
            else:
                self.problems.append(f"the runs did not end within {STEPS} steps")
            for actor in self.actors:
                actor.thread.throw(GreenletExit)
        self.problems += self.service.problems
        if not self.story.timeouts:
            self.problems += self.world.unwanted_cancels()

    def arrive(self) -> None:
        number = self.arriving.pop(0)
        self.world.drop(f"f{number}.parquet", at=1000 - number)
        self.trace.append(f"f{number} appears")

    def disturb(self) -> None:
        if self.arriving:
            self.arrive()
        elif self.world.version() > 0 and not self.refreshing() and self.spend("diverge"):
            self.diverged = True
            if self.chance.random() < 0.5:
                to = self.chance.randrange(self.world.version())
                self.trace.append(f"somebody RESTOREs version {to}")
                self.world.restore(to)
            else:
                self.trace.append("somebody drops the table and creates it again")
                self.world.recreate()

    def refreshing(self) -> bool:
        """Tell whether a refresh's job has deleted the rows and not added its own yet.

        A RESTORE just then brings the old rows back beside the new ones. The table is refused after it,
        but what a person is told who accepts it does not tell of those rows.
        """
        return any("overwrite" in job.name and job.done for job in self.service.running())

    def serve(self) -> None:
        """Let the service do something: a job's next step, or a late submission's arrival."""
        running = self.service.running()
        if self.service.late and self.chance.random() < 0.2:
            job_id, new = self.service.late[0]
            self.trace.append(
                f"    late: {new.name}{' (id is taken)' if job_id in self.service.jobs else ''}"
            )
            self.service.deliver()
        elif running:
            job = self.chance.choice(running)
            self.trace.append(f"    {job.name} of {job.job_id[:4]}: {self.service.next_step(job)}")
            self.service.step(job)
            if not self.diverged:
                self.doubled = max(self.doubled, rows_doubled(self.world))

    def flaw_of(self, new: NewJob) -> Flaw:
        if self.chance.random() < 0.4 and self.spend("flaw"):
            flaw: Flaw = self.chance.choice(["before", "between", "after"])
            self.trace.append(f"    {new.name} will fail {flaw}")
            return flaw
        return ""

    def start(self) -> None:
        self.spend("run")
        name = "ABCDEFGH"[self.story.runs - self.budget["run"] - 1]
        gate = LateTurns()
        work: Any
        if self.chance.random() < 0.5 and self.spend("abandon"):
            self.trace.append(f"{name} gives a batch up")
            self.commands.add(name)
            work = lambda _order: self.abandon(gate)  # noqa: E731
        else:
            kwargs: dict[str, Any] = {}
            if self.chance.random() < 0.4 and self.spend("refresh"):
                kwargs["refresh"] = True
            if self.chance.random() < 0.3:
                kwargs["max_batches"] = self.chance.randint(1, 2)
            self.world.inline_wait = 0.0 if self.chance.random() < self.story.deferrals else None
            engine = self.world.engine(gate)
            self.trace.append(f"{name} starts {kwargs}, waits {self.world.inline_wait}")
            self.world.inline_wait = None
            work = lambda _order: self.world.run(gate, engine=engine, **kwargs)  # noqa: E731
        actor = Actor(name, greenlet(work), Call("start"))
        self.actors.append(actor)
        self.resume(actor, "go")

    def abandon(self, gate: Gate) -> None:
        log = self.world.log()
        done = log.committed()
        logged = log.logged()
        floor = (log.offset(logged[-1]).overwrite_start or 0) if logged else 0
        numbers = [seq for seq in logged if seq not in done and seq >= floor]
        if numbers:
            self.world.abandon(numbers[0], gate)

    def step(self, actor: Actor) -> None:
        call = actor.call
        if call.name.startswith("PUT"):
            orders = ["go"] * 6 + ["kill", "lost before", "lost after", "lost late", "kill late"]
        elif call.name == "cancel" or call.name.startswith("put attempts"):
            orders = ["go"] * 6 + ["kill", "lost before", "lost after"]
        elif call.name in ("start", "sleep", "version", "probe", "changes"):
            orders = ["go"] * 30 + ["kill"]
        else:
            orders = ["go"] * 30 + ["kill", "lost before"] + ["lost after"] * call.writes
        order = self.chance.choice(orders)
        if order == "go" or not self.spend("kill" if order.startswith("kill") else "lose"):
            self.resume(actor, "go")
        elif order.startswith("kill"):
            self.kill(actor, order)
        else:
            self.resume(actor, order)

    def kill(self, actor: Actor, order: str) -> None:
        self.kills += 1
        self.trace.append(f"{actor.name} dies before '{actor.call.name}' ({order})")
        self.actors.remove(actor)
        if order == "kill late":
            actor.thread.switch(order)
        else:
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
            else:
                actor.call = reached

    def ended_with(self, actor: Actor, err: ScopeProviderError) -> None:
        self.trace.append(f"{actor.name} ends with {err!r}")
        self.actors.remove(actor)
        # A batch that somebody wants to give up may have been settled by another run, or just now.
        is_settled = isinstance(err, InputError | BatchOutcomeUnknownError) and actor.name in self.commands
        is_refused = self.diverged and isinstance(err, TableDivergedError | BatchOutcomeUnknownError)
        if not err.is_retryable and not is_settled and not is_refused:
            self.problems.append(f"{actor.name} ended with {err!r}, which a retry does not mend")

    def spend(self, what: str) -> bool:
        left = self.budget[what]
        self.budget[what] = max(0, left - 1)
        return left > 0


class LateTurns(Turns):
    """Turns in which a submission may stay on its way while its sender goes on without it, or dies."""

    def __call__(self, call: Call, effect: Callable[[], Any], torn: Callable[[], None] | None = None) -> Any:
        order = getcurrent().parent.switch(call)  # type: ignore[union-attr]
        if order.endswith("late"):
            assert torn
            torn()
        if order == "kill late":
            raise GreenletExit
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
    verdict = judge(schedule.world, diverged=schedule.diverged)
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
