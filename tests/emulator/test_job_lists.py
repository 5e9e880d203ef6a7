"""The protocol cases of the job service: limits, lists, changes, retention, tokens."""

from __future__ import annotations

import base64
import json
import uuid

import pytest
import requests

from airflow_provider_scope.emulator.odata import FilterError, parse_filter


@pytest.fixture
def waiting(recorded):
    """Jobs stay in the state Running, so that nothing moves by itself."""
    recorded.set(state_seconds={"Running": 3600})
    return recorded


def test_case_17_limits_hold_and_the_most_important_job_leaves_the_queue_first(waiting, jobs):
    ids = [jobs.put(name=f"j{n}").json()["jobId"] for n in range(21)]
    states = [item["state"] for item in jobs.list().json()["value"]]
    assert (states.count("Running"), states.count("Queued")) == (20, 1)
    urgent = jobs.put(name="urgent", priority=1).json()["jobId"]
    jobs.cancel(ids[0])
    assert jobs.get(urgent).json()["state"] == "Running"
    assert jobs.get(ids[20]).json()["state"] == "Queued"


def test_case_17_the_sum_of_aus_stays_within_the_limit(waiting, jobs):
    waiting.set(max_aus=10)
    ids = [jobs.put(degreeOfParallelism=4).json()["jobId"] for _ in range(3)]
    assert [jobs.get(one).json()["state"] for one in ids] == ["Running", "Running", "Queued"]
    refused = jobs.put(degreeOfParallelism=11)
    assert refused.status_code == 400
    assert "requires 11 AUs" in refused.json()["error"]["message"]


def test_case_18_a_filter_gives_the_exact_subset_however_it_is_encoded(waiting, jobs):
    ended = jobs.put(name="m_ended").json()["jobId"]
    jobs.cancel(ended)
    jobs.put(name="m_running")
    jobs.put(name="other")
    text = "startswith(name,'m_') and state ne 'Ended'"
    assert jobs.names(filter=text) == ["m_running"]
    raw = f"{jobs.url}/Jobs?api-version=2017-09-01-preview&$filter={text.replace(' ', '%20')}"
    assert [item["name"] for item in requests.get(raw, timeout=30).json()["value"]] == ["m_running"]


def test_case_19_pages_have_no_gap_and_no_job_twice(recorded, jobs, clock):
    for number in range(6):
        jobs.put(name=f"j{number}")
        clock.advance(1)
    page = jobs.list(orderby="submitTime desc", top="2", skip="1", count="true").json()
    assert page["count"] == 6
    assert page["nextLink"].startswith(f"{jobs.url}/Jobs?")
    names = [item["name"] for item in page["value"]]
    assert names == ["j4", "j3"]
    while "nextLink" in page:
        jobs.put(name="j9")  # what comes in meanwhile sorts before the page
        page = requests.get(page["nextLink"], timeout=30).json()
        names += [item["name"] for item in page["value"]]
    assert names == ["j4", "j3", "j2", "j1", "j0"]


def test_case_19_a_filter_that_jobs_leave_meanwhile_has_no_gap(waiting, jobs):
    ids = [jobs.put(name=f"j{n}").json()["jobId"] for n in range(4)]
    waiting.set(page_size=2)
    page = jobs.list(filter="state ne 'Ended'").json()
    for one in ids[:2]:
        jobs.cancel(one)
    following = requests.get(page["nextLink"], timeout=30).json()
    assert [item["name"] for item in following["value"]] == ["j2", "j3"]
    assert "nextLink" not in following


def test_case_20_a_selection_has_only_its_columns(jobs):
    jobs.put()
    assert set(jobs.list(select="jobId,state").json()["value"][0]) == {"jobId", "state"}
    for wrong in ({"top": "0"}, {"skip": "-1"}, {"filter": "state eq"}, {"orderby": "x"}, {"select": "x"}):
        assert jobs.list(**wrong).status_code == 400, wrong


def test_case_20_a_list_item_leaves_out_what_only_a_single_job_shows(jobs):
    jobs.put()
    answer = jobs.list().json()
    assert not {"properties", "stateAuditRecords", "errorMessage"} & set(answer["value"][0])
    assert set(answer) == {"value"}


def test_case_21_times_and_guids_are_compared_as_such(jobs, clock):
    pipeline = str(uuid.uuid4())
    related = {"recurrenceId": str(uuid.uuid4()), "pipelineId": pipeline}
    jobs.put(name="old", related=related)
    clock.advance(60)
    jobs.put(name="new", related=related)
    jobs.put(name="stranger", related={**related, "pipelineId": str(uuid.uuid4())})
    since = "submitTime ge datetimeoffset'2027-01-15T08:00:30Z'"
    assert jobs.names(filter=since) == ["new", "stranger"]
    mine = f"{since} and related/pipelineId eq guid'{pipeline.upper()}'"
    assert jobs.names(filter=mine) == ["new"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name eq 'it''s'", True),
        ("name eq 'its'", False),
        ("state eq 'Running' or state eq 'Queued' and name eq 'none'", True),
        ("(state eq 'Running' or state eq 'Queued') and name eq 'none'", False),
        ("not (priority gt 5)", True),
        ("priority le 5 and priority ge 5 and priority lt 6", True),
        ("endTime eq null", True),
        ("endswith(name,'s') and substringof('t''', name)", True),
        ("submitTime lt datetimeoffset'2027-01-15T00:00:00.0000001-08:00'", True),
    ],
)
def test_filters_follow_the_rules_of_odata(text, expected):
    item = {
        "name": "it's",
        "state": "Running",
        "priority": 5,
        "submitTime": "2027-01-14T23:59:59.0000000-08:00",
    }
    assert parse_filter(text)(item) is expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name",
        "name eq",
        "name is 'x'",
        "name eq 'x",
        "(name eq 'x'",
        "name eq 'x' name",
        "(" * 60,
        "a eq guid'x'",
    ],
)
def test_a_filter_outside_the_dialect_is_refused(text):
    with pytest.raises(FilterError):
        parse_filter(text)


def test_case_22_letter_case_makes_no_difference_in_paths(jobs):
    job_id = jobs.put().json()["jobId"]
    assert jobs.call("GET", f"/JOBS/{job_id.upper()}").json()["jobId"] == job_id
    assert jobs.call("POST", f"/jobs/{job_id}/cancelJob").status_code == 200


def test_case_23_a_change_of_priority_changes_the_order(waiting, jobs):
    waiting.set(max_running_jobs=1)
    running, first, second = (jobs.put(name=name).json()["jobId"] for name in "abc")
    answer = jobs.call("PATCH", f"/Jobs/{second}", json={"priority": 1, "tags": {"k": "v"}})
    assert answer.status_code == 200
    assert (answer.json()["priority"], answer.json()["tags"]) == (1, {"k": "v"})
    jobs.cancel(running)
    assert jobs.get(second).json()["state"] == "Running"
    assert jobs.get(first).json()["state"] == "Queued"


def test_case_23_only_scope_jobs_can_be_changed(waiting, jobs):
    job_id = jobs.put(kind="USql").json()["jobId"]
    assert jobs.call("PATCH", f"/Jobs/{job_id}", json={"priority": 1}).status_code == 400


def test_case_24_a_job_that_yields_goes_back_and_finishes_later(waiting, jobs, clock):
    waiting.set(max_running_jobs=1)
    first, second = (jobs.put().json()["jobId"] for _ in range(2))
    assert jobs.call("POST", f"/Jobs/{first}/YieldJob").status_code == 200
    assert jobs.get(first).json()["state"] == "Queued"
    assert jobs.get(second).json()["state"] == "Running"
    jobs.cancel(second)
    waiting.set(state_seconds={})
    states = [entry["newState"] for entry in jobs.until(first)["stateAuditRecords"]]
    assert states[5:8] == ["Running", "Yielded", "Queued"]
    assert states[-1] == "Ended"


def test_case_25_a_build_gives_diagnostics_and_leaves_no_job(jobs):
    payload = {"type": "Scope", "properties": {"script": '#DECLARE @x string = "1";\nNONSENSE @y;'}}
    answer = jobs.call("POST", "/BuildJob", json=payload)
    assert answer.status_code == 200
    assert answer.json()["result"] == "Failed"
    assert answer.json()["properties"]["diagnostics"][0]["lineNumber"] == 2
    assert jobs.get(answer.json()["jobId"]).status_code == 404
    assert jobs.list().json() == {"value": []}


def test_case_26_an_ended_job_is_kept_for_as_long_as_the_retention(recorded, jobs, clock):
    job_id = jobs.put().json()["jobId"]
    jobs.until(job_id)
    clock.advance(30 * 86400)
    assert jobs.get(job_id).status_code == 200
    clock.advance(1)
    assert jobs.get(job_id).status_code == 404
    assert jobs.list().json() == {"value": []}


def token(**claims) -> dict[str, str]:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return {"Authorization": f"Bearer e30.{payload}.x"}


def test_case_28_strict_mode_wants_a_token_that_is_not_expired(recorded, jobs, clock):
    recorded.set(auth="strict")
    refused = jobs.list()
    assert refused.status_code == 401
    assert refused.json()["error"]["code"] == "AuthenticationFailed"
    jobs.session.headers.update(token(exp=clock.now - 1, aud="https://datalake.azure.net/"))
    assert jobs.list().status_code == 401
    jobs.session.headers.update(token(exp=clock.now + 60, aud="https://management.azure.com/"))
    assert jobs.list().status_code == 401
    jobs.session.headers.update(token(exp=clock.now + 60, aud="https://datalake.azure.net//"))
    assert jobs.list().status_code == 200
    clock.advance(61)
    assert jobs.list().status_code == 401


def test_by_default_any_token_will_do_but_an_empty_one(jobs):
    assert jobs.call("GET", "/Jobs", headers={"Authorization": "Bearer x"}).status_code == 200
    assert jobs.call("GET", "/Jobs", headers={"Authorization": "Bearer "}).status_code == 401
