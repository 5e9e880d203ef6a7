"""The pipeline, the engine and the intervals that the arguments of a command name."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import conf

from airflow_provider_scope.cli import scope_jobs
from airflow_provider_scope.cli.output import SHOWN_AT_MOST, address_of, counted, say, set_address
from airflow_provider_scope.engines import assembly
from airflow_provider_scope.exceptions import InputError, TableError
from airflow_provider_scope.protocol import repair
from airflow_provider_scope.protocol.intervals import IntervalLog, NoAuditFiles, known_intervals
from airflow_provider_scope.protocol.view import check_decided, check_table, read_log
from airflow_provider_scope.specs import Checkpoint
from airflow_provider_scope.specs.ingest import ARGUMENTS, SELECT_ALL, ingest_from
from airflow_provider_scope.stores.opening import canonical_uri
from airflow_provider_scope.values import Window, iso_time, window_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_scope.engines.spark import SparkRunner
    from airflow_provider_scope.protocol.derived import AuditFiles
    from airflow_provider_scope.protocol.engine import Engine
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.scope.engine import ScopeRunner


def named_interval(args: Namespace) -> Window | None:
    """Give the interval that a command names; None if it names none.

    :raises InputError: The name is not that of an interval.
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


def check_interval_named(args: Namespace, log: CheckpointLog) -> None:
    """Refuse a command without ``--interval`` for a checkpoint that has only intervals.

    :raises InputError: The command must name an interval.
    """
    if not hasattr(args, "interval") or isinstance(log, IntervalLog) or log.pipeline():
        return
    intervals = known_intervals(log.storage, log.location)
    if intervals:
        raise InputError(
            f"{log.location} has {counted(len(intervals), 'interval')}, and no other pipeline.",
            kept="everything; nothing was written",
            do=f"name one, such as --interval {intervals[-1].name}: `airflow scope status` shows those with "
            "open batches",
        )


def each_pipeline(args: Namespace, log: CheckpointLog) -> Iterator[Namespace]:
    """Give the arguments for each pipeline that a command is about, and print the name of each interval.

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


def show_intervals_alone(args: Namespace, table: str, log: CheckpointLog) -> bool:
    """Print the intervals of a table if it has no other pipeline; tell whether that is so.

    :raises TableError: See ``show_intervals``.
    """
    if args.interval is not None or log.pipeline() or not known_intervals(log.storage, log.location):
        return False
    say(f"table       {table}")
    say(f"checkpoint  {log.location}")
    show_intervals(args, table, log)
    return True


def show_intervals(args: Namespace, table: str, log: CheckpointLog) -> None:
    """Print how many intervals there are, and name those with open batches and those that refuse the table.

    :raises TableError: The next run of an interval refuses the table.
    """
    states = interval_states(args, table, log)
    if not states:
        return
    first, last = iso_time(min(states).start_ms)[:19], iso_time(max(states).end_ms)[:19]
    say(f"intervals   {len(states):,}, from {first}Z to {last}Z")
    unfinished = {window.name: state for window, state in states.items() if state.text}
    for name, state in list(unfinished.items())[:SHOWN_AT_MOST]:
        say(f"            {name}: {state.text}")
    if len(unfinished) > SHOWN_AT_MOST:
        say(f"            and {len(unfinished) - SHOWN_AT_MOST:,} more that are open or refused")
    if not unfinished:
        say("            all batches are committed")
    refused = {name: state.error for name, state in unfinished.items() if state.error}
    if refused:
        name, error = next(iter(refused.items()))
        interval = {"interval": name} if len(refused) == 1 else {"all_intervals": True}
        set_address(replace(address_of(args), **interval))
        raise error


@dataclass(frozen=True, slots=True)
class IntervalState:
    """The state of an interval, as far as it is known without reading the source."""

    open: tuple[OffsetEntry, ...]
    error: TableError | None = None
    """Why its next run refuses the table."""

    @property
    def text(self) -> str:
        """Say what keeps the interval from being finished; empty if nothing does."""
        batches = [counted(len(self.open), "open batch", "open batches")] if self.open else []
        refused = [f"refused ({type(self.error).__name__})"] if self.error else []
        return ", ".join(batches + refused)


def interval_states(args: Namespace, table: str, log: CheckpointLog) -> dict[Window, IntervalState]:
    """Compare a table with the records of its intervals, as the run of each does."""
    windows = known_intervals(log.storage, log.location)
    logs = [IntervalLog(log.storage, log.location, window) for window in windows]
    if not logs:
        return {}
    engine = engine_of(args, logs[0])
    return {interval.window: _interval_state(interval, engine, table) for interval in logs}


def _interval_state(log: IntervalLog, engine: Engine, table: str) -> IntervalState:
    if log.pipeline() is None:
        return IntervalState(())
    try:
        view = read_log(log, NoAuditFiles(log), engine, table, history=False)
        check_table(view, table)
        check_decided(view, table)
    except TableError as err:
        if err.is_retryable:
            raise  # the error is not about this interval
        return IntervalState(repair.open_entries(log), err)
    return IntervalState(view.open)


def open_pipeline(args: Namespace) -> tuple[str, CheckpointLog, AuditFiles]:
    """Give the table, the log and the audit files for a command that names a table."""
    checkpoint = Checkpoint(location=args.checkpoint)
    log = assembly.open_log(
        args.delta_location, checkpoint, named_interval(args), storage_conn_id=args.storage_conn_id
    )
    return canonical_uri(args.delta_location), log, assembly.audit_files(log, checkpoint)


def engine_of(args: Namespace, log: CheckpointLog) -> SparkRunner | ScopeRunner:
    """Give the engine that a command names. Without a name it is SCOPE if any batch was ever a job."""
    is_spark = args.engine == "spark" or isinstance(log, IntervalLog)  # SCOPE loads no intervals
    if not is_spark and (args.engine == "scope" or log.has_attempts()):
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
