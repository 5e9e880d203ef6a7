"""The protocol cases of the job service: submission, life cycle, cancel, lists."""

from __future__ import annotations

import uuid
from datetime import datetime

import pytest
import requests

from tests.emulator.conftest import body

ORDER = ["New", "Compiling", "Queued", "Scheduling", "Starting", "Running", "Finalizing", "Ended"]


def test_case_01_a_new_job_is_accepted_and_has_neither_begun_nor_ended(jobs):
    answer = jobs.put()
    assert answer.status_code == 200
    job = answer.json()
    assert job["state"] == "Compiling"
    assert job["result"] == "None"
    assert [entry["newState"] for entry in job["stateAuditRecords"]] == ["New"]
    assert datetime.fromisoformat(job["submitTime"]).utcoffset() is not None
    assert job["submitTime"] == "2027-01-15T00:00:00.0000000-08:00"
    assert not {"startTime", "endTime"} & set(job)
    assert "script" not in job["properties"]


def test_case_02_states_only_move_forward_with_one_audit_record_each(recorded, clock, jobs):
    recorded.set(state_seconds={state: 1.0 for state in ORDER if state != "Ended"})
    job_id = jobs.put().json()["jobId"]
    seen = []
    for _ in range(40):
        job = jobs.get(job_id).json()
        seen.append(job["state"])
        audited = [entry["newState"] for entry in job["stateAuditRecords"]]
        assert audited == ORDER[: len(audited)]
        assert ("startTime" in job) == ("Running" in audited)
        assert ("endTime" in job) == (job["state"] == "Ended")
        times = [entry["timeStamp"] for entry in job["stateAuditRecords"]]
        assert times == sorted(times)
        if job["state"] == "Ended":
            break
        assert job["result"] == "None"
        if job["state"] == "Running":
            clock.advance(0.1)
        else:
            clock.advance(1)
    assert job["result"] == "Succeeded"
    assert sorted(set(seen), key=ORDER.index) == ORDER
    assert seen == sorted(seen, key=ORDER.index)


def test_case_04_the_same_submission_twice_runs_once(recorded, jobs, clock):
    job_id = str(uuid.uuid4())
    first = jobs.put(job_id).json()
    jobs.until(job_id)
    clock.advance(5)
    second = jobs.put(job_id)
    assert second.status_code == 200
    assert second.json()["submitTime"] == first["submitTime"]
    assert second.json()["state"] == "Ended"
    assert recorded.counts()["jobs.executed"] == 1


def test_case_04_the_same_submission_twice_can_be_made_a_conflict(recorded, jobs):
    recorded.set(duplicate_put="conflict")
    job_id = str(uuid.uuid4())
    assert jobs.put(job_id).status_code == 200
    assert jobs.put(job_id).status_code == 409


@pytest.mark.parametrize(
    ("path", "version", "payload"),
    [
        (f"/Jobs/{uuid.UUID(int=1)}", None, body()),
        (f"/Jobs/{uuid.UUID(int=1)}", "2016-11-01", body()),
        (f"/Jobs/{uuid.UUID(int=1)}", "2017-09-01-preview", body(name="")),
        (f"/Jobs/{uuid.UUID(int=1)}", "2017-09-01-preview", body(script="")),
        ("/Jobs/not-a-guid", "2017-09-01-preview", body()),
        (f"/Jobs/{uuid.UUID(int=1)}", "2017-09-01-preview", body(tags={"a": 1})),
        (f"/Jobs/{uuid.UUID(int=1)}", "2017-09-01-preview", body(priority=0)),
        (f"/Jobs/{uuid.UUID(int=1)}", "2017-09-01-preview", body(degreeOfParallelism="2")),
        (f"/Jobs/{uuid.UUID(int=1)}", "2017-09-01-preview", [1]),
        (f"/Jobs/{uuid.UUID(int=1)}", "2017-09-01-preview", body(kind="USql")),
    ],
    ids=["no version", "version", "name", "script", "id", "tags", "priority", "aus", "body", "type"],
)
def test_case_08_a_malformed_submission_is_refused(jobs, path, version, payload):
    answer = jobs.call("PUT", path, version, json=payload)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"]
    assert answer.json()["error"]["message"]


def test_case_09_a_script_has_three_megabytes_at_most(jobs):
    assert jobs.put(script="/" * 3_000_000).status_code == 200
    assert jobs.put(script="/" * 3_000_001).status_code == 400


def test_case_10_related_needs_a_recurrence_and_short_names(jobs):
    guid = str(uuid.uuid4())
    assert jobs.put(related={"pipelineId": guid}).status_code == 400
    assert jobs.put(related={"recurrenceId": guid, "pipelineName": "x" * 261}).status_code == 400
    answer = jobs.put(related={"recurrenceId": guid, "pipelineName": "x" * 260})
    assert answer.json()["related"]["recurrenceId"] == guid


def test_case_11_aus_and_priority_have_defaults(jobs):
    job = jobs.put().json()
    assert (job["degreeOfParallelism"], job["priority"]) == (1, 1000)
    assert jobs.put(degreeOfParallelism=-3).json()["degreeOfParallelism"] == 1


def test_case_12_a_job_that_is_cancelled_while_compiling_never_starts(recorded, jobs):
    recorded.set(state_seconds={"Compiling": 60})
    job_id = jobs.put().json()["jobId"]
    assert jobs.get(job_id).json()["state"] == "Compiling"
    answer = jobs.cancel(job_id)
    assert (answer.status_code, answer.content) == (200, b"")
    assert "Content-Type" not in answer.headers
    job = jobs.get(job_id).json()
    assert (job["state"], job["result"]) == ("Ended", "Cancelled")
    assert job["errorMessage"][0]["errorId"] == "I_USER_CJS_CANCELEDBYUSER"
    assert job["stateAuditRecords"][-1]["details"] == "result:CanceledByUser"
    assert "startTime" not in job
    assert "jobs.executed" not in recorded.counts()


def test_case_13_a_job_that_is_cancelled_while_running_may_finalize_first(recorded, jobs, clock):
    recorded.set(state_seconds={"Running": 60, "Finalizing": 60})
    job_id = jobs.put().json()["jobId"]
    assert jobs.get(job_id).json()["state"] == "Running"
    jobs.cancel(job_id)
    job = jobs.get(job_id).json()
    assert (job["state"], job["result"]) == ("Finalizing", "None")
    clock.advance(60)
    job = jobs.get(job_id).json()
    assert (job["state"], job["result"]) == ("Ended", "Cancelled")
    assert "jobs.executed" not in recorded.counts()


def test_case_14_cancelling_again_changes_nothing(jobs, recorded):
    recorded.set(state_seconds={"Running": 60})
    job_id = jobs.put().json()["jobId"]
    assert [jobs.cancel(job_id).status_code for _ in range(2)] == [200, 200]
    assert jobs.get(job_id).json()["result"] == "Cancelled"
    recorded.set(state_seconds={})
    ended = jobs.put().json()["jobId"]
    before = jobs.until(ended)
    assert jobs.cancel(ended).status_code == 200
    assert jobs.get(ended).json() == before
    assert jobs.cancel(str(uuid.uuid4())).status_code == 404


@pytest.fixture
def waiting(recorded):
    """Jobs stay in the state Running, so that nothing moves by itself."""
    recorded.set(state_seconds={"Running": 3600})
    return recorded


def test_case_19_pages_have_no_gap_and_no_job_twice(recorded, jobs, clock):
    for number in range(6):
        jobs.put(name=f"j{number}")
        clock.advance(1)
    page = jobs.list(orderby="submitTime desc", top="2").json()
    assert page["nextLink"].startswith(f"{jobs.url}/Jobs?")
    names = [item["name"] for item in page["value"]]
    assert names == ["j5", "j4"]
    while "nextLink" in page:
        jobs.put(name="j9")  # what comes in meanwhile sorts before the page
        page = requests.get(page["nextLink"], timeout=30).json()
        names += [item["name"] for item in page["value"]]
    assert names == ["j5", "j4", "j3", "j2", "j1", "j0"]


def test_case_19_a_filter_that_jobs_leave_meanwhile_has_no_gap(waiting, jobs):
    ids = [jobs.put(name=f"j{n}").json()["jobId"] for n in range(4)]
    waiting.set(page_size=2)
    page = jobs.list(filter="state ne 'Ended'").json()
    for one in ids[:2]:
        jobs.cancel(one)
    following = requests.get(page["nextLink"], timeout=30).json()
    assert [item["name"] for item in following["value"]] == ["j2", "j3"]
    assert "nextLink" not in following


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("name eq 'it''s'", ["it's"]),
        ("name eq 'its'", []),
        ("state ne 'Ended'", ["it's", "m_1", "m_2"]),
        ("startswith(name, 'm_') and name ne 'm_1' and state eq 'Running'", ["m_2"]),
        ("startswith(name,'m and n')", []),
    ],
)
def test_a_filter_compares_texts(waiting, jobs, text, names):
    for name in ("it's", "m_1", "m_2"):
        jobs.put(name=name)
    jobs.cancel(jobs.put(name="m_ended").json()["jobId"])
    assert jobs.names(filter=text) == names


@pytest.mark.parametrize(
    "wrong",
    [
        {"filter": "state eq"},
        {"filter": "name eq 'x"},
        {"filter": "name eq 'x' name"},
        {"filter": "name eq 'x' and"},
        {"filter": "name eq 'x' or name eq 'y'"},
        {"filter": "nothing eq 'x'"},
        {"orderby": "name"},
        {"orderby": "submitTime down"},
        {"top": "0"},
        {"top": "x"},
        {"skip": "1"},
        {"skiptoken": "x"},
    ],
)
def test_what_a_list_cannot_do_is_refused_and_not_ignored(jobs, wrong):
    jobs.put()
    assert jobs.list(**wrong).status_code == 400


def test_case_20_a_list_item_leaves_out_what_only_a_single_job_shows(jobs):
    jobs.put()
    answer = jobs.list().json()
    assert not {"properties", "stateAuditRecords", "errorMessage"} & set(answer["value"][0])
    assert set(answer) == {"value"}


def test_case_22_letter_case_makes_no_difference_in_paths(jobs):
    job_id = jobs.put().json()["jobId"]
    assert jobs.call("GET", f"/JOBS/{job_id.upper()}").json()["jobId"] == job_id
    assert jobs.call("POST", f"/jobs/{job_id}/cancelJob").status_code == 200
