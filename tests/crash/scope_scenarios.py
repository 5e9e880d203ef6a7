"""What the runs of the SCOPE engine that are killed are doing, and what their jobs do meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.exceptions import (
    BatchNotInTableError,
    BatchOutcomeUnknownError,
    JobRunningError,
    ScopeJobFailedError,
    ScopeProviderError,
    ServiceOutcomeUnknownError,
)
from tests.crash.exhaustive import Stage, check_that_nothing_is_left, compare
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
from tests.support.faulty_storage import (
    Call,
    Gate,
    LostAnswer,
    open_gate,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.crash.scope_service import Flaw
    from tests.crash.tally import Tally
    from tests.support.faulty_storage import When


@dataclass(frozen=True)
class ScopeScenario(Scenario):
    """A scenario with a job service."""

    flaw: Flaw = ""
    """How the first job of each batch fails."""
    rows_only: bool = False
    """The retry may cut the files into other batches."""

    def world(self, folder: Path) -> ScopeDiskWorld:  # type: ignore[override]
        return ScopeDiskWorld(folder, flaw=self.flaw)

    def stage(self, folder: Path) -> Stage:
        return ScopeStage(self, folder)


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
    ScopeScenario("SCOPE: first run", nothing_loaded, run, run),
    ScopeScenario("SCOPE: later run", something_loaded, run, run),
    ScopeScenario("SCOPE: worker and trigger", something_loaded, defer, defer),
    ScopeScenario("SCOPE: job adopted", job_running, run, run),
    ScopeScenario("SCOPE: full refresh", to_be_refreshed, refresh, finish_refresh),
    ScopeScenario(
        "SCOPE: refresh over a running job", to_be_refreshed_with(job_running), refresh, finish_refresh
    ),
    ScopeScenario(
        "SCOPE: refresh over a lost job", to_be_refreshed_with(job_on_its_way), refresh, finish_refresh
    ),
    ScopeScenario(
        "SCOPE: refresh over a committed job", to_be_refreshed_with(job_committed), refresh, finish_refresh
    ),
    ScopeScenario("SCOPE: refresh asked for again", job_running, refresh, refresh, renumbered=True),
    ScopeScenario(
        "SCOPE: running job given up", job_running, give_up_and_run, give_up_and_run, rows_only=True
    ),
    ScopeScenario(
        "SCOPE: lost job given up", job_on_its_way, give_up_and_run, give_up_and_run, rows_only=True
    ),
    ScopeScenario("SCOPE: jobs fail at once", nothing_loaded, run, run, flaw="before"),
    ScopeScenario("SCOPE: jobs fail half-way", nothing_loaded, run, run, flaw="between"),
    ScopeScenario(
        "SCOPE: jobs fail before they close", nothing_loaded, settle_and_run, settle_and_run, flaw="unclosed"
    ),
    ScopeScenario("SCOPE: jobs fail after their commit", nothing_loaded, run, run, flaw="after"),
]


# ---- killing ---------------------------------------------------------------------------------------


class ScopeStage(Stage):
    """What is not shared, and what only reads, leaves the same state behind: there a run need not die."""

    meanwhile = ("jobs stand still", "jobs go on")

    def points(self, calls: Sequence[Call]) -> list[tuple[int, When]]:
        can_be_torn = ("put ", "replace ", "PUT ")
        return [
            (number, when)
            for number, when in super().points(calls)
            if calls[number].writes and (when != "torn" or calls[number].name.startswith(can_be_torn))
        ]

    def answers(self) -> list[tuple[int, Call]]:
        return [(number, call) for number, call in super().answers() if call.name != "sleep"]

    def is_idle(self) -> bool:
        service = self.scenario.world(self.place).service
        return not service.running() and not service.late

    def go_on(self, meanwhile: str) -> None:
        if meanwhile == "jobs go on":
            self.scenario.world(self.place).service.end_all()

    def finish(self, where: str, tally: Tally) -> None:
        scenario = self.scenario
        world = scenario.world(self.place)
        try:
            scenario.again(world, open_gate)
        except (ScopeProviderError, AssertionError) as err:
            tally.failures.append(f"{where}: the rerun ended with {err!r}")
        world.service.end_all()
        found = self.state()
        if scenario.rows_only:
            found.records, found.audit = self.expected.records, self.expected.audit
        compare(found, self.expected, where, tally)
        tally.failures += [f"{where}: {text}" for text in scenario.world(self.place).wrong_jobs()]
        if not scenario.renumbered:
            try:
                check_that_nothing_is_left(world, where, tally)
            except ScopeProviderError as err:
                tally.failures.append(f"{where}: a run with nothing to do ended with {err!r}")
