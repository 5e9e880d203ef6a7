"""What the commands of ``airflow scope`` do: look, say, and with ``--yes`` write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import conf

from airflow_provider_scope.cli import scope_jobs
from airflow_provider_scope.cli.output import ADD_YES, SHOWN_AT_MOST, command, counted, say
from airflow_provider_scope.core import audit as audits
from airflow_provider_scope.core import recovery
from airflow_provider_scope.core.files import printable
from airflow_provider_scope.engines import assembly
from airflow_provider_scope.exceptions import BatchOutcomeUnknownError, InputError, TableError
from airflow_provider_scope.execution import dbt_scope, repair
from airflow_provider_scope.execution.view import read_log
from airflow_provider_scope.specs import Checkpoint
from airflow_provider_scope.specs.ingest import ARGUMENTS, SELECT_ALL, ingest_from
from airflow_provider_scope.storage.opening import canonical_uri

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence

    from airflow_provider_scope.checkpoint.audit import AuditFiles
    from airflow_provider_scope.checkpoint.log import CheckpointLog
    from airflow_provider_scope.core.records import OffsetEntry
    from airflow_provider_scope.core.takeover import Takeover
    from airflow_provider_scope.engines.assembly import RunContext
    from airflow_provider_scope.engines.scope import ScopeRunner
    from airflow_provider_scope.engines.spark import SparkRunner
    from airflow_provider_scope.execution.repair import Consequences
    from airflow_provider_scope.execution.view import LogView
    from airflow_provider_scope.specs.ingest import Ingest


def _open(args: Namespace) -> tuple[str, CheckpointLog, AuditFiles]:
    """Give the table, the log and the audit files for a command that names a table."""
    checkpoint = Checkpoint(location=args.checkpoint)
    log = assembly.open_log(args.delta_location, checkpoint)
    return canonical_uri(args.delta_location), log, assembly.audit_files(log, checkpoint)


def _engine(args: Namespace, log: CheckpointLog) -> SparkRunner | ScopeRunner:
    """Give the engine that is named; without a name, SCOPE if a batch of the pipeline ever was a job."""
    if args.engine == "scope" or (args.engine is None and log.has_attempts()):
        return scope_jobs.runner(args.scope_conn_id, log)
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
    runner = assembly.spark_runner(ingest, log, _log_file())
    runner.report = say
    return runner


def _log_file() -> Path:
    """Give the file for Spark's output, beside Airflow's own logs."""
    return Path(conf.get("logging", "base_log_folder"), "airflow_provider_scope", "commands", "spark.log")


@command
def status(args: Namespace) -> None:
    """Show where a pipeline is; nothing is written, no JVM is started."""
    table, log, audit = _open(args)
    pipeline = repair.existing_pipeline(log)
    engine = _engine(args, log)
    jobs = scope_jobs.describer(engine, log, pipeline.pipeline)
    try:
        view = read_log(log, audit, engine, table, history=False)
    except BatchOutcomeUnknownError:
        say(f"table       {table}")
        say(f"checkpoint  {log.location}")
        say("open")
        _show(repair.open_entries(log), "            ", more=jobs)
        raise
    found, done, last = view.table, view.last_commit, view.last_committed_entry
    say(f"table       {table}")
    if found.stamp:
        say(f"            version {found.version}, id {found.stamp.table_id}")
    say(f"            newest batch {_or_none(found.txn)}" if found.stamp else "            does not exist")
    say(f"checkpoint  {log.location}")
    say(f"pipeline    {pipeline.pipeline}")
    taken = view.taken
    if taken:
        say(f"taken over  from dbt-scope after its batch {taken.batch_id}; {_when(taken.taken_at_ms)}")
        say(f"            {_taken(taken)}")
    say(f"logged      {_range(range(view.next_seq))}")
    if done is None:
        say("committed   nothing")
    else:
        what = (
            "given up" if done.abandoned else f"{counted(done.files, 'file')}, version {done.table_version}"
        )
        say(f"committed   batch {done.seq}: {what}; {_when(done.committed_at_ms)}")
    if view.refresh_start is not None:
        say(f"refresh     files count as new since batch {view.refresh_start}")
    mark = last.highest.modified_ms if last and last.highest else taken.floor_ms if taken else None
    say(f"watermark   {'none' if mark is None else _when(mark)}")
    if (
        last
        and last.refresh_start == view.refresh_start
        and audit.watermark_bytes() != audits.watermark(last, taken)
    ):
        say("            watermark.json is not up to date; the next run or `airflow scope rebuild` writes it")
    say(f"open        {counted(len(view.open), 'batch', 'batches') if view.open else 'nothing'}")
    _show(view.open, "            ", view, jobs)
    repair.check(view, table)
    dbt_scope.check(audit, view)
    if _undecided(view):
        say(f"what next   run `airflow scope accept-table {table}`: what became of a batch is not known")
    elif view.open:
        say("what next   the table and the log fit together; the next run begins with the open batches")
    else:
        say("what next   the table and the log fit together; the next run looks for new files")


def _taken(taken: Takeover) -> str:
    """Say which files count as loaded because dbt-scope loaded them."""
    until = f"all up to {taken.modified_time}" if taken.floor_ms is not None else "those that sources/ names"
    if not taken.missing:
        return f"loaded there: {until}; {counted(taken.files, 'file')} by name"
    gaps = counted(taken.missing, "batch", "batches")
    return f"loaded there: {until}; {counted(taken.files, 'file')} by name, nothing is known of {gaps}"


@command
def plan(args: Namespace) -> None:
    """Show what a run of a task would do now; nothing is written, no JVM is started."""
    execution, request, _ = assembly.assemble(*of_task(args))
    report, was_open, planned = execution.plan(request)
    still_open = recovery.open_entries(was_open, planned[-1] if planned else None)
    dead = [entry for entry in was_open if entry not in still_open]
    for title, entries in (
        ("superseded by the full refresh, never run", dead),
        ("open, run first", still_open),
        ("new", planned),
    ):
        if entries:
            files = sum(len(entry.files) for entry in entries)
            say(f"{title}: {counted(len(entries), 'batch', 'batches')}, {counted(files, 'file')}")
            _show(entries, "  ")
    if not planned and not was_open:
        say(report.why_nothing())
    for reason, count in sorted(report.left_out.counts.items()):
        say(f"not loaded: {counted(count, 'file')} {reason}")
        for path in report.left_out.names.get(reason, [])[:SHOWN_AT_MOST]:
            say(f"  {path}")
    if report.pending_files:
        say(f"left for the run after it (max_batches_per_run): {counted(report.pending_files, 'file')}")
    say("nothing was written")


def of_task(args: Namespace) -> tuple[Ingest, RunContext]:
    """Give the arguments of a task and what a run of it has to know.

    :raises InputError: The task is of another kind, or has values that only a run knows.
    """
    # Airflow's Dag machinery is slow to load, and the other commands do without it.
    from airflow.utils.cli import get_bagged_dag  # noqa: PLC0415

    from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator  # noqa: PLC0415

    dag = get_bagged_dag(args.bundle_name, args.dag_id)
    task = dag.get_task(args.task_id)
    if not isinstance(task, DeltaIncrementalIngestOperator):
        raise InputError(
            f"The task {args.dag_id}.{args.task_id} is a {type(task).__name__}.",
            kept="everything; nothing was read or written",
            do="name a task of a DeltaIncrementalIngestOperator that is not mapped",
        )
    context = assembly.RunContext(
        task=f"{args.dag_id}.{args.task_id}",
        table_name=task.task_id,
        log_file=_log_file(),
        report=say,
        storage_conn_id=task.storage_conn_id,
    )
    return _rendered(dag, task), context


def _rendered(dag: Any, task: Any) -> Ingest:
    """Give the task's arguments with their templates rendered, as far as that is possible without a run."""
    from airflow.sdk import XComArg  # noqa: PLC0415
    from jinja2 import TemplateError  # noqa: PLC0415

    ingest = None
    missing = "a result of another task (XComArg)"
    if not any(XComArg.iter_xcom_references([getattr(task, name) for name in ARGUMENTS])):
        try:
            task.render_template_fields({"params": dag.params.dump(), "dag": dag, "task": task})
            ingest = ingest_from({name: getattr(task, name) for name in ARGUMENTS})
        except TemplateError as err:
            missing = f"a value that only a run knows ({err})"
    if ingest is None:
        raise InputError(
            f"An argument of the task {dag.dag_id}.{task.task_id} needs {missing}.",
            kept="everything; nothing was read or written",
            do="a command knows `params` and `dag` alone; look at a run's log, or at `airflow scope status`",
        )
    return ingest


@command
def rebuild(args: Namespace) -> None:
    """Write the derived files again."""
    _, log, audit = _open(args)
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
    table, log, audit = _open(args)
    repair.existing_pipeline(log)
    engine = _engine(args, log)
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
        _show([entry], "batch ", view)
        if repair.settled(view, entry):
            say("it would be recorded, not given up")
        else:
            say(f"it would be given up for good: {_how_it_is_closed(engine)}")
            if entry.mode == "overwrite":
                say(f"the rows that it replaces ({entry.where}) are removed")
            say("its files count as new again; the next run loads those that are there then")
        say(ADD_YES)
        return
    record = repair.abandon(log, audit, engine, table, args.seq, now_ms=assembly.now_ms)
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
    """Accept a table that diverged."""
    table, log, audit = _open(args)
    repair.existing_pipeline(log)
    engine = _engine(args, log)
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
    undecided = _undecided(view)
    return f"The log of {table} does not show what became of batch {undecided[0].seq}." if undecided else None


def _consequences(seen: Consequences) -> list[str]:
    lines = []
    if seen.rows_gone:
        batches = _range([record.seq for record in seen.rows_gone])
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


def _undecided(view: LogView) -> tuple[OffsetEntry, ...]:
    """Give the open batches that the table calls done, without a commit that shows it."""
    gone = view.accepted.gone if view.accepted else ()
    return recovery.outcomes(view.open, view.table, gone).unclear


def _show(
    entries: Sequence[OffsetEntry],
    indent: str,
    view: LogView | None = None,
    more: Callable[[OffsetEntry], list[str]] = lambda _: [],
) -> None:
    for entry in entries[:SHOWN_AT_MOST]:
        mode = entry.mode if entry.where is None else f"{entry.mode} where {entry.where}"
        size = f"{counted(len(entry.files), 'file')}, {counted(entry.size_bytes, 'byte')}"
        say(f"{indent}{entry.seq}: {mode}, {size}: {_names(entry)}")
        landed = repair.settled(view, entry) if view else None
        if landed:
            where = "its rows are gone" if landed.abandoned else f"in the table as version {landed.version}"
            say(f"{' ' * len(indent)}   {where}; the next run records that")
        for line in more(entry):
            say(f"{' ' * len(indent)}   {line}")
    if len(entries) > SHOWN_AT_MOST:
        say(f"{indent}and {len(entries) - SHOWN_AT_MOST:,} more")


def _names(entry: OffsetEntry) -> str:
    names = [printable(file.path) for file in entry.files]
    return " … ".join(dict.fromkeys([*names[:1], *names[-1:]])) or "no files"


def _range(batches: Sequence[int]) -> str:
    if not batches:
        return "nothing"
    if len(batches) == 1:
        return f"batch {batches[0]}"
    part = "" if batches[-1] - batches[0] < len(batches) else f"{len(batches):,} of "
    return f"{part}batches {batches[0]} to {batches[-1]}"


def _when(milliseconds: int) -> str:
    """Give a time and how long ago it was, in its two largest units."""
    seconds = max(0, assembly.now_ms() - milliseconds) // 1000
    units = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")]
    parts = [
        (seconds // size % limit, unit)
        for (size, unit), limit in zip(units, (10**9, 24, 60, 60), strict=True)
    ]
    first = next((i for i, (value, _) in enumerate(parts) if value), len(parts) - 1)
    ago = " ".join(f"{value:,} {unit}" for value, unit in parts[first : first + 2] if value) or "0 s"
    return f"{audits.iso_time(milliseconds)[:19]}Z ({ago} ago)"


def _or_none(value: int | None) -> str:
    return "none" if value is None else str(value)
