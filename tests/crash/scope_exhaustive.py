"""Kill a run of the SCOPE engine at every operation that changes something, and run again.

What is not shared, and what only reads, leaves the same state behind: there a run need not die.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_scope.exceptions import (
    BatchNotInTableError,
    BatchOutcomeUnknownError,
    JobRunningError,
    ScopeJobFailedError,
    ScopeProviderError,
    ServiceOutcomeUnknownError,
)
from tests.crash.exhaustive import Stage, compare, kill, kill_points
from tests.crash.killer import Killer, serve, shared
from tests.crash.scenarios import (
    Scenario,
    finish_refresh,
    land,
    nothing_loaded,
    refresh,
    something_loaded,
    to_be_refreshed,
)
from tests.crash.scope_disk import ScopeDiskWorld, leave_running
from tests.crash.share import EVERYTHING, Share
from tests.crash.tally import Tally
from tests.crash.world import fast_folder
from tests.support.faulty_storage import (
    Call,
    Counting,
    Gate,
    LoseAt,
    LostAnswer,
    When,
    open_gate,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.crash.scope_service import Flaw

Meanwhile = Literal["jobs stand still", "jobs go on"]
"""What the service does between a runner's death and the next run."""
MEANWHILE: tuple[Meanwhile, ...] = ("jobs stand still", "jobs go on")


@dataclass(frozen=True)
class ScopeScenario(Scenario):
    """A scenario with a job service."""

    flaw: Flaw = ""
    """How the first job of each batch fails."""
    rows_only: bool = False
    """The retry may cut the files into other batches."""

    def world(self, folder: Path) -> ScopeDiskWorld:  # type: ignore[override]
        return ScopeDiskWorld(folder, flaw=self.flaw)


# ---- the states ------------------------------------------------------------------------------------


def job_running(world: Any) -> None:
    something_loaded(world)
    leave_running(world)


def job_committed(world: Any) -> None:
    """Leave a batch in the table without a record: its runner is dead, its job went on."""
    job_running(world)
    world.service.finish()


def job_on_its_way(world: Any) -> None:
    """Leave a submission on its way: nobody got an answer to it."""
    something_loaded(world)

    def gate(call: Call, effect: Callable[[], Any], torn: Callable[[], None] | None = None) -> Any:
        if call.name.startswith("PUT"):
            assert torn
            torn()
            raise LostAnswer(call.name)
        return effect()

    try:
        world.run(gate)
    except ServiceOutcomeUnknownError:
        return
    raise AssertionError("the submission was answered")


def to_be_refreshed_with(state: Callable[[Any], None]) -> Callable[[Any], None]:
    def prepare(world: Any) -> None:
        state(world)
        land(world, 8)

    return prepare


# ---- what is done ----------------------------------------------------------------------------------


def run(world: Any, gate: Gate = open_gate) -> None:
    """Run like a task with retries."""
    for _ in range(4):
        try:
            world.run(gate)
        except (ScopeJobFailedError, JobRunningError, BatchNotInTableError):
            continue
        else:
            return
    raise AssertionError("the run does not get through")


def settle_and_run(world: Any, gate: Gate) -> None:
    """Run, and whenever nothing tells what became of a job, say that its rows are in the table."""
    for _ in range(8):
        try:
            run(world, gate)
        except BatchOutcomeUnknownError:
            world.settle(gate)
        else:
            return
    raise AssertionError("the run does not get through")


def give_up_and_run(world: Any, gate: Gate) -> None:
    """Return the oldest open batch up, unless that was begun; then run."""
    log = world.log()
    done = log.committed()
    open_ones = [seq for seq in log.logged() if seq not in done]
    if open_ones and open_ones[0] == 2 and not any(a.void for a in log.attempts(open_ones[0])):
        world.abandon(open_ones[0], gate)
    run(world, gate)


def defer(world: Any, gate: Gate) -> None:
    world.defer_and_resume(gate)


SCENARIOS = [
    ScopeScenario("first run", nothing_loaded, run, run),
    ScopeScenario("later run", something_loaded, run, run),
    ScopeScenario("worker and trigger", something_loaded, defer, defer),
    ScopeScenario("job adopted", job_running, run, run),
    ScopeScenario("full refresh", to_be_refreshed, refresh, finish_refresh),
    ScopeScenario("refresh over a running job", to_be_refreshed_with(job_running), refresh, finish_refresh),
    ScopeScenario("refresh over a lost job", to_be_refreshed_with(job_on_its_way), refresh, finish_refresh),
    ScopeScenario(
        "refresh over a committed job", to_be_refreshed_with(job_committed), refresh, finish_refresh
    ),
    ScopeScenario("refresh asked for again", job_running, refresh, refresh, renumbered=True),
    ScopeScenario("running job given up", job_running, give_up_and_run, give_up_and_run, rows_only=True),
    ScopeScenario("lost job given up", job_on_its_way, give_up_and_run, give_up_and_run, rows_only=True),
    ScopeScenario("jobs fail at once", nothing_loaded, run, run, flaw="before"),
    ScopeScenario("jobs fail half-way", nothing_loaded, run, run, flaw="between"),
    ScopeScenario(
        "jobs fail before they close", nothing_loaded, settle_and_run, settle_and_run, flaw="unclosed"
    ),
    ScopeScenario("jobs fail after their commit", nothing_loaded, run, run, flaw="after"),
]
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


# ---- killing ---------------------------------------------------------------------------------------


class ScopeKiller(Killer):
    """The process that forks the runs that die."""

    module = "tests.crash.scope_exhaustive"


def changing_points(calls: list[Call]) -> list[tuple[int, When]]:
    """Return the places in which a death leaves a state of its own."""
    can_be_torn = ("put ", "replace ", "PUT ")
    return [
        (number, when)
        for number, when in kill_points(calls)
        if calls[number].writes and (when != "torn" or calls[number].name.startswith(can_be_torn))
    ]


def kill_once(name: str, share: Share = EVERYTHING) -> Tally:
    """Kill a scenario at each point of the share, and let the service do either thing."""
    tally, scenario = Tally(), BY_NAME[name]
    killer = shared(ScopeKiller)
    with fast_folder() as folder:
        stage = Stage(scenario, folder)
        tally.failures += [f"{name}: undisturbed: {text}" for text in wrong_jobs(stage)]
        for number, when in share.of(changing_points(stage.calls)):
            for meanwhile in MEANWHILE:
                where = f"{name}: killed {when} '{stage.calls[number].name}' ({number}), {meanwhile}"
                stage.reset()
                kill(stage, killer, "act", (number, when), where, tally)
                service = scenario.world(stage.place).service
                is_idle = not service.running() and not service.late
                _finish(stage, where, tally, meanwhile)
                if is_idle:
                    break
    return tally


def kill_twice(name: str, pairs: int, seed: int) -> Tally:
    """Kill a scenario, and its rerun too, in a sample of all pairs of points."""
    tally, scenario, chance = Tally(), BY_NAME[name], random.Random(seed)
    killer = shared(ScopeKiller)
    with fast_folder() as folder:
        stage = Stage(scenario, folder)
        firsts = changing_points(stage.calls)
        for number, when in chance.choices(firsts, k=pairs // 2):
            meanwhile = chance.choice(MEANWHILE)
            where = f"{name}: killed {when} '{stage.calls[number].name}' ({number}), {meanwhile}"
            stage.reset()
            kill(stage, killer, "act", (number, when), where, tally)
            if meanwhile == "jobs go on":
                scenario.world(stage.place).service.finish()
            between = folder / "between"
            shutil.copytree(stage.place, between)
            calls = stage.count(scenario.again)
            seconds = changing_points(calls)
            for second in chance.sample(seconds, min(2, len(seconds))):
                there = f"{where}, then {second[1]} '{calls[second[0]].name}' ({second[0]})"
                stage.reset(between)
                kill(stage, killer, "again", second, there, tally)
                _finish(stage, there, tally, chance.choice(MEANWHILE))
            shutil.rmtree(between)
    return tally


def lose_answers(name: str, share: Share = EVERYTHING) -> tuple[Tally, int]:
    """Lose the answer of each operation of the share, which took effect or did not; nobody dies.

    :return: What was found, and how many answers were lost.
    """
    tally, lost, scenario = Tally(), 0, BY_NAME[name]
    with fast_folder() as folder:
        stage = Stage(scenario, folder)
        calls = [(number, call) for number, call in enumerate(stage.calls) if call.name != "sleep"]
        for number, call in share.of(calls):
            for happened in (False, True) if call.writes else (False,):
                where = f"{name}: no answer to '{call.name}' ({number}), done: {happened}"
                world = stage.reset()
                lost += 1
                try:
                    scenario.act(world, LoseAt(number, happened))
                except ScopeProviderError as err:
                    if not err.is_retryable:
                        tally.failures.append(f"{where}: not retryable: {err!r}")
                _finish(stage, where, tally, "jobs stand still")
    return tally, lost


def _finish(stage: Stage, where: str, tally: Tally, meanwhile: Meanwhile) -> None:
    """Run again, undisturbed, and compare; then once more, which must find nothing to do."""
    scenario = stage.scenario
    assert isinstance(scenario, ScopeScenario)
    world = scenario.world(stage.place)
    if meanwhile == "jobs go on":
        while world.service.late:
            world.service.deliver()
        world.service.finish()
    try:
        scenario.again(world, open_gate)
    except (ScopeProviderError, AssertionError) as err:
        tally.failures.append(f"{where}: the rerun ended with {err!r}")
    while world.service.late:
        world.service.deliver()
    world.service.finish()
    found = stage.state()
    if scenario.rows_only:
        found.records, found.audit = stage.expected.records, stage.expected.audit
    compare(found, stage.expected, where, tally)
    tally.failures += [f"{where}: {text}" for text in wrong_jobs(stage)]
    if not scenario.renumbered:
        gate = Counting()
        try:
            world.run(gate)
        except ScopeProviderError as err:
            tally.failures.append(f"{where}: a run with nothing to do ended with {err!r}")
        if gate.writes:
            tally.failures.append(f"{where}: a run with nothing to do wrote {gate.writes}")


def wrong_jobs(stage: Stage) -> list[str]:
    world = stage.scenario.world(stage.place)
    assert isinstance(world, ScopeDiskWorld)
    return world.wrong_jobs()


if __name__ == "__main__":
    serve(BY_NAME)
