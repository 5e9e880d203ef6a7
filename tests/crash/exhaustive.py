"""Kill a run at every operation on something shared, run again, compare with an undisturbed run."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.exceptions import ScopeProviderError
from tests.crash.killer import Killer, shared
from tests.crash.share import EVERYTHING, Share
from tests.crash.tally import Tally
from tests.crash.world import fast_folder
from tests.support.faulty_storage import KILLED, Call, Counting, LoseAt, When, open_gate

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator, Mapping, Sequence
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

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.scenario = scenario
        self.place = folder / "world"
        self.start = folder / "start"
        scenario.prepare(scenario.world(self.place))
        shutil.copytree(self.place, self.start)
        self.calls = self.count(scenario.act)
        self.expected = self.state()

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


def kill_points(calls: Sequence[Call]) -> Iterator[tuple[int, When]]:
    """Return the places in which a run can die: an operation without effect has only one."""
    for number, call in enumerate(calls):
        yield number, "before"
        if call.writes:
            yield number, "torn"
            yield number, "after"


def kill_once(scenario: Scenario, share: Share = EVERYTHING) -> Tally:
    """Kill a scenario once, at each point of the share."""
    tally = Tally()
    killer = shared(Killer)
    with fast_folder() as folder:
        stage = Stage(scenario, folder)
        for number, when in share.of(list(kill_points(stage.calls))):
            where = f"{scenario.name}: killed {when} '{stage.calls[number].name}' ({number})"
            stage.reset()
            kill(stage, killer, "act", (number, when), where, tally)
            _finish(stage, where, tally)
    return tally


def kill_twice(scenario: Scenario, pairs: int, seed: int) -> tuple[Tally, int]:
    """Kill a scenario, and its rerun too, in a sample of all pairs of points.

    :return: What was found, and how many pairs there are.
    """
    tally, chance, existing = Tally(), random.Random(seed), 0
    killer = shared(Killer)
    with fast_folder() as folder:
        stage = Stage(scenario, folder)
        firsts = list(kill_points(stage.calls))
        for first in chance.choices(firsts, k=pairs // 2):
            where = f"{scenario.name}: killed {first[1]} '{stage.calls[first[0]].name}' ({first[0]})"
            stage.reset()
            kill(stage, killer, "act", first, where, tally, counts=False)
            between = folder / "between"
            shutil.copytree(stage.place, between)
            calls = stage.count(scenario.again)
            seconds = list(kill_points(calls))
            existing += len(seconds)
            for second in chance.sample(seconds, min(2, len(seconds))):
                there = f"{where}, then {second[1]} '{calls[second[0]].name}' ({second[0]})"
                stage.reset(between)
                kill(stage, killer, "again", second, there, tally)
                _finish(stage, there, tally)
            shutil.rmtree(between)
    return tally, existing * len(firsts) // max(1, pairs // 2)


def lose_answers(scenario: Scenario, share: Share = EVERYTHING) -> Tally:
    """Lose the answer of each operation of the share, which took effect or did not; nobody dies."""
    tally = Tally()
    with fast_folder() as folder:
        stage = Stage(scenario, folder)
        for number, call in share.of(list(enumerate(stage.calls))):
            for happened in (False, True) if call.writes else (False,):
                where = f"{scenario.name}: no answer to '{call.name}' ({number}), done: {happened}"
                world = stage.reset()
                tally.kill_points += 1
                try:
                    scenario.act(world, LoseAt(number, happened))
                except ScopeProviderError as err:
                    if not err.is_retryable:
                        tally.failures.append(f"{where}: not retryable: {err!r}")
                _finish(stage, where, tally)
    return tally


def kill(  # noqa: PLR0917 - what, where, and how it is counted
    stage: Stage,
    killer: Killer,
    step: str,
    point: tuple[int, When],
    where: str,
    tally: Tally,
    *,
    counts: bool = True,
) -> None:
    """Run a step in a child that dies at a point."""
    tally.kill_points += counts
    status = killer.kill(stage.place, stage.scenario.name, step, *point)
    if status != KILLED:
        tally.failures.append(f"{where}: the child ended with {status}")


def _finish(stage: Stage, where: str, tally: Tally) -> None:
    """Run again, undisturbed, and compare; then once more, which must find nothing to do."""
    world = stage.scenario.world(stage.place)
    try:
        stage.scenario.again(world, open_gate)
        compare(stage.state(), stage.expected, where, tally)
        if not stage.scenario.renumbered:
            gate = Counting()
            world.run(gate)
            if gate.writes:
                tally.failures.append(f"{where}: a run with nothing to do wrote {gate.writes}")
    except ScopeProviderError as err:
        tally.failures.append(f"{where}: the rerun ended with {err!r}")
        compare(stage.state(), stage.expected, where, tally)


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
