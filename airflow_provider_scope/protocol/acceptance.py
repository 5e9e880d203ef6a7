"""Accepting a table that diverged from its log: close what is open, look at the table, record it.

The commits of the table tell where the source goes on: at the state after their rows. The state of a source
of files is its history: the batches whose rows are in the table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import BatchOutcomeUnknownError, InputError, TableError
from airflow_provider_scope.protocol import recovery
from airflow_provider_scope.protocol.derived import SeenFiles, taken_files
from airflow_provider_scope.protocol.engine import Work
from airflow_provider_scope.protocol.records import Acceptance, Settlement
from airflow_provider_scope.protocol.repair import existing_pipeline
from airflow_provider_scope.protocol.view import LogView, has_lost_rows, rows_in_table
from airflow_provider_scope.values import OTHERS_NAMED, FileSlice, some_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from airflow_provider_scope.protocol.engine import Engine
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import CommitRecord, OffsetEntry
    from airflow_provider_scope.protocol.recovery import Chain, CommittedBatch, SourceState, TableState
    from airflow_provider_scope.values import Slice

ROUNDS = 8
"""How often the table is looked at again after something was written; three times are enough if nobody else
writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequences:
    """What accepting a table as it is means."""

    table: TableState
    newest_commit: int
    rolled_back: tuple[CommitRecord, ...]
    """Committed batches whose rows are no longer in the table; without a state they count as loaded."""
    open_rolled_back: tuple[int, ...]
    """Open batches that had been committed to the table, and whose rows are gone: they come again."""
    seen_version: int
    """The version to go on from: below the commits of open batches that are still to be recorded."""
    problem: BatchOutcomeUnknownError | None = None
    """Why nothing is accepted unless a person says that what is not known is to be loaded again."""
    begins: SourceState | None = None
    """Where the next batch begins; None if the source has no state."""
    abandoned_in_table: tuple[int, ...] = ()
    """Batches that were abandoned before there was a table, and whose rows are in it."""
    vacuumed: int = 0
    """Batches below this number may have lost their rows, too: their records were purged. 0 if none has."""
    undone: int | None = None
    """The first batch of the full refresh that was undone, so that the rows from before it are back."""
    doubled: tuple[str, ...] = ()
    """Files whose rows are back, and that do not count as loaded."""
    lost: int | None = None
    """How many files of ``rolled_back`` have no rows in the table; None is all of them."""

    @property
    def needs_transaction(self) -> bool:
        """Whether the table has to be told its newest batch: it was created again, or is an older copy."""
        return self.table.newest_batch < self.newest_commit


def consequences_of(
    log: CheckpointLog, engine: Engine, table: str, *, reload_undecidable: bool = False
) -> Consequences:
    """Say what accepting the table as it is would mean; nothing is written.

    :param reload_undecidable: Load open batches again of which the table's log no longer tells whether
        their rows are in it.
    :raises BatchOutcomeUnknownError: There are such batches, and nobody decided.
    """
    return _consequences(_read(log, engine, table), reload_undecidable=reload_undecidable)


def accept_table(
    log: CheckpointLog, engine: Engine, table: str, *, reload_undecidable: bool = False
) -> Acceptance:
    """Close what is open, and only then look at the table and accept it: a run in between still refuses it.

    Until then an application that nobody waits for could still add a batch that counts as not loaded. If
    none is open of a source with a state, an empty batch is logged: the record of an abandoned one has the
    state to go on from.

    :raises InputError: A run would not refuse the table.
    :raises BatchOutcomeUnknownError: Nothing tells what is in the table, and nobody decided.
    """
    pipeline = existing_pipeline(log)
    work = Work(pipeline.pipeline, table, log.location)
    closed: set[int] = set()
    for _ in range(ROUNDS):
        reading = _read(log, engine, table)
        if not reading.is_refused:
            if acceptance := recovery.in_force(reading.view.last_commit, reading.view.accepted):
                return acceptance  # another command was faster
            if not closed:
                raise InputError(
                    f"{table} and its log fit together: there is nothing to accept.",
                    kept="everything; nothing was accepted",
                    do="run the task",
                )
        consequences = _consequences(reading, reload_undecidable=reload_undecidable)
        newest = reading.view.newest
        if newest and reading.view.has_state and not reading.view.open:
            log.put_offset(replace(newest, seq=newest.seq + 1, mode="empty", where=None))
        elif to_close := _to_close(reading, consequences, closed):
            for entry in to_close:
                engine.fence(work, entry)
                closed.add(entry.seq)
        else:
            acceptance = _acceptance(reading, consequences)
            if log.put(acceptance) == acceptance:
                return acceptance
    raise BatchOutcomeUnknownError(
        f"{table} kept changing while it was being accepted, or an empty transaction does not appear in "
        "its log.",
        kept="the table, the log and the source",
        do="make sure that no run is active, and run the command again",
    )


@dataclass(frozen=True, slots=True)
class _Jobs:
    """The SCOPE jobs of an open batch. They leave no transaction in the table."""

    before: int | None
    """The table's version before the newest of them; None if the batch was closed before it had one."""
    decided: tuple[int, ...]
    """The table's versions at which somebody decided what became of one of them."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """The records, then the table, then the entries: in the order of a run."""

    log: CheckpointLog
    view: LogView
    records: tuple[CommitRecord, ...]
    jobs: dict[int, _Jobs]
    """Those of the open batches that have any."""

    @property
    def table(self) -> str:
        return self.view.location

    @property
    def records_of_refresh(self) -> list[CommitRecord]:
        """Those since the newest full refresh began, or all."""
        return [record for record in self.records if record.seq >= (self.view.refresh_start or 0)]

    @property
    def with_jobs(self) -> TableState:
        """The table with the batches of SCOPE jobs, which leave no transaction: Spark does not see them."""
        table_state = self.view.table
        return replace(table_state, txn=max(table_state.newest_batch, self.log.newest_attempted()))

    @property
    def waiting(self) -> tuple[OffsetEntry, ...]:
        """The open batches that somebody could still commit."""
        return tuple(entry for entry in self.view.open if entry.seq > self.view.table.newest_batch)

    @property
    def is_refreshing(self) -> bool:
        """Whether a full refresh is still to run: it replaces whatever the table holds."""
        return any(entry.overwrites_table for entry in self.waiting)

    @property
    def is_refused(self) -> bool:
        """Whether a run would refuse the table."""
        try:
            self.view.check_table()
            self.view.check_decided()
        except TableError:
            return True
        expected, since = self.view.baseline
        return expected is not None and self.view.table.oldest > since + 1  # the table's log was cleaned


def _read(log: CheckpointLog, engine: Engine, table: str) -> _Reading:
    pipeline = existing_pipeline(log)
    records = tuple(log.commit(seq) for seq in log.committed())
    accepted = log.newest_acceptance()
    table_state = engine.probe(table, pipeline.pipeline, recovery.NO_BASELINE)
    if table_state.identity is None:
        raise recovery.missing_table_error(table, log.location)
    if table_state.running is not None:
        raise _undecided(
            f"A job of batch {table_state.running} is still running: it is not known what becomes of its "
            f"rows in {table}.",
            do="wait until the job has ended, which `airflow scope status` shows, or end it: see "
            "`airflow scope cancel-jobs --help`. Then run the command again",
        )
    logged = log.logged()
    newest = log.offset(logged[-1]) if logged else None
    recovery.check_transaction(table_state, -1, newest.seq if newest else -1, table, log.location)
    done = {record.seq for record in records}
    uncommitted = [log.offset(seq) for seq in logged if seq not in done]
    last_commit = records[-1] if records else None
    view = LogView(table, log.location, pipeline, table_state, last_commit, accepted, newest, uncommitted)
    jobs = {entry.seq: jobs for entry in view.open if (jobs := _jobs_of(log, entry.seq))}
    return _Reading(log, view, records, jobs)


def _jobs_of(log: CheckpointLog, seq: int) -> _Jobs | None:
    attempts = log.attempts(seq)
    if not attempts:
        return None
    ran = [attempt for attempt in attempts if not attempt.void]
    settlements = (log.find(Settlement, seq=seq, number=attempt.number) for attempt in ran)
    decided = tuple(settlement.table_version for settlement in settlements if settlement)
    return _Jobs(ran[-1].table_version if ran else None, decided)


def _to_close(reading: _Reading, consequences: Consequences, closed: Collection[int]) -> list[OffsetEntry]:
    """Find the batches whose numbers are closed next, so that nobody can commit them any more.

    A batch of files that is still to run stays open: whatever the table holds, it adds what it was logged
    with. Of those that come again, a job may be left; what is known of it does not end with it.

    :param closed: Batches that this command has closed.
    """
    log = reading.log
    if reading.view.has_state:
        to_close = [] if reading.is_refreshing else [*reading.waiting[-1:]]
    else:
        coming_again = {*consequences.open_rolled_back} - {*closed}
        to_close = [log.offset(seq) for seq in sorted(coming_again & reading.jobs.keys())]
    if not to_close and consequences.needs_transaction:
        to_close = [replace(log.offset(consequences.newest_commit), mode="append", where=None)]
    return [replace(entry, mode="append") if entry.mode == "empty" else entry for entry in to_close]


def _acceptance(reading: _Reading, consequences: Consequences) -> Acceptance:
    previous, begins = reading.view.accepted, consequences.begins
    return Acceptance(
        number=previous.number + 1 if previous else 0,
        after_commit=consequences.newest_commit,
        table=reading.view.table.identity,
        table_version=consequences.seen_version,
        rolled_back=consequences.open_rolled_back,
        state=begins.state if begins else None,
        state_unknown=begins is not None and bool(begins.problem),
    )


def _consequences(reading: _Reading, *, reload_undecidable: bool) -> Consequences:
    consequences = (_consequences_by_state if reading.view.has_state else _consequences_by_history)(reading)
    if consequences.problem and not reload_undecidable:
        raise consequences.problem
    return consequences


def _seen_version(table_state: TableState, versions: Iterable[int]) -> int:
    """Find the newest version of the table below which nothing is still to be recorded.

    :param versions: Those of the open batches in the table; below 0 if a record alone closed the batch.
    """
    return min([table_state.version, *(version - 1 for version in versions if version >= 0)])


def _undecided(message: str, do: str) -> BatchOutcomeUnknownError:
    return BatchOutcomeUnknownError(
        message, kept="the table, the log and the source; nothing was accepted", do=do
    )


def refresh_next(checkpoint: str) -> str:
    """Say what a person does when only loading everything again is known to repair the table."""
    return recovery.load_again(
        checkpoint,
        "run `airflow scope accept-table --reload-undecidable --yes`, and the task with full_refresh=True "
        "next: it replaces all rows. Any other run would load files whose rows are already in the table",
    )


# ---- sources with a state: the next batch begins where the table's rows end ----


def _consequences_by_state(reading: _Reading) -> Consequences:
    view, table_state = reading.view, reading.view.table
    chain = recovery.chain_of(table_state, recovery.recorded_states(reading.records, table_state))
    begins = recovery.SourceState(None) if reading.is_refreshing else _source_state(reading.log, chain)
    open_batches = () if reading.is_refreshing else view.open
    rolled_back = [e.seq for e in open_batches if begins.problem or not chain.has_rows_of(e.seq)]
    in_table = (table_state.committed[e.seq].version for e in open_batches if e.seq not in rolled_back)
    records = [record for record in reading.records if record.seq >= (view.overwrite_start or 0)]
    return Consequences(
        table=table_state,
        newest_commit=view.newest_commit,
        rolled_back=_without_rows(records, table_state),
        open_rolled_back=tuple(rolled_back),
        seen_version=_seen_version(table_state, in_table),
        problem=_state_unknown(reading, begins) if begins.problem else None,
        begins=begins,
    )


def _source_state(log: CheckpointLog, chain: Chain) -> SourceState:
    below = log.vacuumed_below()
    entries = {seq: log.find_offset(seq) for seq, _ in chain.batches if seq >= below}
    return recovery.state_after(chain, {seq: entry for seq, entry in entries.items() if entry})


def _state_unknown(reading: _Reading, begins: SourceState) -> BatchOutcomeUnknownError:
    if begins.problem == "mixed":
        message = (
            f"The rows of batch {begins.at} were added to {reading.table} after a RESTORE, or after it was "
            "created again, without the batch knowing of it: the table also holds rows that the batch does "
            "not build on, and other rows may be missing."
        )
    else:
        message = (
            f"It is not known what of the source is in {reading.table}: the commit of version {begins.at}, "
            "or the entry of its batch, can no longer be read."
        )
    reload = recovery.load_again(
        reading.log.location,
        "run `airflow scope accept-table --reload-undecidable --yes`, and the task with full_refresh=True "
        "next: no other run can continue after that",
    )
    return _undecided(message, do=f"RESTORE the table to a version that a commit record names; or {reload}")


# ---- sources of files: what counts as loaded is told by the log, what is loaded by the table ----


def _consequences_by_history(reading: _Reading) -> Consequences:
    view, table_state, with_jobs = reading.view, reading.view.table, reading.with_jobs
    start = view.refresh_start or 0
    vacuumed = reading.log.vacuumed_below()
    records = reading.records_of_refresh
    lost = _without_rows(records, with_jobs)
    opened = _open_batches(reading)
    undone = _undone_refresh(reading, opened)
    may_miss_purged = vacuumed > start and bool(records) and has_lost_rows(records[0], with_jobs)
    problem = opened.problem or _refresh_problem(reading, undone)
    if not problem and may_miss_purged and _is_rolled_back(records[0], with_jobs):
        problem = _set_back_below(reading.table, records[0], vacuumed)
    return Consequences(
        table=table_state,
        newest_commit=view.newest_commit,
        rolled_back=lost,
        open_rolled_back=tuple(sorted([*opened.rolled_back, *opened.undecidable])),
        seen_version=_seen_version(table_state, opened.versions),
        problem=problem,
        abandoned_in_table=tuple(
            seq for seq in table_state.committed if seq < recovery.first_in_table(view.last_commit, None)
        ),
        vacuumed=vacuumed if may_miss_purged else 0,
        undone=start if undone else None,
        doubled=tuple(sorted(undone.doubled)) if undone else (),
        lost=len(_names_of(reading.log, lost) - undone.names) if undone else None,
    )


@dataclass(frozen=True, slots=True)
class _OpenBatches:
    """The open batches, by what the table's log tells of their rows."""

    kept: tuple[OffsetEntry, ...]
    versions: tuple[int, ...]
    """Those of the table in which rows of open batches were added that no RESTORE took out."""
    rolled_back: tuple[int, ...]
    undecidable: tuple[int, ...]
    problem: BatchOutcomeUnknownError | None


def _open_batches(reading: _Reading) -> _OpenBatches:
    table_state, still_open = reading.view.table, reading.view.open
    outcomes = recovery.outcomes(still_open, table_state)
    in_table = {**{entry.seq: batch for entry, batch in outcomes.committed}, **table_state.beyond}
    is_out = {seq: recovery.rolled_back(batch, table_state.restores) for seq, batch in in_table.items()}
    in_doubt = {seq for seq, jobs in reading.jobs.items() if _is_about_another_table(reading, jobs)}
    rolled_back = tuple(seq for seq, is_lost in is_out.items() if is_lost and seq not in in_doubt)
    mixed = {
        e.seq: restore
        for e, batch in outcomes.committed
        if e.seq not in rolled_back
        and (restore := restore_under_refresh(e, batch, reading.jobs.get(e.seq), table_state))
    }
    not_told = [seq for seq, is_lost in is_out.items() if is_lost is None]
    undecidable = {*not_told, *(entry.seq for entry in outcomes.unclear), *in_doubt, *mixed}
    problem = None
    if mixed:
        seq, restore = next(iter(mixed.items()))
        problem = _undecided(
            f"A RESTORE of {reading.table} (version {restore}) happened while the job of batch {seq} was "
            "replacing the rows. The table may hold both the rows that the RESTORE brought back and those of "
            "the batch.",
            do=refresh_next(reading.log.location),
        )
    elif undecidable:
        problem = _undecided(
            f"The log of {reading.table} does not show whether the rows of the open batches "
            f"{', '.join(map(str, sorted(undecidable)))} are in the table.",
            do=refresh_next(reading.log.location)
            if any(entry.overwrites_table for entry in still_open if entry.seq in undecidable)
            else "look at the table. If the rows are there, delete them. Then run "
            "`airflow scope accept-table --reload-undecidable`: the files of these batches are loaded again",
        )
    return _OpenBatches(
        kept=tuple(e for e in still_open if e.seq in in_table and e.seq not in rolled_back),
        versions=tuple(batch.version for seq, batch in in_table.items() if seq not in rolled_back),
        rolled_back=rolled_back,
        undecidable=tuple(undecidable),
        problem=problem,
    )


def _is_about_another_table(reading: _Reading, jobs: _Jobs) -> bool:
    """Whether what is known of a batch's jobs says nothing about the table that is there now.

    What the service says of a job, and the versions that its attempt and a decision name, are about the table
    and the rows of that time.
    """
    table_state, expected = reading.view.table, reading.view.baseline.identity
    if expected and table_state.identity and expected.table_id != table_state.table_id:
        return jobs.before is not None
    newest = max((restore.version for restore in table_state.restores), default=-1)
    return any(version < newest for version in jobs.decided)


def restore_under_refresh(
    entry: OffsetEntry, committed: CommittedBatch, jobs: _Jobs | None, table_state: TableState
) -> int | None:
    """Find a RESTORE between the deletion of a refresh's job and its rows.

    What it brought back is in the table beside those rows. Only the attempt's beginning and the rows
    have versions that are known for sure, so a RESTORE just before the deletion counts as well.
    """
    if not entry.overwrites_table or jobs is None or jobs.before is None:
        return None
    return next(
        (r.version for r in table_state.restores if jobs.before < r.version < committed.version), None
    )


@dataclass(frozen=True, slots=True)
class _UndoneRefresh:
    """What is back of the rows that a full refresh had replaced; names are those of files, or of slices.

    Its log has not seen their files: those that no committed batch of the refresh names count as new.
    """

    names: set[str]
    twice: set[str]
    """Those whose rows a later batch of the refresh has added again."""
    doubled: set[str]
    """Those that count as new."""


def _undone_refresh(reading: _Reading, opened: _OpenBatches) -> _UndoneRefresh | None:
    """Find out what is back if the table was set back to before the newest full refresh."""
    view, start, records = reading.view, reading.view.refresh_start, reading.records_of_refresh
    if start is None or not (start in opened.rolled_back or _is_undone(start, records, reading.with_jobs)):
        return None
    entries, taken = rows_in_table(reading.log, reading.log.takeover(view.newest), reading.with_jobs)
    names = {name for entry in entries if entry.seq < start for name in _names(entry.slice)}
    names |= {path for path, _ in SeenFiles(taken_files(reading.log, taken)).items()}
    twice = names  # slices without files may overlap
    if all(isinstance(entry.slice, FileSlice) for entry in opened.kept):
        twice = names & {name for entry in opened.kept for name in _names(entry.slice)}
    return _UndoneRefresh(names, twice, names - _names_of(reading.log, records) - twice)


def _is_undone(start: int, records: Sequence[CommitRecord], table_state: TableState) -> bool:
    """Whether the table was set back to before the refresh, or may have been.

    If the record of the refresh's first batch was purged, its transaction in the table's log tells.
    """
    if not records or not _is_rolled_back(records[0], table_state):
        return False
    if records[0].seq == start:
        return True
    first = table_state.committed.get(start)
    return first is None or recovery.rolled_back(first, table_state.restores) is not False


def _refresh_problem(reading: _Reading, undone: _UndoneRefresh | None) -> BatchOutcomeUnknownError | None:
    """Refuse a table in which files that a full refresh counts as new have their rows already."""
    log, table, start = reading.log, reading.table, reading.view.refresh_start
    undoing = f"A RESTORE of {table}, or an older copy, undid the full refresh that began with batch {start}"
    only_refresh = refresh_next(log.location)
    if start is None:
        return None
    if undone and log.vacuumed_below():
        return _undecided(
            f"{undoing}, or may have undone it. It is not known whether its next batches would be loaded "
            "on top of their old rows: `airflow scope vacuum` purged the records that would tell.",
            do=f"RESTORE the table to a version of the refresh. Or {only_refresh}",
        )
    if undone and undone.twice:
        return _undecided(
            f"{undoing}, and a later batch of the refresh was added after that. The rows of its files "
            f"({len(undone.twice):,}) are in the table twice: "
            f"{some_names(sorted(undone.twice), OTHERS_NAMED)}.",
            do="RESTORE the table to a version of the refresh and run `airflow scope accept-table --yes`. Or "
            f"{only_refresh}",
        )
    if undone and undone.doubled:
        accept = "`airflow scope accept-table --reload-undecidable --yes`"
        return _undecided(
            f"{undoing}. The rows of files that the refresh has not loaded ({len(undone.doubled):,}) are "
            "back. These files count as new: if they are in the source, the next run loads them on top of "
            f"their old rows. The files: {some_names(sorted(undone.doubled), OTHERS_NAMED)}.",
            do="if none of these files is in the source any more, because they were archived for example, "
            f"run {accept}: the table keeps the rows that it has. Otherwise RESTORE it to a version of the "
            "refresh and run `airflow scope accept-table --yes`. Or delete the rows of these files from the "
            f"table, then run {accept}",
        )
    if from_before := _doubled_from_before(reading, start):
        return _undecided(
            f"{table} was created again after the full refresh that began with batch {start}, and holds "
            f"batches from before it. The next runs would load {len(from_before):,} files on top of their "
            f"existing rows, such as {min(from_before)}.",
            do=only_refresh,
        )
    return None


def _doubled_from_before(reading: _Reading, start: int) -> set[str]:
    """Name the files that would be loaded on top of their rows, because the table has batches of before.

    A run that slept through a full refresh may have put them into a table that was created after it. They
    count as replaced by the refresh, which is not in this table.
    """
    log, table_state, records = reading.log, reading.view.table, reading.records_of_refresh
    first = records[0] if records else None
    is_of_another = first and first.table and first.table.table_id != table_state.table_id
    if not (first and is_of_another and has_lost_rows(first, table_state)):
        return set()
    entries = {
        seq: log.find_offset(seq)
        for seq, batch in table_state.committed.items()
        if seq < start
        and not batch.abandoned
        and recovery.rolled_back(batch, table_state.restores) is not True
    }
    # A batch whose entry is purged may have any file.
    names = {
        name for seq, e in entries.items() for name in (_names(e.slice) if e else [f"those of batch {seq}"])
    }
    return names - _names_of(log, records)


def _names(batch_slice: Slice) -> list[str]:
    """Name what may be loaded twice; a slice of something else than files is told by its whole text."""
    if isinstance(batch_slice, FileSlice):
        return [file.path for file in batch_slice.audited]
    return [batch_slice.text()]


def _names_of(log: CheckpointLog, records: Iterable[CommitRecord]) -> set[str]:
    """Name what committed batches loaded."""
    return {name for r in records if not r.abandoned for name in _names(log.offset(r.seq).slice)}


def _without_rows(records: Iterable[CommitRecord], table_state: TableState) -> tuple[CommitRecord, ...]:
    """Return the batches whose rows the table has no more."""
    return tuple(r for r in records if not r.abandoned and has_lost_rows(r, table_state))


def _is_rolled_back(record: CommitRecord, table_state: TableState) -> bool:
    """Whether a RESTORE took the rows of a recorded batch out of the table that it was loaded into."""
    is_same_table = record.table is not None and record.table.table_id == table_state.table_id
    return is_same_table and has_lost_rows(record, table_state)


def _set_back_below(table: str, oldest: CommitRecord, vacuumed: int) -> BatchOutcomeUnknownError:
    return _undecided(
        f"{table} was set back to before batch {oldest.seq} (version {oldest.table_version}). It is not "
        "known which older batches lost their rows too: `airflow scope vacuum` purged the records of the "
        f"batches below {vacuumed}.",
        do=f"RESTORE the table to version {oldest.table_version} or a newer one. Or run "
        "`airflow scope accept-table --reload-undecidable`: the files of all these batches still count as "
        "loaded. To get lost rows back, run the task once with full_refresh=True after that",
    )
