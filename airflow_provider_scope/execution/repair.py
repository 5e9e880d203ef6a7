"""What the commands do that repair a pipeline. Each looks first, and writes only when it is told to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from airflow_provider_scope.core import recovery, takeover
from airflow_provider_scope.core.records import Acceptance, Settlement
from airflow_provider_scope.core.recovery import CommittedBatch
from airflow_provider_scope.exceptions import BatchOutcomeUnknownError, InputError, TableUnreadableError
from airflow_provider_scope.execution import dbt_scope, restores, source_states
from airflow_provider_scope.execution.consequences import Consequences
from airflow_provider_scope.execution.engine import Work
from airflow_provider_scope.execution.view import LogView, check_table, read_log, record_commit
from airflow_provider_scope.table.probe import newest_version

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_scope.checkpoint.audit import AuditFiles
    from airflow_provider_scope.checkpoint.log import CheckpointLog
    from airflow_provider_scope.core.records import Attempt, CommitRecord, OffsetEntry, Pipeline
    from airflow_provider_scope.execution.engine import Engine
    from airflow_provider_scope.storage.protocol import Storage


def existing_pipeline(log: CheckpointLog) -> Pipeline:
    """Read the pipeline of a checkpoint.

    :raises InputError: There is none.
    """
    pipeline = log.pipeline()
    if pipeline is None:
        raise InputError(
            f"There is no pipeline in {log.location}: no batch has been logged there.",
            kept="everything; nothing was written",
            do="check the location; if the checkpoint is outside the table, add --checkpoint",
        )
    return pipeline


def open_entries(log: CheckpointLog) -> tuple[OffsetEntry, ...]:
    """Read the batches that have no commit record and that no refresh superseded."""
    done = set(log.committed())
    logged = log.logged()
    newest = log.offset(logged[-1]) if logged else None
    return recovery.open_entries([log.offset(seq) for seq in logged if seq not in done], newest)


def rebuild(log: CheckpointLog, audit: AuditFiles) -> OffsetEntry | None:
    """Write ``watermark.json`` and ``sources/`` again from the log.

    :return: The newest committed entry, or None if there is none since the last refresh.
    """
    takeovers = log.takeovers(existing_pipeline(log))
    logged = log.logged()
    refresh_start = log.offset(logged[-1]).refresh_start if logged else None
    start = takeover.epoch_start(refresh_start, takeover.counting(takeovers, refresh_start))
    committed = [seq for seq in log.committed() if seq >= start]
    if not committed:
        return None
    last = log.offset(committed[-1])
    audit.bring_up_to_date(last, takeovers, everything=True)
    return last


def abandon(  # the steps of one command, in order
    log: CheckpointLog,
    audit: AuditFiles,
    engine: Engine,
    table: str,
    seq: int,
    *,
    now_ms: Callable[[], int],
) -> CommitRecord:
    """Give an open batch up: commit an empty transaction in its place, and record it as abandoned.

    Its files count as not seen, so the next run takes those that are there then.

    :return: The record: ``abandoned`` is False if the batch turned out to be in the table after all.
    :raises InputError: The batch is not open, or an older one is, or it is the first of a full refresh.
    """
    pipeline = existing_pipeline(log)
    view = read_log(log, audit, engine, table, history=False)
    check_table(view, table)
    dbt_scope.check(log, view)
    entry = open_entry(view, seq, log.location)
    found = settled(view, entry)
    if found is None and (view.table.identity or engine.fences_without_table):
        engine.fence(Work(pipeline.pipeline, table, log.location), entry)
        view.table = engine.probe(table, pipeline.pipeline, view.baseline)
        found = settled(view, entry)
    elif found is None:
        found = CommittedBatch(-1, 0, 0, abandoned=True)  # the record alone says so: there is nowhere else to
    recorded = log.find_commit(seq) if found is None else None
    if recorded:
        return recorded  # another run recorded it in the meantime
    if found is None:
        raise BatchOutcomeUnknownError(
            f"The empty transaction for batch {seq} does not appear in the log of {table}.",
            kept="the table, the log and all files",
            do="run the command again",
        )
    record = record_commit(log, view, table, entry, found, committed_at_ms=now_ms())
    if record.table is None:
        view.table = engine.probe(table, pipeline.pipeline, view.baseline)
        check_table(view, table)
    audit.bring_up_to_date(entry, view.takeovers)
    return record


def open_entry(view: LogView, seq: int, checkpoint: str) -> OffsetEntry:
    """Give the batch that may be abandoned: the oldest open one.

    :raises InputError: ``seq`` is another one.
    """
    numbers = [entry.seq for entry in view.open]
    if not numbers or seq != numbers[0]:
        raise InputError(
            f"Batch {seq} of {checkpoint} cannot be abandoned: "
            + (f"the oldest open batch is {numbers[0]}." if numbers else "no batch is open."),
            kept="everything; nothing was written",
            do="batches are settled in order: look at `airflow scope status`, and name the oldest open one",
        )
    if view.open[0].overwrites_table:
        # The earlier files count as not loaded since this entry, and their rows would stay.
        raise InputError(
            f"Batch {seq} of {checkpoint} cannot be abandoned: it is the one that replaces the table's rows.",
            kept="everything; nothing was written",
            do="run the task with full_refresh=True: a new refresh, with what the source holds then, takes "
            "its place",
        )
    return view.open[0]


def settled(view: LogView, entry: OffsetEntry) -> CommittedBatch | None:
    """Give the commit of an open batch that is in the table after all."""
    result = view.outcomes([entry])
    return result.committed[0][1] if result.committed else None


def look_at_table(
    log: CheckpointLog, engine: Engine, table: str, *, reload_undecidable: bool = False
) -> Consequences:
    """Say what accepting the table as it is would mean; nothing is written.

    :param reload_undecidable: Load open batches again of which the table's log no longer tells whether
        their rows are in it.
    :raises BatchOutcomeUnknownError: There are such batches, and nobody decided.
    """
    pipeline = existing_pipeline(log)
    if (entry := source_states.newest_entry(log)) and entry.slice.has_state:
        return source_states.look(log, engine, table, reload_undecidable=reload_undecidable)
    committed = log.committed()
    # Without a baseline the probe reads the table's whole log, and refuses nothing.
    found = engine.probe(table, pipeline.pipeline, (None, -1))
    if found.identity is None:
        raise TableUnreadableError(
            f"There is no table at {table} to accept.",
            kept="the log; nothing was written",
            do="bring the table back; or start over by deleting the checkpoint folder",
        )
    if found.running is not None:
        raise BatchOutcomeUnknownError(
            f"A job of batch {found.running} is still running: it is not known what becomes of its rows in "
            f"{table}.",
            kept="the table, the log and all files; nothing was written",
            do="wait until the job has ended, or end it with `airflow scope cancel-jobs`; then run the "
            "command again",
        )
    logged = log.logged()
    vacuumed = log.vacuumed_below()
    newest = log.offset(logged[-1]) if logged else None
    recovery.check_transaction(found, -1, newest.seq if newest else -1, table)
    still_open = open_entries(log)
    result = recovery.outcomes(still_open, found)
    in_table = {**{entry.seq: batch for entry, batch in result.committed}, **found.beyond}
    gone = [seq for seq, batch in in_table.items() if recovery.rolled_back(batch, found.restores)]
    unknown = [seq for seq, batch in in_table.items() if recovery.rolled_back(batch, found.restores) is None]
    unknown += [entry.seq for entry in result.unclear]
    last_commit = log.commit(committed[-1]) if committed else None
    expected, _ = recovery.baseline(pipeline, last_commit, log.newest_acceptance())
    in_doubt = {e.seq for e in still_open if restores.is_about_another_table(log, e.seq, expected, found)}
    gone = [seq for seq in gone if seq not in in_doubt]
    mixed = {
        e.seq: restore
        for e, batch in result.committed
        if e.seq not in gone and (restore := restores.restore_under_refresh(log, e, batch, found))
    }
    if mixed and not reload_undecidable:
        raise restores.old_rows_beside_new_ones(table, *next(iter(mixed.items())))
    unknown = [*{*unknown, *in_doubt, *mixed}]
    if unknown and not reload_undecidable:
        raise BatchOutcomeUnknownError(
            f"The log of {table} does not show whether the rows of the open batches "
            f"{', '.join(map(str, sorted(unknown)))} are in the table.",
            kept="the table, the log and all files; nothing was written",
            do=restores.REFRESH_NEXT
            if any(entry.overwrites_table for entry in still_open if entry.seq in unknown)
            else "look at the table. If their rows are not there, add --reload-undecidable: their files are "
            "loaded again. If they are, delete them first, then do the same",
        )
    start = newest.refresh_start or 0 if newest else 0
    records = [log.commit(seq) for seq in committed if seq >= start]
    is_below = vacuumed > start and bool(records) and restores.is_gone(records[0], found)
    if is_below and not reload_undecidable and restores.is_rolled_back(records[0], found):
        raise restores.rolled_back_below(table, records[0], vacuumed)
    if newest and newest.refresh_start is not None and not reload_undecidable:
        doubled = restores.doubled_by_going_on(log, logged, records, found, gone=gone, start=start)
        if doubled:
            raise restores.refresh_undone(table, start, doubled)
        doubled = restores.doubled_from_before(log, records, found, start)
        if doubled:
            raise restores.batches_of_before(table, start, doubled)
    return Consequences(
        table=found,
        newest_commit=committed[-1] if committed else -1,
        rolled_back=tuple(r for r in records if not r.abandoned and restores.is_gone(r, found)),
        gone=tuple(sorted([*gone, *unknown])),
        seen_version=min([found.version, *(v.version - 1 for seq, v in in_table.items() if seq not in gone)]),
        back=tuple(seq for seq in found.committed if seq < recovery.first_in_table(last_commit, None)),
        vacuumed=vacuumed if is_below else 0,
        needs_transaction=bool(committed) and (found.txn is None or found.txn < committed[-1]),
    )


def accept_table(
    log: CheckpointLog, engine: Engine, table: str, *, reload_undecidable: bool = False
) -> Acceptance:
    """Accept the table as it is.

    Batches of a source with a state are abandoned first; see ``source_states``. For the others:
    first the transaction, then the record: a run in between still refuses the table.
    """
    pipeline = existing_pipeline(log)
    if (entry := source_states.newest_entry(log)) and entry.slice.has_state:
        return source_states.accept(log, engine, table, reload_undecidable=reload_undecidable)
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


class JobEngine(Protocol):
    """What ``settle`` needs of an engine that runs batches as jobs."""

    def undecidable(self, work: Work, seq: int) -> Attempt | None:
        """Give the attempt of a batch of which nothing tells whether its rows are in the table."""

    def end(self, work: Work, attempt: Attempt) -> None:
        """See that the job of an attempt can change the table no more."""


def in_doubt(log: CheckpointLog, engine: JobEngine, table: str, seq: int) -> Attempt:
    """Give the attempt that somebody has to decide about.

    :raises InputError: The batch is not open, or what became of its job is known.
    """
    pipeline = existing_pipeline(log)
    numbers = [entry.seq for entry in open_entries(log)]
    if seq not in numbers:
        raise InputError(
            f"Batch {seq} of {log.location} is not open.",
            kept="everything; nothing was written",
            do="look at `airflow scope status`: only an open batch can be settled",
        )
    attempt = engine.undecidable(Work(pipeline.pipeline, table, log.location), seq)
    if attempt is None:
        raise InputError(
            f"There is nothing to decide about batch {seq} of {log.location}: the outcome of its newest "
            "job is known, or the job is still running.",
            kept="everything; nothing was written",
            do="run the task. To load the files of the batch again, see `airflow scope abandon`",
        )
    return attempt


def settle(
    log: CheckpointLog,
    engine: JobEngine,
    table: str,
    seq: int,
    *,
    committed: bool,
    storage: Storage | None = None,
) -> Settlement:
    """Record what somebody decided about the newest job of an open batch.

    :param storage: Where the table is; None is a disk of this machine.
    :return: The decision that holds: another one if somebody else was faster.
    :raises InputError: There is nothing to decide, or the decision would lose rows.
    """
    attempt = in_doubt(log, engine, table, seq)
    if not committed and log.offset(seq).overwrites_table:
        _check_nothing_came_after(log, table, seq)
    # The service may have forgotten the job, or a submission of it may still be on its way.
    engine.end(Work(existing_pipeline(log).pipeline, table, log.location), attempt)
    return log.put_settlement(
        Settlement(
            seq=seq, number=attempt.number, landed=committed, table_version=newest_version(table, storage)
        )
    )


def _check_nothing_came_after(log: CheckpointLog, table: str, refresh: int) -> None:
    """Refuse to do a refresh's first batch again when later ones had jobs: it would delete their rows."""
    for seq in log.logged():
        if seq > refresh and any(not attempt.void for attempt in log.attempts(seq)):
            raise InputError(
                f"Batch {refresh} of {table} replaces all rows, and batch {seq} was loaded after it: "
                f"running batch {refresh} again would delete the rows of batch {seq}.",
                kept="everything; nothing was written",
                do="settle it with --committed, and run the task with full_refresh=True next: it replaces "
                "all rows. If that run is refused, run `airflow scope accept-table` with "
                "--reload-undecidable first",
            )
