"""Runs that take turns: what all kinds of schedules have in common.

Each run is a greenlet that stops at every operation on something shared; a seeded scheduler says who
goes on, and what becomes of the operation. One seed is one schedule.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent, greenlet

from airflow_provider_scope.exceptions import ScopeProviderError, SparkJobFailedError
from tests.crash.tally import Tally
from tests.support.faulty_storage import Call, LostAnswer

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.crash.judging import Verdict
    from tests.crash.world import MemoryWorld

STEPS = 5000
"""More than any schedule takes."""


@dataclass(eq=False)
class Actor:
    """A run, or what is left of one."""

    name: str
    thread: greenlet
    call: Call
    """What it is about to do."""
    orphaned: bool = False
    """The runner is dead; its application lives on until it is done."""


class Turns:
    """A gate at which a run waits until it is its turn."""

    def __call__(self, call: Call, effect: Callable[[], Any], torn: Callable[[], None] | None = None) -> Any:
        order = getcurrent().parent.switch(call)  # type: ignore[union-attr]
        if order.endswith("late"):  # a submission stays on its way while its sender goes on, or dies
            assert torn
            torn()
        if order == "kill late":
            raise GreenletExit
        if order == "fail":
            raise SparkJobFailedError(f"failed in '{call.name}'")
        if order == "lost after":
            effect()
        if order != "go":
            raise LostAnswer(call.name)
        return effect()


@dataclass
class TurnTaking:
    """One world, and everything that happens in it."""

    story: Any
    chance: random.Random
    world: MemoryWorld = field(init=False)
    budget: dict[str, int] = field(init=False)
    """What may still happen, and how often."""
    trace: list[str] = field(default_factory=list)
    actors: list[Actor] = field(default_factory=list)
    kills: int = 0
    diverged: bool = False
    problems: list[str] = field(default_factory=list)
    doubled: int = 0

    def __post_init__(self) -> None:
        """Make the world, and what may happen in it."""
        raise NotImplementedError

    def play(self) -> None:
        """Let things happen until nobody is left."""
        raise NotImplementedError

    def judge(self) -> Verdict:
        """Run undisturbed, and look at everything."""
        raise NotImplementedError

    def spend(self, what: str) -> bool:
        left = self.budget[what]
        self.budget[what] = max(0, left - 1)
        return left > 0

    def next_name(self) -> str:
        return "ABCDEFGH"[self.story.runs - self.budget["run"] - 1]

    def enter(self, name: str, work: Callable[[], Any]) -> None:
        """Let a run begin, up to its first operation."""
        actor = Actor(name, greenlet(lambda _order: work()), Call("start"))
        self.actors.append(actor)
        self.resume(actor, "go")

    def restore_or_recreate(self, *, lowest: int = 0, may_recreate: bool = True) -> None:
        """Let somebody RESTORE the table, or drop it and create it again."""
        self.diverged = True
        if self.chance.random() < 0.5 or not may_recreate:
            to = self.chance.randrange(lowest, self.world.version())
            self.trace.append(f"somebody RESTOREs version {to}")
            self.world.restore(to)
        else:
            self.trace.append("somebody drops the table and creates it again")
            self.world.recreate()

    def kill(self, actor: Actor, order: str = "kill") -> None:
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
            self.trace.append(f"{actor.name} ends with {err!r}")
            self.actors.remove(actor)
            if not err.is_retryable and not self.is_expected(actor, err):
                self.problems.append(f"{actor.name} ended with {err!r}, which a retry does not mend")
        except Exception as err:  # noqa: BLE001 - whatever it is, it is a finding
            self.actors.remove(actor)
            self.problems.append(f"{actor.name} ended with {err!r}")
        else:
            if actor.thread.dead:
                self.trace.append(f"{actor.name} ends")
                self.actors.remove(actor)
                return
            actor.call = reached
            if actor.orphaned and not reached.by_application:
                self.actors.remove(actor)
                actor.thread.throw(GreenletExit)

    def is_expected(self, actor: Actor, err: ScopeProviderError) -> bool:
        """Return whether a run may end with an error that a retry does not mend."""
        raise NotImplementedError


def play_to_its_end(schedule: TurnTaking, name: str) -> tuple[Tally, list[str]]:
    """Play one schedule to its end, then run undisturbed, and judge what is there.

    :return: What was found, and the steps.
    """
    schedule.play()
    verdict = schedule.judge()
    problems = [f"{name}: {text}" for text in [*schedule.problems, *verdict.problems]]
    if schedule.doubled and not verdict.doubled:
        problems.append(f"{name}: {schedule.doubled} rows were doubled for a while")
    doubled = max(schedule.doubled, verdict.doubled)
    return Tally(schedule.kills, verdict.lost, doubled, problems), schedule.trace


def add_up(play: Callable[[str, int], tuple[Tally, list[str]]], kind: str, seeds: range) -> Tally:
    """Play many schedules of a kind."""
    tally = Tally()
    for seed in seeds:
        tally.add(play(kind, seed)[0])
    return tally


def show(play: Callable[[str, int], tuple[Tally, list[str]]]) -> None:
    """Play the schedule that the command line names, and print its steps."""
    found, steps = play(sys.argv[1], int(sys.argv[2]))
    print(*steps, replace(found, kill_points=0), sep="\n")  # noqa: T201
