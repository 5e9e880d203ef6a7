"""The rules about jobs that look odd, each with a way to leave it out, and schedules that notice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.core import attempts as decisions
from airflow_provider_scope.core.records import Attempt
from airflow_provider_scope.core.recovery import Landed
from airflow_provider_scope.engines import scope
from airflow_provider_scope.engines.scope import ScopeRunner
from airflow_provider_scope.exceptions import ServiceOutcomeUnknownError
from airflow_provider_scope.execution.engine import Work
from tests.crash.scope_schedules import play

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from airflow_provider_scope.core.records import OffsetEntry
    from tests.crash.tally import Tally

LIMIT = 4000
"""Schedules after which nothing is found any more; most rules need less than a hundred."""


@dataclass(frozen=True)
class Rule:
    """A rule, the schedules that need it, and what they find without it."""

    name: str
    leave_out: Callable[[pytest.MonkeyPatch], None]
    kind: str
    finds: str
    """``lost``, ``doubled`` or ``failures``."""

    def search(self) -> tuple[int, Tally]:
        """Play schedules until one finds something.

        :return: How many were played, and what the last one found.
        """
        for seed in range(LIMIT):
            found = play(self.kind, seed)[0]
            if getattr(found, self.finds):
                return seed + 1, found
        return LIMIT, found


def record_after_put(patch: pytest.MonkeyPatch) -> None:
    """Submit an attempt's job, then record the attempt."""

    def start(self: ScopeRunner, entry: OffsetEntry, number: int, version: int) -> None:
        pipeline = self.log.pipeline()
        assert pipeline
        attempt = Attempt(seq=entry.seq, number=number, table_version=version)
        self._submit(Work(pipeline.pipeline, "file:///table", self.log.location), entry, attempt)
        self.log.put_attempt(attempt)

    patch.setattr(ScopeRunner, "_start", start)


def next_attempt_beside_a_running_one(patch: pytest.MonkeyPatch) -> None:
    """Take a job that runs, and has not changed the table, for one that failed."""
    _change_fate(patch, "running", "not landed")


def next_attempt_after_no_answer(patch: pytest.MonkeyPatch) -> None:
    """Take a submission without an answer for one that failed: it may be late."""
    original = ScopeRunner._submit

    def submit(self: ScopeRunner, work: Work, entry: OffsetEntry, attempt: Attempt) -> None:
        try:
            original(self, work, entry, attempt)
        except ServiceOutcomeUnknownError:
            self._start(entry, attempt.number + 1, attempt.table_version)
            raise

    patch.setattr(ScopeRunner, "_submit", submit)


def refresh_without_void(patch: pytest.MonkeyPatch) -> None:
    """Begin a refresh while jobs of older batches may run, or arrive."""
    patch.setattr(ScopeRunner, "_close_older", lambda *_args: None)


def refresh_ends_jobs_without_void(patch: pytest.MonkeyPatch) -> None:
    """End the jobs of older batches, but write nothing down: another run makes the next attempt."""

    def close(self: ScopeRunner, work: Work, seq: int) -> None:
        for attempt in self.log.attempts(seq):
            if not attempt.void:
                self._end_job(work, attempt)

    patch.setattr(ScopeRunner, "_close", close)


def void_without_a_job_in_its_place(patch: pytest.MonkeyPatch) -> None:
    """Leave the id of a job that never arrived free."""
    original = ScopeRunner._end_job

    def end(self: ScopeRunner, work: Work, attempt: Attempt) -> None:
        if self.jobs.get_job(self._id(work, attempt)) is not None:
            original(self, work, attempt)

    patch.setattr(ScopeRunner, "_end_job", end)
    # Nothing is known of the job then; the batch counts as given up all the same.
    given_up_while_its_job_runs(patch)


def no_op_is_a_success(patch: pytest.MonkeyPatch) -> None:
    """Take a no-op that succeeded for the job whose place it took."""

    class Nameless:
        def __init__(self, jobs: Any) -> None:
            self.jobs = jobs

        def get_job(self, job_id: str) -> Any:
            job = self.jobs.get_job(job_id)
            return job and replace(job, name="load")

    original = ScopeRunner._look

    def look(self: ScopeRunner, *args: Any) -> Any:
        jobs, self.jobs = self.jobs, Nameless(self.jobs)  # type: ignore[assignment]
        try:
            return original(self, *args)
        finally:
            self.jobs = jobs

    patch.setattr(ScopeRunner, "_look", look)


def evidence_ignored(patch: pytest.MonkeyPatch) -> None:
    """Believe a job that says that it failed."""
    patch.setattr(scope.decisions, "evidence", lambda *_args: decisions.NOTHING)


def given_up_while_its_job_runs(patch: pytest.MonkeyPatch) -> None:
    """Take a batch with a void attempt for one that cannot land any more."""
    original = ScopeRunner._landed

    def landed(self: ScopeRunner, location: str, pipeline: str, seq: int, version: int) -> Any:
        found = original(self, location, pipeline, seq, version)
        attempts = self.log.attempts(seq)
        if found is None and attempts and attempts[-1].void and version >= 0:
            return Landed(-1, 0, 0, abandoned=True)
        return found

    patch.setattr(ScopeRunner, "_landed", landed)


def table_read_before_jobs(patch: pytest.MonkeyPatch) -> None:
    """Keep the table's state of before the jobs were looked at."""
    original = ScopeRunner.probe

    def probe(self: ScopeRunner, location: str, pipeline: str | None, baseline: Any) -> Any:
        before = scope.probe(location, pipeline, baseline)
        after = original(self, location, pipeline, baseline)
        return type(after)(before.stamp, before.version, after.txn, after.landed, before.restores)

    patch.setattr(ScopeRunner, "probe", probe)


def _change_fate(patch: pytest.MonkeyPatch, real: str, other: str) -> None:
    original = decisions.fate

    def fate(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        return other if found == real else found

    patch.setattr(decisions, "fate", fate)


RULES = (
    Rule("an attempt is recorded before its job is submitted", record_after_put, "everything", "doubled"),
    Rule("one job at a time", next_attempt_beside_a_running_one, "append", "doubled"),
    Rule("no answer is not a failure", next_attempt_after_no_answer, "append", "doubled"),
    Rule("a refresh closes older batches", refresh_without_void, "refresh", "failures"),
    Rule("closing a batch is written down", refresh_ends_jobs_without_void, "refresh", "failures"),
    Rule(
        "a no-op takes the id of a job that never arrived",
        void_without_a_job_in_its_place,
        "abandon",
        "doubled",
    ),
    Rule("a no-op is not the job", no_op_is_a_success, "abandon", "lost"),
    Rule("a failed job may be in the table", evidence_ignored, "append", "doubled"),
    Rule("a batch is given up when its job has ended", given_up_while_its_job_runs, "abandon", "doubled"),
    Rule("the table is read after the jobs", table_read_before_jobs, "refresh", "failures"),
)
