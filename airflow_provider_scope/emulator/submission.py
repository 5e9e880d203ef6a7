"""Reading and checking the bodies that submit, build and change jobs."""

from __future__ import annotations

import hashlib
import json
import uuid
from typing import Any

VERSIONS = ("2015-11-01-preview", "2016-03-20-preview", "2016-11-01", "2017-09-01-preview")
SCOPE_VERSION = "2017-09-01-preview"
SCRIPT_LIMIT_BYTES = 3 * 1024 * 1024
NAME_LIMIT = 260
_INT32 = 2**31


class RejectedError(Exception):
    """The request is answered with an error of the job service."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


def read_guid(text: str) -> str:
    """Give a job id in its canonical form.

    :raises RejectedError: It is not a GUID.
    """
    try:
        return str(uuid.UUID(text))
    except ValueError as err:
        raise RejectedError("InvalidJobId", f"{text!r} is not a GUID.") from err


def read_json(body: bytes) -> dict[str, Any]:
    """Read a JSON object.

    :raises RejectedError: It is not one.
    """
    try:
        value = json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError) as err:
        raise RejectedError("InvalidJson", "The body is not JSON.") from err
    if not isinstance(value, dict):
        raise RejectedError("InvalidJson", "The body is not a JSON object.")
    return value


def digest(payload: dict[str, Any]) -> str:
    """Give what tells two bodies apart, without regard to spacing and order of keys."""
    canonical = json.dumps(payload, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def check_job(payload: dict[str, Any], version: str, job_id: str | None) -> dict[str, Any]:
    """Check the body of a submission or, without ``job_id``, of a build; give its fields.

    :raises RejectedError: A field is missing or not valid.
    """
    name = payload.get("name")
    if job_id is not None:
        _require(isinstance(name, str) and bool(name), "name is required.")
    _require(name is None or (isinstance(name, str) and len(name) <= NAME_LIMIT), "name is too long.")
    kind = str(payload.get("type"))
    _require(kind in ("Scope", "USql", "Hive"), "type must be Scope, USql or Hive.")
    if kind == "Scope" and version != SCOPE_VERSION:
        raise RejectedError("InvalidJobType", f"Scope jobs need api-version {SCOPE_VERSION}.")
    properties = payload.get("properties")
    if not isinstance(properties, dict):
        raise RejectedError("InvalidJob", "properties is required.")
    script = properties.get("script")
    if not isinstance(script, str) or not script:
        raise RejectedError("InvalidJob", "properties.script is required.")
    if len(script.encode()) > SCRIPT_LIMIT_BYTES:
        raise RejectedError("ScriptTooLong", f"The script is longer than {SCRIPT_LIMIT_BYTES} bytes.")
    inner = payload.get("jobId")
    if job_id is not None and inner is not None:
        _require(read_guid(str(inner)) == job_id, "jobId in the body is not the one in the path.")
    _require(
        not ("degreeOfParallelism" in payload and "degreeOfParallelismPercent" in payload),
        "degreeOfParallelism and degreeOfParallelismPercent exclude each other.",
    )
    patterns = payload.get("logFilePatterns")
    _require(patterns is None or isinstance(patterns, list), "logFilePatterns must be a list.")
    return {
        "name": name or "",
        "kind": kind,
        "degree": check_degree(payload.get("degreeOfParallelism")) or 1,
        "priority": check_priority(payload.get("priority")) or 1000,
        "properties": properties,
        "log_file_patterns": patterns,
        "related": _related(payload.get("related")),
        "tags": check_tags(payload.get("tags"), kind),
    }


def check_degree(value: Any) -> int | None:
    """Check AUs; less than 1 counts as 1, as the specification says for numbers below 0."""
    if value is None:
        return None
    _require(_is_int(value), "degreeOfParallelism must be a number.")
    return max(int(value), 1)


def check_priority(value: Any) -> int | None:
    """Check a priority; a lower number is more important."""
    if value is None:
        return None
    _require(_is_int(value) and value > 0, "priority must be a number from 1.")
    return int(value)


def check_tags(value: Any, kind: str) -> dict[str, str] | None:
    """Check tags: text to text, for Scope jobs alone."""
    if value is None:
        return None
    _require(kind == "Scope", "tags are for Scope jobs.")
    _require(
        isinstance(value, dict) and all(isinstance(one, str) for one in value.values()),
        "tags must map text to text.",
    )
    return dict(value)


def _related(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise RejectedError("InvalidJob", "related must be an object.")
    _require("recurrenceId" in value, "related.recurrenceId is required.")
    for name in ("recurrenceId", "pipelineId", "runId"):
        if value.get(name) is not None:
            read_guid(str(value[name]))
    for name in ("pipelineName", "recurrenceName"):
        text = value.get(name)
        _require(
            text is None or (isinstance(text, str) and len(text) <= NAME_LIMIT),
            f"related.{name} is longer than {NAME_LIMIT} characters.",
        )
    return dict(value)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -_INT32 <= value < _INT32


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise RejectedError("InvalidJob", message)
