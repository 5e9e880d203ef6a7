"""What the job service tells about a job beside itself: statistics, debug data, pipelines, recurrences."""

from __future__ import annotations

import uuid

import pytest

from airflow_provider_scope.emulator.execution import Outcome

PIPELINE = "11111111-1111-4111-8111-111111111111"
RECURRENCE = "22222222-2222-4222-8222-222222222222"
RUNS = ("33333333-3333-4333-8333-333333333333", "44444444-4444-4444-8444-444444444444")


def related(run=0, **fields):
    return {
        "pipelineId": PIPELINE,
        "pipelineName": "orders",
        "recurrenceId": RECURRENCE,
        "recurrenceName": "daily",
        "runId": RUNS[run],
        **fields,
    }


@pytest.fixture
def grouped(recorded, jobs, clock, executor):
    """Half an hour of 4 AUs that succeeded, one that failed, one that was cancelled, one that runs."""
    recorded.set(state_seconds={"Running": 1800.0})
    for outcome in (Outcome(), Outcome("No.")):
        executor.outcome = outcome
        job_id = jobs.put(related=related(), degreeOfParallelism=4).json()["jobId"]
        jobs.until(job_id, "Running")
        clock.advance(1800)
        jobs.until(job_id)
    cancelled = jobs.put(related=related(1, pipelineName="orders 2"), degreeOfParallelism=2).json()["jobId"]
    jobs.until(cancelled, "Running")
    clock.advance(900)
    jobs.cancel(cancelled)
    jobs.put(related=related(1, recurrenceId=str(uuid.UUID(int=1)), recurrenceName=None))
    jobs.put()
    return jobs


SUMS = {
    "numJobsFailed": 1,
    "numJobsCanceled": 1,
    "numJobsSucceeded": 1,
    "auHoursFailed": 2.0,
    "auHoursCanceled": 0.5,
    "auHoursSucceeded": 2.0,
}


def test_a_pipeline_adds_up_its_jobs_and_names_its_runs_as_recorded(grouped):
    expected = {
        "pipelineId": PIPELINE,
        "pipelineName": "orders",
        **SUMS,
        "lastSubmitTime": "2027-01-15T01:15:00.0000000-08:00",
        "runs": [
            {"item1": RUNS[0], "item2": "2027-01-15T00:30:00.0000000-08:00"},
            {"item1": RUNS[1], "item2": "2027-01-15T01:15:00.0000000-08:00"},
        ],
        "recurrences": [RECURRENCE, str(uuid.UUID(int=1))],
    }
    assert grouped.call("GET", "/pipelines").json() == {"value": [expected], "count": 1}
    assert grouped.call("GET", f"/Pipelines/{PIPELINE.upper()}").json() == expected


def test_the_runs_of_a_pipeline_can_be_those_of_the_specification(grouped, recorded):
    recorded.set(pipeline_runs="specified")
    runs = grouped.call("GET", f"/pipelines/{PIPELINE}").json()["runs"]
    assert runs[0] == {"runId": RUNS[0], "lastSubmitTime": "2027-01-15T00:30:00.0000000-08:00"}


def test_recurrences_are_added_up_each_by_itself(grouped):
    answer = grouped.call("GET", "/recurrences").json()
    assert answer["count"] == 2
    assert answer["value"][0] == {
        "recurrenceId": RECURRENCE,
        "recurrenceName": "daily",
        **SUMS,
        "lastSubmitTime": "2027-01-15T01:00:00.0000000-08:00",
    }
    other = grouped.call("GET", f"/recurrences/{uuid.UUID(int=1)}").json()
    assert (other["numJobsSucceeded"], "recurrenceName" in other) == (0, False)


def test_a_window_leaves_out_what_was_submitted_before_or_after(grouped):
    def failed(start, end):
        params = {"startDateTime": start, "endDateTime": end}
        found = grouped.call("GET", "/recurrences", params=params).json()["value"]
        return [(one["numJobsSucceeded"], one["numJobsFailed"]) for one in found]

    assert failed("2027-01-15T08:00:00Z", "2027-01-15T08:00:00Z") == [(1, 0)]
    assert failed("2027-01-15T00:15:00-08:00", "2027-01-15T08:45:00Z") == [(0, 1)]
    assert failed("2027-01-14T00:00:00Z", "2027-01-14T08:00:00Z") == []


@pytest.mark.parametrize(
    ("path", "params", "status"),
    [
        ("/pipelines", {"startDateTime": "2027-01-01T00:00:00Z", "endDateTime": "2027-01-31T00:00:00Z"}, 200),
        ("/pipelines", {"startDateTime": "2027-01-01T00:00:00Z", "endDateTime": "2027-01-31T00:00:01Z"}, 400),
        ("/pipelines", {"startDateTime": "2027-01-02T00:00:00Z", "endDateTime": "2027-01-01T00:00:00Z"}, 400),
        ("/recurrences", {"startDateTime": "yesterday"}, 400),
        ("/pipelines/none", {}, 400),
        (f"/pipelines/{PIPELINE}", {}, 404),
        (f"/recurrences/{RECURRENCE}", {}, 404),
    ],
)
def test_what_is_not_valid_or_not_there_is_refused(jobs, path, params, status):
    answer = jobs.call("GET", path, params=params)
    assert answer.status_code == status
    assert ("error" in answer.json()) == (status != 200)


def test_statistics_follow_the_script(recorded, jobs, clock):
    recorded.set(state_seconds={"Compiling": 10.0, "Running": 60.0})
    job_id = jobs.put().json()["jobId"]
    path = f"/Jobs/{job_id}/GetStatistics"
    assert jobs.call("GET", path).json() == {
        "lastUpdateTimeUtc": "2027-01-15T08:00:00.0000000+00:00",
        "stages": [],
    }
    clock.advance(10)
    (stage,) = jobs.call("GET", path).json()["stages"]
    assert (stage["runningCount"], stage["succeededCount"], stage["totalProgress"]) == (1, 0, 0)
    clock.advance(60)
    jobs.until(job_id)
    assert jobs.call("GET", path).json() == {
        "lastUpdateTimeUtc": "2027-01-15T08:01:10.0000000+00:00",
        "finalizingTimeUtc": "2027-01-15T08:01:10.0000000+00:00",
        "stages": [
            {
                "stageName": "Script",
                "totalCount": 1,
                "succeededCount": 1,
                "failedCount": 0,
                "runningCount": 0,
                "scheduledCount": 0,
                "totalProgress": 100,
                "totalSucceededTime": "PT60.0000000S",
                "totalFailedTime": "PT0.0000000S",
            }
        ],
    }


def test_debug_data_names_the_folder_of_the_job(jobs):
    job = jobs.put().json()
    answer = jobs.call("GET", f"/jobs/{job['jobId']}/GETDEBUGDATAPATH").json()
    assert answer == {"jobId": job["jobId"], "command": "", "paths": [job["logFolder"]]}


@pytest.mark.parametrize("part", ["GetStatistics", "GetDebugDataPath"])
def test_an_unknown_job_has_neither(jobs, part):
    answer = jobs.call("GET", f"/Jobs/{uuid.uuid4()}/{part}")
    assert answer.status_code == 404
    assert answer.json() == {"error": {"code": "JobNotFound", "message": "Job is not found."}}
