"""When a wait looks again, and when it ends, whatever the service does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from airflow_provider_scope.exceptions import JobNotEndedError
from airflow_provider_scope.waiting import CANCEL_SECONDS, Job, JobWait, next_look

if TYPE_CHECKING:
    from airflow_provider_scope.scope.jobs import NewJob


@dataclass
class Service:
    """One job, which ends so many seconds after it was asked to; None is never."""

    ends_after: float | None
    now: float = 1_000.0
    cancelled_at: list[float] = field(default_factory=list)

    def submit_job(self, job_id: str, new: NewJob) -> Job:
        raise NotImplementedError

    def get_job(self, job_id: str) -> Job:
        cancelled = self.cancelled_at[0] if self.cancelled_at else self.now
        has_ended = self.ends_after is not None and self.now >= cancelled + self.ends_after
        state, result = ("Ended", "Cancelled") if has_ended else ("Finalizing", "None")
        return Job(job_id=job_id, name="load", state=state, result=result, submitted_at_ms=1_000_000)

    def cancel_job(self, job_id: str) -> None:
        assert job_id == "j"
        self.cancelled_at.append(self.now)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def wait_on(service: Service) -> JobWait:
    return JobWait(
        jobs=service,
        timeout_seconds=60.0,
        poll_seconds=5.0,
        inline_wait_seconds=None,
        clock=lambda: service.now,
        sleep=service.sleep,
        random=lambda: 0.0,
        report=print,
    )


@pytest.mark.parametrize(
    ("begins", "deadline", "cancelled"),
    [
        pytest.param(1_000.0, None, 1_060.0, id="from its submission"),
        pytest.param(1_030.0, None, 1_060.0, id="which an earlier try made"),
        pytest.param(1_000.0, 1_020.0, 1_020.0, id="the time of the task is over first"),
        pytest.param(1_000.0, 1_500.0, 1_060.0, id="or later"),
    ],
)
def test_a_job_over_its_time_is_cancelled_and_waited_for(
    begins: float, deadline: float | None, cancelled: float
) -> None:
    service = Service(ends_after=CANCEL_SECONDS - 10, now=begins)
    wait = wait_on(service)
    wait.deadline = deadline

    job = wait.wait("j", "of batch 3")

    assert job
    assert job.result == "Cancelled"
    assert service.cancelled_at == [cancelled]


def test_a_job_that_does_not_end_after_it_was_cancelled_is_not_waited_for_for_ever() -> None:
    service = Service(ends_after=None)

    with pytest.raises(JobNotEndedError, match="job j was cancelled and is still Finalizing") as caught:
        wait_on(service).wait("j", "of batch 3")

    assert service.now == 1_060.0 + CANCEL_SECONDS
    assert "the next try waits for it again" in caught.value.do
    assert caught.value.is_retryable


def test_the_time_counts_from_each_wait() -> None:
    service = Service(ends_after=None, cancelled_at=[0.0])
    wait = wait_on(service)

    for _ in range(2):
        began = service.now
        with pytest.raises(JobNotEndedError):
            wait.await_end("j")
        assert service.now - began == CANCEL_SECONDS


def test_a_wait_that_something_else_ends_asks_it_every_second_and_leaves_the_job_running() -> None:
    service = Service(ends_after=None)
    times: list[float] = []

    def until() -> bool:
        times.append(service.now)
        return service.now >= 1_007.0

    job = wait_on(service).wait("j", "of batch 3", until)

    assert job
    assert job.state == "Finalizing"
    assert sorted(set(times)) == [1_000.0 + second for second in range(8)]
    assert service.cancelled_at == []


def test_a_job_over_its_time_is_cancelled_although_something_else_could_end_the_wait() -> None:
    service = Service(ends_after=10.0)

    job = wait_on(service).wait("j", "of batch 3", lambda: False)

    assert job
    assert job.result == "Cancelled"
    assert service.cancelled_at == [1_060.0]


def test_a_job_that_ended_is_over_although_nobody_looked_before_its_deadline() -> None:
    service = Service(ends_after=0.0, now=2_000.0)

    job = wait_on(service).wait("j", "of batch 3")

    assert job
    assert service.cancelled_at == []


# ---- one look ----


@pytest.mark.parametrize(
    ("wait", "expected"),
    [
        pytest.param({"now": 0, "deadline": 1_000}, ("waiting", 60), id="again after the interval"),
        pytest.param({"jitter": 1.0}, ("waiting", 72), id="and never before"),
        pytest.param(
            {"now": 970, "deadline": 1_000}, ("waiting", 30), id="for the last time at the deadline"
        ),
        pytest.param({"now": 1_000, "deadline": 1_000}, ("timed out", 0.0), id="at the deadline"),
        *(
            pytest.param({"failures": failures}, ("waiting", seconds), id=f"{failures} without an answer")
            for failures, seconds in ((1, 10), (2, 20), (3, 40), (4, 80))
        ),
        pytest.param({"failures": 5}, ("failed", 0.0), id="the fifth without an answer in a row"),
        pytest.param({"failures": 1, "can_retry": False}, ("failed", 0.0), id="a failure that stays"),
        pytest.param({"failures": 1, "now": 5, "deadline": 5}, ("failed", 0.0), id="a failure, no timeout"),
    ],
)
def test_a_look_that_has_not_ended_the_wait_is_followed_by_another_one_in_time(wait, expected):
    assert next_look(interval_seconds=60, **wait) == expected


@pytest.mark.parametrize("failures", [5, 6, 7, 1_000_000])
def test_without_a_limit_failures_are_waited_out_for_up_to_10_minutes_each(failures):
    assert next_look(failures=failures, can_retry=False, tries=None) == (
        "waiting",
        {5: 160, 6: 320}.get(failures, 600),
    )


def test_a_wait_can_have_its_own_longest_time_between_looks_without_an_answer() -> None:
    waits = [
        next_look(failures=failures, tries=None, longest_retry_seconds=60).seconds
        for failures in (1, 3, 4, 5_000)
    ]

    assert waits == [10, 40, 60, 60]
