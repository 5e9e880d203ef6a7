"""The job service: requests about jobs, and their answers."""

from __future__ import annotations

import json
import operator
import re
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_provider_scope.emulator.jobs import RejectedError
from airflow_provider_scope.emulator.parse import Assign, Extract, Insert, parse
from airflow_provider_scope.emulator.query import compile_query
from airflow_provider_scope.emulator.scripts import SYNTAX_ERROR, types_of
from airflow_provider_scope.emulator.web import HARDENING, Response
from airflow_provider_scope.scope.client import API_VERSION
from airflow_provider_scope.scope.dialect import ScriptError
from airflow_provider_scope.scope.jobs import NAME_LIMIT, SCRIPT_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_scope.emulator.jobs import JobStore
    from airflow_provider_scope.emulator.parse import Statement
    from airflow_provider_scope.emulator.switches import Controls
    from airflow_provider_scope.emulator.web import Request


def operation_of(method: str, segments: list[str]) -> str:
    """Name the operation of a request; empty if there is none."""
    match [method, *(segment.lower() for segment in segments)]:
        case ["GET", "jobs"]:
            return "list"
        case [("PUT" | "GET") as verb, "jobs", _]:
            return {"PUT": "submit", "GET": "get"}[verb]
        case ["POST", "jobs", _, "canceljob"]:
            return "cancel"
    return ""


class JobsService:
    """Answers requests for jobs."""

    def __init__(self, store: JobStore, controls: Controls) -> None:
        self._store = store
        self._controls = controls

    def answer(self, op: str, request: Request, segments: list[str], base: str) -> Response:
        """Answer a request.

        :param op: The operation, as :func:`operation_of` gives it.
        :param segments: The path below the account.
        :param base: Address of the account, for links.
        """
        try:
            return self._answer(op, request, segments, base)
        except RejectedError as err:
            return error_response(err.status, err.code, str(err))

    def _answer(self, op: str, request: Request, segments: list[str], base: str) -> Response:
        if not op:
            raise RejectedError("NotFound", "There is no such operation.", 404)
        if request.param("api-version") != API_VERSION:
            raise RejectedError("InvalidApiVersion", f"Scope jobs need api-version {API_VERSION}.")
        if op == "list":
            return _json(200, page_of(self._store.items(), request, self._controls.now.page_size, base))
        job_id = _guid(segments[1])
        if op == "submit":
            payload = _read_submission(request.body, job_id)
            # Not when the job compiles: that would hold up the other jobs while a long script is read.
            problem = syntax_error(payload["properties"]["script"])
            return _json(200, self._store.submit(job_id, payload, problem))
        if op == "cancel":
            self._store.cancel(job_id)
            return _json(200, None)
        return _json(200, self._store.show(job_id))


def error_response(status: int, code: str, message: str) -> Response:
    """Return an error as the service writes it."""
    return _json(status, {"error": {"code": code, "message": message}})


def _json(status: int, payload: Any) -> Response:
    """Return an answer; without a payload its body is empty."""
    headers = {
        "Cache-Control": "no-store, no-cache, max-age=0, private",
        "Expires": "-1",
        "x-ms-request-id": str(uuid.uuid4()),
        **HARDENING,
    }
    if payload is None:
        return Response(status, b"", headers)
    headers["Content-Type"] = "application/json; charset=utf-8"
    return Response(status, json.dumps(payload, ensure_ascii=False).encode(), headers)


# ---- The body of a submission ----


def _read_submission(body: bytes, job_id: str) -> dict[str, Any]:
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
    if payload.get("jobId") is not None:
        _require(_guid(str(payload["jobId"])) == job_id, "jobId in the body is not the one in the path.")
    for field, minimum in (("degreeOfParallelism", None), ("priority", 1)):
        value = payload.get(field)
        valid = value is None or (type(value) is int and (minimum is None or value >= minimum))
        _require(valid, f"{field} is not valid.")
    tags = payload.get("tags") or {}
    _require(
        isinstance(tags, dict) and all(isinstance(tag, str) for tag in tags.values()),
        "tags must map text to text.",
    )
    if payload.get("related") is not None:
        _check_related(payload["related"])
    return payload  # type: ignore[no-any-return]


def _check_related(related: Any) -> None:
    _require(isinstance(related, dict) and "recurrenceId" in related, "related.recurrenceId is required.")
    for name in ("recurrenceId", "pipelineId", "runId"):
        if related.get(name) is not None:
            _guid(str(related[name]))
    for name in ("pipelineName", "recurrenceName"):
        _require(len(str(related.get(name) or "")) <= NAME_LIMIT, f"related.{name} is too long.")


def _guid(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError as err:
        raise RejectedError("InvalidId", f"{text!r} is not a GUID.") from err


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise RejectedError("InvalidJob", message)


# ---- The list of jobs. It supports the OData that this package's client and dbt-scope's send ----

_TEST = re.compile(
    r"""\s*(?:startswith\(\s*(?P<start>name)\s*,\s*(?P<prefix>'(?:[^']|'')*')\s*\)
    | (?P<name>name|state|result)\s+(?P<comparison>eq|ne)\s+(?P<value>'(?:[^']|'')*'))\s*(?P<more>and\b|$)""",
    re.VERBOSE,
)
_PASSES: dict[str, Callable[[str, str], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "startswith": str.startswith,
}
_QUERY = frozenset({"$filter", "$orderby", "$top", "$skiptoken", "api-version"})


def page_of(items: list[dict[str, Any]], request: Request, page_size: int, base: str) -> dict[str, Any]:
    """Return one page of the list of jobs.

    ``$top`` is the size of a page, and ``nextLink`` leads to the next one. The link names the last job of
    the page, so jobs that end or come in meanwhile cause no gaps.

    :raises RejectedError: A parameter is not valid, or not known.
    """
    unknown = [name for name, _ in request.query if name.lower() not in _QUERY]
    if unknown:
        raise RejectedError("InvalidParameter", f"{unknown[0]} is not emulated.")
    is_listed = _filter(request.param("$filter") or "")
    order = (request.param("$orderby") or "submitTime asc").split()
    if order[0] != "submitTime" or order[1:] not in ([], ["asc"], ["desc"]):
        raise RejectedError(
            "InvalidParameter", "$orderby must be submitTime, submitTime asc or submitTime desc."
        )
    top = request.param("$top") or str(page_size)
    if not re.fullmatch("0*[1-9][0-9]{0,9}", top):
        raise RejectedError("InvalidParameter", "$top must be a number from 1.")
    size = min(int(top), page_size)
    ordered = items[::-1] if order[1:] == ["desc"] else items
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
        pairs = [*kept, ("$skiptoken", remaining[size - 1]["jobId"])]
        query = "&".join(f"{quote(name, safe='$')}={quote(value, safe='')}" for name, value in pairs)
        answer["nextLink"] = f"{base}/Jobs?{query}"
    return answer


def _filter(text: str) -> Callable[[dict[str, Any]], bool]:
    """Parse ``startswith(name,'…')`` and ``name eq|ne '…'``, joined by ``and``; a quote is doubled."""
    tests: list[tuple[Callable[[str, str], bool], str, str]] = []
    position, has_more = 0, bool(text.strip())
    while has_more:
        match = _TEST.match(text, position)
        if match is None:
            raise RejectedError("InvalidFilter", f"$filter cannot be read at character {position + 1}.")
        name = match["start"] or match["name"]
        value = (match["prefix"] or match["value"])[1:-1].replace("''", "'")
        tests.append((_PASSES[match["comparison"] or "startswith"], name, value))
        position, has_more = match.end(), bool(match["more"])
    return lambda item: all(passes(str(item.get(name)), value) for passes, name, value in tests)


# ---- Errors of a script before it runs: statements and queries that cannot be parsed ----
# Names, types and shapes that are not supported are checked when the script runs.

_SYNTAX_CODES = frozenset({"syntax", "no-from", "single-equals"})
"""Codes for a wrong text; others are about names, types or unsupported shapes."""


def syntax_error(script: str) -> dict[str, str | int] | None:
    """Compile a script; give its first error as it appears in a job, or None."""
    try:
        statements = parse(script)
    except ScriptError as err:
        return _as_job_error(err)
    try:
        _compile_queries(statements)
    except ScriptError as err:
        return _as_job_error(err) if err.code in _SYNTAX_CODES else None
    return None


def _compile_queries(statements: list[Statement]) -> None:
    rowsets: dict[str, dict[str, str]] = {}
    for statement in statements:
        if isinstance(statement, Extract):
            rowsets[statement.rowset] = types_of(statement)
        elif isinstance(statement, Assign):
            rowsets[statement.rowset] = compile_query(statement.select, rowsets).columns
        elif isinstance(statement, Insert):
            compile_query(statement.select, rowsets)


def _as_job_error(err: ScriptError) -> dict[str, str | int]:
    message = f"{SYNTAX_ERROR}: {err.what}"
    return {"message": message, "description": err.what, "lineNumber": err.line}
