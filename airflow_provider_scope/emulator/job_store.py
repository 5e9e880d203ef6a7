"""The jobs and their life cycle.

A job moves on when a request comes in and, without requests, every few milliseconds. All of it
happens under one lock; scripts run outside of it.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_scope.emulator.execution import Outcome, Task
from airflow_provider_scope.emulator.job import (
    BEFORE_RUNNING,
    CHAIN,
    HOLDS_AUS,
    Job,
    cancelled_error,
    compile_error,
    failed_error,
    full,
    submitted,
)
from airflow_provider_scope.emulator.job_files import JobFiles
from airflow_provider_scope.emulator.submission import RejectedError, check_degree, check_priority, check_tags
from airflow_provider_scope.emulator.web import DropConnection

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_provider_scope.emulator.execution import Executor
    from airflow_provider_scope.emulator.switches import Controls

    T = TypeVar("T")
    Form = Callable[[Job, int], T]
    """What is shown of a job; given the offset of its times in minutes."""

_TICK_SECONDS = 0.01
_DETAILS = {
    "New": "userName:;submitMachine:N/A",
    "Scheduling": "Detail:Dispatching job to cluster.",
    "Starting": "runtimeVersion:default",
}


class QueueFullError(Exception):
    """Too many jobs wait."""


class JobStore:
    """All jobs of the account."""

    def __init__(
        self, folder: Path, executor: Executor, controls: Controls, clock: Callable[[], float]
    ) -> None:
        self._files = JobFiles(folder)
        self._executor = executor
        self._controls = controls
        self._clock = clock
        self._changed = threading.Condition(threading.RLock())
        self._jobs: dict[str, Job] = {}
        self._active: dict[str, Job] = {}
        self._unsaved: dict[str, Job] = {}
        self._order = 0
        self._closing = False
        self._pool = ThreadPoolExecutor(executor.workers, thread_name_prefix="emulator-job")
        self._ticker = threading.Thread(target=self._tick, name="emulator-jobs", daemon=True)
        self._load()
        self._ticker.start()

    def close(self) -> None:
        """Stop; scripts that run are waited for, jobs that wait go on at the next start."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._ticker.join()
        self._pool.shutdown(wait=True, cancel_futures=True)

    # ---- what clients ask for ----

    def submit(self, job_id: str, digest: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Take a job, or show the one that has this id and body already.

        :raises RejectedError: The id is in use for another job, or the job asks for too many AUs.
        :raises QueueFullError: Too many jobs wait.
        """
        with self._changed:
            self._check_open()
            self._advance()
            known = self._jobs.get(job_id)
            if known is not None:
                if self._controls.now.duplicate_put == "conflict" or known.digest != digest:
                    raise RejectedError("JobAlreadyExists", f"Job {job_id} exists already.", 409)
                return full(known, self._offset)
            self._check_aus(fields["degree"])
            waiting = sum(job.state in BEFORE_RUNNING for job in self._active.values())
            if waiting >= self._controls.now.max_queued_jobs:
                raise QueueFullError
            now = self.now()
            job = Job(
                job_id=job_id, digest=digest, order=self._next_order(), submitted=now, entered=now, **fields
            )
            job.enter("New", now, _DETAILS["New"])
            self._jobs[job_id] = self._active[job_id] = self._unsaved[job_id] = job
            answer = submitted(job, self._offset)
            self._save()
            self._controls.count("jobs.submitted")
            self._changed.notify_all()
            return answer

    def show(self, job_id: str, form: Form[dict[str, Any]] = full) -> dict[str, Any] | None:
        """Give a job; None when it is not known."""
        with self._changed:
            self._advance()
            job = self._jobs.get(job_id)
            return form(job, self._offset) if job else None

    def items(self, form: Form[T]) -> list[T]:
        """Give all jobs, oldest submission first."""
        with self._changed:
            self._advance()
            return [form(job, self._offset) for job in self._jobs.values()]

    def cancel(self, job_id: str) -> bool:
        """Ask for the end of a job; False when it is not known. Nothing happens to one that ended."""
        with self._changed:
            self._check_open()
            self._advance()
            job = self._jobs.get(job_id)
            if job is not None and job.state != "Ended" and not job.cancelled:
                job.cancelled = True
                self._unsaved[job_id] = job
                self._controls.count("jobs.cancelled")
                self._advance()
            return job is not None

    def give_way(self, job_id: str) -> bool:
        """Put a running job back into the queue; False when it is not known.

        Nothing happens to a job that does not run, or whose script has begun.
        """
        with self._changed:
            self._check_open()
            self._advance()
            job = self._jobs.get(job_id)
            if job is not None and job.kind != "Scope":
                raise RejectedError("InvalidJobType", "Only Scope jobs can yield.")
            if job is not None and job.state == "Running" and job.run == "no":
                job.order = self._next_order()
                self._enter(job, "Yielded", self.now())
                self._advance()
            return job is not None

    def update(self, job_id: str, payload: dict[str, Any]) -> dict[str, Any] | None:
        """Change AUs, priority or tags; None when the job is not known.

        :raises RejectedError: The job is not a Scope job, has ended, or a value is not valid.
        """
        with self._changed:
            self._check_open()
            self._advance()
            job = self._jobs.get(job_id)
            if job is None:
                return None
            if job.kind != "Scope":
                raise RejectedError("InvalidJobType", "Only Scope jobs can be updated.")
            if job.state == "Ended":
                raise RejectedError("InvalidJobState", "The job has ended.")
            degree = check_degree(payload.get("degreeOfParallelism"))
            priority = check_priority(payload.get("priority"))
            tags = check_tags(payload.get("tags"), job.kind)
            if degree is not None:
                self._check_aus(degree)
            job.degree = degree or job.degree
            job.priority = priority or job.priority
            job.tags = job.tags if tags is None else tags
            self._unsaved[job_id] = job
            self._advance()
            return full(job, self._offset)

    # ---- the life cycle ----

    def _tick(self) -> None:
        with self._changed:
            while not self._closing:
                self._advance()
                # Time may be injected, so it is looked at often, but only while a job waits for it.
                self._changed.wait(_TICK_SECONDS if self._active else None)

    def _advance(self) -> None:
        """Move every job as far as it can go."""
        if self._closing:
            return
        now = self.now()
        moved = True
        while moved:
            steps = [self._step(job, now) for job in list(self._active.values())]
            moved = self._admit(now) or any(steps)
        self._forget(now)
        self._save()

    def _step(self, job: Job, now: float) -> bool:
        """Move a job by one state at most."""
        if job.cancelled and job.run != "begun":
            return self._step_to_cancelled(job, now)
        seconds = self._controls.now.state_seconds.get(job.state, 0.0)
        due = now >= job.entered + seconds
        if job.state == "Running":
            return self._step_running(job, now, due=due)
        if job.state == "Queued" or not due:
            return False
        if job.state == "Compiling" and job.diagnostics:
            self._end(job, "Failed", now)
        elif job.state == "Finalizing":
            self._end(job, "Failed" if job.failure else "Succeeded", now)
        elif job.state == "Yielded":
            self._enter(job, "Queued", now)
        else:
            following = CHAIN[CHAIN.index(job.state) + 1]
            self._enter(job, following, job.entered + seconds, _DETAILS.get(following))
            if following == "Running":
                job.started = job.entered
                job.audit[-1]["details"] = "runAttempt:1"
        return True

    def _step_running(self, job: Job, now: float, *, due: bool) -> bool:
        if job.run == "no" and (due or self._controls.now.commit_at == "start"):
            self._begin(job)
            return True
        if job.run != "done" or not due:
            return False
        if self._controls.now.state_seconds.get("Finalizing"):
            self._enter(job, "Finalizing", now)
        else:
            self._end(job, "Failed" if job.failure else "Succeeded", now)
        return True

    def _step_to_cancelled(self, job: Job, now: float) -> bool:
        seconds = self._controls.now.state_seconds.get("Finalizing", 0.0)
        if job.state == "Running" and seconds:
            self._enter(job, "Finalizing", now)
            return True
        if job.state == "Finalizing" and now < job.entered + seconds:
            return False
        self._end(job, "Cancelled", now)
        return True

    def _admit(self, now: float) -> bool:
        """Let jobs out of the queue: the most important first, and nobody overtakes it."""
        queue = sorted(
            (job for job in self._active.values() if job.state == "Queued"),
            key=lambda job: (job.priority, job.order),
        )
        if not queue:
            return False
        running = [job for job in self._active.values() if job.state in HOLDS_AUS]
        aus, count = sum(job.degree for job in running), len(running)
        switches = self._controls.now
        moved = False
        for job in queue:
            held = now < job.entered + switches.state_seconds.get("Queued", 0.0)
            if held:
                continue
            if count >= switches.max_running_jobs or aus + job.degree > switches.max_aus:
                break
            self._enter(job, "Scheduling", now, _DETAILS["Scheduling"])
            aus, count, moved = aus + job.degree, count + 1, True
        return moved

    def _begin(self, job: Job) -> None:
        """Have the script run. Its record is saved before the lock is free, so before the script."""
        job.run = "begun"
        job.attempts += 1
        self._unsaved[job.job_id] = job
        faults = self._controls.job_faults(job.name)
        self._pool.submit(self._execute, job, faults)

    def _execute(self, job: Job, faults: list[str]) -> None:
        with self._changed:
            task = Task(
                job.job_id,
                str(job.properties["script"]),
                names_job=self._controls.now.commit_metadata,
                is_cancelled=lambda: job.cancelled,
            )
        if "fail_job" in faults:
            outcome = Outcome("The job was made to fail before it ran.", user_error=False)
        elif job.kind != "Scope":
            outcome = Outcome(f"The emulator does not run {job.kind} scripts.", user_error=False)
        else:
            self._controls.count("jobs.executed")
            outcome = self._outcome(task)
            if "fail_after_commit" in faults:
                outcome = Outcome("The job was made to fail after it ran.", user_error=False)
        with self._changed:
            job.run = "done"
            job.failure, job.user_error = outcome.failure, outcome.user_error
            self._unsaved[job.job_id] = job
            self._save()
            self._advance()
            self._changed.notify_all()

    def _outcome(self, task: Task) -> Outcome:
        try:
            return self._executor.execute(task)
        except Exception as err:  # noqa: BLE001 - whatever happens, the job must end
            return Outcome(f"{type(err).__name__}: {err}", user_error=False)

    def _enter(self, job: Job, state: str, now: float, details: str | None = None) -> None:
        job.enter(state, now, details)
        self._unsaved[job.job_id] = job

    def _end(self, job: Job, result: str, now: float) -> None:
        detail = "CanceledByUser" if result == "Cancelled" else result
        self._enter(job, "Ended", now, f"result:{detail}")
        job.result = result
        job.ended = job.entered
        if result == "Cancelled":
            job.errors = [cancelled_error()]
        elif job.diagnostics:
            job.errors = [compile_error(one) for one in job.diagnostics]
        elif result == "Failed":
            job.errors = [failed_error(job.failure, user_error=job.user_error)]
        del self._active[job.job_id]
        self._controls.count(f"jobs.ended.{result}")

    def _forget(self, now: float) -> None:
        limit = now - self._controls.now.retention_seconds
        for job_id in [j.job_id for j in self._jobs.values() if j.ended is not None and j.ended < limit]:
            self._save()
            del self._jobs[job_id]
            self._files.delete(job_id)

    # ---- the rest ----

    def _load(self) -> None:
        for job in self._files.load():
            self._jobs[job.job_id] = job
            self._order = max(self._order, job.order)
            if job.state == "Ended":
                continue
            self._active[job.job_id] = job
            if job.run != "begun":
                continue
            self._unsaved[job.job_id] = job
            if self._controls.now.restart == "fail":
                job.run, job.user_error = "done", False
                job.failure = "The service was restarted while the job was running."
            else:
                job.run = "no"
                job.enter("Running", self.now(), f"runAttempt:{job.attempts + 1}")

    def _save(self) -> None:
        for job in self._unsaved.values():
            self._files.save(job)
        self._unsaved.clear()

    def _check_open(self) -> None:
        """Answer nothing once the emulator stops: the next one may have the jobs already."""
        if self._closing:
            raise DropConnection

    def _check_aus(self, degree: int) -> None:
        limit = self._controls.now.max_aus
        if degree > limit:
            raise RejectedError(
                "AuLimitExceeded",
                f"This job was rejected because it requires {degree} AUs. This account's "
                f"administrator-defined policy prevents a job from using more than {limit} AUs.",
            )

    def _next_order(self) -> int:
        self._order += 1
        return self._order

    def now(self) -> float:
        """Give the time by the clock of the service, in seconds since the epoch."""
        return self._clock() + self._controls.now.clock_skew_seconds

    @property
    def _offset(self) -> int:
        return self._controls.now.utc_offset_minutes
