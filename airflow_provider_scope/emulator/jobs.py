"""The jobs and their life cycle.

Jobs advance at every request and, without requests, every few milliseconds. This happens under one lock;
scripts run outside of it.
"""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.emulator.scripts import SYNTAX_ERROR, Outcome, ScriptRunner, Task
from airflow_provider_scope.emulator.web import DropConnection, timestamp

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_provider_scope.emulator.switches import Controls


STATES = ("New", "Compiling", "Queued", "Scheduling", "Starting", "Running", "Finalizing", "Ended")
"""In their order."""
_DETAILS = {
    "New": "userName:;submitMachine:N/A",
    "Scheduling": "Detail:Dispatching job to cluster.",
    "Starting": "runtimeVersion:default",
    "Running": "runAttempt:1",
}
_SUBMITTER = "emulator@example.com"
_TICK_SECONDS = 0.01
_WORKERS = 4
"""How many scripts run at the same time."""


class RejectedError(Exception):
    """The request is answered with an error of the job service."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


@dataclass(slots=True)
class Job:
    """One job, as it survives a restart. Times are seconds since the epoch, by the clock of the service."""

    job_id: str
    payload: dict[str, Any]
    """The body that submitted it."""
    order: int
    """Grows with every submission."""
    submitted: float
    syntax_error: dict[str, Any] | None = None
    """Why the script cannot be compiled: the message and its place in the script."""
    state: str = "New"
    result: str = "None"
    entered: float = 0.0
    """When the current state began."""
    started: float | None = None
    ended: float | None = None
    audit: list[dict[str, Any]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    run: str = "no"
    """Whether its script was run: ``no``, ``begun`` or ``done``."""
    attempts: int = 0
    """How often the script was begun; more than once only if the emulator was killed."""
    failure: str = ""
    """Why the script failed; empty if it did not."""
    user_error: bool = True
    cancelled: bool = False

    @property
    def priority(self) -> int:
        """A lower number is more important."""
        return self.payload.get("priority") or 1000

    def enter(self, state: str, now: float, details: str | None = None) -> None:
        """Begin a state."""
        self.state = state
        self.entered = max(now, self.entered)
        entry: dict[str, Any] = {"newState": state, "time": self.entered}
        if details is not None:
            entry["details"] = details
        self.audit.append(entry)


class JobStore:
    """All jobs of the account.

    Each is one file on disk, replaced atomically, so a kill leaves the old or the new record. Files are not
    forced to the disk: they survive a kill of the process, not a power cut.
    """

    def __init__(
        self, folder: Path, runner: ScriptRunner, controls: Controls, clock: Callable[[], float]
    ) -> None:
        self._folder = folder
        self._runner = runner
        self._controls = controls
        self._clock = clock
        self._changed = threading.Condition(threading.RLock())
        self._jobs: dict[str, Job] = {}
        self._active: dict[str, Job] = {}
        self._unsaved: dict[str, Job] = {}
        self._closing = False
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="emulator-job")
        self._ticker = threading.Thread(target=self._tick, name="emulator-jobs", daemon=True)
        self._load()
        self._ticker.start()

    def close(self) -> None:
        """Stop. Running scripts are waited for; waiting jobs continue at the next start."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._ticker.join()
        self._pool.shutdown(wait=True, cancel_futures=True)

    # ---- what clients ask for ----

    def submit(
        self, job_id: str, payload: dict[str, Any], syntax_error: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Accept a job, or give the existing one with this id and body.

        :raises RejectedError: The id is in use for another job.
        """
        with self._changed:
            self._check_open()
            self._advance()
            existing = self._jobs.get(job_id)
            if existing is not None:
                if self._controls.now.duplicate_put == "conflict" or existing.payload != payload:
                    raise RejectedError("JobAlreadyExists", f"Job {job_id} exists already.", 409)
                return full_json(existing)
            now = self._clock()
            order = max((job.order for job in self._jobs.values()), default=0) + 1
            job = Job(job_id, payload, order, now, syntax_error)
            self._jobs[job_id] = self._active[job_id] = job
            self._enter(job, "New", now)
            self._save()
            self._controls.count("jobs.submitted")
            self._changed.notify_all()
            return submitted_json(job)

    def show(self, job_id: str) -> dict[str, Any]:
        with self._changed:
            self._advance()
            return full_json(self._job(job_id))

    def items(self) -> list[dict[str, Any]]:
        """Return all jobs as a list shows them, the oldest submission first."""
        with self._changed:
            self._advance()
            return [basic_json(job) for job in self._jobs.values()]

    def cancel(self, job_id: str) -> None:
        """Request the cancellation of a job; nothing happens if it has ended.

        :raises RejectedError: It is not known.
        """
        with self._changed:
            self._check_open()
            self._advance()
            job = self._job(job_id)
            if job.state != "Ended" and not job.cancelled:
                job.cancelled = True
                self._unsaved[job_id] = job
                self._controls.count("jobs.cancelled")
                self._advance()

    # ---- the life cycle ----

    def _tick(self) -> None:
        with self._changed:
            while not self._closing:
                self._advance()
                # The clock may be a fake one, so it is read often, but only while a job is waiting for it.
                self._changed.wait(_TICK_SECONDS if self._active else None)

    def _advance(self) -> None:
        """Advance every job as far as possible."""
        if self._closing:
            return
        now = self._clock()
        has_moved = True
        while has_moved:
            has_moved = sum(self._step(job, now) for job in list(self._active.values())) > 0
        self._save()

    def _step(self, job: Job, now: float) -> bool:
        """Advance a job by at most one state; tell whether it has changed."""
        if job.cancelled and job.run != "begun":
            return self._step_to_cancelled(job, now)
        is_due = now >= self._due(job)
        is_running = job.state == "Running"
        if is_running and job.run == "no" and (is_due or self._controls.now.commit_at == "start"):
            self._begin(job)
            return True
        if not is_due or (is_running and job.run != "done"):
            return False
        if job.state == "Finalizing" or (job.state == "Compiling" and job.syntax_error):
            self._end(job, now)
        else:
            # A script takes its own time.
            self._enter(job, STATES[STATES.index(job.state) + 1], now if is_running else self._due(job))
        return True

    def _step_to_cancelled(self, job: Job, now: float) -> bool:
        if job.state == "Running":
            self._enter(job, "Finalizing", now)
            return True
        if job.state == "Finalizing" and now < self._due(job):
            return False
        self._end(job, now)
        return True

    def _begin(self, job: Job) -> None:
        """Start the script in a thread; it waits for the lock, and so until the job's record is saved."""
        job.run = "begun"
        job.attempts += 1
        self._unsaved[job.job_id] = job
        self._pool.submit(self._execute, job, self._controls.job_faults(job.payload["name"]))

    def _execute(self, job: Job, faults: list[str]) -> None:
        with self._changed:
            task = Task(job.job_id, job.payload["properties"]["script"], lambda: job.cancelled)
        if "fail_job" in faults:
            outcome = Outcome("The job was made to fail before it ran.", user_error=False)
        else:
            self._controls.count("jobs.executed")
            try:
                outcome = self._runner.execute(task)
            except Exception as err:  # noqa: BLE001 - whatever happens, the job must end
                outcome = Outcome(f"{type(err).__name__}: {err}", user_error=False)
            if "fail_after_commit" in faults:
                outcome = Outcome("The job was made to fail after it ran.", user_error=False)
        with self._changed:
            job.run = "done"
            job.failure, job.user_error = outcome.failure, outcome.user_error
            self._unsaved[job.job_id] = job
            self._save()
            self._advance()
            self._changed.notify_all()

    def _enter(self, job: Job, state: str, now: float) -> None:
        job.enter(state, now, _DETAILS.get(state))
        if state == "Running":
            job.started = job.entered
        self._unsaved[job.job_id] = job

    def _end(self, job: Job, now: float) -> None:
        if job.cancelled:
            job.result, job.errors = "Cancelled", [_CANCELLED]
        elif job.syntax_error:
            job.result, job.errors = "Failed", [_error(SYNTAX_ERROR, **job.syntax_error, component="CSC")]
        elif job.failure:
            error_id = "E_EMULATOR_USER_SCRIPTFAILED" if job.user_error else "E_EMULATOR_SYSTEM_JOBFAILED"
            source = "USER" if job.user_error else "SYSTEM"
            job.result, job.errors = "Failed", [_error(error_id, job.failure, source=source)]
        else:
            job.result = "Succeeded"
        detail = "CanceledByUser" if job.cancelled else job.result
        job.enter("Ended", now, f"result:{detail}")
        job.ended = job.entered
        self._unsaved[job.job_id] = self._active.pop(job.job_id)
        self._controls.count(f"jobs.ended.{job.result}")

    # ---- the rest ----

    def _load(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        jobs = [Job(**json.loads(path.read_bytes())) for path in self._folder.glob("*.json")]
        for job in sorted(jobs, key=lambda job: job.order):
            self._jobs[job.job_id] = job
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
                job.enter("Running", self._clock(), f"runAttempt:{job.attempts + 1}")

    def _save(self) -> None:
        for job in self._unsaved.values():
            temporary = self._folder / f".{job.job_id}.tmp"
            temporary.write_text(json.dumps(asdict(job)), encoding="utf-8")
            temporary.replace(self._path(job))
        self._unsaved.clear()

    def _job(self, job_id: str) -> Job:
        if job_id not in self._jobs:
            raise RejectedError("JobNotFound", "Job is not found.", 404)
        return self._jobs[job_id]

    def _path(self, job: Job) -> Path:
        return self._folder / f"{job.job_id}.json"

    def _check_open(self) -> None:
        """Refuse to answer once the emulator stops: the next one may have the jobs already."""
        if self._closing:
            raise DropConnection

    def _due(self, job: Job) -> float:
        """Return the earliest time at which a job may leave its state."""
        return job.entered + self._controls.now.state_seconds.get(job.state, 0.0)


# ---- The JSON that clients see, with the fields that any of them reads ----


def basic_json(job: Job) -> dict[str, Any]:
    """Return the fields of a job in a list."""
    item: dict[str, Any] = {
        "jobId": job.job_id,
        "name": job.payload["name"],
        "type": "Scope",
        "submitter": _SUBMITTER,
        # Less than 1 counts as 1, as the specification says for numbers below 0.
        "degreeOfParallelism": max(job.payload.get("degreeOfParallelism") or 1, 1),
        "priority": job.priority,
        "submitTime": timestamp(job.submitted),
    }
    if job.started is not None:
        item["startTime"] = timestamp(job.started)
    if job.ended is not None:
        item["endTime"] = timestamp(job.ended)
    moment = datetime.fromtimestamp(job.submitted, UTC)
    folder = f"system/jobservice/jobs/Scope/{moment:%Y/%m/%d/%H/%M}/{job.job_id}/"
    item |= {
        "state": job.state,
        "result": job.result,
        "logFolder": f"adl://emulator.azuredatalakestore.net/{folder}",
    }
    return item | {name: job.payload[name] for name in ("related", "tags") if job.payload.get(name)}


def full_json(job: Job) -> dict[str, Any]:
    """Return the fields of a job in the answer to a GET."""
    body = basic_json(job)
    if job.errors:
        body["errorMessage"] = job.errors
    body["stateAuditRecords"] = [
        {"newState": entry["newState"], "timeStamp": timestamp(entry["time"])}
        | ({"details": entry["details"]} if "details" in entry else {})
        for entry in job.audit
    ]
    properties = job.payload["properties"]
    body["properties"] = {
        "owner": _SUBMITTER,
        "runtimeVersion": properties.get("runtimeVersion") or "default",
        "script": properties["script"],
        "type": "Scope",
    }
    if job.result == "Failed":
        body["properties"]["errorSource"] = "UserError" if job.user_error else "Unknown"
    return body


def submitted_json(job: Job) -> dict[str, Any]:
    """Return the answer to a PUT: already compiling, with one audit record and without the script."""
    body = full_json(job) | {"state": "Compiling"}
    del body["properties"]["script"]
    return body


def _error(error_id: str, message: str, **fields: Any) -> dict[str, Any]:
    """Return an item of a job's errors. The identifiers for failed scripts are the emulator's own."""
    return {
        "errorId": error_id,
        "name": error_id,
        "severity": "Error",
        "source": "USER",
        "component": "CJS",
        "message": message,
        "description": message,
        "details": "",
        "resolution": "",
        "helpLink": "",
        "filePath": "",
        "innerError": None,
        **fields,
    }


_CANCELLED = _error(
    "I_USER_CJS_CANCELEDBYUSER",
    "Job was cancelled.",
    name="CANCELED_BY_USER",
    severity="Info",
    source="User",
    description=f"Job was cancelled by {_SUBMITTER}.",
)
"""As it was recorded."""
