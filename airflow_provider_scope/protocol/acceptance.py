"""Accepting a table that diverged from its log: what it means, and how a pipeline goes on from there.

Both kinds of source are here, with a state and without one: they share what a person is told and decides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import (
    BatchOutcomeUnknownError,
    InputError,
    TableDivergedError,
)
from airflow_provider_scope.protocol import recovery
from airflow_provider_scope.protocol.engine import Work
from airflow_provider_scope.protocol.records import Acceptance
from airflow_provider_scope.protocol.repair import existing_pipeline, open_entries
from airflow_provider_scope.protocol.view import has_lost_rows, rows_in_table
from airflow_provider_scope.values import OTHERS_NAMED, FileSlice, some_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from airflow_provider_scope.protocol.engine import Engine
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import CommitRecord, OffsetEntry, Pipeline, TableIdentity
    from airflow_provider_scope.protocol.recovery import Chain, CommittedBatch, SourceState, TableState
    from airflow_provider_scope.values import Slice


@dataclass(frozen=True, slots=True)
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
    abandoned_in_table: tuple[int, ...]
    """Batches that were abandoned before there was a table, and whose rows are in it."""
    vacuumed: int
    """Batches below this number may have lost their rows, too: their records were purged. 0 if none has."""
    needs_transaction: bool
    """The table has to be told which batch is its newest: it was created again."""
    begins: SourceState | None = None
    """Where the next batch begins; None if the source has no state."""
    undone: int | None = None
    """The first batch of the full refresh that was undone, so that the rows from before it are back."""
    doubled: tuple[str, ...] = ()
    """Files whose rows are back, and that do not count as loaded."""
    lost: int | None = None
    """How many files of ``rolled_back`` have no rows in the table; None is all of them."""


def refresh_next(checkpoint: str) -> str:
    """Say what a person does when only loading everything again is known to repair the table.

    :param checkpoint: The folder of the log.
    """
    return recovery.load_again(
        checkpoint,
        "run `airflow scope accept-table --reload-undecidable --yes`, and the task with full_refresh=True "
        "next: it replaces all rows. Any other run would load files whose rows are already in the table",
    )


def _undecided(message: str, do: str) -> BatchOutcomeUnknownError:
    return BatchOutcomeUnknownError(
        message, kept="the table, the log and all files; nothing was written", do=do
    )


def consequences_of(
    log: CheckpointLog, engine: Engine, table: str, *, reload_undecidable: bool = False
) -> Consequences:
    """Say what accepting the table as it is would mean; nothing is written.

    :param reload_undecidable: Load open batches again of which the table's log no longer tells whether
        their rows are in it.
    :raises BatchOutcomeUnknownError: There are such batches, and nobody decided.
    """
    pipeline = existing_pipeline(log)
    if (entry := newest_entry(log)) and entry.slice.has_state:
        reading = _take_reading(log, engine, table)
        return _consequences_with_state(reading, reload_undecidable=reload_undecidable)
    return _consequences_without_state(log, engine, table, pipeline, reload_undecidable=reload_undecidable)


def _consequences_without_state(
    log: CheckpointLog, engine: Engine, table: str, pipeline: Pipeline, *, reload_undecidable: bool
) -> Consequences:
    committed = log.committed()
    # Without a baseline the probe reads the table's whole log, and refuses nothing.
    table_state = engine.probe(table, pipeline.pipeline, (None, -1))
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
    vacuumed = log.vacuumed_below()
    newest = log.offset(logged[-1]) if logged else None
    recovery.check_transaction(table_state, -1, newest.seq if newest else -1, table, log.location)
    last_commit = log.commit(committed[-1]) if committed else None
    expected, _ = recovery.baseline(pipeline, last_commit, log.newest_acceptance())
    opened = _open_batches(log, table, table_state, expected)
    if opened.problem and not reload_undecidable:
        raise opened.problem
    start = newest.refresh_start or 0 if newest else 0
    records = [log.commit(seq) for seq in committed if seq >= start]
    is_below = vacuumed > start and bool(records) and has_lost_rows(records[0], table_state)
    if is_below and not reload_undecidable and is_rolled_back(records[0], table_state):
        raise rolled_back_below(table, records[0], vacuumed)
    rolled_back = tuple(r for r in records if not r.abandoned and has_lost_rows(r, table_state))
    is_refreshed = newest is not None and newest.refresh_start is not None
    undone = is_refreshed and is_undone(
        records, table_state, open_rolled_back=opened.rolled_back, start=start
    )
    returned_names = names_in_table(log, pipeline, table_state, start) if undone else set()
    names_loaded_twice = _held_too(returned_names, opened.kept)
    doubled = returned_names - _names_of(log, records) - names_loaded_twice
    if is_refreshed and not reload_undecidable:
        if undone and logged[0] > 0:
            raise undone_and_purged(table, log.location, start)
        if names_loaded_twice:
            raise beside_old_rows(table, log.location, start, names_loaded_twice)
        if doubled:
            raise refresh_undone(table, start, doubled)
        if names_from_before := doubled_from_before(log, records, table_state, start):
            raise batches_of_before(table, log.location, start, names_from_before)
    return Consequences(
        table=table_state,
        newest_commit=committed[-1] if committed else -1,
        rolled_back=rolled_back,
        open_rolled_back=tuple(sorted([*opened.rolled_back, *opened.undecidable])),
        # A version below 0 is that of a batch which a record alone closed.
        seen_version=min(
            [table_state.version, *(version - 1 for version in opened.versions if version >= 0)]
        ),
        abandoned_in_table=tuple(
            seq for seq in table_state.committed if seq < recovery.first_in_table(last_commit, None)
        ),
        vacuumed=vacuumed if is_below else 0,
        needs_transaction=bool(committed) and (table_state.txn is None or table_state.txn < committed[-1]),
        undone=start if undone else None,
        doubled=tuple(sorted(doubled)),
        lost=len(_names_of(log, rolled_back) - returned_names) if undone else None,
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
    """Why nothing is accepted unless the undecidable batches are to be loaded again."""


def _open_batches(
    log: CheckpointLog, table: str, table_state: TableState, expected: TableIdentity | None
) -> _OpenBatches:
    still_open = open_entries(log)
    outcomes = recovery.outcomes(still_open, table_state)
    in_table = {**{entry.seq: batch for entry, batch in outcomes.committed}, **table_state.beyond}
    restores = table_state.restores
    is_out = {seq: recovery.rolled_back(batch, restores) for seq, batch in in_table.items()}
    in_doubt = {e.seq for e in still_open if is_about_another_table(log, e.seq, expected, table_state)}
    rolled_back = tuple(seq for seq, is_lost in is_out.items() if is_lost and seq not in in_doubt)
    mixed = {
        e.seq: restore
        for e, batch in outcomes.committed
        if e.seq not in rolled_back and (restore := restore_under_refresh(log, e, batch, table_state))
    }
    not_told = [seq for seq, is_lost in is_out.items() if is_lost is None]
    undecidable = {*not_told, *(entry.seq for entry in outcomes.unclear), *in_doubt, *mixed}
    problem = None
    if mixed:
        problem = old_rows_beside_new_ones(table, log.location, *next(iter(mixed.items())))
    elif undecidable:
        problem = _undecided(
            f"The log of {table} does not show whether the rows of the open batches "
            f"{', '.join(map(str, sorted(undecidable)))} are in the table.",
            do=refresh_next(log.location)
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


def accept_table(
    log: CheckpointLog, engine: Engine, table: str, *, reload_undecidable: bool = False
) -> Acceptance:
    """Accept the table as it is.

    Batches of a source with a state are abandoned first; see ``accept_with_state``. For the others:
    first the transaction, then the record: a run in between still refuses the table.
    """
    pipeline = existing_pipeline(log)
    if (entry := newest_entry(log)) and entry.slice.has_state:
        return accept_with_state(log, engine, table, reload_undecidable=reload_undecidable)
    consequences = consequences_of(log, engine, table, reload_undecidable=reload_undecidable)
    table_state = consequences.table
    for seq in consequences.open_rolled_back:
        if log.attempts(seq):
            # Its files come again, so no job of it may change the table from now on.
            engine.fence(Work(pipeline.pipeline, table, log.location), log.offset(seq))
    if consequences.needs_transaction:
        newest = log.offset(consequences.newest_commit)
        harmless = replace(newest, mode="append", where=None)
        engine.fence(Work(pipeline.pipeline, table, log.location), harmless)
        table_state = engine.probe(table, pipeline.pipeline, (None, -1))
    if table_state.identity is None:
        msg = f"{table} vanished while it was being accepted"
        raise AssertionError(msg)
    previous = log.newest_acceptance()
    version = table_state.version if consequences.needs_transaction else consequences.seen_version
    return log.put_acceptance(
        Acceptance(
            number=previous.number + 1 if previous else 0,
            after_commit=consequences.newest_commit,
            table=table_state.identity,
            table_version=version,
            gone=consequences.open_rolled_back,
        )
    )


# ---- What a RESTORE left of batches of a source without a state ----


def is_about_another_table(
    log: CheckpointLog, seq: int, expected: TableIdentity | None, table_state: TableState
) -> bool:
    """Tell whether what is known of a batch's jobs says nothing about the table that is there now.

    A job leaves no transaction in the table. What the service says of it, and the versions that its
    attempt and a decision name, are about the table and the rows of that time.
    """
    attempts = [attempt for attempt in log.attempts(seq) if not attempt.void]
    if expected and table_state.identity and expected.table_id != table_state.identity.table_id:
        return bool(attempts)
    newest = max((restore.version for restore in table_state.restores), default=-1)
    decided = [log.settlement(seq, attempt.number) for attempt in attempts]
    return any(settled is not None and settled.table_version < newest for settled in decided)


def restore_under_refresh(
    log: CheckpointLog, entry: OffsetEntry, committed: CommittedBatch, table_state: TableState
) -> int | None:
    """Give the RESTORE between the deletion of a refresh's job and its rows, if there may be one.

    What it brought back is in the table beside those rows. Only the attempt's beginning and the rows
    have versions that are known for sure, so a RESTORE just before the deletion counts as well.
    """
    versions_before = [attempt.table_version for attempt in log.attempts(entry.seq) if not attempt.void]
    if not entry.overwrites_table or not versions_before:
        return None
    return next(
        (r.version for r in table_state.restores if versions_before[-1] < r.version < committed.version), None
    )


def old_rows_beside_new_ones(table: str, checkpoint: str, seq: int, restore: int) -> BatchOutcomeUnknownError:
    """Give the error for what ``restore_under_refresh`` found."""
    return _undecided(
        f"A RESTORE of {table} (version {restore}) happened while the job of batch {seq} was replacing the "
        "rows. The table may hold both the rows that the RESTORE brought back and those of the batch.",
        do=refresh_next(checkpoint),
    )


def is_undone(
    records: Sequence[CommitRecord], table_state: TableState, *, open_rolled_back: Collection[int], start: int
) -> bool:
    """Tell whether the table was set back to before the full refresh that began with a batch.

    The rows that the refresh replaced are back, but its log has not seen their files: those that no
    committed batch of the refresh names count as new.
    """
    return start in open_rolled_back or any(
        r.seq == start and is_rolled_back(r, table_state) for r in records
    )


def _refresh_undone(table: str, start: int) -> str:
    return f"A RESTORE of {table}, or an older copy, undid the full refresh that began with batch {start}"


def names_in_table(log: CheckpointLog, pipeline: Pipeline, table_state: TableState, start: int) -> set[str]:
    """Name the files from before a refresh whose rows are in a table that was set back."""
    entries, taken = rows_in_table(log, log.takeovers(pipeline), table_state)
    names = {name for entry in entries if entry.seq < start for name in _names(entry.slice)}
    return names | {file.path for file in (log.taken_files(taken) if taken else ())}


def undone_and_purged(table: str, checkpoint: str, start: int) -> BatchOutcomeUnknownError:
    """Give the error for an undone refresh if the entries from before it were purged."""
    return _undecided(
        f"{_refresh_undone(table, start)}. It is not known whether its next batches would be loaded on top "
        "of their old rows: `airflow scope vacuum` purged the records of the batches before it.",
        do=f"RESTORE the table to a version of the refresh. Or {refresh_next(checkpoint)}",
    )


def beside_old_rows(
    table: str, checkpoint: str, start: int, names_loaded_twice: Collection[str]
) -> BatchOutcomeUnknownError:
    """Give the error for batches of a refresh that were added after the refresh was undone.

    :param names_loaded_twice: Their files, as far as the old rows of these are back.
    """
    return _undecided(
        f"{_refresh_undone(table, start)}, and a later batch of the refresh was added after that. The rows "
        f"of its files ({len(names_loaded_twice):,}) are in the table twice: "
        f"{some_names(sorted(names_loaded_twice), OTHERS_NAMED)}.",
        do="RESTORE the table to a version of the refresh and run `airflow scope accept-table --yes`. Or "
        f"{refresh_next(checkpoint)}",
    )


def doubled_from_before(
    log: CheckpointLog, records: Sequence[CommitRecord], table_state: TableState, start: int
) -> set[str]:
    """Give the files that would be loaded on top of their rows, because the table has batches of before.

    A run that slept through a full refresh may have put them into a table that was created after it. They
    count as replaced by the refresh, which is not in this table.
    """
    table_id = table_state.identity.table_id if table_state.identity else None
    if not any(r.seq == start and r.table and r.table.table_id != table_id for r in records):
        return set()
    batches_from_before = [
        seq
        for seq, batch in table_state.committed.items()
        if seq < start
        and not batch.abandoned
        and recovery.rolled_back(batch, table_state.restores) is not True
    ]
    loaded = _names_of(log, records)
    entries = {seq: log.find_offset(seq) for seq in batches_from_before}
    # A batch whose entry is purged may have any file.
    names = {
        name for seq, e in entries.items() for name in (_names(e.slice) if e else [f"those of batch {seq}"])
    }
    return names - loaded


def batches_of_before(
    table: str, checkpoint: str, start: int, doubled: Collection[str]
) -> BatchOutcomeUnknownError:
    """Give the error for what ``doubled_from_before`` found."""
    return _undecided(
        f"{table} was created again after the full refresh that began with batch {start}, and holds "
        f"batches from before it. The next runs would load {len(doubled):,} files on top of their existing "
        f"rows, such as {min(doubled)}.",
        do=refresh_next(checkpoint),
    )


def _names(batch_slice: Slice) -> list[str]:
    """Name what may be loaded twice; a slice of something else than files is told by its whole text."""
    if isinstance(batch_slice, FileSlice):
        return [file.path for file in batch_slice.audited]
    return [batch_slice.text()]


def _held_too(names: set[str], entries: Sequence[OffsetEntry]) -> set[str]:
    """Give those of the names that these batches hold too; slices without files may overlap."""
    if all(isinstance(entry.slice, FileSlice) for entry in entries):
        return names & {name for entry in entries for name in _names(entry.slice)}
    return names


def _names_of(log: CheckpointLog, records: Iterable[CommitRecord]) -> set[str]:
    """Name what committed batches loaded."""
    return {name for r in records if not r.abandoned for name in _names(log.offset(r.seq).slice)}


def is_rolled_back(record: CommitRecord, table_state: TableState) -> bool:
    """Tell whether a RESTORE took the rows of a recorded batch, out of the table that it was loaded into."""
    is_same_table = (
        record.table and table_state.identity and record.table.table_id == table_state.identity.table_id
    )
    return bool(is_same_table) and has_lost_rows(record, table_state)


def rolled_back_below(table: str, oldest: CommitRecord, vacuumed: int) -> BatchOutcomeUnknownError:
    """Give the error for a table that was set back to before the oldest record that is left."""
    return _undecided(
        f"{table} was set back to before batch {oldest.seq} (version {oldest.table_version}). It is not "
        "known which older batches lost their rows too: `airflow scope vacuum` purged the records of the "
        f"batches below {vacuumed}.",
        do=f"RESTORE the table to version {oldest.table_version} or a newer one. Or run "
        "`airflow scope accept-table --reload-undecidable`: the files of all these batches still count as "
        "loaded. To get lost rows back, run the task once with full_refresh=True after that",
    )


def refresh_undone(table: str, start: int, doubled: Collection[str]) -> BatchOutcomeUnknownError:
    """Give the error for files whose rows came back, and that count as new: ``doubled``."""
    accept = "`airflow scope accept-table --reload-undecidable --yes`"
    return _undecided(
        f"{_refresh_undone(table, start)}. The rows of files that the refresh "
        f"has not loaded ({len(doubled):,}) are back. These files count as new: if they are in the source, "
        "the next run loads them on top of their old rows. The files: "
        f"{some_names(sorted(doubled), OTHERS_NAMED)}.",
        do="if none of these files is in the source any more, because they were archived for example, run "
        f"{accept}: the table keeps the rows that it has. Otherwise RESTORE it to a version of the refresh "
        "and run `airflow scope accept-table --yes`. Or delete the rows of these files from the table, then "
        f"run {accept}",
    )


# ---- Sources with a state: the next batch begins where the table's rows end ----

ROUNDS = 8
"""How often the table is looked at again after something was written; three times are enough if nobody else
writes."""

_KEPT = "the table, the log and the source"


@dataclass(frozen=True, slots=True)
class _Reading:
    """The records, then the table, then the entries: in the order of a run."""

    log: CheckpointLog
    table: str
    pipeline: Pipeline
    records: tuple[CommitRecord, ...]
    accepted: Acceptance | None
    table_state: TableState
    newest: OffsetEntry
    open: tuple[OffsetEntry, ...]

    @property
    def last_commit(self) -> CommitRecord | None:
        return self.records[-1] if self.records else None

    @property
    def newest_commit(self) -> int:
        return self.last_commit.seq if self.last_commit else -1

    @property
    def txn(self) -> int:
        return -1 if self.table_state.txn is None else self.table_state.txn

    @property
    def is_refreshing(self) -> bool:
        """Whether a full refresh is still to run: it replaces whatever the table holds."""
        return any(entry.overwrites_table and entry.seq > self.txn for entry in self.open)

    @property
    def to_give_up(self) -> OffsetEntry | None:
        """The open batch that somebody could still commit."""
        waiting = [entry for entry in self.open if entry.seq > self.txn]
        return waiting[-1] if waiting and not self.is_refreshing else None

    @property
    def is_acceptable(self) -> bool:
        """Whether a run would refuse the table."""
        expected, since = recovery.baseline(self.pipeline, self.last_commit, self.accepted)
        in_table = self.last_commit is not None and self.last_commit.table is not None
        try:
            recovery.check_identity(self.table_state, expected, self.table, self.log.location)
            recovery.check_version(self.table_state, since, self.table)
            newest_commit = self.newest_commit if in_table else -1
            recovery.check_transaction(
                self.table_state, newest_commit, self.newest.seq, self.table, self.log.location
            )
            first = recovery.first_in_table(self.last_commit, self.accepted)
            recovery.check_given_up(self.table_state, first, self.table, self.log.location)
        except TableDivergedError:
            return True
        rolled_back = self.accepted.gone if self.accepted else ()
        is_cleaned = expected is not None and self.table_state.oldest > since + 1
        return is_cleaned or bool(recovery.outcomes(self.open, self.table_state, rolled_back).unclear)


def newest_entry(log: CheckpointLog) -> OffsetEntry | None:
    """Read the newest entry."""
    logged = log.logged()
    return log.offset(logged[-1]) if logged else None


def accept_with_state(
    log: CheckpointLog, engine: Engine, table: str, *, reload_undecidable: bool
) -> Acceptance:
    """Give up what is open, and only then look at the table and accept it.

    Until then an application that nobody waits for could still add the open batch to rows of an older state.
    If none is open, an empty batch is logged: the record of an abandoned one has the state to go on from.

    :raises InputError: A run would not refuse the table.
    :raises BatchOutcomeUnknownError: Nothing tells the state of its rows.
    """
    reading = _take_reading(log, engine, table)
    # What is refused anyway is refused as it is.
    _consequences_with_state(reading, reload_undecidable=reload_undecidable)
    for _ in range(ROUNDS):
        if not reading.is_acceptable:
            return _accepted_already(reading)
        work = Work(reading.pipeline.pipeline, table, log.location)
        entry = reading.to_give_up
        if not reading.open:
            log.put_offset(replace(reading.newest, seq=reading.newest.seq + 1, mode="empty", where=None))
        elif entry:
            engine.fence(work, replace(entry, mode="append") if entry.mode == "empty" else entry)
        elif reading.txn < reading.newest_commit:
            # The table was created again: it is told the number, and keeps its rows.
            engine.fence(work, replace(log.offset(reading.newest_commit), mode="append", where=None))
        else:
            consequences = _consequences_with_state(reading, reload_undecidable=reload_undecidable)
            acceptance = _acceptance(reading, consequences)
            if log.put_acceptance(acceptance) == acceptance:
                return acceptance
        reading = _take_reading(log, engine, table)
    raise BatchOutcomeUnknownError(
        f"{table} kept changing while it was being accepted, or an empty transaction does not appear in "
        "its log.",
        kept=_KEPT,
        do="make sure that no run is active, and run the command again",
    )


def _take_reading(log: CheckpointLog, engine: Engine, table: str) -> _Reading:
    pipeline = log.pipeline()
    if pipeline is None:
        msg = f"{log.location} has entries and no pipeline"
        raise AssertionError(msg)
    records = tuple(log.commit(seq) for seq in log.committed())
    accepted = log.newest_acceptance()
    # Without a baseline the probe reads the table's whole log, and refuses nothing.
    table_state = engine.probe(table, pipeline.pipeline, (None, -1))
    if table_state.identity is None:
        raise recovery.missing_table_error(table, log.location)
    logged = log.logged()
    newest = log.offset(logged[-1])
    recovery.check_transaction(table_state, -1, newest.seq, table, log.location)
    done = {record.seq for record in records}
    still_open = recovery.open_entries([log.offset(seq) for seq in logged if seq not in done], newest)
    return _Reading(log, table, pipeline, records, accepted, table_state, newest, still_open)


def _consequences_with_state(reading: _Reading, *, reload_undecidable: bool) -> Consequences:
    table_state = reading.table_state
    chain = recovery.chain_of(table_state, recovery.recorded_states(reading.records, table_state))
    source_state = recovery.SourceState(None) if reading.is_refreshing else _source_state(reading.log, chain)
    if source_state.problem and not reload_undecidable:
        raise _state_unknown(reading.table, reading.log.location, source_state)
    open_batches = () if reading.is_refreshing else reading.open
    open_rolled_back = [e.seq for e in open_batches if source_state.problem or not chain.has_rows_of(e.seq)]
    in_table = [table_state.committed[e.seq].version for e in open_batches if e.seq not in open_rolled_back]
    rolled_back = (r for r in reading.records if not r.abandoned and has_lost_rows(r, table_state))
    return Consequences(
        table=table_state,
        newest_commit=reading.newest_commit,
        rolled_back=tuple(r for r in rolled_back if r.seq >= (reading.newest.overwrite_start or 0)),
        open_rolled_back=tuple(open_rolled_back),
        seen_version=min([table_state.version, *(version - 1 for version in in_table)]),
        abandoned_in_table=(),
        vacuumed=0,
        needs_transaction=reading.txn < reading.newest_commit,
        begins=source_state,
    )


def _source_state(log: CheckpointLog, chain: Chain) -> SourceState:
    entries = {seq: log.find_offset(seq) for seq, _ in chain.batches if seq >= log.vacuumed_below()}
    return recovery.state_behind(chain, {seq: entry for seq, entry in entries.items() if entry})


def _acceptance(reading: _Reading, consequences: Consequences) -> Acceptance:
    if reading.table_state.identity is None or consequences.begins is None:
        msg = f"{reading.table} was not looked at"
        raise AssertionError(msg)
    return Acceptance(
        number=reading.accepted.number + 1 if reading.accepted else 0,
        after_commit=reading.newest_commit,
        table=reading.table_state.identity,
        table_version=consequences.seen_version,
        gone=consequences.open_rolled_back,
        state=consequences.begins.state,
        state_unknown=bool(consequences.begins.problem),
    )


def _accepted_already(reading: _Reading) -> Acceptance:
    if reading.accepted and reading.accepted.after_commit >= reading.newest_commit:
        return reading.accepted  # another command was faster
    raise InputError(
        f"{reading.table} and its log fit together: there is nothing to accept.",
        kept="everything; nothing was accepted",
        do="run the task",
    )


def _state_unknown(table: str, checkpoint: str, source_state: SourceState) -> BatchOutcomeUnknownError:
    if source_state.problem == "mixed":
        message = (
            f"The rows of batch {source_state.at} were added to {table} after a RESTORE, or after it was "
            "created again, without the batch knowing of it: the table also holds rows that the batch does "
            "not build on, and other rows may be missing."
        )
    else:
        message = (
            f"It is not known what of the source is in {table}: the commit of version {source_state.at}, or "
            "the entry of its batch, can no longer be read."
        )
    return BatchOutcomeUnknownError(
        message,
        kept=f"{_KEPT}; nothing was accepted",
        do="RESTORE the table to a version that a commit record names; or "
        + recovery.load_again(
            checkpoint,
            "run `airflow scope accept-table --reload-undecidable --yes`, and the task with "
            "full_refresh=True next: no other run can continue after that",
        ),
    )
