"""What the commands of ``airflow scope`` do: look, say, and with ``--yes`` write."""

from __future__ import annotations

import functools
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.core.audit import iso_time
from airflow_provider_scope.engines import assembly
from airflow_provider_scope.exceptions import InputError, ScopeProviderError
from airflow_provider_scope.execution import repair
from airflow_provider_scope.execution.view import read_log
from airflow_provider_scope.specs import Checkpoint
from airflow_provider_scope.specs.ingest import ARGUMENTS, SELECT_ALL, ingest_from
from airflow_provider_scope.storage.opening import canonical_uri

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from airflow_provider_scope.checkpoint.audit import AuditFiles
    from airflow_provider_scope.checkpoint.log import CheckpointLog
    from airflow_provider_scope.core.records import OffsetEntry
    from airflow_provider_scope.engines.spark import SparkRunner

SHOWN_AT_MOST = 10


def _say(text: str = "") -> None:
    sys.stdout.write(text + "\n")


def _command(function: Callable[[Namespace], None]) -> Callable[[Namespace], None]:
    """End with the error's own words and exit code 1 instead of a stack trace."""

    @functools.wraps(function)
    def run(args: Namespace) -> None:
        try:
            function(args)
        except ScopeProviderError as err:
            if args.verbose:
                raise
            sys.stderr.write(f"{type(err).__name__}: {err}\n")
            raise SystemExit(1) from None

    return run


def _open(args: Namespace) -> tuple[str, CheckpointLog, AuditFiles, SparkRunner]:
    """Give the table, the log, the audit files and an engine for a command that names a table."""
    checkpoint = Checkpoint(location=args.checkpoint)
    raw: dict[str, Any] = dict.fromkeys(ARGUMENTS)
    raw.update(
        delta_location=args.delta_location,
        sql=SELECT_ALL,
        write="append",
        source={"roots": ["/"], "format": "parquet"},
        engine={"spark_conn_id": getattr(args, "spark_conn_id", None)},
        full_refresh=False,
    )
    ingest = ingest_from(raw)
    if ingest is None:
        msg = "the arguments of a command hold no templates"
        raise AssertionError(msg)
    log = assembly.open_log(args.delta_location, checkpoint)
    log_file = Path(tempfile.gettempdir(), "airflow-provider-scope", "spark.log")
    runner = assembly.spark_runner(ingest, log, log_file)
    runner.report = _say
    return canonical_uri(args.delta_location), log, assembly.audit_files(log, checkpoint), runner


@_command
def status(args: Namespace) -> None:
    """Show where a pipeline is; nothing is written, no JVM is started."""
    table, log, audit, engine = _open(args)
    pipeline = repair.existing_pipeline(log)
    view = read_log(log, audit, engine, table, history=False)
    committed = log.committed()
    _say(f"table       {table}")
    found = view.table
    if found.stamp:
        _say(f"            version {found.version}, id {found.stamp.table_id}, batch {_or_none(found.txn)}")
    else:
        _say("            does not exist")
    _say(f"checkpoint  {log.location}")
    _say(f"pipeline    {pipeline.pipeline}")
    newest = _or_none(view.newest.seq if view.newest else None)
    done = _or_none(committed[-1] if committed else None)
    _say(f"log         newest entry {newest}, newest commit {done}")
    if view.refresh_start is not None:
        _say(f"refresh     files count since batch {view.refresh_start}")
    last = view.last_committed_entry
    if last and last.highest:
        lag = (assembly.now_ms() - last.highest.modified_ms) / 1000
        _say(f"watermark   {iso_time(last.highest.modified_ms)} ({lag:,.0f} s ago)")
    _say(f"open        {len(view.open)} batches")
    for entry in view.open[:SHOWN_AT_MOST]:
        _say(f"            {_entry_line(entry)}")
    if len(view.open) > SHOWN_AT_MOST:
        _say(f"            and {len(view.open) - SHOWN_AT_MOST} more")
    repair.check(view, table)
    _say("the table and the log fit together")


@_command
def plan(args: Namespace) -> None:
    """Show what a run of a task would do now; nothing is written, no JVM is started."""
    from airflow.utils.cli import get_bagged_dag  # noqa: PLC0415 - loads all of Airflow's Dag machinery

    from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator  # noqa: PLC0415

    dag = get_bagged_dag(args.bundle_name, args.dag_id)
    task = dag.get_task(args.task_id)
    if not isinstance(task, DeltaIncrementalIngestOperator):
        raise InputError(
            f"The task {args.dag_id}.{args.task_id} is a {type(task).__name__}.",
            kept="everything; nothing was read or written",
            do="name a task of a DeltaIncrementalIngestOperator",
        )
    task.render_template_fields({"params": dag.params.dump(), "dag": dag, "task": task})
    ingest = ingest_from({name: getattr(task, name) for name in ARGUMENTS})
    if ingest is None:
        raise InputError(
            "An argument of the task comes from another task (XComArg), so it is known only in a run.",
            kept="everything; nothing was read or written",
            do="look at the run's log instead",
        )
    execution, request, _ = assembly.assemble(ingest, Path(tempfile.gettempdir(), "unused"), _say)
    report, already_open, planned = execution.plan(request)
    for title, entries in (("open, to be run first", already_open), ("new", planned)):
        files = sum(len(entry.files) for entry in entries)
        _say(f"{title}: {len(entries)} batches, {files:,} files")
        for entry in entries[:SHOWN_AT_MOST]:
            _say(f"  {_entry_line(entry)}")
        if len(entries) > SHOWN_AT_MOST:
            _say(f"  and {len(entries) - SHOWN_AT_MOST} more")
    if not planned and not already_open:
        _say(report.why_nothing())
    for reason, count in report.left_out.counts.items():
        _say(f"not loaded: {count:,} {reason}")
        for path in report.left_out.names.get(reason, [])[:SHOWN_AT_MOST]:
            _say(f"  {path}")
    if report.pending_files:
        _say(f"left for the run after it (max_batches_per_run): {report.pending_files:,} files")


@_command
def rebuild(args: Namespace) -> None:
    """Write the derived files again."""
    _, log, audit, _ = _open(args)
    repair.existing_pipeline(log)
    if not args.yes:
        _say(f"would write watermark.json and sources/ in {log.location} again from the log; add --yes")
        return
    last = repair.rebuild(log, audit)
    _say("nothing is committed yet" if last is None else f"rebuilt up to batch {last.seq}")


@_command
def abandon(args: Namespace) -> None:
    """Give an open batch up."""
    table, log, audit, engine = _open(args)
    if not args.yes:
        entry = log.offset(args.seq) if args.seq in log.logged() else None
        if entry is None:
            raise InputError(
                f"There is no batch {args.seq} in {log.location}.", do="see `airflow scope status`"
            )
        _say(f"would give up batch {_entry_line(entry)}")
        _say("an empty transaction takes its place in the table; its files count as new; add --yes")
        return
    record = repair.abandon(log, audit, engine, table, args.seq, now_ms=assembly.now_ms)
    if record.abandoned:
        _say(f"batch {args.seq} is abandoned; the next run takes those of its files that are there")
    else:
        _say(f"batch {args.seq} turned out to be in the table (version {record.table_version}); recorded")


@_command
def accept_table(args: Namespace) -> None:
    """Accept a table that diverged."""
    table, log, _, engine = _open(args)
    seen = repair.look_at_table(log, engine, table, reload_undecidable=args.reload_undecidable)
    stamp = seen.table.stamp
    restored = stamp and stamp.restore_version is not None
    restore = f", newest RESTORE at version {stamp.restore_version}" if stamp and restored else ""
    _say(f"{table}: version {seen.table.version}{restore}, newest batch {_or_none(seen.table.txn)}")
    if seen.rows_gone:
        files = sum(record.files for record in seen.rows_gone)
        first, last = seen.rows_gone[0].seq, seen.rows_gone[-1].seq
        _say(f"{len(seen.rows_gone)} committed batches ({first} to {last}, {files:,} files) lost their rows.")
        _say("they count as loaded and do not come again; full_refresh=True loads everything again")
    for seq in seen.gone:
        _say(f"open batch {seq} had been in the table and is gone: its files are loaded again")
    if seen.needs_transaction:
        _say(f"an empty transaction tells the table that batch {seen.newest_commit} is its newest")
    if not args.yes:
        _say("nothing was written; add --yes to accept the table as it is")
        return
    record = repair.accept_table(log, engine, table, reload_undecidable=args.reload_undecidable)
    _say(f"accepted, as {log.location}/accepted/{record.number:020}; the next run goes on")


def _entry_line(entry: OffsetEntry) -> str:
    mode = entry.mode if entry.where is None else f"{entry.mode} where {entry.where}"
    first = entry.files[0].path if entry.files else "no files"
    more = f" … {entry.files[-1].path}" if len(entry.files) > 1 else ""
    return f"{entry.seq}: {mode}, {len(entry.files):,} files, {entry.size_bytes:,} bytes: {first}{more}"


def _or_none(value: int | None) -> str:
    return "none" if value is None else str(value)
