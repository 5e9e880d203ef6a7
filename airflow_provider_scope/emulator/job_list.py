"""The list of jobs: filter, order, page, and the columns that are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_provider_scope.emulator.odata import FilterError, parse_filter
from airflow_provider_scope.emulator.submission import RejectedError

if TYPE_CHECKING:
    from airflow_provider_scope.emulator.web import Request

FIELDS = frozenset(
    {
        *("jobId", "name", "type", "submitter", "degreeOfParallelism", "priority", "submitTime"),
        *("startTime", "endTime", "state", "result", "logFolder", "logFilePatterns", "related", "tags"),
    }
)
_MOST_DIGITS = 10


def page_of(items: list[dict[str, Any]], request: Request, page_size: int, base: str) -> dict[str, Any]:
    """Give one page.

    ``$top`` is the size of a page: ``nextLink`` leads on as long as there are more. The link names the
    last job of the page, so jobs that end or come in meanwhile cause no gaps.

    :raises RejectedError: A parameter is not valid.
    """
    test = _filter(request.param("$filter"))
    top = min(_number(request, "$top") or page_size, page_size)
    skip = _number(request, "$skip") or 0
    select = _select(request.param("$select"))
    ordered = _ordered(items, request.param("$orderby"))
    matching = [item for item in ordered if test(item)]
    answer: dict[str, Any] = {}
    after = request.param("$skiptoken")
    if after is None:
        rest = matching[skip:]
    else:
        ids = [item["jobId"] for item in ordered]
        if after not in ids:
            raise RejectedError("InvalidSkipToken", "The token is not, or no longer, valid.")
        rest = [item for item in ordered[ids.index(after) + 1 :] if test(item)]
    page = rest[:top]
    answer["value"] = [{k: v for k, v in item.items() if not select or k in select} for item in page]
    if len(rest) > top:
        answer["nextLink"] = _next_link(request, base, page[-1]["jobId"])
    if (request.param("$count") or "").lower() == "true":
        answer["count"] = len(matching)
    return answer


def _filter(text: str | None) -> Any:
    if not text:
        return lambda _: True
    try:
        return parse_filter(text)
    except FilterError as err:
        raise RejectedError("InvalidFilter", f"$filter is not valid: {err}.") from err


def _number(request: Request, name: str) -> int | None:
    text = request.param(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and int(text) > 0):
        raise RejectedError("InvalidParameter", f"{name} must be a number from 1.")
    return int(text)


def _select(text: str | None) -> set[str]:
    names = {name.strip() for name in (text or "").split(",") if name.strip()}
    unknown = names - FIELDS
    if unknown:
        raise RejectedError("InvalidParameter", f"$select names unknown fields: {sorted(unknown)}.")
    return names


def _ordered(items: list[dict[str, Any]], text: str | None) -> list[dict[str, Any]]:
    ordered = list(items)
    parts = [part.split() for part in (text or "").split(",") if part.strip()]
    for words in reversed(parts):
        name, direction = words[0], " ".join(words[1:]).lower() or "asc"
        if name not in FIELDS - {"related", "tags", "logFilePatterns"} or direction not in ("asc", "desc"):
            raise RejectedError("InvalidParameter", f"$orderby={text!r} is not valid.")
        ordered.sort(
            key=lambda item, name=name: (item.get(name) is not None, item.get(name) or 0),  # type: ignore[misc]
            reverse=direction == "desc",
        )
    return ordered


def _next_link(request: Request, base: str, last: str) -> str:
    kept = [(k, v) for k, v in request.query if k.lower() not in ("$skip", "$skiptoken")]
    query = "&".join(f"{quote(k, safe='$')}={quote(v, safe='')}" for k, v in [*kept, ("$skiptoken", last)])
    return f"{base}/Jobs?{query}"
