"""Kill the emulator's process with -9 in the middle of a run and its jobs, start it again, run again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

from airflow_provider_scope.exceptions import BatchOutcomeUnknownError, ScopeProviderError
from airflow_provider_scope.scope.client import AdlaClient
from airflow_provider_scope.scope.jobs import outcome
from airflow_provider_scope.stores.calls import Repeating, Token, Tokens
from airflow_provider_scope.stores.http import HttpClient
from tests.crash.killer import ROOT
from tests.crash.scenarios import land
from tests.crash.scope_disk import ScopeDiskWorld
from tests.crash.tally import Tally
from tests.crash.world import fast_folder
from tests.support.faulty_storage import Call, Counting, Gate, open_gate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from airflow_provider_scope.scope.jobs import Job, NewJob

POLL_SECONDS = 0.02
RUNNING_SECONDS = 0.06
"""How long a job runs at least: a few polls, so that kills hit it before, in and after its script."""
TRIES = 5


class Process:
    """The emulator as a process of its own."""

    def __init__(self, folder: Path, restart: str) -> None:
        self.command = [
            *(sys.executable, "-m", "airflow_provider_scope.emulator", "--root", str(folder)),
            *("--switch", f"restart={restart}", "--switch", "commit_at=start"),
            *("--switch", "state_seconds=" + json.dumps({"Running": RUNNING_SECONDS})),
        ]
        self.process: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.url = self.process.stdout.readline().strip()
        assert self.url, "the emulator did not start"

    def kill(self) -> None:
        """End the process with -9, wherever it is."""
        if self.process and self.process.stdout:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
        self.process = None

    def client(self) -> AdlaClient:
        tokens = Tokens(lambda: Token("a token of the tests", time.time() + 3600))
        return AdlaClient(HttpClient(self.url, tokens, timeout_seconds=10.0, repeating=Repeating(retries=0)))


class ClientJobs:
    """The client, with a gate in front of each request."""

    def __init__(self, client: AdlaClient, gate: Gate) -> None:
        self.client = client
        self.gate = gate

    def submit_job(self, job_id: str, new: NewJob) -> Job:
        return self.gate(Call(f"PUT {new.name}", writes=True), lambda: self.client.submit(job_id, new))

    def get_job(self, job_id: str) -> Job | None:
        return self.gate(Call("GET"), lambda: self.client.get(job_id))

    def cancel_job(self, job_id: str) -> None:
        self.gate(Call("cancel", writes=True), lambda: self.client.cancel(job_id))


class EmulatorWorld(ScopeDiskWorld):
    """Files, a Delta table and an emulator below one folder."""

    def __init__(self, folder: Path, emulator: Process) -> None:
        super().__init__(folder)
        self.emulator = emulator

    def engine(self, gate: Gate) -> Any:
        runner = super().engine(gate)
        runner.wait.jobs = ClientJobs(self.emulator.client(), gate)
        runner.wait.clock = time.time
        return runner

    def sleep(self, gate: Gate, seconds: float) -> None:
        gate(Call("sleep", writes=True), lambda: time.sleep(POLL_SECONDS))


class KillEmulatorAt:
    """Kills the emulator at the n-th operation, before or after it; the runner goes on without it."""

    def __init__(self, emulator: Process, number: int, *, after: bool) -> None:
        self.emulator = emulator
        self.number = number
        self.after = after
        self.passed = 0

    def __call__(self, call: Call, effect: Callable[[], Any], torn: Callable[[], None] | None = None) -> Any:
        here = self.passed == self.number
        self.passed += 1
        if here and not self.after:
            self.emulator.kill()
        result = effect()
        if here and self.after:
            self.emulator.kill()
        return result


def kill_emulator(
    restart: str, points: list[tuple[int, bool]], *, refresh: bool
) -> tuple[Tally, Counter[str]]:
    """Kill the emulator at each of these operations, start it again, and run again.

    :param restart: What the emulator does with jobs in the midst of which it was killed: ``rerun`` or
        ``fail``.
    :return: What was found, and how the jobs ended.
    """
    tally, ended = Tally(), Counter[str]()
    for number, after in points:
        where = f"emulator killed {'after' if after else 'before'} operation {number}, {restart}, {refresh=}"
        tally.kill_points += 1
        with fast_folder() as folder, Process(folder, restart) as emulator:
            world = _prepared(folder, emulator, refresh=refresh)
            gate = KillEmulatorAt(emulator, number, after=after)
            try:
                world.run(gate, refresh=refresh)
            except ScopeProviderError as err:
                if not err.is_retryable:
                    tally.failures.append(f"{where}: not retryable: {err!r}")
            emulator.kill()
            emulator.start()
            _finish(world, where, tally, refresh=refresh)
            ended += _judge(world, where, tally)
    return tally, ended


def emulator_points(restart: str, *, refresh: bool) -> list[tuple[int, bool]]:
    """Return the requests, waits and writes of a run, each to be killed before it and after it."""
    with fast_folder() as folder, Process(folder, restart) as emulator:
        gate = Counting()
        _prepared(folder, emulator, refresh=refresh).run(gate, refresh=refresh)
    return [
        (number, after)
        for number, call in enumerate(gate.calls)
        if call.writes or call.name == "GET"
        for after in (False, True)
    ]


def _prepared(folder: Path, emulator: Process, *, refresh: bool) -> EmulatorWorld:
    world = EmulatorWorld(folder, emulator)
    land(world, 2, 3, 4)
    if refresh:
        world.run()
        land(world, 1)
    return world


def _finish(world: EmulatorWorld, where: str, tally: Tally, *, refresh: bool) -> None:
    log = world.log()
    logged = log.logged()
    for left in reversed(range(TRIES)):
        try:
            # As a task does that was cleared: the refresh was asked for, and may not be logged yet.
            world.run(refresh=refresh and not (logged and log.offset(logged[-1]).refresh_start is not None))
        except BatchOutcomeUnknownError:
            # The emulator was killed in the instant between a job's rows and its closing mark.
            world.settle(open_gate)
        except ScopeProviderError as err:
            logged = log.logged()
            if not left or not err.is_retryable:
                tally.failures.append(f"{where}: the rerun ended with {err!r}")
                return
        else:
            return
    tally.failures.append(f"{where}: the rerun does not get through")


def _judge(world: EmulatorWorld, where: str, tally: Tally) -> Counter[str]:
    found = world.rows()
    expected = Counter(
        (f"file://{path}", number, 1)
        for path in sorted((world.folder / "landing").iterdir())
        for number in range(2)
    )
    lost, doubled = expected - found, found - expected
    tally.lost += lost.total()
    tally.doubled += doubled.total()
    if lost or doubled:
        tally.failures.append(f"{where}: lost {dict(lost)}, doubled {dict(doubled)}")
    jobs = list(world.emulator.client().list())
    running = [job.name for job in jobs if outcome(job) == "waiting"]
    cancelled = [job.name for job in jobs if outcome(job) == "cancelled"]
    if running:
        tally.failures.append(f"{where}: left running: {running}")
    if cancelled:
        tally.failures.append(f"{where}: cancelled: {cancelled}")
    gate = Counting()
    world.run(gate)
    if gate.writes:
        tally.failures.append(f"{where}: a run with nothing to do wrote {gate.writes}")
    return Counter(outcome(job) for job in jobs)
