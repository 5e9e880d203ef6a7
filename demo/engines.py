"""What differs between the two engines of the demo, apart from their Dags."""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from deltalake import DeltaTable

from airflow_provider_scope.delta.log import newest_version
from airflow_provider_scope.scope.fate import changes
from airflow_provider_scope.scope.jobs import identity_of_marker
from airflow_provider_scope.stores.local import LocalStorage
from airflow_provider_scope.waiting import outcome

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from airflow_provider_scope.emulator import Emulator
    from airflow_provider_scope.waiting import Job
    from demo.airflow_home import Home

ACCOUNT = "demo"
LONG_JOB_SECONDS = 20.0
"""Longer than a job is waited for in the worker."""


class DemoFailedError(Exception):
    """Something is not as it has to be."""


class Engine(Protocol):
    """What the acts ask of an engine."""

    title: str
    """The first line of the screen."""
    set_up: str
    """The rest of the set-up's title."""
    dag_id: str
    suffix: str
    """How the names of the files end."""
    work: str
    """What a run costs, counted."""
    idle: str
    """What is said of a run that costs nothing."""

    def start(self, home: Home, show: Callable[[str], None]) -> None:
        """Start what the engine needs."""

    def stop(self) -> None:
        """Stop what was started."""

    def address(self) -> list[str]:
        """Return the words with which another process can ``join``."""
        return []

    def join(self, *address: str) -> None:
        """Use what another process has started; once Airflow's environment is set."""

    @contextmanager
    def long_wait(self) -> Iterator[None]:
        """Make the first wait in a run a long one, where the engine waits at all."""
        yield

    def facts(self) -> list[tuple[str, str]]:
        """Return lines for the end; what they count was checked."""
        return []

    def root(self, home: Home) -> str:
        """Return the landing folder as the Dag and the virtual columns name it."""

    def works(self, batches: int) -> int:
        """Return how much work a run of so many batches is."""

    def worked(self, home: Home) -> int:
        """Return how much work was done until now."""

    def newest_batch(self, home: Home, pipeline: str) -> int | None:
        """Return the number of the newest batch whose rows are in the table, by the table's own log."""


class SparkDemo(Engine):
    """Spark, started by each run that has something to load."""

    title = "Files into a Delta table, exactly once: five acts on real data."
    set_up = ", and an Airflow of its own (10 s)"
    dag_id = "example_files_to_delta"
    suffix = ".parquet"
    work = "starts of Spark"
    idle = "Spark was not started"

    def root(self, home: Home) -> str:
        """Return a local path as a URI."""
        return f"file://{home.landing}"

    def works(self, batches: int) -> int:
        """Spark is started once for all batches of a run."""
        return min(batches, 1)

    def worked(self, home: Home) -> int:
        """Each start of Spark has a log."""
        return len(home.spark_logs())

    def newest_batch(self, home: Home, pipeline: str) -> int | None:
        """Each batch is a transaction."""
        return DeltaTable(home.table).transaction_version(pipeline)


class ScopeDemo(Engine):
    """SCOPE jobs, on an emulator that runs their scripts."""

    title = "Files into a Delta table by SCOPE jobs, exactly once: five acts. No Azure service is contacted."
    set_up = ", an Airflow of its own, and the emulator (5 s)"
    dag_id = "example_files_to_delta_scope"
    suffix = ".ss"
    work = "SCOPE jobs"
    idle = "No job was submitted"

    def __init__(self) -> None:
        self._url = ""
        self._emulator: Emulator | None = None
        self._show: Callable[[str], None] = print
        self._waits = 0

    def start(self, home: Home, show: Callable[[str], None]) -> None:
        """Start the emulator over the demo's folder."""
        from airflow_provider_scope.emulator import Emulator  # noqa: PLC0415 - needed by one process alone

        self._show = show
        self._emulator = Emulator(home.folder).start()
        self.join(self._emulator.url)
        self._watch()
        show(f"emulator of ADLA and ADLS Gen1 on {self._url}; its account is {home.folder}")

    def stop(self) -> None:
        """Stop the emulator."""
        if self._emulator:
            self._emulator.stop()
            self._emulator = None

    def address(self) -> list[str]:
        """Return the emulator's URL."""
        return [self._url]

    def join(self, *address: str) -> None:
        """Make the connections to an emulator."""
        (self._url,) = address
        for name, kind in (("ADLA_SCOPE_DEFAULT", "adla_scope"), ("ADLS_GEN1_DEFAULT", "adls_gen1")):
            extra = {"account_name": ACCOUNT, "poll_interval": 1}
            value = {"conn_type": kind, "host": self._url, "extra": extra}
            os.environ[f"AIRFLOW_CONN_{name}"] = json.dumps(value)

    def root(self, home: Home) -> str:
        """Return the folder as the store names it: the demo's folder is the account."""
        return f"adl://{ACCOUNT}.azuredatalakestore.net/{home.landing.relative_to(home.folder)}"

    def works(self, batches: int) -> int:
        """Each batch is one job."""
        return batches

    def worked(self, home: Home) -> int:  # noqa: ARG002 - the service knows
        """Return the number of jobs that the service knows."""
        return len(self._jobs())

    def newest_batch(self, home: Home, pipeline: str) -> int | None:
        """Each job marks the table with its batch, and adds the rows after that."""
        table = f"file://{home.table}"
        disk = LocalStorage()
        newest = last = None
        for change in changes(table, -1, newest_version(table, disk), disk):
            marked = identity_of_marker(change.marker) if change.marker else None
            last = marked.seq if marked and marked.pipeline == pipeline else last
            newest = last if change.adds else newest
        return newest

    @contextmanager
    def long_wait(self) -> Iterator[None]:
        """Let the first job run for longer than a worker waits."""
        from airflow_provider_scope.engines.assembly import INLINE_WAIT_SECONDS  # noqa: PLC0415 - needs Airflow

        waits = f"a worker waits for {INLINE_WAIT_SECONDS:.0f} s"
        self._show(f"the emulator lets the first job run for {LONG_JOB_SECONDS:.0f} s; {waits}")
        self._show("")
        self._slow_down(LONG_JOB_SECONDS)
        yield
        if not self._waits:
            raise DemoFailedError("no wait was deferred")

    def facts(self) -> list[tuple[str, str]]:
        """Count the jobs and the deferred waits."""
        outcomes = [outcome(job) for job in self._jobs()]
        if set(outcomes) != {"succeeded"}:
            raise DemoFailedError(f"jobs ended, or did not, as {outcomes}")
        return [("jobs", f"{len(outcomes)}, all succeeded, none runs; deferred waits: {self._waits}")]

    def _slow_down(self, seconds: float) -> None:
        if self._emulator:
            self._emulator.set(state_seconds={"Running": seconds})

    def _watch(self) -> None:
        """Show it when a task is deferred: ``dag.test()`` then runs the trigger in its place."""
        from airflow_provider_scope.triggers.job import JobTrigger  # noqa: PLC0415 - needs Airflow

        run = JobTrigger.run

        async def shown(trigger: JobTrigger) -> AsyncIterator[Any]:
            began = time.monotonic()
            self._waits += 1
            self._show("deferred: the worker is free, and a trigger looks at the job")
            async for event in run(trigger):
                self._show(f"the trigger fired after {time.monotonic() - began:.0f} s")
                self._slow_down(0)
                yield event

        JobTrigger.run = shown  # type: ignore[method-assign, assignment]

    @staticmethod
    def _jobs() -> list[Job]:
        from airflow_provider_scope.hooks.scope import ScopeHook  # noqa: PLC0415 - needs Airflow

        hook = ScopeHook()
        try:
            return list(hook.list_jobs())
        finally:
            hook.close()


ENGINES: dict[str, Callable[[], Engine]] = {"spark": SparkDemo, "scope": ScopeDemo}
