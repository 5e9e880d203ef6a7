"""The SCOPE engine: one job of Azure Data Lake Analytics for each batch, one at a time, in order."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from airflow_provider_scope.core import attempts as decisions
from airflow_provider_scope.core.jobs import NewJob, Related, next_step, outcome
from airflow_provider_scope.core.records import Attempt
from airflow_provider_scope.core.recovery import Landed
from airflow_provider_scope.exceptions import (
    BatchNotInTableError,
    BatchOutcomeUnknownError,
    JobMismatchError,
    JobRunningError,
    ScopeJobFailedError,
    ScopeScriptError,
)
from airflow_provider_scope.script.batch import MARKER_PROPERTY, BatchIdentity
from airflow_provider_scope.script.generate import generate_void
from airflow_provider_scope.table.changes import changes
from airflow_provider_scope.table.probe import newest_version, probe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_provider_scope.checkpoint.log import CheckpointLog
    from airflow_provider_scope.core.attempts import Evidence, Fate
    from airflow_provider_scope.core.jobs import Job
    from airflow_provider_scope.core.records import OffsetEntry, TableStamp
    from airflow_provider_scope.core.recovery import TableState
    from airflow_provider_scope.execution.engine import Work

VOID_NAME = "airflow_provider_scope_void"
"""How the names of no-op jobs begin."""

logger = logging.getLogger(__name__)


class Jobs(Protocol):
    """What is needed of the service; ``ScopeHook`` has it."""

    def submit_job(self, job_id: str, new: NewJob) -> Job:
        """Submit a job, or adopt the same one."""

    def get_job(self, job_id: str) -> Job | None:
        """Describe a job; None only if the service does not know it."""

    def cancel_job(self, job_id: str) -> None:
        """Ask for a job's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """How jobs are submitted and waited for."""

    name: str
    """How the jobs' names begin."""
    au: int
    priority: int
    timeout_seconds: float
    """From a job's submission; then it is cancelled."""
    poll_seconds: float
    inline_wait_seconds: float | None
    """How long one job is waited for in the worker; None is to its end."""
    run_id: str
    """A GUID of this run, for the service's own views."""
    task: str = ""


def job_id(pipeline: str, seq: int, attempt: int) -> str:
    """Give the id of an attempt's job: the same for whoever asks."""
    return str(uuid.uuid5(uuid.UUID(pipeline), f"{seq}.{attempt}"))


@dataclass
class ScopeRunner:
    """Runs batches as SCOPE jobs.

    A job cannot write a transaction into the table. So what became of a batch follows from three things:
    ``attempts/<seq>.<k>``, written before job k is submitted; what the service says of the job, whose id
    follows from pipeline, batch and attempt; and the table's log, in which each script marks the table with
    its attempt before it adds rows. There is at most one job that may still change the table: attempt k+1
    is made only when attempt k is known to have ended, and not to be in the table.

    :param script: Gives the script of an attempt of a batch.
    :param clock: Seconds since the epoch.
    :param sleep: Waits for seconds.
    :param random: Gives a number from 0 to 1.
    """

    jobs: Jobs
    log: CheckpointLog
    settings: JobSettings
    script: Callable[[BatchIdentity, OffsetEntry], str]
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    random: Callable[[], float]
    report: Callable[[str], None] = logger.info
    running: str | None = field(default=None, repr=False)
    """The job that is waited for."""

    # ---- looking -------------------------------------------------------------------------------

    def probe(
        self, location: str, pipeline: str | None, baseline: tuple[TableStamp | None, int]
    ) -> TableState:
        """Look at the table, at the attempts of open batches, and at their jobs."""
        state = probe(location, None, baseline)
        if pipeline is None:
            return state
        committed = self.log.committed()
        txn = committed[-1] if committed else None
        landed: dict[int, Landed] = {}
        logged = self.log.logged()
        # What is open below the newest refresh is dead, and what is below a commit is settled.
        overwrite = self.log.offset(logged[-1]).overwrite_start if logged else None
        floor = max(overwrite or 0, 0 if txn is None else txn + 1)
        for seq in logged[floor:]:
            found = self._landed(location, pipeline, seq, state.version)
            if found is None:
                break
            landed[seq] = found
            txn = seq
        return type(state)(state.stamp, state.version, txn, landed, state.restores)

    def _landed(self, location: str, pipeline: str, seq: int, version: int) -> Landed | None:
        given_up = False
        for attempt in self.log.attempts(seq):
            if attempt.void:
                given_up = True
                continue
            fate, found, _ = self._look(location, pipeline, attempt, version)
            if fate == "undecidable":
                raise _undecidable(location, attempt, job_id(pipeline, seq, attempt.number), found)
            if fate == "landed":
                change = found.landed[0] if found.landed else None
                return Landed(
                    version=change.version if change else version,
                    rows=change.rows if change else None,
                    written_bytes=change.size_bytes if change else None,
                )
        return Landed(-1, 0, 0, abandoned=True) if given_up else None

    def _look(
        self, location: str, pipeline: str, attempt: Attempt, version: int
    ) -> tuple[Fate, Evidence, Job | None]:
        # The job first: what it added before it ended is in the log that is read afterwards.
        job = self.jobs.get_job(job_id(pipeline, attempt.seq, attempt.number))
        ended = outcome(job) if job else None
        found = decisions.NOTHING
        if ended == "succeeded" and job and job.name.startswith(VOID_NAME):
            ended = "cancelled"  # a no-op took the place of the job
        if ended != "waiting":
            marker = BatchIdentity(pipeline, attempt.seq, attempt.number).marker
            newest = max(version, newest_version(location))
            try:
                log = changes(location, attempt.table_version, newest, MARKER_PROPERTY)
                found = decisions.evidence(attempt, marker, log)
            except BatchOutcomeUnknownError:
                if ended != "succeeded":
                    raise
        return decisions.fate(attempt, ended, found), found, job

    # ---- running -------------------------------------------------------------------------------

    def run(self, work: Work, entries: Sequence[OffsetEntry]) -> None:
        """Run the batches in order, one job at a time.

        :raises JobRunningError: A job runs longer than the worker waits; whoever comes next adopts it.
        """
        for entry in entries:
            if entry.overwrites_table:
                self._close_older(work, entry)
            self._run_batch(work, entry)

    def _run_batch(self, work: Work, entry: OffsetEntry) -> None:
        failed_here = False
        while True:
            attempts = self.log.attempts(entry.seq)
            version = newest_version(work.table)
            if attempts and attempts[-1].void:
                raise BatchNotInTableError(
                    f"Batch {entry.seq} was closed by another run: it was given up, or a full refresh "
                    "overtook it.",
                    kept="the table and the log",
                    do="the next try reads the log again",
                )
            if not attempts:
                self._start(entry, 0, version)
                continue
            newest = attempts[-1]
            fate, found, job = self._look(work.table, work.pipeline, newest, version)
            match fate:
                case "landed":
                    return
                case "running":
                    self._wait(work, entry, newest)
                case "unknown to the service":
                    self._submit(work, entry, newest)
                    self._wait(work, entry, newest)
                case "not landed":
                    if failed_here:
                        raise _failed(entry, job)
                    self._start(entry, newest.number + 1, version)
                case _:
                    raise _undecidable(work.table, newest, self._id(work, newest), found)
            failed_here = True  # what is found not to have landed now ended under our eyes

    def _start(self, entry: OffsetEntry, number: int, version: int) -> None:
        """Record an attempt. Who loses the race goes on with the winner's."""
        self.log.put_attempt(Attempt(seq=entry.seq, number=number, table_version=version))

    def _submit(self, work: Work, entry: OffsetEntry, attempt: Attempt) -> None:
        identity = BatchIdentity(work.pipeline, entry.seq, attempt.number)
        number = self._id(work, attempt)
        name = f"{self.settings.name}_{entry.mode}_batch{entry.seq}_{len(entry.files)}files"
        try:
            job = self.jobs.submit_job(number, self._new_job(work, name, self.script(identity, entry)))
        except JobMismatchError as err:
            # The id is this attempt's alone: the job has an older SQL, or is the no-op that closed it.
            logger.info("the job %s exists already: %s", number, err.what)
            return
        self.report(f"batch {entry.seq}: {len(entry.files):,} files, job {number} is {job.state}")

    def _new_job(self, work: Work, name: str, script: str) -> NewJob:
        pipeline = uuid.UUID(work.pipeline)
        return NewJob(
            name=name,
            script=script,
            degree_of_parallelism=self.settings.au,
            priority=self.settings.priority,
            related=Related(
                recurrence_id=str(uuid.uuid5(pipeline, "recurrence")),
                recurrence_name=self.settings.name,
                pipeline_id=work.pipeline,
                pipeline_name=self.settings.task[:260] or None,
                run_id=self.settings.run_id,
            ),
        )

    def _wait(self, work: Work, entry: OffsetEntry, attempt: Attempt) -> None:
        """Wait for a job's end, as long as a worker waits."""
        number = self._id(work, attempt)
        began = self.clock()
        while True:
            job = self.jobs.get_job(number)
            submitted = (job.submitted_at_ms or 0) / 1000 if job and job.submitted_at_ms else began
            step = next_step(
                job,
                now=self.clock(),
                deadline=submitted + self.settings.timeout_seconds,
                interval_seconds=self.settings.poll_seconds,
                jitter=self.random(),
            )
            if step.timed_out:
                self.jobs.cancel_job(number)
                self._await_end(number)
                return
            if step.outcome != "waiting":
                return
            waited = self.clock() - began
            longest = self.settings.inline_wait_seconds
            if longest is not None and waited + step.seconds > longest:
                raise JobRunningError(
                    f"The job {number} of batch {entry.seq} is still running.",
                    kept="the batches before it are recorded; this one stays logged, and its job goes on",
                    do="whoever looks next goes on with the same job",
                    job_id=number,
                    deadline=submitted + self.settings.timeout_seconds,
                )
            self.running = number
            self.sleep(step.seconds)
            self.running = None

    def _await_end(self, number: str) -> None:
        while (job := self.jobs.get_job(number)) is not None and outcome(job) == "waiting":
            self.sleep(self.settings.poll_seconds)

    # ---- closing -------------------------------------------------------------------------------

    def _close_older(self, work: Work, refresh: OffsetEntry) -> None:
        """See that no job of an open batch below a refresh can change the table any more."""
        if any(not attempt.void for attempt in self.log.attempts(refresh.seq)):
            return  # closed before the refresh's first attempt was made
        done = set(self.log.committed())
        for seq in self.log.logged():
            if seq < refresh.seq and seq not in done:
                self._close(work, seq)

    def fence(self, work: Work, entry: OffsetEntry) -> None:
        """Close a batch, so that no job of it can change the table any more."""
        self._close(work, entry.seq)

    def _close(self, work: Work, seq: int) -> None:
        while True:
            attempts = self.log.attempts(seq)
            if attempts and attempts[-1].void:
                break
            version = newest_version(work.table)
            void = Attempt(seq=seq, number=len(attempts), table_version=version, void=True)
            if self.log.put_attempt(void) == void:
                break
        for attempt in self.log.attempts(seq):
            if not attempt.void:
                self._end_job(work, attempt)

    def _end_job(self, work: Work, attempt: Attempt) -> None:
        number = self._id(work, attempt)
        if self.jobs.get_job(number) is None:
            # A late PUT of the real script can then only meet this one: an id is never used twice.
            identity = BatchIdentity(work.pipeline, attempt.seq, attempt.number)
            void = self._new_job(work, f"{VOID_NAME}_batch{attempt.seq}", generate_void(identity))
            try:
                self.jobs.submit_job(number, void)
            except JobMismatchError:
                logger.info("the job %s arrived in the meantime", number)
        self.jobs.cancel_job(number)
        self._await_end(number)

    def cancel(self) -> None:
        """Cancel the job that is waited for."""
        if self.running:
            self.jobs.cancel_job(self.running)

    @staticmethod
    def _id(work: Work, attempt: Attempt) -> str:
        return job_id(work.pipeline, attempt.seq, attempt.number)


def _undecidable(table: str, attempt: Attempt, number: str, found: Evidence) -> BatchOutcomeUnknownError:
    versions = ", ".join(str(change.version) for change in found.landed)
    return BatchOutcomeUnknownError(
        f"The job {number} of batch {attempt.seq} did not succeed, and the versions {versions} of {table} "
        "added rows after it began: whether one of them is the job's cannot be told.",
        kept="the table, the log and all files; no further job was submitted",
        do=f"look at the table, then run `airflow scope settle {table} {attempt.seq}` with --landed or "
        "--not-landed",
    )


def _failed(entry: OffsetEntry, job: Job | None) -> ScopeJobFailedError | ScopeScriptError:
    errors = job.errors if job else ()
    texts = [f"{e.error_id}: {e.message}" if e.error_id else e.message for e in errors]
    what = f"The job {job.job_id if job else ''} of batch {entry.seq} did not succeed"
    cause = "; ".join(text[:400] for text in texts[:2])
    is_users = any(error.source.upper() == "USER" for error in errors) and not (
        job and outcome(job) == "cancelled"
    )
    kind = ScopeScriptError if is_users else ScopeJobFailedError
    return kind(
        f"{what}: {cause}." if cause else f"{what}.",
        kept="the batches before it; this one is not in the table and stays logged",
        do="mend `sql` or the columns; the next run takes the batch with the mended SQL"
        if is_users
        else "the next try submits it again",
    )
