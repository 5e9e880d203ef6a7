"""Runs of the SCOPE engine and their jobs, taking turns in a random order, dying, failing, coming late.

The jobs take their own turns, and so do submissions whose sender is dead.
``python -m tests.crash.scope_schedules KIND SEED`` prints the steps of a schedule.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit

from airflow_provider_scope.exceptions import (
    BatchOutcomeUnknownError,
    InputError,
    ScopeProviderError,
    TableDivergedError,
)
from airflow_provider_scope.protocol import acceptance
from tests.crash.judging import rows_doubled
from tests.crash.scope_judging import judge
from tests.crash.scope_world import ScopeWorld
from tests.crash.turns import STEPS, Actor, Turns, TurnTaking, add_up, play_to_its_end, show
from tests.support.faulty_storage import open_gate

if TYPE_CHECKING:
    from airflow_provider_scope.scope.jobs import NewJob
    from tests.crash.judging import Verdict
    from tests.crash.scope_service import Flaw
    from tests.crash.tally import Tally
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
    cleans: float = 0.0
    """How likely the table's log was cleaned up before that, up to some version."""
    disturbances: float = 0.03
    """How likely something of these, or a file, comes before a step."""
    between_job_steps: float = 0.0
    """How likely it comes between two steps of a job."""
    accepts: int = 0
    """Somebody accepts the table, although runs and jobs are under way."""
    foreign: int = 0
    """Rows that another writer adds."""
    timeouts: bool = False
    """Jobs are cancelled that run longer than their time."""
    sticky: tuple[float, ...] = (0.0, 0.5, 0.9)


KINDS = {
    "append": Story(),
    "refresh": Story(runs=4, refreshes=2),
    "abandon": Story(runs=5, kills=3, abandons=3, loaded=True),
    "everything": Story(runs=5, kills=3, refreshes=2, abandons=2, flaws=2, loaded=True),
    "diverge": Story(runs=4, refreshes=1, divergences=1, cleans=0.3, accepts=2, foreign=2, loaded=True),
    "accept": Story(
        kills=1,
        lost=0,
        flaws=0,
        deferrals=0.8,
        divergences=1,
        accepts=4,
        between_job_steps=0.5,
        foreign=2,
        loaded=True,
    ),
    "clean": Story(lost=0, flaws=0, deferrals=0.8, refreshes=1, divergences=1, cleans=1.0, disturbances=0.1),
    "timeout": Story(runs=4, refreshes=1, timeouts=True, foreign=2),
    "other writers": Story(runs=4, flaws=2, refreshes=1, foreign=4, loaded=True),
}


class Schedule(TurnTaking):
    """One world, and everything that happens in it."""

    story: Story
    world: ScopeWorld
    accepted = False

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
            "accept": self.story.accepts,
            "foreign": self.story.foreign,
        }
        self.sticky = chance.choice(self.story.sticky)
        self.hurry = chance.choice([0.05, 0.3, 0.7])
        """How likely the service takes the next step."""
        self.excused: set[str] = set()
        """Files of committed batches whose rows are gone, as somebody accepted."""
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
                if self.chance.random() < self.story.disturbances:
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
        elif self.world.version() > 0 and self.diverged and self.spend("accept"):
            self.accept()
        elif self.world.version() > 0 and self.spend("diverge"):
            if self.chance.random() < self.story.cleans:
                self.world.delta.cleaned = self.chance.randrange(self.world.version())
                self.trace.append(f"the log is cleaned up below version {self.world.delta.cleaned}")
            # Before the first commit record a table that was created again cannot be told.
            may_recreate = bool(self.world.log().committed())
            self.restore_or_recreate(lowest=self.world.delta.cleaned, may_recreate=may_recreate)

    def accept(self) -> None:
        """Let somebody accept the table at once, whatever runs."""
        log = self.world.log()
        try:
            seen = acceptance.consequences_of(log, self.world.engine(open_gate), self.world.table)
            self.world.accept()
        except ScopeProviderError as err:
            self.trace.append(f"somebody cannot accept the table: {err!r}")
            return
        self.trace.append("somebody accepts the table")
        self.accepted = True
        self.excused |= {file.path for record in seen.rolled_back for file in log.offset(record.seq).files}

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
            if self.story.between_job_steps and self.chance.random() < self.story.between_job_steps:
                self.disturb()
            if self.chance.random() < 0.3 and self.world.version() >= 0 and self.spend("foreign"):
                self.trace.append("another writer adds a row")
                self.world.delta.append_foreign()
            if not self.diverged:
                self.doubled = max(self.doubled, rows_doubled(self.world))

    def flaw_of(self, new: NewJob) -> Flaw:
        if self.chance.random() < 0.4 and self.spend("flaw"):
            flaw: Flaw = self.chance.choice(["before", "between", "unclosed", "after"])
            self.trace.append(f"    {new.name} will fail {flaw}")
            return flaw
        return ""

    def start(self) -> None:
        self.spend("run")
        name = self.next_name()
        gate = Turns()
        work: Any
        if self.chance.random() < 0.5 and self.spend("abandon"):
            self.trace.append(f"{name} gives a batch up")
            self.commands.add(name)
            work = lambda: self.abandon(gate)  # noqa: E731
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
            work = lambda: self.world.run(gate, engine=engine, **kwargs)  # noqa: E731
        self.enter(name, work)

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

    def is_expected(self, actor: Actor, err: ScopeProviderError) -> bool:
        # A batch that somebody wants to give up may have been settled by another run, or just now.
        is_settled = isinstance(err, InputError | BatchOutcomeUnknownError) and actor.name in self.commands
        is_refused = self.diverged and isinstance(err, TableDivergedError | BatchOutcomeUnknownError)
        is_in_doubt = isinstance(err, BatchOutcomeUnknownError) and self.stopped_half_way()
        return is_settled or is_refused or is_in_doubt

    def stopped_half_way(self) -> bool:
        """Return whether a job ended between its marks, so that rows after the first may be another's."""
        return any(
            job.done and job.result in ("failed", "cancelled") and self.service.rest(job)
            for job in self.service.jobs.values()
        )

    def judge(self) -> Verdict:
        return judge(self.world, self.excused, diverged=self.diverged, accepted=self.accepted)


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
