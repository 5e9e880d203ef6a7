"""The job service: from requests to the jobs and back."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.emulator.compiling import diagnostics
from airflow_provider_scope.emulator.job import Job, basic, debug_data, full, statistics
from airflow_provider_scope.emulator.job_groups import member, pipelines, recurrences, window_of
from airflow_provider_scope.emulator.job_list import page_of
from airflow_provider_scope.emulator.job_store import QueueFullError
from airflow_provider_scope.emulator.submission import (
    VERSIONS,
    RejectedError,
    check_job,
    digest,
    read_guid,
    read_json,
)
from airflow_provider_scope.emulator.wire import jobs_error, jobs_response

if TYPE_CHECKING:
    from airflow_provider_scope.emulator.job_store import JobStore
    from airflow_provider_scope.emulator.switches import Controls
    from airflow_provider_scope.emulator.web import Request, Response

_NEVER_SUBMITTED = "0001-01-01T00:00:00-08:00"
_ACTIONS = {"canceljob": "cancel", "yieldjob": "yield", "yield": "yield"}
_FORMS = {"get": full, "statistics": statistics, "debug_data": debug_data}
_PARTS = {"getstatistics": "statistics", "getdebugdatapath": "debug_data"}


def operation(method: str, segments: list[str]) -> str:
    """Name the operation of a request; empty when there is none."""
    match [method, *(segment.lower() for segment in segments)]:
        case ["GET", "jobs"]:
            return "list"
        case ["POST", "buildjob"]:
            return "build"
        case [("PUT" | "GET" | "PATCH") as verb, "jobs", _]:
            return {"PUT": "submit", "GET": "get", "PATCH": "update"}[verb]
        case ["POST", "jobs", _, action]:
            return _ACTIONS.get(action, "")
        case ["GET", "jobs", _, part]:
            return _PARTS.get(part, "")
        case ["GET", ("pipelines" | "recurrences") as groups]:
            return groups
        case ["GET", ("pipelines" | "recurrences") as groups, _]:
            return groups.removesuffix("s")
    return ""


class JobsService:
    """Answers requests for jobs."""

    def __init__(self, store: JobStore, controls: Controls) -> None:
        self._store = store
        self._controls = controls

    def answer(self, op: str, request: Request, segments: list[str], base: str) -> Response:
        """Answer a request.

        :param op: The operation, as :func:`operation` gives it.
        :param segments: The path below the account.
        :param base: Address of the account, for links.
        """
        if not op:
            return jobs_error(404, "NotFound", "There is no such operation.")
        version = request.param("api-version")
        if version not in VERSIONS:
            return jobs_error(400, "MissingApiVersion", f"api-version must be one of {', '.join(VERSIONS)}.")
        try:
            if op == "list":
                items = self._store.items(basic)
                return jobs_response(200, page_of(items, request, self._controls.now.page_size, base))
            if op == "build":
                return jobs_response(200, self._build(read_json(request.body), version))
            if op in ("pipelines", "recurrences"):
                found = self._groups(op, request)
                # The recording has the undocumented count.
                return jobs_response(200, {"value": found, "count": len(found)})
            if op in ("pipeline", "recurrence"):
                return self._group(op, request, read_guid(segments[1]))
            return self._one(op, request, read_guid(segments[1]), version)
        except RejectedError as err:
            return jobs_error(err.status, err.code, err.message)
        except QueueFullError:
            limit = self._controls.now.max_queued_jobs
            # The form of a production error: a capital `Message` and no `error` around it.
            return jobs_response(
                400, {"Message": f"Cannot exceed {limit} queued SCOPE jobs in an ADLA workspace."}
            )

    def _one(self, op: str, request: Request, job_id: str, version: str) -> Response:
        if op == "submit":
            payload = read_json(request.body)
            fields = check_job(payload, version, job_id)
            # Here, and not when the job compiles: a long script takes a while, and no other job waits.
            if fields["kind"] == "Scope":
                fields["diagnostics"] = diagnostics(fields["properties"]["script"])
            return jobs_response(200, self._store.submit(job_id, digest(payload), fields))
        if op in ("cancel", "yield"):
            act = self._store.cancel if op == "cancel" else self._store.give_way
            return jobs_response(200) if act(job_id) else _unknown()
        shown = (
            self._store.update(job_id, read_json(request.body))
            if op == "update"
            else self._store.show(job_id, _FORMS[op])
        )
        return _unknown() if shown is None else jobs_response(200, shown)

    def _groups(self, op: str, request: Request) -> list[dict[str, Any]]:
        switches = self._controls.now
        start, end = window_of(request, self._store.now())
        members = [one for one in self._store.items(member) if start <= one.submitted <= end]
        if op.startswith("pipeline"):
            return pipelines(members, switches.utc_offset_minutes, switches.pipeline_runs)
        return recurrences(members, switches.utc_offset_minutes)

    def _group(self, op: str, request: Request, guid: str) -> Response:
        found = [one for one in self._groups(op, request) if one[f"{op}Id"] == guid]
        if not found:
            return jobs_error(404, f"{op.capitalize()}NotFound", f"The {op} is not found.")
        return jobs_response(200, found[0])

    def _build(self, payload: dict[str, Any], version: str) -> dict[str, Any]:
        """Compile a script without running it; an error in it is not an error of the request."""
        fields = check_job(payload, version, None)
        job = Job(job_id=str(uuid.uuid4()), digest="", order=0, submitted=0.0, **fields)
        found = [] if job.kind != "Scope" else diagnostics(job.properties["script"])
        job.state, job.result = "Ended", "Failed" if found else "Succeeded"
        shown = full(job, self._controls.now.utc_offset_minutes)
        shown.update(degreeOfParallelism=0, priority=0, submitTime=_NEVER_SUBMITTED)
        shown["properties"]["diagnostics"] = found
        return shown


def _unknown() -> Response:
    return jobs_error(404, "JobNotFound", "Job is not found.")
