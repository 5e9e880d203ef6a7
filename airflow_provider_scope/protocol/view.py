"""What a run reads of the log at its start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import (
    BatchOutcomeUnknownError,
    CheckpointGapError,
    RecordsVacuumedError,
    TableGoneError,
)
from airflow_provider_scope.protocol import recovery, takeover
from airflow_provider_scope.protocol.derived import SeenFiles, taken_files
from airflow_provider_scope.protocol.log import Tail
from airflow_provider_scope.protocol.records import Acceptance, CommitRecord, SchemaVersion
from airflow_provider_scope.protocol.report import BatchReport
from airflow_provider_scope.protocol.seen import History
from airflow_provider_scope.protocol.takeover import Epoch
from airflow_provider_scope.values import FileSlice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_scope.protocol.derived import AuditFiles
    from airflow_provider_scope.protocol.engine import Engine
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import OffsetEntry, Pipeline, TableIdentity
    from airflow_provider_scope.protocol.recovery import CommittedBatch, TableState
    from airflow_provider_scope.protocol.takeover import Takeover


@dataclass
class LogView:
    """The log and the table as one run knows them; grows with every entry the run writes or reads."""

    location: str
    """Canonical URI of the table."""
    checkpoint: str
    """The folder of the log."""
    pipeline: Pipeline | None
    table: TableState
    last_commit: CommitRecord | None = None
    accepted: Acceptance | None = None
    newest: OffsetEntry | None = None
    uncommitted: list[OffsetEntry] = field(default_factory=list)
    last_committed_entry: OffsetEntry | None = None
    seen: History = field(default_factory=History)
    takeover: Takeover | None = None
    """The newest takeover."""
    watermark: bytes | None = None
    """``watermark.json``, as it was before the table was looked at."""

    @property
    def is_first(self) -> bool:
        """Whether nothing was logged or taken over yet."""
        return self.newest is None and self.takeover is None

    @property
    def epoch(self) -> Epoch:
        """What says which files are loaded."""
        return Epoch.of(self.newest, self.takeover)

    @property
    def baseline(self) -> recovery.Baseline:
        """Which table the newest record expects."""
        if self.pipeline is None:
            return recovery.NO_BASELINE
        return recovery.baseline(self.pipeline, self.last_commit, self.accepted)

    @property
    def newest_commit(self) -> int:
        """The number of the newest commit record; -1 if there is none."""
        return self.last_commit.seq if self.last_commit else -1

    @property
    def has_state(self) -> bool:
        """Whether the source has a state; not known before there is an entry."""
        return self.newest is not None and self.newest.slice.has_state

    @property
    def state(self) -> str | None:
        """The state of the source after the newest batch, for sources that have one."""
        return self.last_commit.state if self.last_commit else None

    @property
    def is_table_missing(self) -> bool:
        """Whether there is no table where there was one."""
        is_recorded = self.last_commit is not None and self.last_commit.table is not None
        return self.table.identity is None and (is_recorded or self.baseline.identity is not None)

    @property
    def rolled_back(self) -> tuple[int, ...]:
        """Batches whose rows a RESTORE took out, as an acceptance recorded them."""
        return self.accepted.rolled_back if self.accepted else ()

    def outcomes(self, entries: Sequence[OffsetEntry]) -> recovery.Outcomes:
        return recovery.outcomes(entries, self.table, self.rolled_back)

    def counts_as_loaded(self, seq: int, record: CommitRecord | None) -> bool:
        """Whether what a batch reads counts as loaded: not if the batch was abandoned."""
        if record:
            return not record.abandoned
        return not recovery.is_given_up(seq, self.table, self.rolled_back)

    @property
    def is_state_lost(self) -> bool:
        """Whether nothing tells what of the source is in the table."""
        return self.last_commit is not None and self.last_commit.state_unknown

    @property
    def first(self) -> int:
        """The first batch that can be in the table: those below were abandoned before there was one."""
        return recovery.first_in_table(self.last_commit, self.accepted)

    @property
    def next_seq(self) -> int:
        return self.newest.seq + 1 if self.newest else 0

    @property
    def refresh_start(self) -> int | None:
        """The entry from which files count as seen."""
        return self.newest.refresh_start if self.newest else None

    @property
    def overwrite_start(self) -> int | None:
        """The newest entry that overwrites the whole table."""
        return self.newest.overwrite_start if self.newest else None

    @property
    def open(self) -> tuple[OffsetEntry, ...]:
        return recovery.open_entries(self.uncommitted, self.newest)

    def check(self, *, is_void: bool = False) -> None:
        """Refuse a table that diverged from the log, and a log that dbt-scope went on beside.

        :param is_void: What is in the table is about to be replaced.
        :raises TableDivergedError: See ``protocol.recovery``.
        :raises WatermarkChangedError: See ``protocol.takeover``.
        """
        self.check_table(is_void=is_void)
        if not is_void:
            takeover.check_watermark(self.watermark, self.takeover, self.newest, self.checkpoint)

    def check_table(self, *, is_void: bool = False) -> None:
        """Refuse a table that diverged from the log; see ``protocol.recovery``.

        :param is_void: What is in the table is about to be replaced.
        :raises TableDivergedError: As said.
        """
        if self.is_table_missing:
            if not is_void and not (self.open and self.open[0].overwrites_table):
                raise recovery.missing_table_error(self.location, self.checkpoint)
            return
        expected, since = self.baseline
        self.check_identity(expected)
        recovery.check_version(self.table, since, self.location)
        last, newest = self.last_commit, self.newest
        newest_in_table = last.seq if last and last.table else -1
        newest_entry = newest.seq if newest else -1
        recovery.check_transaction(self.table, newest_in_table, newest_entry, self.location, self.checkpoint)
        if not is_void:
            self.check_given_up()

    def check_identity(self, expected: TableIdentity | None) -> None:
        recovery.check_identity(self.table, expected, self.location, self.checkpoint)

    def check_given_up(self) -> None:
        recovery.check_given_up(self.table, self.first, self.location, self.checkpoint)

    def check_decided(self) -> None:
        """Refuse open batches of which the table does not show what became of them.

        :raises BatchOutcomeUnknownError: As said.
        """
        unclear = self.outcomes(self.open).unclear
        if unclear:
            raise commit_not_shown(unclear[0], self.location)

    def append(self, entry: OffsetEntry) -> None:
        if entry.refresh_start != self.refresh_start:
            self.seen = History()
        self.seen.update(entry.slice.audited)
        self.newest = entry
        self.uncommitted.append(entry)

    def record(self, commit: CommitRecord, entry: OffsetEntry) -> None:
        self.last_commit = commit
        self.last_committed_entry = entry
        self.uncommitted = [logged for logged in self.uncommitted if logged.seq != entry.seq]


def read_log(log: CheckpointLog, engine: Engine, location: str, history: AuditFiles | None = None) -> LogView:
    """Read the log and probe the table, in the reverse order of writing.

    commits/ first, then the table, then offsets/: the other way round, a batch that another run
    commits in between would look like a transaction that no entry explains. taken_over/ comes last: what an
    entry builds on was there before the entry.

    What was read is compared with what is purged at the end. If a record of ours was purged meanwhile, a run
    that was stopped long ago may have put another one under its number: then the log is read again.

    :param history: Where the files that were seen are read; None if they do not matter.
    :raises CheckpointGapError: A record is missing, or the files of purged entries are not known any more.
    :raises StorageError: A record, or a segment in place of purged ones, could not be read just now.
    """
    while True:
        first = log.first
        try:
            view, lowest = _read(log, engine, location, history)
            is_whole = lowest >= log.vacuumed_below()
        except (CheckpointGapError, RecordsVacuumedError):
            if log.vacuumed_below() <= first:
                raise
            continue
        # If another run created the pipeline meanwhile, the table was not asked for its transaction.
        is_empty = view.is_first and view.last_commit is None
        if is_whole and (view.pipeline or is_empty or log.pipeline() is None):
            return view


def _read(
    log: CheckpointLog, engine: Engine, location: str, history: AuditFiles | None
) -> tuple[LogView, int]:
    """Read the log once, and give the lowest number that had to be read."""
    pipeline = log.pipeline()
    tail = Tail(log)
    last_commit = tail.commit(tail.committed[-1]) if tail.committed else None
    view = LogView(
        location, log.location, pipeline, recovery.MISSING_TABLE, last_commit, log.newest_acceptance()
    )
    view.watermark = tail.watermark
    view.table = engine.probe(location, pipeline.pipeline if pipeline else None, view.baseline)

    tail.catch_up()
    view.newest = tail.newest
    view.takeover = log.takeover(view.newest)
    epoch = view.epoch
    unread = tail.logged.stop
    if history and (view.newest or epoch.taken):
        view.seen, unread = history.seen_files(epoch)
        if unread < log.first:
            raise history.segments.not_whole(epoch, unread)
    view.uncommitted = [*tail.open_entries]
    for seq in range(unread, tail.logged.stop):
        if view.counts_as_loaded(seq, tail.find_commit(seq)):
            view.seen.update(tail.entry(seq).slice.audited)
    newest_done = [seq for seq in tail.committed if seq >= epoch.start]
    if view.newest and newest_done:
        view.last_committed_entry = tail.entry(newest_done[-1])
    return view, min([unread, *tail.committed[:1], *tail.logged[:1]])


def loaded_in_table(log: CheckpointLog, audit: AuditFiles, engine: Engine, view: LogView) -> History:
    """Read which files the table has rows of.

    Those since the last full refresh that reached the table: a newer one may have been logged, and have died.
    In a table that was set back, they are those of the version that it was set back to.

    :raises ScopeProviderError: That is not known, or could not be read.
    """
    in_table = [entry for entry, _ in view.outcomes(view.uncommitted).committed]
    newest = in_table[-1] if in_table else log.offset(view.last_commit.seq) if view.last_commit else None
    if newest and not isinstance(newest.slice, FileSlice):
        return History()
    epoch = Epoch.of(newest, view.takeover)
    loaded, unread = audit.seen_files(epoch)
    if unread < log.vacuumed_below():
        raise audit.segments.not_whole(epoch, unread)
    for seq in range(unread, newest.seq + 1 if newest else 0):
        if view.counts_as_loaded(seq, log.find_commit(seq)):
            loaded.update(log.offset(seq).slice.audited)
    identity = view.table.identity
    if view.pipeline and identity and identity.restore_version is not None:
        table_state = engine.probe(view.location, view.pipeline.pipeline, recovery.NO_BASELINE)
        entries, taken = rows_in_table(log, view.takeover, table_state)
        if not log.first:  # of purged entries, only the history above tells
            loaded = SeenFiles(taken_files(log, taken))
        for entry in entries:
            loaded.update(entry.slice.audited)
    return loaded


def rows_in_table(
    log: CheckpointLog, newest: Takeover | None, table_state: TableState
) -> tuple[list[OffsetEntry], Takeover | None]:
    """Return the batches whose rows are in the table, also in one that was set back, and what was taken over.

    A batch that has no record, and that the table's transaction has passed, counts where nothing tells that
    its rows are not there: the table's log was cleaned, or a job ran that may have died before its mark.

    :param newest: The newest takeover.
    :param table_state: A probe of the table's whole log.
    """
    entries: list[OffsetEntry] = []
    refresh: OffsetEntry | None = None
    for seq in log.logged():
        record, commit = log.find_commit(seq), table_state.committed.get(seq)
        if record:
            is_out = record.abandoned or has_lost_rows(record, table_state)
        elif commit:
            is_out = commit.abandoned or recovery.rolled_back(commit, table_state.restores) is True
        else:
            is_shown = table_state.oldest == 0 and not log.attempts(seq)
            is_out = seq > table_state.newest_batch or is_shown
        if is_out:
            continue
        entry = log.offset(seq)
        if entry.overwrites_table and (record or commit):
            entries, refresh = [], entry
        entries.append(entry)
    return entries, Epoch.of(refresh, newest).taken


def has_lost_rows(record: CommitRecord, table_state: TableState) -> bool:
    """Return whether the rows of a recorded batch are no longer in the table, as far as its log tells."""
    if record.table is None:
        return True
    if record.table.table_id != table_state.table_id and record.seq not in table_state.committed:
        return True
    if record.seq > table_state.newest_batch or record.table_version > table_state.version:
        return True  # the table was set back to an older copy
    return recovery.is_undone(record.table_version, table_state.restores) is True


def record_commit(
    log: CheckpointLog,
    view: LogView,
    entry: OffsetEntry,
    committed: CommittedBatch,
    *,
    committed_at_ms: int,
) -> CommitRecord:
    """Put the commit record of a batch that the table holds, and give the one that is there.

    The identity is compared again for every record, with that of the newest probe: a RESTORE may have
    come after the one at the start.

    :raises TableDivergedError: The table is not the one of the record below.
    """
    view.check_identity(view.baseline.identity)
    if view.table.identity is None and not committed.abandoned:
        raise TableGoneError(
            f"The engine says that batch {entry.seq} is in the table, but there is no table at "
            f"{view.location}.",
            kept="the log; the batch stays open",
            do="if the table was removed, restore it; if the engine writes elsewhere, correct "
            "delta_location: it must mean the same table to Airflow's workers and to the engine",
        )
    if (
        view.table.identity
        and view.baseline.identity is None
        and view.pipeline
        and (committed_numbers := log.committed())
    ):
        # Another run has put the first record since this one read the log: that one tells the table's id.
        newest = log.commit(committed_numbers[-1])
        view.check_identity(recovery.baseline(view.pipeline, newest, log.newest_acceptance()).identity)
    state, is_lost = _state_after(view, entry, committed)
    if not committed.abandoned and committed.columns != pinned_columns(log, view, since=log.first):
        log.put(SchemaVersion(seq=entry.seq, columns=committed.columns))
    record = log.put_commit(
        CommitRecord(
            seq=entry.seq,
            table=view.table.identity,
            table_version=max(committed.version, view.baseline.version),
            files=len(entry.slice.audited),
            size_bytes=entry.slice.size_bytes,
            committed_at_ms=committed_at_ms,
            rows=committed.rows,
            written_bytes=committed.written_bytes,
            abandoned=committed.abandoned,
            quarantined=committed.quarantined,
            warned=committed.warned,
            rescued=committed.rescued,
            changes=committed.changes,
            columns=committed.columns,
            state=state,
            state_unknown=is_lost,
        )
    )
    view.record(record, entry)
    if record.table is None:
        view.check_given_up()
    return record


def _state_after(view: LogView, entry: OffsetEntry, committed: CommittedBatch) -> tuple[str | None, bool]:
    """Return the state of the source after a batch, and whether nothing tells it."""
    if not committed.abandoned:
        return committed.state, False
    accepted, last = view.accepted, view.last_commit
    if not entry.slice.has_state or not (
        entry.mode == "empty" or (accepted and entry.seq in accepted.rolled_back)
    ):
        # What was abandoned has read nothing: the next batch goes on where it would have begun.
        return entry.slice.before, False
    # The table is an older one than that of the batch: the acceptance tells whose rows it has.
    if acceptance := recovery.in_force(last, accepted):
        return acceptance.state, acceptance.state_unknown
    return (last.state, last.state_unknown) if last else (None, False)


def commit_not_shown(entry: OffsetEntry, location: str) -> BatchOutcomeUnknownError:
    """Return the error for an open batch that is done, and of which the table does not show the commit."""
    return BatchOutcomeUnknownError(
        f"Batch {entry.seq} is done, but the log of {location} does not show its commit: the table is an "
        "older copy, or the engine writes elsewhere, or the log was cleaned up.",
        kept="the table, the log and all files",
        do="if the engine writes elsewhere, correct delta_location: it must mean the same table to Airflow's "
        "workers and to the engine. Otherwise look at the table's history, then run `airflow scope "
        "accept-table`",
    )


def accept_missing_table(log: CheckpointLog, view: LogView) -> Acceptance:
    """Record that the table is gone, before a batch that replaces all rows makes a new one.

    Of an older record, whatever table that batch makes would be another one.
    """
    number = view.accepted.number + 1 if view.accepted else 0
    return log.put(Acceptance(number=number, after_commit=view.newest_commit, table=None, table_version=-1))


def pinned_columns(log: CheckpointLog, view: LogView, since: int | None = None) -> str | None:
    """Return the columns that were inferred for the batches since the table was begun or replaced.

    Each of their commits names them. One that does not was made while the task did not infer any: what was
    inferred before does not count any more. Batches that were abandoned say nothing.

    :param since: The oldest batch that counts, in place of the one that began the table or replaced it.
    """
    newest = newest_not_abandoned(log, view, (view.overwrite_start or 0) if since is None else since)
    return newest.columns if newest else None


def newest_not_abandoned(log: CheckpointLog, view: LogView, floor: int) -> CommitRecord | None:
    """Return the record of the newest batch from ``floor`` on that was not abandoned, if there is one."""
    newest = view.last_commit
    while newest and newest.abandoned and newest.seq > floor:
        newest = log.find_commit(newest.seq - 1)
    return newest if newest and not newest.abandoned and newest.seq >= floor else None


def recorded(log: CheckpointLog, view: LogView, first: int) -> list[BatchReport]:
    """Return the batches that have a commit record, from ``first`` on, as a report shows them."""
    records = [record for seq in log.kept(first, view.newest_commit + 1) if (record := log.find_commit(seq))]
    return [BatchReport.of(log.offset(record.seq), record) for record in records]
