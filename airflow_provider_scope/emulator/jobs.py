"""The job service: the jobs and their life cycle, and the requests about them.

Jobs advance at every request and, without requests, every few milliseconds. This happens under one lock;
scripts run outside of it.
"""

from __future__ import annotations

import json
import operator
import re
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from airflow_provider_scope.emulator.scripts import compile_script
from airflow_provider_scope.emulator.web import DropConnection, Response, json_response, timestamp
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.scope.client import API_VERSION
from airflow_provider_scope.scope.dialect import ScriptError
from airflow_provider_scope.scope.jobs import NAME_LIMIT, SCRIPT_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_provider_scope.emulator.scripts import ScriptRunner
    from airflow_provider_scope.emulator.switches import Controls
    from airflow_provider_scope.emulator.web import Request


STATES = ("New", "Compiling", "Queued", "Scheduling", "Starting", "Running", "Finalizing", "Ended")
"""In their order."""
_DETAILS = {
    "New": "userName:;submitMachine:N/A",
    "Scheduling": "Detail:Dispatching job to cluster.",
    "Starting": "runtimeVersion:default",
    "Running": "runAttempt:1",
}
_SUBMITTER = "emulator@example.com"
_SYNTAX_ERROR = "E_CSC_USER_SYNTAXERROR"
"""The recorded code."""
_TICK_SECONDS = 0.01
_WORKERS = 4
"""How many scripts run at the same time."""


class RejectedError(Exception):
    """The request is answered with an error of the job service."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


# ---- the jobs ----


@dataclass(slots=True)
class Job:
    """One job, as it survives a restart. Times are seconds since the epoch, by the clock of the service."""

    job_id: str
    payload: dict[str, Any]
    """The body that submitted it."""
    order: int
    """Grows with every submission."""
    error: dict[str, Any] | None
    """Why it fails, as clients see it once it has ended; known from the start if it does not compile."""
    audit: list[dict[str, Any]] = field(default_factory=list)
    """The states that it was in, the oldest first, with the time at which each began."""
    run: str = "no"
    """Whether its script was run: ``no``, ``begun`` or ``done``."""
    cancelled: bool = False

    @property
    def state(self) -> str:
        return str(self.audit[-1]["newState"])

    @property
    def result(self) -> str:
        if self.state != "Ended":
            return "None"
        return "Cancelled" if self.cancelled else "Failed" if self.error else "Succeeded"

    def began(self, state: str) -> float | None:
        """Return when a state began first; None if it did not yet."""
        return next((entry["time"] for entry in self.audit if entry["newState"] == state), None)

    def enter(self, state: str, now: float, details: str | None) -> None:
        time = max(now, self.audit[-1]["time"]) if self.audit else now
        entry: dict[str, Any] = {"newState": state, "time": time}
        self.audit.append(entry if details is None else {**entry, "details": details})


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
        self._changed = threading.Condition()
        self._jobs: dict[str, Job] = {}
        self._active: dict[str, Job] = {}
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

    def submit(self, job_id: str, payload: dict[str, Any], error: dict[str, Any] | None) -> dict[str, Any]:
        """Accept a job, or give the existing one with this id and body.

        :param error: Why its script does not compile.
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
            order = max((job.order for job in self._jobs.values()), default=0) + 1
            job = Job(job_id, payload, order, error)
            self._enter(job, "New", self._clock())
            self._jobs[job_id] = self._active[job_id] = job
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
                self._save(job)
                self._advance()

    def _job(self, job_id: str) -> Job:
        if job_id not in self._jobs:
            raise RejectedError("JobNotFound", "Job is not found.", 404)
        return self._jobs[job_id]

    def _check_open(self) -> None:
        """Refuse to answer once the emulator stops: the next one may have the jobs already."""
        if self._closing:
            raise DropConnection

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

    def _step(self, job: Job, now: float) -> bool:
        """Advance a job by at most one state; tell whether it has changed."""
        if job.cancelled and job.run != "begun":
            return self._step_to_cancelled(job, now)
        due = self._due(job)
        if now < due:
            return False
        match job.state:
            case "Running" if job.run == "no":
                self._begin(job)
            case "Running" if job.run == "begun":
                return False
            case "Running":
                self._enter(job, "Finalizing", now)  # a script takes its own time
            case "Compiling" if job.error:
                self._end(job, now)
            case "Finalizing":
                self._end(job, now)
            case _:
                self._enter(job, STATES[STATES.index(job.state) + 1], due)
        return True

    def _step_to_cancelled(self, job: Job, now: float) -> bool:
        if job.state == "Running":
            self._enter(job, "Finalizing", now)
            return True
        if job.state == "Finalizing" and now < self._due(job):
            return False
        self._end(job, now)
        return True

    def _due(self, job: Job) -> float:
        """Return the earliest time at which a job may leave its state."""
        entered: float = job.audit[-1]["time"]
        return entered + self._controls.now.state_seconds.get(job.state, 0.0)

    def _enter(self, job: Job, state: str, now: float) -> None:
        job.enter(state, now, _DETAILS.get(state))
        self._save(job)

    def _begin(self, job: Job) -> None:
        """Start the script in a thread, once the record says so: after a kill it is known to have begun."""
        job.run = "begun"
        self._save(job)
        self._pool.submit(self._execute, job, self._controls.job_faults(job.payload["name"]))

    def _execute(self, job: Job, faults: list[str]) -> None:
        error = None
        if "fail_job" in faults:
            error = _system_error("The job was made to fail before it ran.")
        else:
            self._controls.count("jobs.executed")
            try:
                script = job.payload["properties"]["script"]
                self._runner.execute(job.job_id, script, is_cancelled=lambda: job.cancelled)
            except InputError as err:
                error = _error("E_EMULATOR_USER_SCRIPTFAILED", err.what)
            except Exception as err:  # noqa: BLE001 - whatever happens, the job must end
                error = _system_error(f"{type(err).__name__}: {err}")
            if "fail_after_commit" in faults:
                error = _system_error("The job was made to fail after it ran.")
        with self._changed:
            job.run, job.error = "done", error
            self._save(job)
            self._advance()
            self._changed.notify_all()

    def _end(self, job: Job, now: float) -> None:
        result = "CanceledByUser" if job.cancelled else "Failed" if job.error else "Succeeded"
        job.enter("Ended", now, f"result:{result}")
        del self._active[job.job_id]
        self._save(job)

    # ---- the records on disk ----

    def _load(self) -> None:
        """Read the jobs; a script that was running when the emulator was killed is run again."""
        self._folder.mkdir(parents=True, exist_ok=True)
        jobs = [Job(**json.loads(path.read_bytes())) for path in self._folder.glob("*.json")]
        for job in sorted(jobs, key=lambda job: job.order):
            self._jobs[job.job_id] = job
            if job.state == "Ended":
                continue
            self._active[job.job_id] = job
            if job.run == "begun":
                job.run = "no"
                attempts = [entry["newState"] for entry in job.audit].count("Running")
                job.enter("Running", self._clock(), f"runAttempt:{attempts + 1}")
                self._save(job)

    def _save(self, job: Job) -> None:
        temporary = self._folder / f".{job.job_id}.tmp"
        temporary.write_text(json.dumps(asdict(job)), encoding="utf-8")
        temporary.replace(self._folder / f"{job.job_id}.json")


# ---- the JSON that clients see, with the fields that any of them reads ----


def basic_json(job: Job) -> dict[str, Any]:
    """Return the fields of a job in a list."""
    payload = job.payload
    item: dict[str, Any] = {
        "jobId": job.job_id,
        "name": payload["name"],
        "type": "Scope",
        "submitter": _SUBMITTER,
        # Less than 1 counts as 1, as the specification says for numbers below 0.
        "degreeOfParallelism": max(payload.get("degreeOfParallelism") or 1, 1),
        "priority": payload.get("priority") or 1000,
    }
    for name, state in {"submitTime": "New", "startTime": "Running", "endTime": "Ended"}.items():
        time = job.began(state)
        if time is not None:
            item[name] = timestamp(time)
    item |= {"state": job.state, "result": job.result}
    return item | {name: payload[name] for name in ("related", "tags") if payload.get(name)}


def full_json(job: Job) -> dict[str, Any]:
    """Return the fields of a job in the answer to a GET."""
    body = basic_json(job)
    if job.result in ("Cancelled", "Failed"):
        body["errorMessage"] = [_CANCELLED if job.cancelled else job.error]
    body["stateAuditRecords"] = [
        {"newState": entry["newState"], "timeStamp": timestamp(entry["time"])}
        | ({"details": entry["details"]} if "details" in entry else {})
        for entry in job.audit
    ]
    body["properties"] = {"script": job.payload["properties"]["script"], "type": "Scope"}
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


def _system_error(message: str) -> dict[str, Any]:
    return _error("E_EMULATOR_SYSTEM_JOBFAILED", message, source="SYSTEM")


_CANCELLED = _error(
    "I_USER_CJS_CANCELEDBYUSER",
    "Job was cancelled.",
    name="CANCELED_BY_USER",
    severity="Info",
    source="User",
    description=f"Job was cancelled by {_SUBMITTER}.",
)
"""As it was recorded."""


# ---- requests ----


class JobsService:
    name = "jobs"

    def __init__(self, store: JobStore, controls: Controls) -> None:
        self._store = store
        self._controls = controls

    def operation(self, request: Request, path: list[str]) -> str:
        match [request.method, *(segment.lower() for segment in path)]:
            case ["GET", "jobs"]:
                return "list"
            case ["PUT", "jobs", _]:
                return "submit"
            case ["GET", "jobs", _]:
                return "get"
            case ["POST", "jobs", _, "canceljob"]:
                return "cancel"
        return ""

    def failure(self, status: int) -> Response:
        return _error_response(status, "MadeToFail", "The request was made to fail.")

    def answer(self, operation: str, request: Request, path: list[str]) -> Response:
        try:
            return self._answer(operation, request, path)
        except RejectedError as err:
            return _error_response(err.status, err.code, str(err))

    def _answer(self, operation: str, request: Request, path: list[str]) -> Response:
        if not operation:
            raise RejectedError("NotFound", "There is no such operation.", 404)
        if request.param("api-version") != API_VERSION:
            raise RejectedError("InvalidApiVersion", f"Scope jobs need api-version {API_VERSION}.")
        if operation == "list":
            return json_response(200, page_of(self._store.items(), request, self._controls.now.page_size))
        job_id = _guid(path[1])
        if operation == "submit":
            payload = _read_submission(request.body)
            # Not when the job compiles: that would hold up the other jobs while a long script is read.
            error = compile_error(payload["properties"]["script"])
            return json_response(200, self._store.submit(job_id, payload, error))
        if operation == "get":
            return json_response(200, self._store.show(job_id))
        self._store.cancel(job_id)
        return Response(200)


def compile_error(script: str) -> dict[str, Any] | None:
    """Return the first error of a script as a job shows it; None if it compiles."""
    try:
        compile_script(script)
    except ScriptError as err:
        message = f"{_SYNTAX_ERROR}: {err.what}"
        return _error(
            _SYNTAX_ERROR,
            message,
            description=err.what,
            resolution=err.do,
            component="CSC",
            lineNumber=err.line,
        )
    return None


def _error_response(status: int, code: str, message: str) -> Response:
    return json_response(status, {"error": {"code": code, "message": message}})


def _read_submission(body: bytes) -> dict[str, Any]:
    """Read the body of a submission.

    :raises RejectedError: The body is not JSON, or a field is missing or not valid.
    """
    try:
        payload = json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError) as err:
        raise RejectedError("InvalidJson", "The body is not JSON.") from err
    _require(isinstance(payload, dict), "The body is not a JSON object.")
    name, properties = payload.get("name"), payload.get("properties")
    _require(isinstance(name, str) and 0 < len(name) <= NAME_LIMIT, f"name has 1 to {NAME_LIMIT} characters.")
    _require(payload.get("type") == "Scope", "type must be Scope: other jobs are not emulated.")
    script = properties.get("script") if isinstance(properties, dict) else None
    if not isinstance(script, str) or not script:
        raise RejectedError("InvalidJob", "properties.script is required.")
    size = len(script.encode())
    _require(size <= SCRIPT_LIMIT_BYTES, f"The script is longer than {SCRIPT_LIMIT_BYTES} bytes.")
    aus, priority = payload.get("degreeOfParallelism"), payload.get("priority")
    _require(aus is None or type(aus) is int, "degreeOfParallelism must be a whole number.")
    is_valid = priority is None or (type(priority) is int and priority > 0)
    _require(is_valid, "priority must be a whole number from 1.")
    tags, related = payload.get("tags") or {}, payload.get("related") or {}
    is_text = isinstance(tags, dict) and all(isinstance(tag, str) for tag in tags.values())
    _require(is_text, "tags must map text to text.")
    _require(isinstance(related, dict), "related must be an object.")
    _require(not related or "recurrenceId" in related, "related.recurrenceId is required.")
    for key, value in related.items():
        if key.endswith("Id") and value is not None:
            _guid(str(value))
        _require(len(str(value)) <= NAME_LIMIT, f"related.{key} is too long.")
    return payload  # type: ignore[no-any-return]


def _guid(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError as err:
        raise RejectedError("InvalidId", f"{text!r} is not a GUID.") from err


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise RejectedError("InvalidJob", message)


# ---- the list of jobs; it supports the OData that this package's client and dbt-scope's send ----

_TEST = re.compile(
    r"""\s*(?:startswith\(\s*name\s*,\s*'(?P<prefix>(?:[^']|'')*)'\s*\)
    | (?P<name>name|state|result)\s+(?P<comparison>eq|ne)\s+'(?P<value>(?:[^']|'')*)')\s*(?P<more>and\b|$)""",
    re.VERBOSE,
)
_COMPARISONS: dict[str | None, Callable[[str, str], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    None: str.startswith,
}
_IS_NEWEST_FIRST = {"submitTime": False, "submitTime asc": False, "submitTime desc": True}
"""Order -> whether the newest job is the first."""
_QUERY = frozenset({"$filter", "$orderby", "$top", "$skiptoken", "api-version"})


def page_of(items: list[dict[str, Any]], request: Request, page_size: int) -> dict[str, Any]:
    """Return one page of the list of jobs.

    ``$top`` is the size of a page, and ``nextLink`` leads to the next one. The link names the last job of
    the page, so jobs that end or come in meanwhile cause no gaps.

    :raises RejectedError: A parameter is not valid, or not known.
    """
    unknown = [name for name, _ in request.query if name.lower() not in _QUERY]
    if unknown:
        raise RejectedError("InvalidParameter", f"{unknown[0]} is not emulated.")
    is_listed = _filter(request.param("$filter") or "")
    is_newest_first = _IS_NEWEST_FIRST.get(request.param("$orderby") or "submitTime")
    if is_newest_first is None:
        raise RejectedError("InvalidParameter", f"$orderby must be one of {', '.join(_IS_NEWEST_FIRST)}.")
    top = request.param("$top") or str(page_size)
    if not re.fullmatch("0*[1-9][0-9]{0,9}", top):
        raise RejectedError("InvalidParameter", "$top must be a number from 1.")
    size = min(int(top), page_size)
    ordered = items[::-1] if is_newest_first else items
    after = request.param("$skiptoken")
    if after is not None:
        ids = [item["jobId"] for item in ordered]
        if after not in ids:
            raise RejectedError("InvalidSkipToken", "The token is not, or no longer, valid.")
        ordered = ordered[ids.index(after) + 1 :]
    remaining = [item for item in ordered if is_listed(item)]
    answer: dict[str, Any] = {"value": remaining[:size]}
    if len(remaining) > size:
        kept = [(name, value) for name, value in request.query if name.lower() != "$skiptoken"]
        query = urlencode([*kept, ("$skiptoken", remaining[size - 1]["jobId"])], safe="$", quote_via=quote)
        answer["nextLink"] = f"{request.origin}{request.path}?{query}"
    return answer


def _filter(text: str) -> Callable[[dict[str, Any]], bool]:
    """Parse ``startswith(name,'…')`` and ``name eq|ne '…'``, joined by ``and``; a quote is doubled."""
    tests: list[tuple[Callable[[str, str], bool], str, str]] = []
    position, has_more = 0, bool(text.strip())
    while has_more:
        match = _TEST.match(text, position)
        if match is None:
            raise RejectedError("InvalidFilter", f"$filter cannot be read at character {position + 1}.")
        value = (match["prefix"] or match["value"] or "").replace("''", "'")
        tests.append((_COMPARISONS[match["comparison"]], match["name"] or "name", value))
        position, has_more = match.end(), bool(match["more"])
    return lambda item: all(passes(str(item.get(name)), value) for passes, name, value in tests)
