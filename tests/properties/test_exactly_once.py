"""Two runners in any order of their steps, dying anywhere: a run that is left in peace makes all good."""

from __future__ import annotations

import json
import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from airflow_provider_scope.exceptions import (
    CheckpointError,
    InputError,
    ScopeProviderError,
    TableDivergedError,
)
from airflow_provider_scope.protocol import repair
from airflow_provider_scope.protocol.takeover import Epoch
from tests.crash.number_world import LedgerWorld, NumberInTurnWorld, NumberWorld
from tests.crash.world import MemoryWorld
from tests.support.dbt_scope import DbtScopeOnMemory
from tests.support.faulty_storage import Call, Counting, LostAnswer
from tests.support.ledger import INITIAL, decode, state_after

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
Verdict = Literal["go", "lose", "lose after"]


class DiedError(BaseException):
    """The process is gone; nothing in it may catch this."""


class Runner:
    """A run in a thread of its own that stops before each operation on something shared.

    Only one thread moves at any time, and the test says which.
    """

    def __init__(self, work: Callable[[Any], object]) -> None:
        self.work = work
        self.call = Call("start")
        """The operation before which it stands."""
        self.verdict: Verdict = "go"
        self.is_dead = False
        self.is_orphaned = False
        """The runner is dead, and the application that it started lives on."""
        self.has_ended = False
        self.refusal: ScopeProviderError | None = None
        self.fault: BaseException | None = None
        self.turn = threading.Semaphore(0)
        self.back = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._main, daemon=True)
        self.thread.start()
        self.back.acquire()

    def _main(self) -> None:
        try:
            self.work(self.gate)
        except DiedError:
            pass
        except ScopeProviderError as err:
            self.refusal = err
        except BaseException as err:  # noqa: BLE001 - the test's thread raises it
            self.fault = err
        self.has_ended = True
        self.back.release()

    def gate(self, call: Call, effect: Callable[[], T], torn: Callable[[], None] | None = None) -> T:
        self._live(call)
        self.call = call
        self.back.release()
        self.turn.acquire()
        self._live(call)
        verdict, self.verdict = self.verdict, "go"
        if verdict == "lose":
            raise LostAnswer(call.name)
        answer = effect()
        if verdict == "lose after":
            raise LostAnswer(call.name)
        return answer

    def _live(self, call: Call) -> None:
        if self.is_dead or (self.is_orphaned and not call.by_application):
            raise DiedError

    def step(self, verdict: Verdict = "go") -> None:
        """Do the operation before which the runner stands."""
        self.verdict = verdict
        self.turn.release()
        self.back.acquire()
        if self.fault:
            raise self.fault

    def end(self) -> None:
        """End it without another operation."""
        self.is_dead = True
        while not self.has_ended:
            self.step()
        self.thread.join()


WHICH = st.integers(0, 1)


def test_a_refresh_is_not_given_up_but_taken_over_by_another_one() -> None:
    """The rows of before would stay beside those of the same files, which count as not loaded."""
    world = MemoryWorld()
    world.drop("a", 10)
    world.run()
    first = world.rows()
    runner = Runner(lambda gate: world.run(gate, refresh=True))
    while not runner.call.name.startswith("open 1"):
        runner.step()
    runner.end()

    with pytest.raises(InputError, match="full_refresh=True"):
        world.abandon(1)
    world.run(refresh=True)

    assert world.rows() == first
    assert world.run().batches == []


class ExactlyOnce(RuleBasedStateMachine):
    """Files arrive; two runners start, step, lose answers and die; a third one runs undisturbed."""

    kind: type[MemoryWorld] = MemoryWorld

    def __init__(self) -> None:
        super().__init__()
        self.world = self.kind(interval=3)
        self.rows: Counter[Any] = Counter()
        self.runners: list[Runner] = []
        self.steps = 0
        self.is_refreshed = self.refreshed_beside_others = False

    # ---- the source ------------------------------------------------------------------------------

    @initialize()
    def a_first_file(self) -> None:
        self.files_arrive([10])

    def files_arrive(self, times: list[int]) -> None:
        """Each so many seconds before now: often late, often with the time of another file."""
        for at in times:
            path = self.world.drop(f"{len(self.world.memory.source):03}", at)
            self.rows.update(self.world.memory.content[path])

    # ---- the runners -----------------------------------------------------------------------------

    @precondition(lambda self: len(self.runners) < 2)
    @rule(
        times=st.lists(st.integers(0, 20), max_size=5),
        what=st.sampled_from(["run", "run", "run", "refresh", "abandon"]),
    )
    def start(self, times: list[int], what: str) -> None:
        self.files_arrive(times)
        oldest = self.oldest_open()
        if what == "abandon" and oldest is not None and not self.world.delta.versions:
            # Before there is a table nothing keeps an application out: no run may be going on.
            if not self.runners and oldest == self.first_to_run():
                self.world.abandon(oldest)
            return
        work: dict[str, Callable[[Any], object]] = {
            "run": self.world.run,
            "refresh": lambda gate: self.world.run(gate, refresh=True),
            "abandon": self.world.run if oldest is None else partial(self.world.abandon, oldest),
        }
        self.runners.append(Runner(work[what]))
        self.is_refreshed |= what == "refresh"
        self.refreshed_beside_others |= self.is_refreshed and len(self.runners) > 1

    @precondition(lambda self: self.runners)
    @rule(which=WHICH, steps=st.integers(1, 5))
    def step(self, which: int, steps: int) -> None:
        for _ in range(steps):
            if self.runners:
                self.one_step(self.runner(which))

    @precondition(lambda self: self.runners)
    @rule(which=WHICH, writes=st.integers(0, 5))
    def go_on_to_a_write(self, which: int, writes: int) -> None:
        runner = self.runner(which)
        while runner in self.runners and (writes or not runner.call.writes):
            writes -= runner.call.writes
            self.one_step(runner)

    @precondition(lambda self: self.runners)
    @rule(which=WHICH)
    def finish(self, which: int) -> None:
        runner = self.runner(which)
        while runner in self.runners:
            self.one_step(runner)

    @precondition(lambda self: self.runners)
    @rule(which=WHICH, trouble=st.sampled_from(["lose", "lose after", "die", "leave the application"]))
    def get_into_trouble(self, which: int, trouble: str) -> None:
        runner = self.runner(which)
        match trouble:
            case "lose" | "lose after":
                self.one_step(runner, trouble)
            case "die":
                runner.end()
                self.runners.remove(runner)
            case "leave the application":
                runner.is_orphaned = True

    def runner(self, which: int) -> Runner:
        return self.runners[which % len(self.runners)]

    def one_step(self, runner: Runner, verdict: Verdict = "go") -> None:
        self.steps += 1
        runner.step(verdict)
        if runner.has_ended:
            self.runners.remove(runner)
            # Another runner's progress is never damage that somebody has to mend.
            assert not isinstance(runner.refusal, CheckpointError | TableDivergedError), runner.refusal

    # ---- what has to hold ------------------------------------------------------------------------

    @precondition(lambda self: self.steps > 60)
    @rule()
    def run_undisturbed(self) -> None:
        self.steps = 0
        self.world.run()

        assert self.world.rows() == self.rows
        self.check_watermark()
        self.check_sources()
        again = Counting()
        assert self.world.run(again).batches == []
        assert again.writes == []

    def check_watermark(self) -> None:
        newest = max(self.world.memory.source.values())
        watermark = json.loads(self.world.read("watermark.json"))
        last = self.entries()[-1]
        assert watermark["seq"] == last["seq"]
        assert watermark["refreshStart"] == last["refresh_start"]
        assert watermark["path"] == newest.path.removeprefix("file://")
        assert watermark["batchId"] == last["seq"] - (last["refresh_start"] or 0)

    def check_sources(self) -> None:
        """The segments name every file.

        A run that a refresh overtook may have written a diff of before it since; a rebuild puts that right.
        """
        if self.known() != Counter(dict.fromkeys(self.world.memory.source, 1)):
            assert self.refreshed_beside_others
            repair.rebuild(self.world.log(), self.world.audit_files(self.world.log()))
        assert self.known() == Counter(dict.fromkeys(self.world.memory.source, 1))

    def known(self) -> Counter[str]:
        """Return the files that the newest batches and the segments of their refresh name."""
        log = self.world.log()
        newest = log.newest_offset()
        found, _ = self.world.audit_files(log).seen_files(Epoch.of(newest, log.takeover(newest)))
        return Counter(path for path, _ in found.items())

    @invariant()
    def no_row_is_doubled(self) -> None:
        assert not self.world.rows() - self.rows

    def entries(self) -> list[Any]:
        return [lines[0] for name, lines in self.world.records().items() if name.startswith("offsets/")]

    def oldest_open(self) -> int | None:
        records = self.world.records()
        entries = self.entries()
        start = (entries[-1]["overwrite_start"] or 0) if entries else 0
        numbers = [entry["seq"] for entry in entries if entry["seq"] >= start]
        return next((seq for seq in numbers if f"commits/{seq:020}" not in records), None)

    def first_to_run(self) -> int | None:
        """Return the oldest open batch, unless it begins a refresh: that one is never given up."""
        seq = self.oldest_open()
        is_refresh = any(entry["seq"] == seq and entry["mode"] == "overwrite" for entry in self.entries())
        return None if is_refresh else seq

    def teardown(self) -> None:
        try:
            self.run_undisturbed()
        finally:
            for runner in self.runners:
                runner.end()


TestExactlyOnce = ExactlyOnce.TestCase
TestExactlyOnce.settings = settings(max_examples=80, stateful_step_count=40)


class ExactlyOnceAfterDbtScope(ExactlyOnce):
    """The same with a table that dbt-scope has loaded: the first runs take it over."""

    BATCHES = 4

    @initialize()
    def a_first_file(self) -> None:
        theirs = DbtScopeOnMemory(self.world)
        for number in range(self.BATCHES):
            self.files_arrive([100 - number])
        theirs.run(max_files=1)
        self.files_arrive([10])

    def check_watermark(self) -> None:
        watermark = json.loads(self.world.read("watermark.json"))
        last = self.entries()[-1]
        start = last["refresh_start"]
        assert watermark["seq"] == last["seq"]
        assert watermark["batchId"] == (last["seq"] + self.BATCHES if start is None else last["seq"] - start)


TestExactlyOnceAfterDbtScope = ExactlyOnceAfterDbtScope.TestCase
TestExactlyOnceAfterDbtScope.settings = settings(max_examples=80, stateful_step_count=40)


class ExactlyOnceOfNumbers(ExactlyOnce):
    """The same with a source that is not files, and has many slices at once."""

    kind = NumberWorld

    def check_watermark(self) -> None:
        watermark = json.loads(self.world.read("watermark.json"))
        last = self.entries()[-1]
        assert (watermark["seq"], watermark["path"]) == (last["seq"], "")

    def check_sources(self) -> None:
        assert self.known() == Counter()


TestExactlyOnceOfNumbers = ExactlyOnceOfNumbers.TestCase
TestExactlyOnceOfNumbers.settings = settings(max_examples=80, stateful_step_count=40)


class ExactlyOnceOfNumbersInTurn(ExactlyOnceOfNumbers):
    """The same with one slice at a time: of all entries that count, only the newest is ever open."""

    kind = NumberInTurnWorld

    @invariant()
    def only_the_newest_is_open(self) -> None:
        records, entries = self.world.records(), self.entries()
        floor = (entries[-1]["overwrite_start"] or 0) if entries else 0
        for entry in entries[:-1]:
            assert entry["seq"] < floor or f"commits/{entry['seq']:020}" in records


TestExactlyOnceOfNumbersInTurn = ExactlyOnceOfNumbersInTurn.TestCase
TestExactlyOnceOfNumbersInTurn.settings = settings(max_examples=80, stateful_step_count=40)


class ExactlyOnceOfALedger(ExactlyOnceOfNumbersInTurn):
    """The same with a source that has a state: each record has that of the rows in the table."""

    kind = LedgerWorld

    @invariant()
    def the_state_is_that_of_the_rows(self) -> None:
        log = self.world.log()
        done = log.committed()
        versions = self.world.delta.versions
        if done and versions and versions[-1].seq == done[-1] and not self.is_refreshed:
            numbers = sorted(number for _, number, _ in self.world.rows())
            expected = state_after(INITIAL, numbers, len(numbers))
            assert decode(log.commit(done[-1]).state) == expected


TestExactlyOnceOfALedger = ExactlyOnceOfALedger.TestCase
TestExactlyOnceOfALedger.settings = settings(max_examples=80, stateful_step_count=40)
