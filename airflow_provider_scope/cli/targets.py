"""What the arguments of a command name: a table's pipeline, its engine, its intervals."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import conf

from airflow_provider_scope.checkpoint.intervals import IntervalLog, known_intervals
from airflow_provider_scope.cli import scope_jobs
from airflow_provider_scope.cli.output import SHOWN_AT_MOST, counted, say
from airflow_provider_scope.core.interval import Window, iso_time, window_of
from airflow_provider_scope.engines import assembly
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.execution import repair
from airflow_provider_scope.specs import Checkpoint
from airflow_provider_scope.specs.ingest import ARGUMENTS, SELECT_ALL, ingest_from
from airflow_provider_scope.storage.opening import canonical_uri

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_scope.checkpoint.audit import AuditFiles
    from airflow_provider_scope.checkpoint.log import CheckpointLog
    from airflow_provider_scope.engines.scope import ScopeRunner
    from airflow_provider_scope.engines.spark import SparkRunner


def named(args: Namespace) -> Window | None:
    """Give the interval that a command names, if it does.

    :raises InputError: The name is not one of an interval.
    """
    name = getattr(args, "interval", None)
    window = window_of(name) if name else None
    if name and window is None:
        raise InputError(
            f"--interval={name} is not valid: expected <start>_<end>, such as "
            "20260101T000000000Z_20260102T000000000Z.",
            kept="everything; nothing was read or written",
            do="copy the name from `airflow scope status` or from the task's log",
        )
    return window


def check_named(args: Namespace, log: CheckpointLog) -> None:
    """Refuse to look for one pipeline where there are intervals only.

    :raises InputError: The command has to name an interval.
    """
    if not hasattr(args, "interval") or isinstance(log, IntervalLog) or log.pipeline():
        return
    known = known_intervals(log.storage, log.location)
    if known:
        raise InputError(
            f"{log.location} has {counted(len(known), 'interval')}, and no other pipeline.",
            kept="everything; nothing was written",
            do=f"name one, such as --interval {known[-1].name}: `airflow scope status` shows those with open "
            "batches",
        )


def each(args: Namespace, log: CheckpointLog) -> Iterator[Namespace]:
    """Give the arguments for each pipeline that a command means, and say which it is.

    :raises InputError: Both one interval and all of them are named.
    """
    if not args.all_intervals:
        yield args
        return
    if args.interval is not None:
        raise InputError(
            "Only one of --interval and --all-intervals can be given.",
            kept="everything; nothing was written",
            do="leave one of them out",
        )
    for window in known_intervals(log.storage, log.location):
        if IntervalLog(log.storage, log.location, window).pipeline():
            say(f"interval {window.name}:")
            yield Namespace(**{**vars(args), "interval": window.name})


def shown_alone(args: Namespace, table: str, log: CheckpointLog) -> bool:
    """Show the intervals of a table if there is no pipeline beside them; tell whether that is so."""
    if args.interval is not None or log.pipeline() or not known_intervals(log.storage, log.location):
        return False
    say(f"table       {table}")
    say(f"checkpoint  {log.location}")
    show(log)
    return True


def show(log: CheckpointLog) -> None:
    """Say how many intervals there are, and name those with open batches."""
    known = known_intervals(log.storage, log.location)
    if not known:
        return
    first, last = iso_time(known[0].start_ms)[:19], iso_time(known[-1].end_ms)[:19]
    say(f"intervals   {len(known):,}, from {first}Z to {last}Z")
    still_open = {}
    for window in known:
        entries = repair.open_entries(IntervalLog(log.storage, log.location, window))
        if entries:
            still_open[window.name] = len(entries)
    for name, batches in list(still_open.items())[:SHOWN_AT_MOST]:
        say(f"            {name}: {counted(batches, 'open batch', 'open batches')}")
    if len(still_open) > SHOWN_AT_MOST:
        say(f"            and {len(still_open) - SHOWN_AT_MOST:,} more with open batches")
    if not still_open:
        say("            all batches are committed")


def opened(args: Namespace) -> tuple[str, CheckpointLog, AuditFiles]:
    """Give the table, the log and the audit files for a command that names a table."""
    checkpoint = Checkpoint(location=args.checkpoint)
    log = assembly.open_log(
        args.delta_location, checkpoint, named(args), storage_conn_id=args.storage_conn_id
    )
    return canonical_uri(args.delta_location), log, assembly.audit_files(log, checkpoint)


def engine_of(args: Namespace, log: CheckpointLog) -> SparkRunner | ScopeRunner:
    """Give the engine that is named; without a name, SCOPE if a batch of the pipeline ever was a job."""
    if args.engine == "scope" or (args.engine is None and log.has_attempts()):
        table = canonical_uri(args.delta_location)
        return scope_jobs.runner(args.scope_conn_id, log, table, args.storage_conn_id)
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
    runner = assembly.spark_runner(ingest, log, log_file(), args.storage_conn_id)
    runner.report = say
    return runner


def log_file() -> Path:
    """Give the file for Spark's output, beside Airflow's own logs."""
    return Path(conf.get("logging", "base_log_folder"), "airflow_provider_scope", "commands", "spark.log")
