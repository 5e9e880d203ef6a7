"""The protocol cases of the job service: lists."""

from __future__ import annotations

import pytest
import requests


@pytest.fixture
def waiting(recorded):
    """Jobs stay in the state Running, so that nothing moves by itself."""
    recorded.set(state_seconds={"Running": 3600})
    return recorded


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
