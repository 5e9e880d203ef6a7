"""The SCOPE engine: one job of Azure Data Lake Analytics for each batch, one at a time, in order."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from airflow_provider_scope.columns import declared
from airflow_provider_scope.delta.log import newest_version
from airflow_provider_scope.exceptions import (
    BatchNotInTableError,
    BatchOutcomeUnknownError,
    InputError,
    JobMismatchError,
    SourceUnreadableError,
    TableRecreatedError,
)
from airflow_provider_scope.protocol import recovery, repair
from airflow_provider_scope.protocol.engine import Engine, Work
from airflow_provider_scope.protocol.probe import probe
from airflow_provider_scope.protocol.records import Attempt, Settlement
from airflow_provider_scope.protocol.recovery import CommittedBatch
from airflow_provider_scope.protocol.report import files_text
from airflow_provider_scope.scope.dialect import VIRTUAL_FUNCTIONS, scope_type, tokens
from airflow_provider_scope.scope.fate import (
    JobFates,
    changes,
    job_id,
    newest_job,
    newest_marked,
)
from airflow_provider_scope.scope.jobs import TAG_LIMIT, BatchIdentity
from airflow_provider_scope.scope.script import (
    ScriptBatch,
    files_that_fit,
    generate,
    generate_void,
)
from airflow_provider_scope.scope.submission import JobSettings, job_error
from airflow_provider_scope.specs.engine import VOID_NAME
from airflow_provider_scope.specs.ingest import files_of
from airflow_provider_scope.values import check_as_logged, counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_provider_scope.delta.schema import Struct
    from airflow_provider_scope.exceptions import ScopeJobFailedError, ScopeScriptError
    from airflow_provider_scope.protocol.engine import More
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.recovery import Baseline, TableState
    from airflow_provider_scope.scope.submission import ScopeJobs
    from airflow_provider_scope.specs import ScopeEngine
    from airflow_provider_scope.specs.ingest import Ingest
    from airflow_provider_scope.stores.protocol import Storage
    from airflow_provider_scope.stores.webhdfs import Status
    from airflow_provider_scope.values import FileEntry
    from airflow_provider_scope.waiting import Job, JobWait


logger = logging.getLogger(__name__)


@dataclass
class ScopeRunner(Engine):
    """Runs batches as SCOPE jobs.

    A job cannot write a transaction into the table. Three things tell whether a batch is committed:

    * ``attempts/<seq>.<k>``, which is written before job k is submitted.
    * The state of the job. Its id follows from pipeline, batch and attempt, so anybody can ask for it.
    * The table's log. Each script marks the table with its attempt before it adds rows, and again after it.

    At most one job can still change the table: attempt k+1 is made only when attempt k is known to have
    ended, and not to be in the table.

    :param wait: The service, and how its jobs are waited for.
    :param settings: How jobs are submitted.
    :param script: Makes the script of an attempt of a batch.
    :param table_storage: Where the table is.
    """

    log: CheckpointLog
    wait: JobWait[ScopeJobs]
    settings: JobSettings
    script: Callable[[BatchIdentity, OffsetEntry], str]
    table_storage: Storage
    report: Callable[[str], None] = logger.info
    resumed: bool = False
    """Whether this try has waited for a job before: what ended meanwhile ended under its eyes."""
    fences_without_table: ClassVar[bool] = True
    """A record closes a batch, and its job is ended."""
    outlives_task: ClassVar[bool] = True
    """A job goes on without the worker, and the next try adopts it."""
    newest_job: str | None = field(default=None, repr=False)

    @property
    def jobs(self) -> ScopeJobs:
        return self.wait.jobs

    # ---- looking -------------------------------------------------------------------------------

    def probe(self, location: str, pipeline: str | None, baseline: Baseline) -> TableState:
        """Look at the table, at the attempts of open batches, and at their jobs."""
        state = probe(location, pipeline, baseline, self.table_storage)
        if pipeline is None:
            return state
        tail = self.log.tail()
        newest = tail.committed[-1] if tail.committed else -1
        # A pipeline that Spark ran before has batches whose transaction is in the table.
        txn = max(newest, state.newest_batch)
        committed: dict[int, CommittedBatch] = {}
        beyond: dict[int, CommittedBatch] = {}
        running: int | None = None
        fates = self._fates(location, pipeline)
        tail.catch_up()
        # What is open below the newest refresh is dead, and what is below a commit is settled.
        floor = max(recovery.first_open(tail.newest), newest + 1)
        for seq in range(floor, tail.logged.stop):
            outcome = state.committed.get(seq) or fates.committed(seq, state.version)
            if outcome == "undecidable":
                txn = max(txn, seq)  # done, and the table does not show it
                continue
            if not isinstance(outcome, CommittedBatch):
                running = seq if outcome == "running" else None
                beyond = self._beyond(fates, range(seq + 1, tail.logged.stop), state.version)
                break
            committed[seq] = outcome
            txn = max(txn, seq)
        recorded = self.log.commit(newest).table_version if newest >= 0 else -1
        since = max(baseline.version, recorded, state.oldest - 1)
        beyond_log = newest_marked(pipeline, changes(location, since, state.version, self.table_storage))
        if beyond_log >= tail.logged.stop:
            txn = beyond_log  # the log is an older copy than the table
        if committed or beyond:
            # The jobs were looked at after the table: a RESTORE may have come between the two.
            state = probe(location, pipeline, baseline, self.table_storage)
        return replace(
            state, txn=None if txn < 0 else txn, committed=committed, beyond=beyond, running=running
        )

    def _beyond(self, fates: JobFates, later: Sequence[int], version: int) -> dict[int, CommittedBatch]:
        """Return the batches with rows after one without: somebody settled that one after a RESTORE."""
        batches: dict[int, CommittedBatch] = {}
        for seq in later:
            if not self.log.attempts(seq):
                break  # nor has a later one
            committed = fates.committed(seq, version)
            if isinstance(committed, CommittedBatch) and not committed.abandoned:
                batches[seq] = committed
        return batches

    def _fates(self, location: str, pipeline: str) -> JobFates:
        account = self.settings.account
        return JobFates(self.jobs, self.log, location, pipeline, self.table_storage, account)

    # ---- running -------------------------------------------------------------------------------

    def run(self, work: Work, entries: Sequence[OffsetEntry], more: More | None = None) -> None:  # noqa: ARG002
        """Run the batches in order, one job at a time.

        :raises JobRunningError: A job runs longer than the worker waits; the next try adopts it.
        """
        for entry in entries:
            if entry.overwrites_table:
                self._close_older(work, entry)
            self._run_batch(work, entry)

    def check(self, work: Work, entry: OffsetEntry) -> None:
        """Refuse a batch that was closed, and one whose script cannot be made; nothing is submitted."""
        attempts = self.log.attempts(entry.seq)
        number = len(attempts)
        if attempts:
            if attempts[-1].void:
                raise _closed(entry)
            fate = self._fates(work.table, work.pipeline).investigate(attempts[-1]).fate
            if fate in ("committed", "running"):
                return
            if fate == "not committed":
                self._check_same_table(work, attempts[-1])
            else:
                number -= 1
        self.script(BatchIdentity(work.pipeline, entry.seq, number), entry)

    def _run_batch(self, work: Work, entry: OffsetEntry) -> None:
        failed_here = self.resumed
        while True:
            attempts = self.log.attempts(entry.seq)
            version = newest_version(work.table, self.table_storage)
            if attempts and attempts[-1].void:
                self._close(work, entry.seq)  # whoever began it may have died
                raise _closed(entry)
            if not attempts:
                self._start(entry, 0, version)
                continue
            newest = attempts[-1]
            finding = self._fates(work.table, work.pipeline).investigate(newest)
            match finding.fate:
                case "committed":
                    return
                case "running" | "unknown to the service":
                    if finding.fate != "running":
                        self._submit(work, entry, newest)
                    self.newest_job = job_id(work.pipeline, newest)
                    self.wait.wait(self.newest_job, f"of batch {entry.seq}")
                case "not committed":
                    self._check_same_table(work, newest)
                    # Even if it is left to the next try: rows that another writer adds before then
                    # would be taken for this job's.
                    self._start(entry, newest.number + 1, version)
                    if failed_here:
                        raise _failed(entry, finding.job, timed_out=bool(self.wait.timed_out))
                case _:
                    raise self._fates(work.table, work.pipeline).undecidable(newest, finding)
            failed_here = True  # what is found not to have committed now ended under our eyes

    def _start(self, entry: OffsetEntry, number: int, version: int) -> None:
        """Record an attempt. Who loses the race goes on with the winner's."""
        account = self.settings.account
        self.log.put(Attempt(seq=entry.seq, number=number, table_version=version, account=account))

    def _submit(self, work: Work, entry: OffsetEntry, attempt: Attempt) -> None:
        self.wait.check_time(f"of batch {entry.seq}")
        guid = job_id(work.pipeline, attempt)
        name = f"{self.settings.name[:TAG_LIMIT]}_{entry.mode}_batch{entry.seq}_{len(entry.files)}files"
        try:
            new = self.settings.new_job(
                work.pipeline, name, self.script(BatchIdentity.of(work.pipeline, attempt), entry)
            )
            job = self.jobs.submit_job(guid, new)
        except JobMismatchError as err:
            # The id is this attempt's alone: the job has an older SQL, or is the no-op that closed it.
            logger.info("the job %s exists already: %s", guid, err.what)
            return
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("the files of batch %d, as estimated:\n%s", entry.seq, files_text(entry.files))
        self.report(f"batch {entry.seq}: {counted(len(entry.files), 'file')}, job {guid} is {job.state}")

    def _check_same_table(self, work: Work, attempt: Attempt) -> None:
        """Refuse to go on from a log that is another table's than the one that the attempt was made for."""
        version = newest_version(work.table, self.table_storage)
        if version < attempt.table_version:
            raise TableRecreatedError(
                f"The table {work.table} was dropped and recreated while batch {attempt.seq} ran: it is at "
                f"version {version}, and was at {attempt.table_version} before.",
                kept="the table, the log and all files; no further job was submitted",
                do="look at the table, then run `airflow scope accept-table`",
            )

    # ---- deciding ------------------------------------------------------------------------------

    def undecidable(self, work: Work, seq: int) -> Attempt | None:
        """Return the attempt of a batch of which nothing tells whether its rows are in the table, if any."""
        newest = newest_job(self.log.attempts(seq))
        if newest is None:
            return None
        try:
            finding = self._fates(work.table, work.pipeline).investigate(newest)
        except BatchOutcomeUnknownError:
            return newest
        return newest if finding.fate == "undecidable" else None

    def in_doubt(self, table: str, seq: int) -> Attempt:
        """Find the attempt that somebody has to decide about.

        :raises InputError: The batch is not open, or what became of its job is known.
        """
        if seq not in [entry.seq for entry in self.log.open_entries()]:
            raise InputError(
                f"Batch {seq} of {self.log.location} is not open.",
                kept="everything; nothing was written",
                do="look at `airflow scope status`: only an open batch can be settled",
            )
        attempt = self.undecidable(self._work(table), seq)
        if attempt is None:
            raise InputError(
                f"There is nothing to decide about batch {seq} of {self.log.location}: the outcome of its "
                "newest job is known, or the job is still running.",
                kept="everything; nothing was written",
                do="run the task. To load the files of the batch again, see `airflow scope abandon`",
            )
        return attempt

    def _work(self, table: str) -> Work:
        return Work(repair.existing_pipeline(self.log).pipeline, table, self.log.location)

    def settle(self, table: str, seq: int, *, committed: bool) -> Settlement:
        """Record what somebody decided about the newest job of an open batch.

        :return: The decision that holds: another one if somebody else was faster.
        :raises InputError: There is nothing to decide, or the decision would lose rows.
        """
        attempt = self.in_doubt(table, seq)
        if not committed and self.log.offset(seq).overwrites_table:
            self._check_nothing_came_after(table, seq)
        # The service may have forgotten the job, or a submission of it may still be on its way.
        self._end(self._work(table), attempt)
        version = newest_version(table, self.table_storage)
        return self.log.put(
            Settlement(seq=seq, number=attempt.number, committed=committed, table_version=version)
        )

    def _check_nothing_came_after(self, table: str, refresh: int) -> None:
        """Refuse to do a refresh's first batch again when later ones had jobs: it would delete their rows."""
        for seq in self.log.logged():
            if seq > refresh and any(not attempt.void for attempt in self.log.attempts(seq)):
                raise InputError(
                    f"Batch {refresh} of {table} replaces all rows, and batch {seq} was loaded after it: "
                    f"running batch {refresh} again would delete the rows of batch {seq}.",
                    kept="everything; nothing was written",
                    do=f"run `airflow scope settle {refresh} --committed --yes`, and the task with "
                    "full_refresh=True next: it replaces all rows. If that run is refused, run `airflow "
                    "scope accept-table --reload-undecidable --yes` first",
                )

    # ---- closing -------------------------------------------------------------------------------

    def _close_older(self, work: Work, refresh: OffsetEntry) -> None:
        """See that no job of an open batch below a refresh can change the table any more."""
        if any(not attempt.void for attempt in self.log.attempts(refresh.seq)):
            return  # closed before the refresh's first attempt was made
        tail = self.log.tail()
        for seq in range(max(tail.floor, self._closed_before(refresh)), refresh.seq):
            if seq not in tail.committed:
                self._close(work, seq)

    def _closed_before(self, refresh: OffsetEntry) -> int:
        """Return the newest older refresh that ran: it closed what is below it.

        The service forgets jobs, and to close one that it forgot means to submit a job. Nothing was open
        below the log's first number.
        """
        older = refresh.seq
        while older > self.log.first:
            start = self.log.offset(older - 1).overwrite_start
            if start is None or start < self.log.first:
                break
            if self.log.find_commit(start) or any(not attempt.void for attempt in self.log.attempts(start)):
                return start
            older = start
        return self.log.first

    def fence(self, work: Work, entry: OffsetEntry) -> None:
        """Close a batch, so that no job of it can change the table any more."""
        self._close(work, entry.seq)

    def _close(self, work: Work, seq: int) -> None:
        while True:
            attempts = self.log.attempts(seq)
            if attempts and attempts[-1].void:
                break
            version = newest_version(work.table, self.table_storage)
            void = Attempt(seq=seq, number=len(attempts), table_version=version, void=True)
            if self.log.put(void) == void:
                break
        for attempt in self.log.attempts(seq):
            if not attempt.void:
                self._end(work, attempt)

    def _end(self, work: Work, attempt: Attempt) -> None:
        """See that the job of an attempt can change the table no more."""
        guid = job_id(work.pipeline, attempt)
        if self.jobs.get_job(guid) is None:
            if attempt.account not in ("", self.settings.account):
                return  # A job here stops none there, and would be taken for it.
            # A late PUT of the real script can then only meet this one: an id is never used twice.
            script = generate_void(BatchIdentity.of(work.pipeline, attempt))
            name = f"{VOID_NAME}_batch{attempt.seq}"
            try:
                self.jobs.submit_job(guid, self.settings.new_job(work.pipeline, name, script))
            except JobMismatchError:
                logger.info("the job %s arrived in the meantime", guid)
        self.jobs.cancel_job(guid)
        self.wait.await_end(guid)

    def cancel(self) -> None:
        """Cancel the job that is waited for."""
        self.wait.cancel()


def _closed(entry: OffsetEntry) -> BatchNotInTableError:
    return BatchNotInTableError(
        f"Batch {entry.seq} was closed by another run: it was abandoned, or a full refresh superseded it.",
        kept="the table and the log",
        do="the next try reads the log again",
    )


def _failed(
    entry: OffsetEntry, job: Job | None, *, timed_out: bool
) -> ScopeJobFailedError | ScopeScriptError:
    return job_error(
        job,
        f"The job {job.job_id if job else ''} of batch {entry.seq} did not succeed",
        timed_out=timed_out,
        kept="the batches before it; this one is not in the table and stays logged",
        correct="correct `sql` or the columns; the next run loads the batch with the corrected SQL",
        again="the next try submits it again",
    )


# ---- from what the user wrote to the script of a batch ----


_SAMPLE = BatchIdentity("00000000-0000-0000-0000-000000000000", 10**19, 10**6)
"""As long as an identity gets, for the size of a script that is not made yet."""

_KEPT = "the batches before it; no job was submitted for this one, and it stays logged"


@dataclass(frozen=True, slots=True)
class Scripts:
    """Makes the scripts of a task's batches."""

    ingest: Ingest
    engine: ScopeEngine
    previews: Sequence[str]
    columns_of_table: Callable[[], Struct | None]
    """Looks at the table; asked only where its columns matter."""

    def script(self, identity: BatchIdentity, entry: OffsetEntry) -> str:
        """Make the script of a batch.

        :raises InputError: A value cannot be part of a script, or a partition column would have to be added.
        """
        batch = self.batch(identity, entry.files, overwrite=entry.overwrites_table)
        if self._adds_columns:
            batch = replace(batch, new_columns=new_columns(self.ingest, self.columns_of_table()))
        return generate(batch)

    def files_that_fit(self, files: tuple[FileEntry, ...]) -> int:
        """Return how many of some files, from the first, one script can name.

        :raises InputError: Not even one.
        """
        batch = self.batch(_SAMPLE, files, overwrite=True)
        if self._adds_columns:
            batch = replace(batch, new_columns=tuple(batch.table_columns))
        count = files_that_fit(batch)
        if not count:
            raise InputError(
                f"The script of a batch is longer than 3 MB with the one file {files[0].path}.",
                kept="the table and the log; no job was submitted",
                do="shorten `sql`",
            )
        return count

    def batch(self, identity: BatchIdentity, files: tuple[FileEntry, ...], *, overwrite: bool) -> ScriptBatch:
        """Gather what a batch's script is made of; the columns that it adds are left out."""
        ingest = self.ingest
        columns = declared(ingest.table.columns) or {}
        spelled = {name.lower(): name for name in columns}
        extracted = declared(files_of(ingest.source).columns)
        in_sql = (token.value for token in tokens(ingest.sql) if token.kind in ("name", "quoted"))
        named = {*map(str.lower, in_sql), *spelled}
        return ScriptBatch(
            identity=identity,
            location=ingest.delta_location,
            sql=ingest.sql,
            files=files,
            table_columns=_types(columns, ingest.sql_dialect),
            extract_columns=_types(extracted, ingest.sql_dialect) if extracted else None,
            virtual_columns=tuple(name for name in VIRTUAL_FUNCTIONS if name in named),
            partition_by=tuple(spelled.get(name.lower(), name) for name in ingest.table.partition_by),
            properties=dict(ingest.table.properties or {}),
            overwrite=overwrite,
            feature_previews=tuple(self.previews),
            settings=dict(self.engine.settings or {}),
        )

    @property
    def _adds_columns(self) -> bool:
        return self.ingest.table.schema_evolution != "fail"


def new_columns(ingest: Ingest, table: Struct | None) -> tuple[str, ...]:
    """Return the declared columns that a job has to add to a table.

    :param table: The table's columns as they are; None if there is no table.
    :raises InputError: One of them partitions the table.
    """
    if table is None:
        return ()
    existing_names = table.by_name()
    missing = tuple(
        name for name in declared(ingest.table.columns) or {} if name.lower() not in existing_names
    )
    partitions = {name.lower() for name in ingest.table.partition_by}
    for name in missing:
        if name.lower() in partitions:
            raise InputError(
                f"The column {name} cannot be added to the table {ingest.delta_location}: the table is "
                "partitioned by it.",
                kept="the table and the log; no job was submitted",
                do="recreate the table with this partitioning; or leave the column out of table.partition_by",
            )
    return missing


def check_unchanged(entry: OffsetEntry, status_of: Callable[[str], Status | None]) -> None:
    """Look at every file of a batch again, just before its job is submitted.

    :raises SourceFileGoneError: One is missing.
    :raises SourceFileChangedError: One has another time or length than its entry says.
    """
    files_now = [(file, status_of(file.path)) for file in entry.files]
    for file, status in files_now:
        if status and status.is_folder:
            raise SourceUnreadableError(f"{file.path} of batch {entry.seq} is a folder now.")
    statuses = (
        (file, (status_now.modified_ms, status_now.size_bytes) if status_now else None)
        for file, status_now in files_now
    )
    check_as_logged(entry.seq, statuses, kept=_KEPT)


def _types(columns: Mapping[str, str], dialect: str | None) -> dict[str, str]:
    return {name: kind if dialect == "scope" else scope_type(kind) for name, kind in columns.items()}
