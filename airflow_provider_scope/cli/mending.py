"""The commands that mend: they look, say, and with ``--yes`` write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.cli import intervals, scope_jobs
from airflow_provider_scope.cli.entries import show, span, undecided
from airflow_provider_scope.cli.output import ADD_YES, command, counted, say
from airflow_provider_scope.cli.targets import engine_of, opened
from airflow_provider_scope.engines import clock
from airflow_provider_scope.exceptions import InputError, TableError
from airflow_provider_scope.execution import repair
from airflow_provider_scope.execution.view import read_log

if TYPE_CHECKING:
    from argparse import Namespace

    from airflow_provider_scope.checkpoint.audit import AuditFiles
    from airflow_provider_scope.checkpoint.log import CheckpointLog
    from airflow_provider_scope.engines.scope import ScopeRunner
    from airflow_provider_scope.engines.spark import SparkRunner
    from airflow_provider_scope.execution.repair import Consequences


@command
def rebuild(args: Namespace) -> None:
    """Write the derived files again."""
    _, log, audit = opened(args)
    repair.existing_pipeline(log)
    if not args.yes:
        say(f"watermark.json and sources/ in {log.location} would be written again from the log")
        say(ADD_YES)
        return
    last = repair.rebuild(log, audit)
    if last is None:
        say("nothing is committed yet, so there is nothing to write")
    else:
        say(f"watermark.json and sources/ in {log.location} are written again, up to batch {last.seq}")


@command
def abandon(args: Namespace) -> None:
    """Give an open batch up."""
    table, log, audit = opened(args)
    intervals.check_named(args, log)
    repair.existing_pipeline(log)
    engine = engine_of(args, log)
    view = read_log(log, audit, engine, table, history=False)
    repair.check(view, table)
    entry = repair.open_entry(view, args.seq, log.location)
    if view.table.stamp is None:
        raise InputError(
            f"The table {table} does not exist: no batch has been loaded, and none can be given up.",
            kept="everything; nothing was written",
            do=f"when no run{' and no job' if log.has_attempts() else ''} is going on, delete "
            f"{log.location}; the next run begins anew, with the files that are there",
        )
    if not args.yes:
        show([entry], "batch ", view)
        if repair.settled(view, entry):
            say("it would be recorded, not given up")
        else:
            say(f"it would be given up for good: {_how_it_is_closed(engine)}")
            if entry.mode == "overwrite":
                say(f"the rows that it replaces ({entry.where}) are removed")
            say("its files count as new again; the next run loads those that are there then")
        say(ADD_YES)
        return
    record = repair.abandon(log, audit, engine, table, args.seq, now_ms=clock.now_ms)
    if record.abandoned:
        say(f"batch {args.seq} is given up; the next run loads those of its files that are there")
    else:
        say(f"batch {args.seq} was in the table already, as version {record.table_version}; now recorded")


def _how_it_is_closed(engine: SparkRunner | ScopeRunner) -> str:
    if scope_jobs.is_scope(engine):
        return "a job of its own is cancelled, and none is submitted any more"
    return "an empty transaction takes its place in the table"


@command
def accept_table(args: Namespace) -> None:
    """Accept a table that diverged, for one pipeline or for all intervals."""
    for one in intervals.each(args, opened(args)[1]):
        _accept(one)


def _accept(args: Namespace) -> None:
    table, log, audit = opened(args)
    intervals.check_named(args, log)
    repair.existing_pipeline(log)
    engine = engine_of(args, log)
    why = _divergence(log, audit, engine, table)
    if why is None:
        say(f"{table} and its log fit together: there is nothing to accept")
        return
    seen = repair.look_at_table(log, engine, table, reload_undecidable=args.reload_undecidable)
    say(why)
    say(f"The table is at version {seen.table.version}. To accept it as it is means:")
    for line in _consequences(seen):
        say(f"- {line}")
    if not args.yes:
        say(ADD_YES)
        return
    record = repair.accept_table(log, engine, table, reload_undecidable=args.reload_undecidable)
    say(f"accepted, as {log.location}/accepted/{record.number:020}; the next run goes on from here")


def _divergence(
    log: CheckpointLog, audit: AuditFiles, engine: SparkRunner | ScopeRunner, table: str
) -> str | None:
    """Say what is wrong with the table; None if a run would go on with it."""
    try:
        view = read_log(log, audit, engine, table, history=False)
        repair.check(view, table)
    except TableError as err:
        return err.what
    unclear = undecided(view)
    return f"The log of {table} does not show what became of batch {unclear[0].seq}." if unclear else None


def _consequences(seen: Consequences) -> list[str]:
    lines = []
    if seen.rows_gone:
        batches = span([record.seq for record in seen.rows_gone])
        files = sum(record.files for record in seen.rows_gone)
        lines += [
            f"the rows of {batches} ({counted(files, 'file')}) are gone for good: the files count as loaded",
            "to have them again, run the task once with full_refresh=True: it loads all files again",
        ]
    restores = seen.table.restores
    if restores and max(restores, key=lambda restore: restore.version).to_version is None:
        lines.append("the RESTORE was to a time: which committed batches lost their rows cannot be told")
    for seq in seen.gone:
        lines.append(f"the files of the open batch {seq} count as new: the next run loads them")
    if seen.needs_transaction:
        lines.append(f"an empty transaction tells the table that batch {seen.newest_commit} is its newest")
    return lines or ["no batch lost its rows, and no file is loaded again"]
