"""A job as a value that survives a restart, and as the JSON that clients see."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from airflow_provider_scope.emulator.wire import duration, timestamp

CHAIN = ("New", "Compiling", "Queued", "Scheduling", "Starting", "Running", "Finalizing", "Ended")
"""The order of the states; a yield leads from Running through Yielded back to Queued."""
BEFORE_RUNNING = frozenset({"New", "Compiling", "Queued"})
HOLDS_AUS = frozenset({"Scheduling", "Starting", "Running", "Finalizing"})
SUBMITTER = "emulator@example.com"


@dataclass(slots=True)
class Job:
    """One job. Times are seconds since the epoch, by the clock of the service."""

    job_id: str
    name: str
    kind: str
    degree: int
    priority: int
    properties: dict[str, Any]
    digest: str
    """Of the body that submitted it, without regard to spacing and order of keys."""
    order: int
    """Grows with every submission and yield: who comes first among equal priorities."""
    submitted: float
    log_file_patterns: list[str] | None = None
    related: dict[str, Any] | None = None
    tags: dict[str, str] | None = None
    state: str = "New"
    result: str = "None"
    entered: float = 0.0
    """When the present state began."""
    started: float | None = None
    ended: float | None = None
    audit: list[dict[str, Any]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    run: str = "no"
    """Whether its script was run: ``no``, ``begun``, ``done``."""
    attempts: int = 0
    """How often the script was begun; more than once only after a kill of the emulator."""
    failure: str = ""
    """Why the script failed; empty if it did not."""
    user_error: bool = True
    diagnostics: list[dict[str, Any]] = field(default_factory=list)
    """What is wrong with the script, so that it cannot be compiled; empty if it can."""
    cancelled: bool = False

    def to_record(self) -> dict[str, Any]:
        """Give what is kept on disk."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Job:
        """Read what was kept on disk."""
        return cls(**record)

    def enter(self, state: str, now: float, details: str | None = None) -> None:
        """Begin a state."""
        self.state = state
        self.entered = max(now, self.entered)
        entry: dict[str, Any] = {"newState": state, "time": self.entered}
        if details is not None:
            entry["details"] = details
        self.audit.append(entry)


def basic(job: Job, offset_minutes: int) -> dict[str, Any]:
    """Give the fields of an item in a list."""
    shown: dict[str, Any] = {
        "jobId": job.job_id,
        "name": job.name,
        "type": job.kind,
        "submitter": SUBMITTER,
        "degreeOfParallelism": job.degree,
        "priority": job.priority,
        "submitTime": timestamp(job.submitted, offset_minutes),
    }
    if job.started is not None:
        shown["startTime"] = timestamp(job.started, offset_minutes)
    if job.ended is not None:
        shown["endTime"] = timestamp(job.ended, offset_minutes)
    shown["state"] = job.state
    shown["result"] = job.result
    shown["logFolder"] = _log_folder(job)
    optional = {"logFilePatterns": job.log_file_patterns, "related": job.related, "tags": job.tags}
    shown.update({name: value for name, value in optional.items() if value is not None})
    return shown


def full(job: Job, offset_minutes: int) -> dict[str, Any]:
    """Give everything that a GET of one job shows."""
    shown = basic(job, offset_minutes)
    if job.errors:
        shown["errorMessage"] = job.errors
    shown["stateAuditRecords"] = [_audit(entry, offset_minutes) for entry in job.audit]
    properties: dict[str, Any] = {
        "owner": SUBMITTER,
        "runtimeVersion": job.properties.get("runtimeVersion") or "default",
        "resources": [],
        "rootProcessNodeId": job.job_id,
        "script": job.properties["script"],
        "totalCompilationTime": duration(_spent(job, "Compiling")),
        "totalQueuedTime": duration(_spent(job, "Queued")),
        "totalRunningTime": duration(_spent(job, "Running")),
        "totalPausedTime": duration(0),
        "expirationTimeUtc": "0001-01-01T00:00:00",
        "type": job.kind,
    }
    if job.result == "Failed":
        properties["errorSource"] = "UserError" if job.user_error else "Unknown"
    if job.properties.get("notifier"):
        properties["notifier"] = job.properties["notifier"]
    shown["properties"] = properties
    return shown


def submitted(job: Job, offset_minutes: int) -> dict[str, Any]:
    """Give the answer to a PUT: compiling already, with one audit record and without the script."""
    shown = full(job, offset_minutes)
    shown["state"] = "Compiling"
    for name in ("script", "resources"):
        del shown["properties"][name]
    return shown


def statistics(job: Job, offset_minutes: int) -> dict[str, Any]:  # noqa: ARG001 - one of the forms of a job
    """Give the statistics: the script is one stage, and what it read and wrote is not known."""
    shown: dict[str, Any] = {"lastUpdateTimeUtc": timestamp(job.entered, 0)}
    if job.state in ("Finalizing", "Ended"):
        final = next(entry for entry in job.audit if entry["newState"] in ("Finalizing", "Ended"))
        shown["finalizingTimeUtc"] = timestamp(final["time"], 0)
    spent = (job.ended or job.entered) - (job.started or job.entered)
    succeeded, failed = job.result == "Succeeded", job.result in ("Failed", "Cancelled")
    shown["stages"] = (
        []
        if job.started is None
        else [
            {
                "stageName": "Script",
                "totalCount": 1,
                "succeededCount": int(succeeded),
                "failedCount": int(failed),
                "runningCount": int(job.state in ("Running", "Finalizing")),
                "scheduledCount": int(job.state in ("Queued", "Scheduling", "Starting", "Yielded")),
                "totalProgress": 100 if succeeded else 0,
                "totalSucceededTime": duration(spent if succeeded else 0),
                "totalFailedTime": duration(spent if failed else 0),
            }
        ]
    )
    return shown


def debug_data(job: Job, offset_minutes: int) -> dict[str, Any]:  # noqa: ARG001 - one of the forms of a job
    """Give where a job would have left what helps to debug it; nothing is written there."""
    return {"jobId": job.job_id, "command": "", "paths": [_log_folder(job)]}


def cancelled_error() -> dict[str, Any]:
    """Give the error message of a job that was cancelled, as it was recorded."""
    return _error(
        error_id="I_USER_CJS_CANCELEDBYUSER",
        name="CANCELED_BY_USER",
        severity="Info",
        source="User",
        message="Job was cancelled.",
        description=f"Job was cancelled by {SUBMITTER}.",
    )


def compile_error(diagnostic: dict[str, Any]) -> dict[str, Any]:
    """Give the error message of a job that could not be compiled."""
    code, _, message = diagnostic["message"].partition(": ")
    return _error(
        error_id=code,
        name=code,
        severity="Error",
        source="USER",
        message=diagnostic["message"],
        description=message,
    ) | {
        "component": "CSC",
        "lineNumber": diagnostic["lineNumber"],
        "startOffset": diagnostic["start"],
        "endOffset": diagnostic["end"],
    }


def failed_error(message: str, *, user_error: bool) -> dict[str, Any]:
    """Give the error message of a job that failed; the identifiers are the emulator's own."""
    return _error(
        error_id="E_EMULATOR_USER_SCRIPTFAILED" if user_error else "E_EMULATOR_SYSTEM_JOBFAILED",
        name="SCRIPT_FAILED" if user_error else "JOB_FAILED",
        severity="Error",
        source="USER" if user_error else "SYSTEM",
        message=message,
        description=message,
    )


def _error(
    *, error_id: str, name: str, severity: str, source: str, message: str, description: str
) -> dict[str, Any]:
    return {
        "errorId": error_id,
        "name": name,
        "severity": severity,
        "source": source,
        "component": "CJS",
        "message": message,
        "description": description,
        "details": "",
        "resolution": "",
        "helpLink": "",
        "filePath": "",
        "innerError": None,
    }


def _audit(entry: dict[str, Any], offset_minutes: int) -> dict[str, Any]:
    shown = {"newState": entry["newState"], "timeStamp": timestamp(entry["time"], offset_minutes)}
    if "details" in entry:
        shown["details"] = entry["details"]
    return shown


def _spent(job: Job, state: str) -> float:
    """Give the seconds that a job spent in a state, until it left it."""
    spent = 0.0
    for entry, following in zip(job.audit, job.audit[1:], strict=False):
        if entry["newState"] == state:
            spent += following["time"] - entry["time"]
    return spent


def _log_folder(job: Job) -> str:
    moment = datetime.fromtimestamp(job.submitted, UTC)
    return (
        f"adl://emulator.azuredatalakestore.net/system/jobservice/jobs/{job.kind}"
        f"/{moment:%Y/%m/%d/%H/%M}/{job.job_id}/"
    )
