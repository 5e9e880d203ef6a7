"""Accepting a table whose rows come from a source with a state: the next batch begins where its rows end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_provider_scope.core import recovery, source_state
from airflow_provider_scope.core.records import Acceptance
from airflow_provider_scope.exceptions import (
    BatchOutcomeUnknownError,
    InputError,
    TableDivergedError,
    TableUnreadableError,
)
from airflow_provider_scope.execution import restores
from airflow_provider_scope.execution.consequences import Consequences
from airflow_provider_scope.execution.engine import Work

if TYPE_CHECKING:
    from airflow_provider_scope.checkpoint.log import CheckpointLog
    from airflow_provider_scope.core.records import CommitRecord, OffsetEntry, Pipeline
    from airflow_provider_scope.core.recovery import TableState
    from airflow_provider_scope.core.source_state import Behind, Chain
    from airflow_provider_scope.execution.engine import Engine

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
            recovery.check_identity(self.found, expected, self.table)
            recovery.check_transaction(
                self.found, self.newest_commit if in_table else -1, self.newest.seq, self.table
            )
            first = recovery.first_in_table(self.last_commit, self.accepted)
            recovery.check_given_up(self.found, first, self.table)
        except TableDivergedError:
            return True
        gone = self.accepted.gone if self.accepted else ()
        is_cleaned = expected is not None and self.found.oldest > since + 1
        return is_cleaned or bool(recovery.outcomes(self.open, self.found, gone).unclear)


def newest_entry(log: CheckpointLog) -> OffsetEntry | None:
    """Read the newest entry."""
    logged = log.logged()
    return log.offset(logged[-1]) if logged else None


def look(log: CheckpointLog, engine: Engine, table: str, *, reload_undecidable: bool) -> Consequences:
    """Say what accepting the table as it is would mean; nothing is written.

    :param reload_undecidable: Accept it even if nothing tells the state of its rows: only a full refresh can
        go on then.
    :raises BatchOutcomeUnknownError: Nothing tells the state of its rows.
    """
    return _look(_read(log, engine, table), reload_undecidable=reload_undecidable)


def accept(log: CheckpointLog, engine: Engine, table: str, *, reload_undecidable: bool) -> Acceptance:
    """Give up what is open, and only then look at the table and accept it.

    Until then an application that nobody waits for could still add the open batch to rows of an older state.
    If none is open, an empty batch is logged: the record of an abandoned one has the state to go on from.

    :raises InputError: A run would not refuse the table.
    :raises BatchOutcomeUnknownError: Nothing tells the state of its rows.
    """
    read = _read(log, engine, table)
    _look(read, reload_undecidable=reload_undecidable)  # what is refused anyway is refused as it is
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
            mine = _acceptance(read, _look(read, reload_undecidable=reload_undecidable))
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
        raise TableUnreadableError(
            f"There is no table at {table} to accept.",
            kept="the log; nothing was written",
            do="bring the table back; or start over by deleting the checkpoint folder",
        )
    logged = log.logged()
    newest = log.offset(logged[-1])
    recovery.check_transaction(found, -1, newest.seq, table)
    done = {record.seq for record in records}
    still_open = recovery.open_entries([log.offset(seq) for seq in logged if seq not in done], newest)
    return _Reading(log, table, pipeline, records, accepted, found, newest, still_open)


def _look(read: _Reading, *, reload_undecidable: bool) -> Consequences:
    found = read.found
    chain = source_state.chain_of(found, source_state.recorded_states(read.records, found))
    behind = source_state.Behind(None) if read.is_refreshing else _behind(read.log, chain)
    if behind.problem and not reload_undecidable:
        raise _unknown(read.table, behind)
    open_ones = () if read.is_refreshing else read.open
    gone = [e.seq for e in open_ones if behind.problem or not chain.has_rows_of(e.seq)]
    in_table = [found.committed[e.seq].version for e in open_ones if e.seq not in gone]
    rolled_back = (r for r in read.records if not r.abandoned and restores.is_gone(r, found))
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
    return source_state.state_behind(chain, {seq: entry for seq, entry in entries.items() if entry})


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


def _unknown(table: str, behind: Behind) -> BatchOutcomeUnknownError:
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
        do="RESTORE the table to a version that a commit record names; or add --reload-undecidable, and "
        "run the task with full_refresh=True next: no other run can continue after that",
    )
