"""Wait for a job in the triggerer: a SCOPE job, or an application of Spark."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from airflow.providers.common.compat.connection import get_async_connection
from airflow.providers.common.compat.sdk import AirflowNotFoundException
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_provider_scope.exceptions import ScopeProviderError
from airflow_provider_scope.hooks.settings import connection_missing
from airflow_provider_scope.waiting import next_look, outcome

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from airflow_provider_scope.engines.manager import WatchedJobs
    from airflow_provider_scope.stores.protocol import Storage
    from airflow_provider_scope.waiting import Job

OVER = ("failed", "success", "skipped", "upstream_failed", "removed")
"""States after which nobody comes back for a job."""
SHORTEST_HOLD_SECONDS = 10.0
"""A trigger that fires sooner makes Airflow 3.3 fail the task: the executor's event of the part that
deferred is processed after the task was queued again."""
UNREACHABLE_SECONDS = 900.0
"""How long no look at a job may succeed before its trigger fires."""
LONGEST_RETRY_SECONDS = 60.0
"""Between two looks at a job that brought no answer."""


class JobTrigger(BaseTrigger):
    """Fire once: when the job has ended, at the deadline, or when the service cannot be reached for long.

    An application whose batches follow from each other makes it fire when it waits for its next plan, too.
    It never raises, and it decides nothing: the task looks for itself what became of the job.

    :param conn_id: Whose job it is: a connection of type ``adla_scope``, ``livy`` or ``spark``.
    :param job_id: The job.
    :param poll_interval: Seconds between two looks, at least 10; None is the connection's.
    :param deadline: When to fire although the job runs, seconds since the epoch; None is never.
    :param first_batch: Given back with the event: where the run began that waits.
    :param events: The URI of the file in which an application says that it waits for its next plan; None if
        it never does.
    :param storage_conn_id: The connection of the store of this file.
    """

    def __init__(
        self,
        *,
        conn_id: str,
        job_id: str,
        poll_interval: float | None = None,
        deadline: float | None = None,
        first_batch: int | None = None,
        events: str | None = None,
        storage_conn_id: str | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # Airflow has no annotations here
        self.conn_id = conn_id
        self.job_id = job_id
        self.poll_interval = poll_interval
        self.deadline = deadline
        self.first_batch = first_batch
        self.events = events
        self.storage_conn_id = storage_conn_id
        self._storage: Storage | None = None
        self._read: asyncio.Task[bool] | None = None
        """The look at the file that has not been answered yet."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the arguments: ids and numbers; they are stored as plain text."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "conn_id": self.conn_id,
                "job_id": self.job_id,
                "poll_interval": self.poll_interval,
                "deadline": self.deadline,
                "first_batch": self.first_batch,
                "events": self.events,
                "storage_conn_id": self.storage_conn_id,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until there is something to tell."""
        began = time.time()
        try:
            status = await self._watch(began)
        except Exception as err:  # a trigger that raises fails a task whose job is fine
            self.log.exception("the job %s cannot be watched", self.job_id)
            cause = err.what if isinstance(err, ScopeProviderError) else type(err).__name__
            status = f"cannot be watched: {cause}"
        await asyncio.sleep(max(0.0, began + SHORTEST_HOLD_SECONDS - time.time()))
        payload = {"job_id": self.job_id, "status": status, "first_batch": self.first_batch}
        yield TriggerEvent(payload)  # type: ignore[no-untyped-call]

    async def on_kill(self) -> None:
        """Cancel the job if the task is over for good; called when somebody clears or marks it.

        Airflow calls this for a clear as well, where the new try adopts the job, and when a triggerer that
        was frozen lost its triggers to another one. So the task's state decides, and what cannot be read
        cancels nothing.
        """
        ti = self.task_instance
        if ti is None:
            return
        states = await sync_to_async(RuntimeTaskInstance.get_task_states)(
            dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id], map_index=ti.map_index
        )
        if not is_over(states, ti.run_id, ti.task_id):
            self.log.info("the task is not over: the job %s goes on", self.job_id)
            return
        jobs = await self._jobs()
        try:
            await asyncio.to_thread(jobs.cancel_job, self.job_id)
        finally:
            jobs.close()
        self.log.info("the task is over: the job %s is cancelled", self.job_id)

    async def _jobs(self) -> WatchedJobs:
        # Not with the module: Dag files import this one.
        from airflow_provider_scope.engines.jobs import jobs_of

        try:
            return jobs_of(await get_async_connection(self.conn_id))
        except AirflowNotFoundException as err:
            raise connection_missing(self.conn_id) from err

    async def _watch(self, began: float) -> str:
        looks = await self._looks()
        jobs, failures, answered, state = looks.jobs, 0, began, None
        try:
            looks.names.add(self.job_id)
            interval = max(self.poll_interval or jobs.poll_interval, SHORTEST_HOLD_SECONDS)
            while True:
                job = None
                try:
                    job = await looks.at(self.job_id, interval)
                    failures, answered = 0, time.time()
                    if job is None:
                        return "unknown to the service"
                    if job.state != state:
                        state = job.state
                        self.log.info("the job %s: %s", self.job_id, state)
                except ScopeProviderError as err:
                    failures += 1
                    self.log.warning("the job %s could not be checked: %s", self.job_id, err)
                    if time.time() - answered > UNREACHABLE_SECONDS:
                        return "service unreachable"
                if job and outcome(job) != "waiting":
                    return outcome(job)
                look = next_look(
                    failures=failures,
                    tries=None,
                    now=time.time(),
                    deadline=self.deadline,
                    interval_seconds=interval,
                    longest_retry_seconds=LONGEST_RETRY_SECONDS,
                    jitter=random.random(),  # noqa: S311 - spreads looks, guards nothing
                )
                if look.status != "waiting":
                    return "deadline"
                if await self._waits_for_plan(look.seconds):
                    return "waits for its next plan"
        finally:
            self._leave(looks)

    async def _waits_for_plan(self, seconds: float) -> bool:
        """Sleep, and look meanwhile whether the application waits for its next plan.

        It waits for ``spark.app.WAITS_ON_CLUSTER_SECONDS``. A store that does not answer holds nothing up: it
        is asked again for minutes.
        """
        end = time.monotonic() + seconds
        while self.events and (remaining := end - time.monotonic()) > 0:
            pause = min(remaining, SHORTEST_HOLD_SECONDS)
            self._read = self._read or asyncio.create_task(self._asks_for_plan(self.events))
            await asyncio.wait({self._read}, timeout=pause)
            if self._read.done():
                is_asked, self._read = self._read.result(), None
                if is_asked:
                    return True
                await asyncio.sleep(pause)
        await asyncio.sleep(end - time.monotonic())
        return False

    async def _asks_for_plan(self, events: str) -> bool:
        """Read once whether the application waits; what cannot be read tells nothing."""
        from airflow_provider_scope.hooks.stores import store_of
        from airflow_provider_scope.spark import plan as plans

        conn_id = self.storage_conn_id
        try:
            if self._storage is None:
                connection = await get_async_connection(conn_id) if conn_id else None
                store = await asyncio.to_thread(store_of, events, conn_id, connection=connection)
                self._storage = store.storage
            return plans.waits(await asyncio.to_thread(self._storage.read, events))
        except (ScopeProviderError, AirflowNotFoundException) as err:
            self.log.warning("%s could not be read: %s", events, err)
            return False

    async def _looks(self) -> Looks:
        looks_here = _LOOKS.setdefault(asyncio.get_running_loop(), {})
        if self.conn_id not in looks_here:
            jobs = await self._jobs()
            looks_here.setdefault(self.conn_id, Looks(jobs))  # another trigger may have been faster
        return looks_here[self.conn_id]

    def _leave(self, looks: Looks) -> None:
        looks.names.discard(self.job_id)
        if not looks.names:
            _LOOKS[asyncio.get_running_loop()].pop(self.conn_id, None)
            looks.jobs.close()


class Looks:
    """Looks at the jobs of one connection, which all its triggers in one process share.

    :param jobs: What runs the jobs.
    :param clock: Seconds.
    """

    def __init__(self, jobs: WatchedJobs, clock: Callable[[], float] = time.monotonic) -> None:
        self.jobs = jobs
        self.names: set[str] = set()
        """The jobs that are waited for."""
        self._clock = clock
        self._lock = asyncio.Lock()
        self._asked: set[str] = set()
        self._result: Mapping[str, Job] | ScopeProviderError = {}
        self._looked_at = float("-inf")

    async def at(self, job_id: str, interval: float) -> Job | None:
        """Look at a job, or recall a look at all of them that is younger than half an interval.

        :param interval: Seconds between two looks of one trigger.
        :return: None if the service does not know it.
        :raises ScopeProviderError: It could not be read.
        """
        from airflow_provider_scope.engines.manager import ListsJobs

        if not isinstance(self.jobs, ListsJobs):
            return await asyncio.to_thread(self.jobs.get_job, job_id)
        async with self._lock:
            seconds = self._looked_at + interval / 2 - self._clock()
            if seconds > 0 and job_id not in self._asked:
                await asyncio.sleep(seconds)  # for a trigger that has just begun, there is no hurry
            if seconds <= 0 or job_id not in self._asked:
                self._asked = {job_id, *self.names}  # another trigger of the job may have left
                try:
                    self._result = await asyncio.to_thread(self.jobs.get_jobs, sorted(self._asked))
                except ScopeProviderError as err:
                    self._result = err
                self._looked_at = self._clock()
            if isinstance(self._result, ScopeProviderError):
                raise self._result
            return self._result.get(job_id)


_LOOKS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Looks]] = WeakKeyDictionary()
"""By the connection's id."""


def is_over(states: Mapping[str, Any], run_id: str, task_id: str) -> bool:
    """Return whether a task ended for good.

    :param states: What Airflow says: run -> task (with the map index of a mapped one) -> state.
    """
    states_of_run = states.get(run_id) or {}
    of_task = [
        str(state)
        for name, state in states_of_run.items()
        if name == task_id or name.startswith(f"{task_id}_")
    ]
    return bool(of_task) and all(state in OVER for state in of_task)
