"""A job as the service describes it, and the decision after one look at it."""

from __future__ import annotations

import pytest

from airflow_provider_scope.exceptions import ServiceProtocolError
from airflow_provider_scope.scope.jobs import NewJob, Related, parse_job, parse_time
from airflow_provider_scope.waiting import Job, JobError, outcome

RECORDED = {
    "jobId": "d2a5c7d4-0d0f-4d4b-8a6c-2a0d5f1f3f10",
    "name": "flights_append_batch0_3files",
    "type": "Scope",
    "submitter": "someone@acme.example",
    "degreeOfParallelism": 100,
    "priority": 1,
    "submitTime": "2018-01-30T16:23:26.0812877-08:00",
    "startTime": "2018-01-30T16:23:42.7000000-08:00",
    "endTime": "2018-01-30T16:23:49.9719999-08:00",
    "state": "Ended",
    "result": "Cancelled",
    "related": {"recurrenceId": "r-1", "pipelineId": "p-1", "runId": "u-1"},
    "tags": {"team": "flights"},
    "errorMessage": [
        {
            "errorId": "I_USER_CJS_CANCELEDBYUSER",
            "name": "CANCELED_BY_USER",
            "severity": "Info",
            "source": "User",
            "component": "CJS",
            "message": "Job was cancelled.",
            "description": "Job was cancelled by someone@acme.example.",
            "details": "",
            "resolution": "",
            "helpLink": "",
            "innerError": None,
        }
    ],
    "stateAuditRecords": [{"newState": "New", "timeStamp": "2018-01-30T16:23:26.0812877-08:00"}],
    "properties": {"type": "Scope", "script": "SELECT 1;", "yarnApplicationId": 7},
}


def job(state: str, result: str = "None") -> Job:
    return Job(job_id="id", name="name", state=state, result=result)


def test_a_recorded_job_is_read():
    assert parse_job(RECORDED) == Job(
        job_id="d2a5c7d4-0d0f-4d4b-8a6c-2a0d5f1f3f10",
        name="flights_append_batch0_3files",
        state="Ended",
        result="Cancelled",
        submitter="someone@acme.example",
        degree_of_parallelism=100,
        priority=1,
        submitted_at_ms=1517358206081,
        ended_at_ms=1517358229971,
        errors=(
            JobError(
                error_id="I_USER_CJS_CANCELEDBYUSER",
                message="Job was cancelled.",
                description="Job was cancelled by someone@acme.example.",
                severity="Info",
                source="User",
            ),
        ),
        pipeline_id="p-1",
        recurrence_id="r-1",
        run_id="u-1",
        tags={"team": "flights"},
        script="SELECT 1;",
    )


def test_what_lists_and_submissions_leave_out_is_none():
    assert parse_job({"jobId": "a", "name": "b", "state": "Compiling"}) == Job(
        job_id="a", name="b", state="Compiling", result=""
    )


@pytest.mark.parametrize(
    "odd",
    [
        {"state": "Hibernating"},
        {"result": None},
        {"errorMessage": "text"},
        {"errorMessage": [None, "text", {"lineNumber": "7", "message": None}]},
        {"tags": [], "related": "none", "properties": None},
        {"degreeOfParallelism": "100", "priority": None},
        {"submitTime": 7, "startTime": "soon"},
        {"unheard": "of"},
    ],
)
def test_shapes_that_are_not_in_the_specification_are_read_as_far_as_they_go(odd):
    assert parse_job({**RECORDED, **odd}).job_id == RECORDED["jobId"]


@pytest.mark.parametrize(
    "value", [None, [], "job", {}, {**RECORDED, "state": None}, {**RECORDED, "jobId": ""}, {"jobId": "a"}]
)
def test_a_description_without_id_name_or_state_is_an_error(value):
    with pytest.raises(ServiceProtocolError):
        parse_job(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2018-01-30T16:23:26.0812877-08:00", 1517358206081),
        ("2018-01-31T00:23:26.0819999Z", 1517358206081),
        ("2018-01-31T00:23:26", 1517358206000),
        ("1970-01-01T00:00:00.001Z", 1),
        ("1969-12-31T23:59:59.9990000Z", -1),
        ("0001-01-01T00:00:00-08:00", None),
        ("0001-01-01T00:00:00", None),
        ("9999-12-31T23:59:59.9999999Z", 253402300799999),
        ("9999-12-31T23:59:59.9999999-08:00", 253402329599999),
        ("yesterday", None),
        ("", None),
        (None, None),
        (1517358206081, None),
    ],
)
def test_times_are_read_to_the_millisecond_whatever_their_zone(text, expected):
    assert parse_time(text) == expected


@pytest.mark.parametrize(
    "state",
    ["New", "Accepted", "Compiling", "Queued", "Scheduling", "Starting", "Running", "Paused",
     "WaitingForCapacity", "Finalizing", "Yielded", "Preparing", "Hibernating"],
)  # fmt: skip
@pytest.mark.parametrize("result", ["None", "Succeeded", "Failed", "Cancelled"])
def test_a_result_means_nothing_before_the_job_has_ended(state, result):
    assert outcome(job(state, result)) == "waiting"


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("Succeeded", "succeeded"),
        ("Failed", "failed"),
        ("Cancelled", "cancelled"),
        ("Canceled", "cancelled"),
        ("None", "failed"),
        ("", "failed"),
        ("Evaporated", "failed"),
    ],
)
def test_a_job_that_ended_has_the_outcome_of_its_result_and_never_succeeds_by_default(result, expected):
    assert outcome(job("Ended", result)) == expected


def test_the_body_of_a_submission_has_what_the_service_asks_for():
    new = NewJob(
        name="n",
        script="s",
        degree_of_parallelism=7,
        priority=3,
        related=Related(recurrence_id="r", pipeline_name="p", run_id="u"),
        tags={"a": "b"},
    )

    assert new.body() == {
        "name": "n",
        "type": "Scope",
        "degreeOfParallelism": 7,
        "priority": 3,
        "properties": {"type": "Scope", "script": "s"},
        "related": {"recurrenceId": "r", "pipelineName": "p", "runId": "u"},
        "tags": {"a": "b"},
    }


def test_what_is_not_given_is_not_in_the_body():
    new = NewJob(name="n", script="s", degree_of_parallelism=1, priority=1)

    assert sorted(new.body()) == ["degreeOfParallelism", "name", "priority", "properties", "type"]


def test_a_job_does_not_show_its_script():
    assert "SELECT" not in repr(parse_job(RECORDED))
    assert "SELECT" not in repr(NewJob(name="n", script="SELECT", degree_of_parallelism=1, priority=1))
