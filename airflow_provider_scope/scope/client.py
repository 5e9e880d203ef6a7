"""Jobs of Azure Data Lake Analytics over REST."""

from __future__ import annotations

import uuid
from itertools import islice
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import (
    InputError,
    JobMismatchError,
    ServiceError,
    ServiceOutcomeUnknownError,
)
from airflow_provider_scope.scope.jobs import NAME_LIMIT, SCRIPT_LIMIT_BYTES, NewJob, parse_job
from airflow_provider_scope.stores.calls import not_understood

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_scope.stores.calls import Answer
    from airflow_provider_scope.stores.http import HttpClient
    from airflow_provider_scope.waiting import Job

API_VERSION = "2017-09-01-preview"
"""The only version with jobs of type Scope."""

PAGE_LIMIT = 300
"""Jobs on one page; what the service caps it at is not documented, Azure's command line asks for no more."""

_SAME_ID_TAKEN = (400, 409)


class AdlaClient:
    """The jobs of one account.

    The caller chooses a job's id, and no id is ever used for two jobs. So whether a submission arrived is
    known by asking for the id.
    """

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    def submit(self, job_id: str, new: NewJob) -> Job:
        """Submit a job; one that exists under this id and is the same is adopted.

        What a second PUT with the same id does is not documented. So after an answer that leaves the
        outcome open the id is looked up, and sent again only if the service does not know it.

        :raises InputError: The id is no GUID, the name is too long, or the script is larger than 3 MB.
        :raises JobMismatchError: The id belongs to another job.
        :raises ServiceOutcomeUnknownError: It is not known whether the job was submitted. Look it up
            by its id before anything else.
        :raises ServiceError: It was not submitted.
        """
        path = _path(job_id)
        _check(new)
        doing = f"submit the job {job_id}"

        def attempt() -> Job:
            answer = self._http.request(
                "PUT", path, doing=doing, repeatable=False, params=_VERSION, json=new.body()
            )
            return self._submitted(job_id, new, answer, doing)

        def check(unknown: ServiceOutcomeUnknownError) -> Job | None:
            existing = self._look_up(job_id, unknown)
            return None if existing is None else _checked_same(existing, new)

        return self._http.once(attempt, check)

    def get(self, job_id: str) -> Job | None:
        """Describe a job; None only if the service says that it does not know it.

        It forgets a job after 30 days (the account's default).

        :raises ServiceError: The job could not be read.
        """
        doing = f"read the job {job_id}"
        answer = self._http.request("GET", _path(job_id), doing=doing, params=_VERSION)
        if _is_unknown(answer):
            return None
        return _job(answer.accepted(doing).json(doing), job_id, doing)

    def list(
        self,
        filter: str | None = None,  # noqa: A002 - the service's own word
        orderby: str | None = None,
        top: int | None = None,
    ) -> Iterator[Job]:
        """List jobs, page by page; their errors and scripts are not in lists.

        :param filter: OData, such as ``startswith(name,'m_') and state ne 'Ended'``.
        :param orderby: OData, such as ``submitTime desc``.
        :param top: At most so many jobs, 1 or more.
        :raises ServiceError: A page could not be read; a list is never silently short.
        """
        pages = {"$filter": filter, "$orderby": orderby, "$top": top and str(min(top, PAGE_LIMIT))}
        params = {**_VERSION, **{name: value for name, value in pages.items() if value}}
        return islice(self._listed(params), top)

    def _listed(self, params: dict[str, str]) -> Iterator[Job]:
        doing = "list the jobs"
        answer = self._http.request("GET", "/Jobs", doing=doing, params=params)
        seen: set[str] = set()
        while True:
            page = answer.accepted(doing).json(doing)
            if not isinstance(page, dict) or not isinstance(page.get("value"), list):
                raise not_understood(doing, "the page has no list of jobs")
            yield from map(parse_job, page["value"])
            link = page.get("nextLink")
            if not link:
                return
            if not isinstance(link, str) or link in seen:
                raise not_understood(doing, "the link to the next page leads to a page that was read")
            seen.add(link)
            # It is a whole URL and is asked for as it is.
            answer = self._http.request("GET", link, doing=doing)

    def cancel(self, job_id: str) -> None:
        """Ask for a job's end; it ends some time later. A job that has ended, or is unknown, is fine.

        :raises ServiceError: The request was not accepted.
        """
        doing = f"cancel the job {job_id}"
        answer = self._http.request("POST", _path(job_id) + "/CancelJob", doing=doing, params=_VERSION)
        if not _is_unknown(answer):
            answer.accepted(doing)

    def _submitted(self, job_id: str, new: NewJob, answer: Answer, doing: str) -> Job:
        if answer.ok:
            return _checked_same(_job(answer.json(doing), job_id, doing), new)
        refusal = answer.error(doing)
        if answer.status in _SAME_ID_TAKEN:
            # A first PUT that was thought lost may have arrived, and this answer means "exists".
            existing = self._look_up(job_id, refusal)
            if existing is not None:
                return _checked_same(existing, new)
        raise refusal

    def _look_up(self, job_id: str, doubt: ServiceError) -> Job | None:
        try:
            return self.get(job_id)
        except ServiceError as err:
            raise ServiceOutcomeUnknownError(
                f"It is not known whether the job {job_id} was submitted: {doubt.what} {err.what}",
                kept="what was there before; the job may be running",
                do="nothing: the next try looks for the job first",
            ) from err


_VERSION = {"api-version": API_VERSION}


def _path(job_id: str) -> str:
    try:
        return f"/Jobs/{uuid.UUID(job_id)}"
    except ValueError:
        raise InputError(
            f"The job id {job_id!r} is not valid: expected a GUID.",
            kept="everything; nothing was sent",
            do="give the id as the service shows it",
        ) from None


def _is_unknown(answer: Answer) -> bool:
    return answer.status == 404 and answer.code == "JobNotFound"  # noqa: PLR2004


def _check(new: NewJob) -> None:
    size = len(new.script.encode())
    if size > SCRIPT_LIMIT_BYTES:
        raise InputError(
            f"The script of the job {new.name} has {size:,} bytes; the service accepts "
            f"{SCRIPT_LIMIT_BYTES:,}.",
            kept="everything; nothing was sent",
            do="lower max_files_per_trigger, so that a batch names fewer files, or shorten the SQL",
        )
    if not 0 < len(new.name) <= NAME_LIMIT:
        raise InputError(
            f"The job name has {len(new.name)} characters: expected 1 to {NAME_LIMIT}.",
            kept="everything; nothing was sent",
            do="shorten job_name or job_tag",
        )


def _job(value: object, job_id: str, doing: str) -> Job:
    job = parse_job(value)
    if job.job_id.casefold() != str(uuid.UUID(job_id)):
        raise not_understood(doing, f"the answer describes the job {job.job_id}")
    return job


def _checked_same(existing: Job, new: NewJob) -> Job:
    """Return the job that was found if it is the one that was submitted.

    What an answer leaves out is not compared: after a submission there is no script in it.
    """
    run_id = new.related.run_id if new.related else None
    differences = []
    if existing.name != new.name:
        differences.append(f"the name {existing.name!r} instead of {new.name!r}")
    if existing.script is not None and _lines(existing.script) != _lines(new.script):
        differences.append("another script")
    if existing.run_id and run_id and existing.run_id.casefold() != run_id.casefold():
        differences.append(f"the run id {existing.run_id} instead of {run_id}")
    if differences:
        raise JobMismatchError(
            f"The job {existing.job_id} exists and has {' and '.join(differences)}.",
            kept="that job; it was not changed and not cancelled",
            do="let the task run again, which looks at that job first. If the ids come from your own "
            "code, give every job an id of its own",
        )
    return existing


def _lines(script: str) -> list[str]:
    """Return what is compared of a script: the service may write line ends its own way."""
    return script.rstrip().splitlines()
