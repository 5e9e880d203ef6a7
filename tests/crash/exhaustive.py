"""Kill a run at every operation on something shared, run again, compare with an undisturbed run."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_scope.exceptions import ScopeProviderError
from tests.crash.killer import the_killer
from tests.crash.share import EVERYTHING, Share
from tests.crash.tally import Tally
from tests.crash.world import fast_folder
from tests.support.faulty_storage import KILLED, Call, Counting, LoseAt, When, open_gate

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tests.crash.scenarios import Scenario
    from tests.crash.world import DeltaWorld


@dataclass
class State:
    """Everything that two ends of the same story have in common."""

    rows: Counter[Any]
    records: dict[str, Any]
    audit: dict[str, Any]


class Stage:
    """A scenario's state, kept aside so that it can be set up again as often as it is needed."""

    meanwhile: ClassVar[tuple[str, ...]] = ("",)
    """What may happen between the death of a run and the next run."""

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.scenario = scenario
        self.place = folder / "world"
        self.start = folder / "start"
        scenario.prepare(scenario.world(self.place))
        shutil.copytree(self.place, self.start)
        self.calls = self.count(scenario.act)
        self.expected = self.state()

    def points(self, calls: Sequence[Call]) -> list[tuple[int, When]]:
        """Return the places in which a run can die: an operation without effect has only one."""
        return [
            (number, when)
            for number, call in enumerate(calls)
            for when in (("before", "torn", "after") if call.writes else ("before",))
        ]

    def answers(self) -> list[tuple[int, Call]]:
        """Return the operations whose answers can get lost."""
        return list(enumerate(self.calls))

    def is_idle(self) -> bool:
        """Return whether nothing can happen before the next run."""
        return True

    def go_on(self, meanwhile: str) -> None:
        """Let happen what may, before the next run."""

    def finish(self, where: str, tally: Tally) -> None:
        """Run again, undisturbed, and compare; then once more, which must find nothing to do."""
        world = self.scenario.world(self.place)
        try:
            self.scenario.again(world, open_gate)
            compare(self.state(), self.expected, where, tally)
            if not self.scenario.renumbered:
                check_that_nothing_is_left(world, where, tally)
        except ScopeProviderError as err:
            tally.failures.append(f"{where}: the rerun ended with {err!r}")
            compare(self.state(), self.expected, where, tally)

    def reset(self, start: Path | None = None) -> DeltaWorld:
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(start or self.start, self.place)
        return self.scenario.world(self.place)

    def count(self, step: Callable[[DeltaWorld, Any], None]) -> list[Call]:
        gate = Counting()
        step(self.scenario.world(self.place), gate)
        return gate.calls

    def state(self) -> State:
        world = self.scenario.world(self.place)
        records, audit = world.records(), world.audit()
        if self.scenario.renumbered:
            records, audit = {}, _without_numbers(audit)
        if self.scenario.segments_vary:
            audit = {name: value for name, value in audit.items() if not name.endswith(".parquet")}
        return State(world.rows(), records, audit)


def kill_once(scenario: Scenario, share: Share = EVERYTHING) -> Tally:
    """Kill a scenario once, at each point of the share."""
    tally = Tally()
    with fast_folder() as folder:
        stage = scenario.stage(folder)
        for number, when in share.of(stage.points(stage.calls)):
            for meanwhile in stage.meanwhile:
                where = f"{scenario.name}: killed {when} '{stage.calls[number].name}' ({number}) {meanwhile}"
                stage.reset()
                kill(stage, "act", (number, when), where, tally)
                is_idle = stage.is_idle()
                stage.go_on(meanwhile)
                stage.finish(where, tally)
                if is_idle:
                    break
    return tally


def kill_twice(scenario: Scenario, pairs: int, seed: int) -> Tally:
    """Kill a scenario, and its rerun too, in a sample of all pairs of points."""
    tally, chance = Tally(), random.Random(seed)
    with fast_folder() as folder:
        stage = scenario.stage(folder)
        for first in chance.choices(stage.points(stage.calls), k=pairs // 2):
            meanwhile = chance.choice(stage.meanwhile)
            name = stage.calls[first[0]].name
            where = f"{scenario.name}: killed {first[1]} '{name}' ({first[0]}) {meanwhile}"
            stage.reset()
            kill(stage, "act", first, where, tally)
            stage.go_on(meanwhile)
            between = folder / "between"
            shutil.copytree(stage.place, between)
            calls = stage.count(scenario.again)
            seconds = stage.points(calls)
            for second in chance.sample(seconds, min(2, len(seconds))):
                then = f"{where}, then {second[1]} '{calls[second[0]].name}' ({second[0]})"
                stage.reset(between)
                kill(stage, "again", second, then, tally)
                stage.go_on(chance.choice(stage.meanwhile))
                stage.finish(then, tally)
            shutil.rmtree(between)
    return tally


def lose_answers(scenario: Scenario, share: Share = EVERYTHING) -> tuple[Tally, int]:
    """Lose the answer of each operation of the share, which took effect or did not; nobody dies.

    :return: What was found, and how many answers were lost.
    """
    tally, lost = Tally(), 0
    with fast_folder() as folder:
        stage = scenario.stage(folder)
        for number, call in share.of(stage.answers()):
            for happened in (False, True) if call.writes else (False,):
                where = f"{scenario.name}: no answer to '{call.name}' ({number}), done: {happened}"
                world = stage.reset()
                lost += 1
                try:
                    scenario.act(world, LoseAt(number, happened))
                except ScopeProviderError as err:
                    if not err.is_retryable:
                        tally.failures.append(f"{where}: not retryable: {err!r}")
                stage.finish(where, tally)
    return tally, lost


def kill(stage: Stage, step: str, point: tuple[int, When], where: str, tally: Tally) -> None:
    """Run a step in a child that dies at a point."""
    tally.kill_points += 1
    scenario = stage.scenario
    status = the_killer().kill(stage.place, scenario.name, step, *point)
    if status != KILLED:
        tally.failures.append(f"{where}: the child ended with {status}")


def check_that_nothing_is_left(world: DeltaWorld, where: str, tally: Tally) -> None:
    gate = Counting()
    world.run(gate)
    if gate.writes:
        tally.failures.append(f"{where}: a run with nothing to do wrote {gate.writes}")


def compare(found: State, expected: State, where: str, tally: Tally) -> None:
    """Count rows that differ, and name records and audit files that do."""
    lost, doubled = expected.rows - found.rows, found.rows - expected.rows
    tally.lost += lost.total()
    tally.doubled += doubled.total()
    if lost or doubled:
        tally.failures.append(f"{where}: lost {dict(lost)}, doubled {dict(doubled)}")
    below = purged_below(expected.records)
    for what, is_, should_be in (
        ("records", not_purged(found.records, below), not_purged(expected.records, below)),
        ("audit", found.audit, expected.audit),
    ):
        tally.failures += [
            f"{where}: {what}: {name} is {is_.get(name)}, not {should_be.get(name)}"
            for name in sorted({*is_, *should_be})
            if is_.get(name) != should_be.get(name)
        ]


def purged_below(records: Mapping[str, Any]) -> int:
    """Return the number below which the records of entries and commits are purged; 0 if none are."""
    numbers = [int(name.rpartition("/")[2]) for name in records if name.startswith("vacuumed/")]
    return max(numbers, default=0)


def not_purged(records: Mapping[str, Any], below: int) -> dict[str, Any]:
    """Leave out the records that may be purged.

    A vacuum may purge less than another, held back by a segment that is unreadable. It may not purge more.
    """
    return {
        name: value
        for name, value in records.items()
        if not name.startswith("vacuumed/")
        and not (name.startswith(("offsets/", "commits/")) and int(name.rpartition("/")[2]) < below)
    }


def _without_numbers(audit: dict[str, Any]) -> dict[str, Any]:
    """Return an audit without the log's own numbers: dbt-scope's restart with every refresh."""
    plain: dict[str, Any] = {}
    for name, value in audit.items():
        rows = value[2] if isinstance(value, tuple) else value if isinstance(value, list) else [value]
        plain[name] = [{k: v for k, v in row.items() if k not in ("seq", "refreshStart")} for row in rows]
    return plain
