"""The rules about jobs that look odd, each with a way to leave it out, and schedules that notice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.exceptions import BatchOutcomeUnknownError, ServiceOutcomeUnknownError
from airflow_provider_scope.protocol import acceptance
from airflow_provider_scope.protocol.engine import Work
from airflow_provider_scope.protocol.records import Attempt
from airflow_provider_scope.protocol.recovery import CommittedBatch
from airflow_provider_scope.scope import engine as scope_engine
from airflow_provider_scope.scope import jobs as decisions
from airflow_provider_scope.scope.engine import ScopeRunner
from airflow_provider_scope.scope.fate import Finding, JobFates, job_id
from airflow_provider_scope.waiting import outcome
from tests.crash import rules
from tests.crash.rules import Rule
from tests.crash.scope_schedules import play

if TYPE_CHECKING:
    import pytest

    from airflow_provider_scope.protocol.records import OffsetEntry
    from tests.crash.tally import Tally


class ScopeRule(Rule):
    """A rule, the schedules of jobs that need it, and what they find without it."""

    def found(self, seed: int) -> Tally:
        return play(self.kind, seed)[0]


def record_after_put(patch: pytest.MonkeyPatch) -> None:
    """Submit an attempt's job, then record the attempt."""

    def start(self: ScopeRunner, entry: OffsetEntry, number: int, version: int) -> None:
        pipeline = self.log.pipeline()
        assert pipeline
        attempt = Attempt(seq=entry.seq, number=number, table_version=version)
        self._submit(Work(pipeline.pipeline, "file:///table", self.log.location), entry, attempt)
        self.log.put(attempt)

    patch.setattr(ScopeRunner, "_start", start)


def next_attempt_beside_a_running_one(patch: pytest.MonkeyPatch) -> None:
    """Take a job that runs, and has not changed the table, for one that failed."""
    _change_fate(patch, "running", "not committed")


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
                self._end(work, attempt)

    patch.setattr(ScopeRunner, "_close", close)


def void_without_a_job_in_its_place(patch: pytest.MonkeyPatch) -> None:
    """Leave the id of a job that never arrived free."""
    original = ScopeRunner._end

    def end(self: ScopeRunner, work: Work, attempt: Attempt) -> None:
        if self.jobs.get_job(job_id(work.pipeline, attempt)) is not None:
            original(self, work, attempt)

    patch.setattr(ScopeRunner, "_end", end)
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

    original = JobFates.investigate

    def look(self: JobFates, attempt: Attempt) -> Any:
        return original(replace(self, jobs=Nameless(self.jobs)), attempt)  # type: ignore[arg-type]

    patch.setattr(JobFates, "investigate", look)


def evidence_ignored(patch: pytest.MonkeyPatch) -> None:
    """Believe a job that says that it failed."""
    patch.setattr(decisions, "evidence", lambda *_args: decisions.NOTHING)


def refresh_only_cancels(patch: pytest.MonkeyPatch) -> None:
    """Cancel the jobs of older batches that run, and close nothing."""

    def close(self: ScopeRunner, work: Work, seq: int) -> None:
        for attempt in self.log.attempts(seq):
            number = job_id(work.pipeline, attempt)
            if self.jobs.get_job(number) is not None:
                self.jobs.cancel_job(number)
                self.wait.await_end(number)

    patch.setattr(ScopeRunner, "_close", close)


def rows_after_the_mark_are_the_jobs(patch: pytest.MonkeyPatch) -> None:
    """Take the one version that adds rows after the mark for the job's, without the closing mark."""
    original = decisions.fate

    def fate(outcome: Any, evidence: Any) -> Any:
        alone = len(evidence.added) == 1
        return original(outcome, replace(evidence, closed=evidence.closed or alone))

    patch.setattr(decisions, "fate", fate)


def success_without_a_log(patch: pytest.MonkeyPatch) -> None:
    """Believe a job that succeeded although the table's log does not go back to it."""
    original = JobFates.investigate

    def look(self: JobFates, attempt: Attempt) -> Any:
        try:
            return original(self, attempt)
        except BatchOutcomeUnknownError:
            job = self.jobs.get_job(job_id(self.pipeline, attempt))
            if job and outcome(job) == "succeeded":
                return Finding("committed", decisions.NOTHING, job)
            raise

    patch.setattr(JobFates, "investigate", look)


def restore_under_a_refresh_ignored(patch: pytest.MonkeyPatch) -> None:
    """Accept a table in which a RESTORE came between a refresh's deletion and its rows."""
    patch.setattr(acceptance, "restore_under_refresh", lambda *_args: None)


def accepted_beside_a_running_job(patch: pytest.MonkeyPatch) -> None:
    """Accept a table while a job still changes it."""
    original = ScopeRunner.probe

    def probe(self: ScopeRunner, location: str, pipeline: str | None, baseline: Any) -> Any:
        return replace(original(self, location, pipeline, baseline), running=None)

    patch.setattr(ScopeRunner, "probe", probe)


def oldest_candidate_is_the_batch(patch: pytest.MonkeyPatch) -> None:
    """Take the first version that adds rows between the marks for the batch's."""
    original = JobFates.committed

    def committed(self: JobFates, seq: int, version: int) -> Any:
        found = original(self, seq, version)
        if isinstance(found, CommittedBatch) and found.candidates:
            return replace(found, version=found.candidates[0], candidates=())
        return found

    patch.setattr(JobFates, "committed", committed)


def given_up_while_its_job_runs(patch: pytest.MonkeyPatch) -> None:
    """Take a batch with a void attempt for one that cannot land any more."""
    original = JobFates.committed

    def committed(self: JobFates, seq: int, version: int) -> Any:
        found = original(self, seq, version)
        attempts = self.log.attempts(seq)
        if not isinstance(found, CommittedBatch) and attempts and attempts[-1].void and version >= 0:
            return CommittedBatch(-1, 0, 0, abandoned=True)
        return found

    patch.setattr(JobFates, "committed", committed)


def table_read_before_jobs(patch: pytest.MonkeyPatch) -> None:
    """Keep the table's state of before the jobs were looked at."""
    original = ScopeRunner.probe

    def probe(self: ScopeRunner, location: str, pipeline: str | None, baseline: Any) -> Any:
        before = scope_engine.probe(location, pipeline, baseline, self.table_storage)
        after = original(self, location, pipeline, baseline)
        return replace(after, identity=before.identity, version=before.version, restores=before.restores)

    patch.setattr(ScopeRunner, "probe", probe)


def _change_fate(patch: pytest.MonkeyPatch, real: str, other: str) -> None:
    original = decisions.fate

    def fate(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        return other if found == real else found

    patch.setattr(decisions, "fate", fate)


RULES = (
    ScopeRule(
        "an attempt is recorded before its job is submitted",
        record_after_put,
        "everything",
        "doubled",
        first=46,
    ),
    ScopeRule("one job at a time", next_attempt_beside_a_running_one, "append", "doubled", first=4),
    ScopeRule("no answer is not a failure", next_attempt_after_no_answer, "append", "doubled", first=92),
    ScopeRule("a refresh closes older batches", refresh_without_void, "refresh", "failures", first=20),
    ScopeRule("a refresh does more than cancel", refresh_only_cancels, "refresh", "failures", first=20),
    ScopeRule(
        "closing a batch is written down", refresh_ends_jobs_without_void, "refresh", "failures", first=20
    ),
    ScopeRule(
        "a no-op takes the id of a job that never arrived",
        void_without_a_job_in_its_place,
        "abandon",
        "doubled",
        first=665,
    ),
    ScopeRule("a no-op is not the job", no_op_is_a_success, "abandon", "failures", first=443),
    ScopeRule("a failed job may be in the table", evidence_ignored, "append", "doubled", first=0),
    ScopeRule(
        "a batch is given up when its job has ended",
        given_up_while_its_job_runs,
        "abandon",
        "doubled",
        first=1067,
    ),
    ScopeRule("the table is read after the jobs", table_read_before_jobs, "refresh", "failures", first=188),
    ScopeRule(
        "only a closing mark tells", rows_after_the_mark_are_the_jobs, "other writers", "lost", first=27
    ),
    ScopeRule("a success needs the table's log", success_without_a_log, "clean", "lost", first=1),
    ScopeRule(
        "a RESTORE under a refresh is refused",
        restore_under_a_refresh_ignored,
        "diverge",
        "doubled",
        first=5179,
    ),
    ScopeRule(
        "nobody accepts beside a running job", accepted_beside_a_running_job, "accept", "lost", first=12
    ),
    ScopeRule(
        "any version between the marks may be the batch",
        oldest_candidate_is_the_batch,
        "accept",
        "lost",
        first=100,
    ),
    ScopeRule(
        "the winner's entry is read before the rest is planned", rules.blind_put, "append", "doubled", first=8
    ),
    ScopeRule("an answer that was lost is looked up", rules.ignore_lost, "append", "doubled", first=25),
    ScopeRule("a commit record needs the table's word", rules.commit_before_probe, "append", "lost", first=4),
    ScopeRule(
        "commits, then the table, then offsets are read", rules.probe_last, "append", "failures", first=97
    ),
    ScopeRule(
        "a segment of another refresh does not count",
        rules.segments_of_any_refresh,
        "refresh",
        "lost",
        first=3,
    ),
    ScopeRule(
        "the table's identity is compared for every record",
        rules.restore_checked_only_at_open,
        "diverge",
        "failures",
        first=6,
    ),
)
