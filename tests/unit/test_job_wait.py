"""Waiting for a job that was cancelled ends, whatever the service does."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from airflow_provider_scope.exceptions import JobNotEndedError
from airflow_provider_scope.scope.jobs import Job, NewJob
from airflow_provider_scope.scope.submission import CANCEL_SECONDS, JobWait


@dataclass
class Service:
    """One job, which ends so many seconds after it was asked to; None is never."""

    ends_after: float | None
    now: float = 1_000.0
    cancelled_at: list[float] = field(default_factory=list)

    def submit_job(self, job_id: str, new: NewJob) -> Job:
        raise NotImplementedError

    def get_job(self, job_id: str) -> Job:
        asked = self.cancelled_at[0] if self.cancelled_at else self.now
        has_ended = self.ends_after is not None and self.now >= asked + self.ends_after
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
    )


def test_a_job_over_its_time_is_cancelled_and_waited_for() -> None:
    service = Service(ends_after=CANCEL_SECONDS - 10)

    job = wait_on(service).wait("j", "of batch 3")

    assert job
    assert job.result == "Cancelled"
    assert service.cancelled_at == [1_060.0]


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
    asked: list[float] = []

    def until() -> bool:
        asked.append(service.now)
        return service.now >= 1_007.0

    job = wait_on(service).wait("j", "of batch 3", until)

    assert job
    assert job.state == "Finalizing"
    assert sorted(set(asked)) == [1_000.0 + second for second in range(8)]
    assert service.cancelled_at == []


def test_a_job_over_its_time_is_cancelled_although_something_else_could_end_the_wait() -> None:
    service = Service(ends_after=10.0)

    job = wait_on(service).wait("j", "of batch 3", lambda: False)

    assert job
    assert job.result == "Cancelled"
    assert service.cancelled_at == [1_060.0]
