"""What a run finds at its start, and what has to be done about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from airflow_provider_scope.exceptions import (
    AbandonedBatchError,
    TableAheadOfLogError,
    TableBehindLogError,
    TableDivergedError,
    TableGoneError,
    TableRecreatedError,
    TableRestoredError,
    UnknownRowsError,
)
from airflow_provider_scope.protocol.records import NEW_LOG
from airflow_provider_scope.values import window_of_log

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from airflow_provider_scope.expectations import RuleCount
    from airflow_provider_scope.protocol.bad_records import Quarantined
    from airflow_provider_scope.protocol.records import (
        Acceptance,
        CommitRecord,
        OffsetEntry,
        Pipeline,
        TableIdentity,
    )


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A batch that the table's log shows as committed."""

    version: int
    rows: int | None
    written_bytes: int | None
    abandoned: bool = False
    """The commit is the empty transaction of ``abandon``, not the batch."""
    quarantined: Mapping[str, Quarantined] = field(default_factory=dict)
    """What the commit says of the quarantine; see ``CommitRecord``."""
    warned: Mapping[str, RuleCount] = field(default_factory=dict)
    """What the commit says of rules of the level ``warn``; see ``CommitRecord``."""
    rescued: Mapping[str, int] = field(default_factory=dict)
    """What the commit says of rescued values; see ``CommitRecord``."""
    changes: Mapping[str, int] = field(default_factory=dict)
    """What the commit says of a row-level write; see ``CommitRecord``."""
    columns: str | None = None
    """What the commit says of inferred columns."""
    state: str | None = None
    """What the commit says of the state of the source after the batch."""
    candidates: tuple[int, ...] = ()
    """Versions of which one is the batch's, if that is all that the log tells; ``version`` is the newest."""


NO_VERSION = -1
"""The version of a table that does not exist."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A RESTORE in the table's log: ``version`` brought back the rows of ``to_version``."""

    version: int
    to_version: int | None
    """None if the RESTORE was to a timestamp, or is a CLONE: Delta's log then does not tell the version.
    ``NO_VERSION`` if the table was replaced, as by CREATE OR REPLACE TABLE: log and transactions stay, and no
    row does."""


@dataclass(frozen=True, slots=True)
class TableState:
    """What a probe saw. A table that does not exist has no identity, version -1 and no transaction."""

    identity: TableIdentity | None
    version: int
    txn: int | None
    """Newest ``txnVersion`` of the pipeline in the table."""
    committed: Mapping[int, CommittedBatch]
    """Batches found in the part of the table's log that was looked at."""
    restores: tuple[Restored, ...] = ()
    has_rows: bool = False
    """Whether there are rows in it; only looked at for no pipeline in particular."""
    running: int | None = None
    """The open batch whose job still runs, if any: what becomes of its rows does not show yet."""
    beyond: Mapping[int, CommittedBatch] = field(default_factory=dict)
    """Batches found after one that is not in the table: a RESTORE took that one's rows."""
    oldest: int = 0
    """The version from which on no commit is missing in the table's log, as far as it was looked at."""

    @property
    def table_id(self) -> str | None:
        return self.identity.table_id if self.identity else None

    @property
    def newest_batch(self) -> int:
        """The number of the newest transaction; -1 if there is none."""
        return -1 if self.txn is None else self.txn


MISSING_TABLE = TableState(None, NO_VERSION, None, {})


class Baseline(NamedTuple):
    """The table that the newest record expects; a probe looks at the log after that version."""

    identity: TableIdentity | None
    """None if there was no table."""
    version: int
    """What the table was at when the record was written."""


NO_BASELINE = Baseline(None, NO_VERSION)
"""Expects no table: a probe reads the whole log, and refuses nothing."""


def in_force(last_commit: CommitRecord | None, accepted: Acceptance | None) -> Acceptance | None:
    """Return the acceptance if no batch was recorded after it: then it describes the table."""
    newest_commit = last_commit.seq if last_commit else -1
    return accepted if accepted and accepted.after_commit >= newest_commit else None


def baseline(pipeline: Pipeline, last_commit: CommitRecord | None, accepted: Acceptance | None) -> Baseline:
    """Return which table the newest record expects."""
    if acceptance := in_force(last_commit, accepted):
        return Baseline(acceptance.table, acceptance.table_version)
    if last_commit:
        return Baseline(last_commit.table, last_commit.table_version)
    version = NO_VERSION if pipeline.table_version is None else pipeline.table_version
    return Baseline(pipeline.table, version)


def first_in_table(last_commit: CommitRecord | None, accepted: Acceptance | None) -> int:
    """Return the first batch that can be in the table: those below it were abandoned before there was one.

    No transaction could be put in their place, so the first batch needs a table without any of them.
    """
    if last_commit is None or last_commit.table is not None or in_force(last_commit, accepted):
        return 0
    return last_commit.seq + 1


_REFRESH = "run the task once with full_refresh=True, which replaces all rows"


def load_again(checkpoint: str, refresh: str = _REFRESH) -> str:
    """Advise how a pipeline loads everything again: an interval refuses a full refresh, and begins a new log.

    :param checkpoint: The folder of the log, which tells whether it is an interval's.
    :param refresh: What is said of any other pipeline.
    """
    if window_of_log(checkpoint) is None:
        return refresh
    return (
        "delete what the table still holds of the interval's rows, move the folder "
        f"{checkpoint} away while nothing runs, and clear the interval's run"
    )


def check_given_up(table_state: TableState, first: int, location: str, checkpoint: str) -> None:
    """Refuse a table that holds a batch which was abandoned before there was a table.

    :param first: The first batch that can be in it.
    :param checkpoint: The folder of the log.
    :raises AbandonedBatchError: As said: an application that nobody waited for has made the table since.
    """
    abandoned = [seq for seq, batch in table_state.committed.items() if seq < first and not batch.abandoned]
    if abandoned:
        raise _diverged(
            AbandonedBatchError,
            f"The table {location} holds batch {min(abandoned)}, which was abandoned before there was a "
            "table: the application that ran it was still running. Its files count as new, and would be "
            "loaded again.",
            do=f"{load_again(checkpoint)}. Or, if it is a batch of files, delete its rows, then run "
            "`airflow scope accept-table`",
        )


def check_identity(
    table_state: TableState, expected: TableIdentity | None, location: str, checkpoint: str
) -> None:
    """Refuse a table that was restored or recreated since the newest record.

    :param checkpoint: The folder of the log.
    :raises TableRestoredError: The newest RESTORE is not the recorded one.
    :raises TableRecreatedError: The id is not the recorded one.
    :raises TableGoneError: There is no table.
    """
    restored = table_state.identity is not None and table_state.identity.restore_version is not None
    # Without a record the table is one that our batches made: whose id it is cannot be told.
    if table_state.identity == expected or (expected is None and not restored):
        return
    if table_state.identity is None:
        raise missing_table_error(location, checkpoint)
    kind: type[TableDivergedError] = TableRestoredError
    if expected is None:
        message = (
            f"The table {location} was restored, or replaced by another one (version "
            f"{table_state.identity.restore_version}), before the first record was written."
        )
    elif table_state.identity.table_id != expected.table_id:
        kind = TableRecreatedError
        message = (
            f"The table {location} was dropped and created again, or replaced: its id is "
            f"{table_state.identity.table_id}, the newest record says {expected.table_id}."
        )
    else:
        message = (
            f"The table {location} was restored (RESTORE at version {table_state.identity.restore_version}; "
            f"the newest record says {_or_none(expected.restore_version)})."
        )
    raise _diverged(kind, message)


def missing_table_error(location: str, checkpoint: str) -> TableDivergedError:
    remedy = (
        "run the task once with full_refresh=True, which makes the table again and loads everything into it"
    )
    if window_of_log(checkpoint):
        folder = checkpoint.rpartition("/")[0]
        remedy = f"move the folder {folder} away while nothing runs, and clear the runs of the intervals"
    return _diverged(
        TableGoneError,
        f"There is no table at {location} any more, and there was one when the newest record was written.",
        kept="the log and all files; nothing was written",
        do="if it was dropped by mistake, bring it back; if it was moved, set delta_location to where it is "
        f"now. Otherwise {remedy}",
    )


def check_version(table_state: TableState, since: int, location: str) -> None:
    """Refuse a table that is older than the newest record.

    :param since: The version that the table had when that was written.
    :raises TableBehindLogError: As said.
    """
    if table_state.version < since:
        raise _diverged(
            TableBehindLogError,
            f"The table {location} is at version {table_state.version}, and was at version {since} when the "
            "newest record was written: it is an older copy, or commits were deleted.",
        )


def check_transaction(
    table_state: TableState, newest_commit: int, newest_entry: int, location: str, checkpoint: str
) -> None:
    """Refuse a table whose transaction is behind the commits or ahead of the log.

    :param checkpoint: The folder of the log.
    :raises TableBehindLogError: It is behind.
    :raises TableAheadOfLogError: It is ahead.
    """
    if table_state.newest_batch < newest_commit:
        raise _diverged(
            TableBehindLogError,
            f"The table {location} holds batch {_or_none(table_state.txn)} as its newest, but batch "
            f"{newest_commit} was committed to it.",
            # Of SCOPE jobs it has no transaction. Without a name, the command would take them for the engine.
            do=_accept("accept-table --engine spark"),
        )
    if table_state.newest_batch > newest_entry:
        raise _diverged(
            TableAheadOfLogError,
            f"The table {location} holds batch {table_state.txn}, but the log in {checkpoint} ends at batch "
            f"{newest_entry}: it is an older copy, or records were deleted.",
            do="bring back the checkpoint's newest copy. If there is none, "
            f"{load_again(checkpoint, NEW_LOG)}",
        )


def rows_of_others(
    location: str, checkpoint: str, begins_after: str, interval: str | None
) -> TableDivergedError:
    """Return the error for a first run on a table with rows.

    :param begins_after: What the user sets so that it leaves out what is in the table; empty if nothing can.
    :param interval: The name of the interval that the run loads, if it loads one.
    """
    advice = "To load everything again and replace all rows, run once with full_refresh=True"
    if interval:
        advice = "To replace the rows of the interval, use write=Replace(where=…)"
    elif begins_after:
        advice += (
            f". To leave out what is in the table, {begins_after}, and leave that set: without it, "
            "everything before would be loaded again"
        )
    return _diverged(
        UnknownRowsError,
        f"The table {location} holds rows, and there is no record in {checkpoint} of where they came from: "
        "what is in the table would be loaded again.",
        do=f"if the checkpoint was moved or lost, bring it back. {advice}. If nothing from the source is in "
        f'the table, set first_run="add"; or run `airflow scope accept-table`: it shows what '
        "accepting the table means, and with --yes the next run adds all of the source",
    )


def _accept(command: str = "accept-table") -> str:
    return (
        f"look at the table, then run `airflow scope {command}`: it shows what accepting the table as it is "
        "would mean, and accepts it with --yes"
    )


def _diverged(
    kind: type[TableDivergedError],
    message: str,
    do: str = "",
    kept: str = "the table, the log and all files; nothing was written",
) -> TableDivergedError:
    return kind(message, kept=kept, do=do or _accept())


def _or_none(value: int | None) -> str:
    return "none" if value is None else str(value)


def first_open(newest: OffsetEntry | None) -> int:
    """Return the first entry that may have to run.

    An entry below the newest whole-table overwrite is dead: whatever it would add is to be replaced.
    """
    return (newest.overwrite_start or 0) if newest else 0


def open_entries(uncommitted: Sequence[OffsetEntry], newest: OffsetEntry | None) -> tuple[OffsetEntry, ...]:
    """Return the entries that still have to run, in order."""
    return tuple(entry for entry in uncommitted if entry.seq >= first_open(newest))


def predecessor(entry: OffsetEntry, first: int = 0) -> int | None:
    """Return the transaction that must be the table's newest before ``entry`` runs; None for any smaller.

    Only a batch that replaces the whole table may jump: Delta skips an older transaction silently, so
    a batch that overtakes its predecessor would drop the predecessor's rows for good.

    :param first: The first batch that can be in the table; it has no predecessor: -1.
    """
    if entry.overwrites_table:
        return None
    return -1 if entry.seq == first else entry.seq - 1


def may_run(entry: OffsetEntry, txn: int | None, first: int = 0) -> bool:
    """Return whether ``entry`` may be committed to a table whose newest transaction is ``txn``.

    :param first: The first batch that can be in the table.
    """
    newest = -1 if txn is None else txn
    needed = predecessor(entry, first)
    if entry.seq < first:
        return False
    return newest < entry.seq if needed is None else newest == needed


def out_of_order(txn: int | None, entry: OffsetEntry, first: int = 0) -> type[TableDivergedError]:
    """Return the error for a batch that may not run on a table whose newest transaction is ``txn``.

    :param first: The first batch that can be in the table: only one that was abandoned is before it.
    """
    return AbandonedBatchError if entry.seq == first and txn is not None else TableBehindLogError


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What became of the open batches, after a probe."""

    committed: tuple[tuple[OffsetEntry, CommittedBatch], ...]
    """In the table; a commit record is due."""
    waiting: tuple[OffsetEntry, ...]
    """Not in the table."""
    unclear: tuple[OffsetEntry, ...]
    """The transaction says done, the table's log does not show the commit: superseded, or cleaned up."""


def outcomes(
    entries: Sequence[OffsetEntry], table_state: TableState, rolled_back_batches: Collection[int] = ()
) -> Outcomes:
    """Sort open entries by what the table shows.

    :param rolled_back_batches: Batches whose rows a RESTORE took out, as an acceptance recorded them.
    """
    committed: list[tuple[OffsetEntry, CommittedBatch]] = []
    waiting: list[OffsetEntry] = []
    unclear: list[OffsetEntry] = []
    for entry in entries:
        if entry.seq > table_state.newest_batch:
            waiting.append(entry)
        elif entry.seq in rolled_back_batches:
            # The record keeps the acceptance's version: newer ones may hold batches still to be recorded.
            committed.append((entry, CommittedBatch(-1, 0, 0, abandoned=True)))
        elif entry.seq in table_state.committed:
            committed.append((entry, table_state.committed[entry.seq]))
        else:
            unclear.append(entry)
    return Outcomes(tuple(committed), tuple(waiting), tuple(unclear))


def is_given_up(seq: int, table_state: TableState, rolled_back_batches: Collection[int] = ()) -> bool:
    """Return whether a batch is in the table without its rows, so that its files count as not loaded."""
    if seq > table_state.newest_batch:
        return False
    return seq in rolled_back_batches or (
        seq in table_state.committed and table_state.committed[seq].abandoned
    )


def rolled_back(committed: CommittedBatch, restores: Sequence[Restored]) -> bool | None:
    """Return whether a later RESTORE took a batch's rows out of the table; None if that is unknown."""
    answers = {is_undone(version, restores) for version in committed.candidates or (committed.version,)}
    return answers.pop() if len(answers) == 1 else None


def is_undone(version: int, restores: Sequence[Restored]) -> bool | None:
    """Return whether a later RESTORE took the rows of a commit out of the table; None if that is unknown.

    A RESTORE at version R to version T brings back exactly the rows of T. Going back from the newest
    RESTORE, one finds the version whose rows the table has. The commit's are in them if it was made
    at or before that version.
    """
    visible = None
    for restore in sorted(restores, key=lambda r: r.version, reverse=True):
        if visible is not None and restore.version > visible:
            continue  # undone by the newer RESTORE that we come from
        if version >= restore.version:  # a decision about a job may name the RESTORE's own version
            return False
        if restore.to_version is None:
            return None
        visible = restore.to_version
        if version > visible:
            return True
    return False


# ---- the state of the source whose rows the table has, whatever RESTOREs came in between ----

Problem = Literal["", "unreadable", "mixed"]
"""Why rows are of no known state: a commit cannot be read, or a batch was added to another state's rows."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """The state after the rows of a table."""

    state: str | None
    """None is the initial one; without meaning if there is a problem."""
    problem: Problem = ""
    at: int = -1
    """The batch that was added to the rows of another state, or the version that cannot be read."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The commits that made the rows of a table, back to one whose state is known."""

    bottom: SourceState
    """The state under them."""
    batches: tuple[tuple[int, CommittedBatch], ...]
    """Number and commit of the batches, in order; also of those that were abandoned."""

    def has_rows_of(self, seq: int) -> bool:
        """Return whether the rows of a batch without a record are in the table."""
        return any(number == seq and not batch.abandoned for number, batch in self.batches)


def recorded_states(records: Iterable[CommitRecord], table_state: TableState) -> dict[int, str | None]:
    """Return the versions of this table whose state a record tells."""
    return {
        record.table_version: record.state
        for record in records
        if not record.abandoned and record.table and record.table.table_id == table_state.table_id
    }


def chain_of(table_state: TableState, recorded: Mapping[int, str | None]) -> Chain:
    """Go back from the newest version, through RESTOREs to what they brought back.

    A record says which state its version has: it was put when the table was the one that the log describes.

    :param table_state: The table, with its whole log.
    :param recorded: Version -> state of the batches that have a record.
    """
    restored = {restore.version: restore.to_version for restore in table_state.restores}
    committed = {batch.version: (seq, batch) for seq, batch in table_state.committed.items()}
    batches: list[tuple[int, CommittedBatch]] = []
    version, bottom = table_state.version, SourceState(None)
    while version >= 0:
        if version in recorded:
            bottom = SourceState(recorded[version])
            break
        target = restored.get(version, version - 1)
        if version < table_state.oldest or target is None or target >= version:
            bottom = SourceState(None, "unreadable", version)
            break
        if version in committed:
            batches.append(committed[version])
        version = target
    return Chain(bottom, tuple(reversed(batches)))


def state_after(chain: Chain, entries: Mapping[int, OffsetEntry]) -> SourceState:
    """Return the state after the newest commit of a chain.

    Each batch must have been added to the rows of the state that it begins at.

    :param entries: The entries of its batches; one that is purged is missing.
    """
    source_state = chain.bottom
    for seq, batch in chain.batches:
        entry = entries.get(seq)
        if entry is None:
            source_state = SourceState(None, "unreadable", batch.version)
        elif entry.mode == "overwrite":
            source_state = SourceState(entry.slice.before if batch.abandoned else batch.state)
        elif batch.abandoned or source_state.problem:
            continue
        elif entry.slice.before != source_state.state:
            source_state = SourceState(None, "mixed", seq)
        else:
            source_state = SourceState(batch.state)
    return source_state
