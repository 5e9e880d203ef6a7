"""Jobs are submitted once, found again, listed in full and cancelled."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from airflow_provider_scope.exceptions import (
    InputError,
    JobMismatchError,
    ServiceAuthError,
    ServiceError,
    ServiceOutcomeUnknownError,
    ServiceProtocolError,
    ServiceRefusedError,
    ServiceUnavailableError,
)
from airflow_provider_scope.scope.client import AdlaClient
from airflow_provider_scope.scope.jobs import NewJob, Related
from tests.client.server import DROP, Reply, Waits, client_of

ID = "d2a5c7d4-0d0f-4d4b-8a6c-2a0d5f1f3f10"
PUT, GET = f"PUT /Jobs/{ID}", f"GET /Jobs/{ID}"
RUN = "5d0e1f2a-0000-4000-8000-000000000001"
NEW = NewJob(
    name="flights_batch0",
    script="SELECT 1;\nSELECT 2;\n",
    degree_of_parallelism=100,
    priority=1,
    related=Related(recurrence_id="r", run_id=RUN),
)
UNKNOWN = Reply(404, {"error": {"code": "JobNotFound", "message": "Job is not found."}})


def described(**changes):
    value = {
        "jobId": ID,
        "name": "flights_batch0",
        "state": "Compiling",
        "result": "None",
        "related": {"recurrenceId": "r", "runId": RUN},
    }
    return Reply(200, {**value, **changes})


def known(**changes):
    """A description as GET gives it, with the script."""
    return described(properties={"type": "Scope", "script": NEW.script}, **changes)


def adla(server, waits=None, **options) -> AdlaClient:
    return AdlaClient(client_of(server.url, waits, **options))


def test_a_job_is_submitted_with_one_put_under_the_given_id(server):
    server.answers = [described()]

    job = adla(server).submit(ID.upper(), NEW)

    assert (job.job_id, job.state) == (ID, "Compiling")
    assert server.said == [PUT]
    assert server.asked[0].query == {"api-version": "2017-09-01-preview"}
    assert server.asked[0].headers["content-type"] == "application/json"
    assert server.asked[0].json == NEW.body()


@pytest.mark.parametrize("lost", [DROP, Reply(500), Reply(503, b"busy"), Reply(200, b"{", cut=True)])
def test_a_job_whose_answer_was_lost_is_found_by_its_id_and_not_sent_again(server, lost):
    server.answers = [lost, known(state="Running")]

    assert adla(server).submit(ID, NEW).state == "Running"
    assert server.said == [PUT, GET]


def test_a_job_that_did_not_arrive_is_sent_again_under_the_same_id(server, waits):
    server.answers = [DROP, UNKNOWN, Reply(500), UNKNOWN, described()]

    assert adla(server, waits).submit(ID, NEW).job_id == ID
    assert server.said == [PUT, GET, PUT, GET, PUT]
    assert waits == [1.0, 2.0]


def test_a_first_put_that_arrives_late_is_adopted_when_the_second_one_is_refused(server):
    server.answers = [DROP, UNKNOWN, Reply(409, {"error": {"code": "JobAlreadyExists"}}), known()]

    assert adla(server).submit(ID, NEW).job_id == ID
    assert server.said == [PUT, GET, PUT, GET]


def test_a_job_that_the_service_never_knows_stays_undecided(server):
    server.answers = lambda asked: DROP if asked.method == "PUT" else UNKNOWN

    with pytest.raises(
        ServiceOutcomeUnknownError, match=f"not known whether the service could submit the job {ID}"
    ):
        adla(server, retries=2).submit(ID, NEW)

    assert server.said == [PUT, GET] * 3


def test_a_job_that_cannot_be_looked_up_stays_undecided(server):
    server.answers = lambda asked: DROP if asked.method == "PUT" else Reply(403, b"no")

    with pytest.raises(ServiceOutcomeUnknownError, match=f"not known whether the job {ID} was submitted"):
        adla(server).submit(ID, NEW)

    assert server.said == [PUT, GET]


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(400, {"error": {"code": "BadScript", "message": "line 3"}}), ServiceRefusedError),
        (Reply(401, b""), ServiceAuthError),
        (Reply(403, b""), ServiceAuthError),
    ],
)
def test_a_refused_job_is_an_error_of_its_kind(server, reply, error):
    server.answers = lambda asked: reply if asked.method == "PUT" else UNKNOWN

    with pytest.raises(error, match=f"Could not submit the job {ID}: {reply.status}"):
        adla(server).submit(ID, NEW)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"name": "other"}, "the name 'other' instead of 'flights_batch0'"),
        ({"properties": {"script": "SELECT 3;"}}, "another script"),
        ({"related": {"runId": "5d0e1f2a-0000-4000-8000-000000000002"}}, "the run id"),
    ],
)
@pytest.mark.parametrize("after", [[], [DROP]])
def test_another_job_under_the_same_id_is_never_adopted(server, changes, text, after):
    server.answers = [*after, described(**changes)]

    with pytest.raises(JobMismatchError, match=text):
        adla(server).submit(ID, NEW)


def test_line_ends_and_the_case_of_ids_do_not_make_another_job(server):
    script = NEW.script.replace("\n", "\r\n").rstrip()
    server.answers = [
        described(jobId=ID.upper(), properties={"script": script}, related={"runId": RUN.upper()})
    ]

    assert adla(server).submit(ID, NEW).name == "flights_batch0"


def test_a_script_of_3_mb_is_sent_and_a_larger_one_is_not(server):
    limit = 3_000_000
    server.answers = [described()]
    largest = NewJob(name="flights_batch0", script="x" * limit, degree_of_parallelism=1, priority=1)
    # One character less, and one byte more: the limit is of bytes.
    larger = NewJob(name="n", script="x" * (limit - 1) + "é", degree_of_parallelism=1, priority=1)

    adla(server).submit(ID, largest)
    with pytest.raises(InputError, match="has 3,000,001 bytes; the service accepts 3,000,000"):
        adla(server).submit(ID, larger)

    assert len(server.asked) == 1


@pytest.mark.parametrize("name", ["", "x" * 261])
def test_a_name_that_is_empty_or_too_long_is_not_sent(server, name):
    with pytest.raises(InputError, match="expected 1 to 260"):
        adla(server).submit(ID, NewJob(name=name, script="", degree_of_parallelism=1, priority=1))

    assert server.asked == []


@pytest.mark.parametrize("job_id", ["", "x", "../Jobs", ID + "/CancelJob"])
def test_an_id_that_is_no_guid_is_not_sent(server, job_id):
    for call in (adla(server).get, adla(server).cancel, lambda job_id: adla(server).submit(job_id, NEW)):
        with pytest.raises(InputError, match="expected a GUID"):
            call(job_id)

    assert server.asked == []


def test_a_job_that_the_service_does_not_know_is_none(server):
    server.answers = [UNKNOWN]

    assert adla(server).get(ID) is None


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(404, b"no such page"), ServiceRefusedError),
        (Reply(404, {"error": {"code": "AccountNotFound", "message": "m"}}), ServiceRefusedError),
        (Reply(403, {"error": {"code": "JobNotFound", "message": "m"}}), ServiceAuthError),
        (Reply(500), ServiceUnavailableError),
        (DROP, ServiceUnavailableError),
        (Reply(200, b"<html>"), ServiceProtocolError),
        (Reply(200, {}), ServiceProtocolError),
        (described(jobId="00000000-0000-4000-8000-000000000000"), ServiceProtocolError),
    ],
)
def test_every_other_answer_to_a_look_at_a_job_is_an_error_and_never_none(server, reply, error):
    server.answers = lambda _: reply

    with pytest.raises(error):
        adla(server).get(ID)


def test_the_texts_of_a_failed_job_are_masked(server):
    error = {"errorId": "E", "message": "open https://a/b?sig=abc123 failed", "details": "Bearer abc123"}
    server.answers = [described(state="Ended", result="Failed", errorMessage=[error])]

    job = adla(server).get(ID)

    assert "abc123" not in repr(job)
    assert job.errors[0].message == "open https://a/b?sig=*** failed"


def listed(numbers, **more):
    jobs = [{"jobId": str(n), "name": f"job{n}", "state": "Ended", "result": "Succeeded"} for n in numbers]
    return Reply(200, {"value": jobs, **more})


def test_a_list_follows_the_link_to_the_next_page_as_it_is(server):
    link = f"{server.url}/Jobs?api-version=2017-09-01-preview&$skiptoken=a%20b"
    server.answers = [listed([1, 2], nextLink=link), listed([3])]

    jobs = list(adla(server).list("startswith(name,'job')", "submitTime desc"))

    assert [job.name for job in jobs] == ["job1", "job2", "job3"]
    assert server.asked[0].query == {
        "api-version": "2017-09-01-preview",
        "$filter": "startswith(name,'job')",
        "$orderby": "submitTime desc",
    }
    assert server.asked[1].raw == "/Jobs?api-version=2017-09-01-preview&$skiptoken=a%20b"


def test_a_list_reads_a_page_when_it_is_needed_and_no_further_than_asked(server):
    server.answers = [listed([1, 2], nextLink=f"{server.url}/Jobs?p=2"), listed([3, 4])]

    first = list(islice(adla(server).list(), 2))
    server.answers = [listed([1, 2], nextLink=f"{server.url}/Jobs?p=2"), listed([3, 4])]
    top = list(adla(server).list(top=3))

    assert [job.name for job in first] == ["job1", "job2"]
    assert [job.name for job in top] == ["job1", "job2", "job3"]
    assert [asked.query.get("$top") for asked in server.asked] == [None, "3", None]


def test_a_page_is_asked_for_with_at_most_300_jobs(server):
    server.answers = [listed([])]

    assert list(adla(server).list(top=1000)) == []
    assert server.asked[0].query["$top"] == "300"


@pytest.mark.parametrize("second", [Reply(500), Reply(404, b""), Reply(200, {"jobs": []}), Reply(200, b"x")])
def test_a_list_whose_second_page_fails_is_an_error_and_not_a_short_list(server, second):
    first = listed([1], nextLink=f"{server.url}/Jobs?p=2")
    server.answers = lambda asked: second if "p" in asked.query else first

    with pytest.raises(ServiceError):
        list(adla(server).list())


def test_a_list_that_leads_back_is_an_error(server):
    server.answers = lambda _: listed([1], nextLink=f"{server.url}/Jobs?p=1")

    with pytest.raises(ServiceProtocolError, match="a page that was read"):
        list(adla(server).list())


@pytest.mark.parametrize("reply", [Reply(200), Reply(202), Reply(204), UNKNOWN])
def test_a_job_is_cancelled_and_one_that_is_gone_is_fine(server, reply):
    server.answers = [reply]

    adla(server).cancel(ID)

    assert server.said == [f"POST /Jobs/{ID}/CancelJob"]
    assert server.asked[0].body == b""


def test_a_cancellation_is_tried_again_and_refusals_of_it_are_errors(server):
    server.answers = [DROP, Reply(503), Reply(200), Reply(403, b"no")]

    adla(server).cancel(ID)
    with pytest.raises(ServiceAuthError, match=f"Could not cancel the job {ID}: 403: no"):
        adla(server).cancel(ID)


def test_an_account_below_a_path_is_kept_in_every_request(server):
    server.answers = [UNKNOWN]

    AdlaClient(client_of(server.url + "/acme/", Waits())).get(ID)

    assert server.said == [f"GET /acme/Jobs/{ID}"]


def test_a_script_goes_over_the_wire_as_it_is(server):
    new = NewJob(name="flights_batch0", script='"é\u2028\n#', degree_of_parallelism=1, priority=1)
    server.answers = [described()]

    adla(server).submit(ID, new)

    assert json.loads(server.asked[0].body)["properties"]["script"] == '"é\u2028\n#'
