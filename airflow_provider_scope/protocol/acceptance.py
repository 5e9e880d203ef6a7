"""Accepting a table that diverged from its log: what it means, and how a pipeline goes on from there."""

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
from airflow_provider_scope.protocol.view import is_gone, rows_in_table
from airflow_provider_scope.values import OTHERS_NAMED, FileSlice, some_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from airflow_provider_scope.protocol.engine import Engine
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import CommitRecord, OffsetEntry, Pipeline, TableIdentity
    from airflow_provider_scope.protocol.recovery import Behind, Chain, CommittedBatch, TableState
    from airflow_provider_scope.values import Slice


@dataclass(frozen=True, slots=True)
class Consequences:
    """What accepting a table as it is means."""

    table: TableState
    newest_commit: int
    rolled_back: tuple[CommitRecord, ...]
    """Committed batches whose rows are no longer in the table; without a state they count as loaded."""
    gone: tuple[int, ...]
    """Open batches that had been committed to the table, and whose rows are gone: they come again."""
    seen_version: int
    """The version to go on from: below the commits of open batches that are still to be recorded."""
    back: tuple[int, ...]
    """Batches that were abandoned before there was a table, and whose rows are in it."""
    vacuumed: int
    """Batches below this number may have lost their rows, too: their records were purged. 0 if none has."""
    needs_transaction: bool
    """The table has to be told which batch is its newest: it was created again."""
    begins: Behind | None = None
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


def _undecided(what: str, do: str) -> BatchOutcomeUnknownError:
    return BatchOutcomeUnknownError(what, kept="the table, the log and all files; nothing was written", do=do)


def look_at_table(
    log: CheckpointLog, engine: Engine, table: str, *, reload_undecidable: bool = False
) -> Consequences:
    """Say what accepting the table as it is would mean; nothing is written.

    :param reload_undecidable: Load open batches again of which the table's log no longer tells whether
        their rows are in it.
    :raises BatchOutcomeUnknownError: There are such batches, and nobody decided.
    """
    pipeline = existing_pipeline(log)
    if (entry := newest_entry(log)) and entry.slice.has_state:
        return _look_with_state(_read(log, engine, table), reload_undecidable=reload_undecidable)
    committed = log.committed()
    # Without a baseline the probe reads the table's whole log, and refuses nothing.
    found = engine.probe(table, pipeline.pipeline, (None, -1))
    if found.identity is None:
        raise recovery.table_gone(table, log.location)
    if found.running is not None:
        raise _undecided(
            f"A job of batch {found.running} is still running: it is not known what becomes of its rows in "
            f"{table}.",
            do="wait until the job has ended, which `airflow scope status` shows, or end it: see "
            "`airflow scope cancel-jobs --help`. Then run the command again",
        )
    logged = log.logged()
    vacuumed = log.vacuumed_below()
    newest = log.offset(logged[-1]) if logged else None
    recovery.check_transaction(found, -1, newest.seq if newest else -1, table, log.location)
    still_open = open_entries(log)
    result = recovery.outcomes(still_open, found)
    in_table = {**{entry.seq: batch for entry, batch in result.committed}, **found.beyond}
    gone = [seq for seq, batch in in_table.items() if recovery.rolled_back(batch, found.restores)]
    unknown = [seq for seq, batch in in_table.items() if recovery.rolled_back(batch, found.restores) is None]
    unknown += [entry.seq for entry in result.unclear]
    last_commit = log.commit(committed[-1]) if committed else None
    expected, _ = recovery.baseline(pipeline, last_commit, log.newest_acceptance())
    in_doubt = {e.seq for e in still_open if is_about_another_table(log, e.seq, expected, found)}
    gone = [seq for seq in gone if seq not in in_doubt]
    mixed = {
        e.seq: restore
        for e, batch in result.committed
        if e.seq not in gone and (restore := restore_under_refresh(log, e, batch, found))
    }
    if mixed and not reload_undecidable:
        raise old_rows_beside_new_ones(table, log.location, *next(iter(mixed.items())))
    unknown = [*{*unknown, *in_doubt, *mixed}]
    if unknown and not reload_undecidable:
        raise _undecided(
            f"The log of {table} does not show whether the rows of the open batches "
            f"{', '.join(map(str, sorted(unknown)))} are in the table.",
            do=refresh_next(log.location)
            if any(entry.overwrites_table for entry in still_open if entry.seq in unknown)
            else "look at the table. If the rows are there, delete them. Then run "
            "`airflow scope accept-table --reload-undecidable`: the files of these batches are loaded again",
        )
    start = newest.refresh_start or 0 if newest else 0
    records = [log.commit(seq) for seq in committed if seq >= start]
    is_below = vacuumed > start and bool(records) and is_gone(records[0], found)
    if is_below and not reload_undecidable and is_rolled_back(records[0], found):
        raise rolled_back_below(table, records[0], vacuumed)
    rolled_back = tuple(r for r in records if not r.abandoned and is_gone(r, found))
    is_refreshed = newest is not None and newest.refresh_start is not None
    undone = is_refreshed and is_undone(records, found, gone=gone, start=start)
    back = names_in_table(log, pipeline, found, start) if undone else set()
    added = [entry for entry in still_open if entry.seq in in_table and entry.seq not in gone]
    twice = _held_too(back, added)
    doubled = back - _names_of(log, records) - twice
    if is_refreshed and not reload_undecidable:
        if undone and logged[0] > 0:
            raise undone_and_purged(table, log.location, start)
        if twice:
            raise beside_old_rows(table, log.location, start, twice)
        check_doubled(log, table, found, records, start=start, doubled=doubled)
    return Consequences(
        table=found,
        newest_commit=committed[-1] if committed else -1,
        rolled_back=rolled_back,
        gone=tuple(sorted([*gone, *unknown])),
        seen_version=min([found.version, *(v.version - 1 for seq, v in in_table.items() if seq not in gone)]),
        back=tuple(seq for seq in found.committed if seq < recovery.first_in_table(last_commit, None)),
        vacuumed=vacuumed if is_below else 0,
        needs_transaction=bool(committed) and (found.txn is None or found.txn < committed[-1]),
        undone=start if undone else None,
        doubled=tuple(sorted(doubled)),
        lost=len(_names_of(log, rolled_back) - back) if undone else None,
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
    seen = look_at_table(log, engine, table, reload_undecidable=reload_undecidable)
    found = seen.table
    for seq in seen.gone:
        if log.attempts(seq):
            # Its files come again, so no job of it may change the table from now on.
            engine.fence(Work(pipeline.pipeline, table, log.location), log.offset(seq))
    if seen.needs_transaction:
        newest = log.offset(seen.newest_commit)
        harmless = replace(newest, mode="append", where=None)
        engine.fence(Work(pipeline.pipeline, table, log.location), harmless)
        found = engine.probe(table, pipeline.pipeline, (None, -1))
    if found.identity is None:
        msg = f"{table} vanished while it was being accepted"
        raise AssertionError(msg)
    before = log.newest_acceptance()
    return log.put_acceptance(
        Acceptance(
            number=before.number + 1 if before else 0,
            after_commit=seen.newest_commit,
            table=found.identity,
            table_version=found.version if seen.needs_transaction else seen.seen_version,
            gone=seen.gone,
        )
    )


# ---- What a RESTORE left of batches of a source without a state ----


def is_about_another_table(
    log: CheckpointLog, seq: int, expected: TableIdentity | None, found: TableState
) -> bool:
    """Tell whether what is known of a batch's jobs says nothing about the table that is there now.

    A job leaves no transaction in the table. What the service says of it, and the versions that its
    attempt and a decision name, are about the table and the rows of that time.
    """
    attempts = [attempt for attempt in log.attempts(seq) if not attempt.void]
    if expected and found.identity and expected.table_id != found.identity.table_id:
        return bool(attempts)
    newest = max((restore.version for restore in found.restores), default=-1)
    decided = [log.settlement(seq, attempt.number) for attempt in attempts]
    return any(settled is not None and settled.table_version < newest for settled in decided)


def restore_under_refresh(
    log: CheckpointLog, entry: OffsetEntry, committed: CommittedBatch, found: TableState
) -> int | None:
    """Give the RESTORE between the deletion of a refresh's job and its rows, if there may be one.

    What it brought back is in the table beside those rows. Only the attempt's beginning and the rows
    have versions that are known for sure, so a RESTORE just before the deletion counts as well.
    """
    began = [attempt.table_version for attempt in log.attempts(entry.seq) if not attempt.void]
    if not entry.overwrites_table or not began:
        return None
    return next((r.version for r in found.restores if began[-1] < r.version < committed.version), None)


def old_rows_beside_new_ones(table: str, checkpoint: str, seq: int, restore: int) -> BatchOutcomeUnknownError:
    """Give the error for what ``restore_under_refresh`` found."""
    return _undecided(
        f"A RESTORE of {table} (version {restore}) happened while the job of batch {seq} was replacing the "
        "rows. The table may hold both the rows that the RESTORE brought back and those of the batch.",
        do=refresh_next(checkpoint),
    )


def is_undone(
    records: Sequence[CommitRecord], found: TableState, *, gone: Collection[int], start: int
) -> bool:
    """Tell whether the table was set back to before the full refresh that began with a batch.

    The rows that the refresh replaced are back, but its log has not seen their files: those that no
    committed batch of the refresh names count as new.
    """
    return start in gone or any(r.seq == start and is_rolled_back(r, found) for r in records)


def _refresh_undone(table: str, start: int) -> str:
    return f"A RESTORE of {table}, or an older copy, undid the full refresh that began with batch {start}"


def names_in_table(log: CheckpointLog, pipeline: Pipeline, found: TableState, start: int) -> set[str]:
    """Name the files from before a refresh whose rows are in a table that was set back."""
    entries, taken = rows_in_table(log, log.takeovers(pipeline), found)
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
    table: str, checkpoint: str, start: int, twice: Collection[str]
) -> BatchOutcomeUnknownError:
    """Give the error for batches of a refresh that were added after the refresh was undone.

    :param twice: Their files, as far as the old rows of these are back.
    """
    return _undecided(
        f"{_refresh_undone(table, start)}, and a later batch of the refresh was added after that. The rows "
        f"of its files ({len(twice):,}) are in the table twice: "
        f"{some_names(sorted(twice), OTHERS_NAMED)}.",
        do="RESTORE the table to a version of the refresh and run `airflow scope accept-table --yes`. Or "
        f"{refresh_next(checkpoint)}",
    )


def check_doubled(
    log: CheckpointLog,
    table: str,
    found: TableState,
    records: Sequence[CommitRecord],
    *,
    start: int,
    doubled: Collection[str],
) -> None:
    """Refuse a table to which the next runs would add rows that it has.

    :param start: The first batch of the newest refresh.
    :param doubled: Files whose rows are back because the refresh was undone.
    :raises BatchOutcomeUnknownError: As said.
    """
    if doubled:
        raise refresh_undone(table, start, doubled)
    of_before = doubled_from_before(log, records, found, start)
    if of_before:
        raise batches_of_before(table, log.location, start, of_before)


def doubled_from_before(
    log: CheckpointLog, records: Sequence[CommitRecord], found: TableState, start: int
) -> set[str]:
    """Give the files that would be loaded on top of their rows, because the table has batches of before.

    A run that slept through a full refresh may have put them into a table that was created after it. They
    count as replaced by the refresh, which is not in this table.
    """
    table_id = found.identity.table_id if found.identity else None
    if not any(r.seq == start and r.table and r.table.table_id != table_id for r in records):
        return set()
    older = [
        seq
        for seq, batch in found.committed.items()
        if seq < start and not batch.abandoned and recovery.rolled_back(batch, found.restores) is not True
    ]
    loaded = _names_of(log, records)
    entries = {seq: log.find_offset(seq) for seq in older}
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


def _names(found: Slice) -> list[str]:
    """Name what may be loaded twice; a slice of something else than files is told by its whole text."""
    return [file.path for file in found.audited] if isinstance(found, FileSlice) else [found.text()]


def _held_too(names: set[str], entries: Sequence[OffsetEntry]) -> set[str]:
    """Give those of the names that these batches hold too; slices without files may overlap."""
    if all(isinstance(entry.slice, FileSlice) for entry in entries):
        return names & {name for entry in entries for name in _names(entry.slice)}
    return names


def _names_of(log: CheckpointLog, records: Iterable[CommitRecord]) -> set[str]:
    """Name what committed batches loaded."""
    return {name for r in records if not r.abandoned for name in _names(log.offset(r.seq).slice)}


def is_rolled_back(record: CommitRecord, found: TableState) -> bool:
    """Tell whether a RESTORE took the rows of a recorded batch, out of the table that it was loaded into."""
    same = record.table and found.identity and record.table.table_id == found.identity.table_id
    return bool(same) and is_gone(record, found)


def rolled_back_below(table: str, oldest: CommitRecord, vacuumed: int) -> BatchOutcomeUnknownError:
    """Give the error for a table that was set back to before the oldest record that is left."""
    return _undecided(
        f"{table} was set back to before batch {oldest.seq} (version {oldest.table_version}). It is not "
        "known which older batches lost their rows too: `airflow scope vacuum` purged the records of the "
        f"batches below {vacuumed}.",
        do=f"RESTORE the table to version {oldest.table_version} or a newer one. Or run "
        "`airflow scope accept-table --reload-undecidable`: the files of all these batches still count as "
        "loaded. To get lost rows "
        "back, run the task once with full_refresh=True after that",
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
    found: TableState
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
        return -1 if self.found.txn is None else self.found.txn

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
            recovery.check_identity(self.found, expected, self.table, self.log.location)
            newest_commit = self.newest_commit if in_table else -1
            recovery.check_transaction(
                self.found, newest_commit, self.newest.seq, self.table, self.log.location
            )
            first = recovery.first_in_table(self.last_commit, self.accepted)
            recovery.check_given_up(self.found, first, self.table, self.log.location)
        except TableDivergedError:
            return True
        gone = self.accepted.gone if self.accepted else ()
        is_cleaned = expected is not None and self.found.oldest > since + 1
        return is_cleaned or bool(recovery.outcomes(self.open, self.found, gone).unclear)


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
    read = _read(log, engine, table)
    _look_with_state(
        read, reload_undecidable=reload_undecidable
    )  # what is refused anyway is refused as it is
    for _ in range(ROUNDS):
        if not read.is_acceptable:
            return _accepted_already(read)
        work = Work(read.pipeline.pipeline, table, log.location)
        entry = read.to_give_up
        if not read.open:
            log.put_offset(replace(read.newest, seq=read.newest.seq + 1, mode="empty", where=None))
        elif entry:
            engine.fence(work, replace(entry, mode="append") if entry.mode == "empty" else entry)
        elif read.txn < read.newest_commit:
            # The table was created again: it is told the number, and keeps its rows.
            engine.fence(work, replace(log.offset(read.newest_commit), mode="append", where=None))
        else:
            mine = _acceptance(read, _look_with_state(read, reload_undecidable=reload_undecidable))
            if log.put_acceptance(mine) == mine:
                return mine
        read = _read(log, engine, table)
    raise BatchOutcomeUnknownError(
        f"{table} kept changing while it was being accepted, or an empty transaction does not appear in "
        "its log.",
        kept=_KEPT,
        do="make sure that no run is active, and run the command again",
    )


def _read(log: CheckpointLog, engine: Engine, table: str) -> _Reading:
    pipeline = log.pipeline()
    if pipeline is None:
        msg = f"{log.location} has entries and no pipeline"
        raise AssertionError(msg)
    records = tuple(log.commit(seq) for seq in log.committed())
    accepted = log.newest_acceptance()
    # Without a baseline the probe reads the table's whole log, and refuses nothing.
    found = engine.probe(table, pipeline.pipeline, (None, -1))
    if found.identity is None:
        raise recovery.table_gone(table, log.location)
    logged = log.logged()
    newest = log.offset(logged[-1])
    recovery.check_transaction(found, -1, newest.seq, table, log.location)
    done = {record.seq for record in records}
    still_open = recovery.open_entries([log.offset(seq) for seq in logged if seq not in done], newest)
    return _Reading(log, table, pipeline, records, accepted, found, newest, still_open)


def _look_with_state(read: _Reading, *, reload_undecidable: bool) -> Consequences:
    found = read.found
    chain = recovery.chain_of(found, recovery.recorded_states(read.records, found))
    behind = recovery.Behind(None) if read.is_refreshing else _behind(read.log, chain)
    if behind.problem and not reload_undecidable:
        raise _unknown(read.table, read.log.location, behind)
    open_ones = () if read.is_refreshing else read.open
    gone = [e.seq for e in open_ones if behind.problem or not chain.has_rows_of(e.seq)]
    in_table = [found.committed[e.seq].version for e in open_ones if e.seq not in gone]
    rolled_back = (r for r in read.records if not r.abandoned and is_gone(r, found))
    return Consequences(
        table=found,
        newest_commit=read.newest_commit,
        rolled_back=tuple(r for r in rolled_back if r.seq >= (read.newest.overwrite_start or 0)),
        gone=tuple(gone),
        seen_version=min([found.version, *(version - 1 for version in in_table)]),
        back=(),
        vacuumed=0,
        needs_transaction=read.txn < read.newest_commit,
        begins=behind,
    )


def _behind(log: CheckpointLog, chain: Chain) -> Behind:
    entries = {seq: log.find_offset(seq) for seq, _ in chain.batches if seq >= log.vacuumed_below()}
    return recovery.state_behind(chain, {seq: entry for seq, entry in entries.items() if entry})


def _acceptance(read: _Reading, seen: Consequences) -> Acceptance:
    if read.found.identity is None or seen.begins is None:
        msg = f"{read.table} was not looked at"
        raise AssertionError(msg)
    return Acceptance(
        number=read.accepted.number + 1 if read.accepted else 0,
        after_commit=read.newest_commit,
        table=read.found.identity,
        table_version=seen.seen_version,
        gone=seen.gone,
        state=seen.begins.state,
        state_unknown=bool(seen.begins.problem),
    )


def _accepted_already(read: _Reading) -> Acceptance:
    if read.accepted and read.accepted.after_commit >= read.newest_commit:
        return read.accepted  # another command was faster
    raise InputError(
        f"{read.table} and its log fit together: there is nothing to accept.",
        kept="everything; nothing was accepted",
        do="run the task",
    )


def _unknown(table: str, checkpoint: str, behind: Behind) -> BatchOutcomeUnknownError:
    if behind.problem == "mixed":
        what = (
            f"The rows of batch {behind.at} were added to {table} after a RESTORE, or after it was created "
            "again, without the batch knowing of it: the table also holds rows that the batch does not "
            "build on, and other rows may be missing."
        )
    else:
        what = (
            f"It is not known what of the source is in {table}: the commit of version {behind.at}, or the "
            "entry of its batch, can no longer be read."
        )
    return BatchOutcomeUnknownError(
        what,
        kept=f"{_KEPT}; nothing was accepted",
        do="RESTORE the table to a version that a commit record names; or "
        + recovery.load_again(
            checkpoint,
            "run `airflow scope accept-table --reload-undecidable --yes`, and the task with "
            "full_refresh=True next: no other run can continue after that",
        ),
    )
