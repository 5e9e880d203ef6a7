"""Pipelines and recurrences: what jobs say in ``related``, added up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.emulator.submission import RejectedError, read_guid
from airflow_provider_scope.emulator.wire import timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_scope.emulator.job import Job
    from airflow_provider_scope.emulator.web import Request

WINDOW_SECONDS = 30 * 86400
"""Longest time between ``startDateTime`` and ``endDateTime``, by the specification."""
_RESULTS = {"Failed": "Failed", "Cancelled": "Canceled", "Succeeded": "Succeeded"}
"""Result of a job -> how the sums write it."""


@dataclass(frozen=True, slots=True)
class Member:
    """What a job adds to its pipeline and its recurrence."""

    related: dict[str, Any]
    submitted: float
    result: str
    au_hours: float


def member(job: Job, offset_minutes: int) -> Member:  # noqa: ARG001 - one of the forms of a job
    """Give what a job adds; a job that never ran took no AUs."""
    ran = job.ended - job.started if job.started is not None and job.ended is not None else 0.0
    return Member(job.related or {}, job.submitted, job.result, job.degree * ran / 3600)


def window_of(request: Request, now: float) -> tuple[float, float]:
    """Read the time that a request asks for, in seconds since the epoch; the newest thirty days if none.

    :raises RejectedError: It is not valid, or longer than thirty days.
    """
    end = _moment(request, "endDateTime")
    start = _moment(request, "startDateTime")
    end = now if end is None else end
    start = end - WINDOW_SECONDS if start is None else start
    if not 0 <= end - start <= WINDOW_SECONDS:
        raise RejectedError(
            "InvalidParameter", "startDateTime and endDateTime can be no more than 30 days apart."
        )
    return start, end


def pipelines(members: Iterable[Member], offset_minutes: int, runs: str) -> list[dict[str, Any]]:
    """Give the pipelines.

    :param runs: How a run is written, as ``Switches.pipeline_runs`` describes it.
    """
    shown = []
    for guid, jobs in _groups(members, "pipelineId").items():
        newest: dict[str, float] = {}
        for job in jobs:
            run = job.related.get("runId")
            if run is not None:
                newest[str(run)] = max(job.submitted, newest.get(str(run), 0.0))
        names = ("item1", "item2") if runs == "recorded" else ("runId", "lastSubmitTime")
        shown.append(
            {
                "pipelineId": guid,
                **_latest(jobs, "pipelineName", "pipelineUri"),
                **_sums(jobs, offset_minutes),
                "runs": [
                    dict(zip(names, (run, timestamp(time, offset_minutes)), strict=True))
                    for run, time in newest.items()
                ],
                "recurrences": list(_groups(jobs, "recurrenceId")),
            }
        )
    return shown


def recurrences(members: Iterable[Member], offset_minutes: int) -> list[dict[str, Any]]:
    """Give the recurrences."""
    return [
        {"recurrenceId": guid, **_latest(jobs, "recurrenceName"), **_sums(jobs, offset_minutes)}
        for guid, jobs in _groups(members, "recurrenceId").items()
    ]


def _groups(members: Iterable[Member], key: str) -> dict[str, list[Member]]:
    """Put jobs together by a GUID, however it is written; in the order of their submission."""
    found: dict[str, list[Member]] = {}
    for one in members:
        if one.related.get(key) is not None:
            found.setdefault(read_guid(str(one.related[key])), []).append(one)
    return found


def _latest(jobs: list[Member], *names: str) -> dict[str, Any]:
    """Give what the newest job that says it says."""
    return {name: job.related[name] for job in jobs for name in names if job.related.get(name) is not None}


def _sums(jobs: list[Member], offset_minutes: int) -> dict[str, Any]:
    sums: dict[str, Any] = {f"numJobs{name}": 0 for name in _RESULTS.values()}
    sums |= {f"auHours{name}": 0.0 for name in _RESULTS.values()}
    for job in jobs:
        name = _RESULTS.get(job.result)
        if name is not None:
            sums[f"numJobs{name}"] += 1
            sums[f"auHours{name}"] += job.au_hours
    sums["lastSubmitTime"] = timestamp(max(job.submitted for job in jobs), offset_minutes)
    return sums


def _moment(request: Request, name: str) -> float | None:
    text = request.param(name)
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as err:
        raise RejectedError("InvalidParameter", f"{name}={text} is not a time.") from err
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
