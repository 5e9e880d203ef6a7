"""What the arguments of a command name: a table's pipeline, its engine, its intervals."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import conf

from airflow_provider_scope.cli import scope_jobs
from airflow_provider_scope.cli.output import SHOWN_AT_MOST, about, address_of, counted, say
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
    """Show the intervals of a table if there is no pipeline beside them; tell whether that is so.

    :raises TableError: See ``show``.
    """
    if args.interval is not None or log.pipeline() or not known_intervals(log.storage, log.location):
        return False
    say(f"table       {table}")
    say(f"checkpoint  {log.location}")
    show(args, table, log)
    return True


def show(args: Namespace, table: str, log: CheckpointLog) -> None:
    """Say how many intervals there are, and name those with open batches and those that refuse the table.

    :raises TableError: The next run of an interval refuses the table.
    """
    states = interval_states(args, table, log)
    if not states:
        return
    first, last = iso_time(min(states).start_ms)[:19], iso_time(max(states).end_ms)[:19]
    say(f"intervals   {len(states):,}, from {first}Z to {last}Z")
    odd = {window.name: state for window, state in states.items() if state.text}
    for name, state in list(odd.items())[:SHOWN_AT_MOST]:
        say(f"            {name}: {state.text}")
    if len(odd) > SHOWN_AT_MOST:
        say(f"            and {len(odd) - SHOWN_AT_MOST:,} more that are open or refused")
    if not odd:
        say("            all batches are committed")
    refused = {name: state.error for name, state in odd.items() if state.error}
    if refused:
        name, error = next(iter(refused.items()))
        which = {"interval": name} if len(refused) == 1 else {"all_intervals": True}
        about(replace(address_of(args), **which))
        raise error


@dataclass(frozen=True, slots=True)
class IntervalState:
    """What is known of an interval without its source."""

    open: tuple[OffsetEntry, ...]
    error: TableError | None = None
    """Why its next run refuses the table."""

    @property
    def text(self) -> str:
        """Say what is to be done; empty if nothing is."""
        batches = [counted(len(self.open), "open batch", "open batches")] if self.open else []
        refused = [f"refused ({type(self.error).__name__})"] if self.error else []
        return ", ".join(batches + refused)


def interval_states(args: Namespace, table: str, log: CheckpointLog) -> dict[Window, IntervalState]:
    """Compare a table with the records of its intervals, as the run of each does."""
    logs = [IntervalLog(log.storage, log.location, w) for w in known_intervals(log.storage, log.location)]
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
            raise  # it is about no interval in particular
        return IntervalState(repair.open_entries(log), err)
    return IntervalState(view.open)


def opened(args: Namespace) -> tuple[str, CheckpointLog, AuditFiles]:
    """Give the table, the log and the audit files for a command that names a table."""
    checkpoint = Checkpoint(location=args.checkpoint)
    log = assembly.open_log(
        args.delta_location, checkpoint, named(args), storage_conn_id=args.storage_conn_id
    )
    return canonical_uri(args.delta_location), log, assembly.audit_files(log, checkpoint)


def engine_of(args: Namespace, log: CheckpointLog) -> SparkRunner | ScopeRunner:
    """Give the engine that is named; without a name, SCOPE if a batch of the pipeline ever was a job."""
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
