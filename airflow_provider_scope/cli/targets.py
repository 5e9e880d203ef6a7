"""The pipeline, the engine and the intervals that the arguments of a command name."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import conf

from airflow_provider_scope.cli.output import SHOWN_AT_MOST, address_of, say, set_address
from airflow_provider_scope.engines import assembly
from airflow_provider_scope.engines.assembly import RunContext
from airflow_provider_scope.engines.jobs import manager_of
from airflow_provider_scope.exceptions import InputError, TableError
from airflow_provider_scope.hooks.scope import ScopeHook
from airflow_provider_scope.hooks.settings import connection_of
from airflow_provider_scope.hooks.stores import store_of
from airflow_provider_scope.protocol.intervals import IntervalLog, known_intervals
from airflow_provider_scope.protocol.records import Settlement
from airflow_provider_scope.protocol.view import read_log
from airflow_provider_scope.scope.engine import ScopeRunner
from airflow_provider_scope.scope.fate import job_id
from airflow_provider_scope.scope.submission import JobSettings
from airflow_provider_scope.specs import Checkpoint, FileSource, SparkEngine
from airflow_provider_scope.specs.ingest import Ingest
from airflow_provider_scope.stores.protocol import canonical_uri
from airflow_provider_scope.values import Window, counted, iso_time, window_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_scope.protocol.engine import Engine
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import Attempt, OffsetEntry
    from airflow_provider_scope.protocol.view import LogView
    from airflow_provider_scope.scope.script import BatchIdentity
    from airflow_provider_scope.waiting import Job


def named_interval(args: Namespace) -> Window | None:
    """Return the interval that a command names; None if it names none.

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
    """Refuse a command that names no interval for a checkpoint that has only intervals.

    :raises InputError: The command must name an interval, or is not for intervals.
    """
    if isinstance(log, IntervalLog) or log.pipeline():
        return
    intervals = known_intervals(log.storage, log.location)
    if intervals:
        do = "nothing: an interval keeps all of its records, because only they show which files it loaded"
        if hasattr(args, "interval"):
            do = (
                f"name one, such as --interval {intervals[-1].name}: `airflow scope status` shows those with "
                "open batches"
            )
        raise InputError(
            f"{log.location} has {counted(len(intervals), 'interval')}, and no other pipeline.",
            kept="everything; nothing was written",
            do=do,
        )


def each_pipeline(args: Namespace, log: CheckpointLog) -> Iterator[Namespace]:
    """Return the arguments for each pipeline that a command is about, and print the name of each interval.

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
        """What keeps the interval from being finished; empty if nothing does."""
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
        view = checked_view(log, engine, table)
    except TableError as err:
        if err.is_retryable:
            raise  # the error is not about this interval
        return IntervalState(log.open_entries(), err)
    return IntervalState(view.open)


def checked_view(log: CheckpointLog, engine: Engine, table: str) -> LogView:
    """Read the log and the table.

    :raises TableError: A run would refuse the table.
    """
    view = read_log(log, engine, table)
    view.check_table()
    view.check_decided()
    return view


def open_pipeline(args: Namespace) -> tuple[str, CheckpointLog]:
    """Find the table and the log of a command that names a table."""
    checkpoint = Checkpoint(location=args.checkpoint)
    log = assembly.open_log(
        args.delta_location, checkpoint, named_interval(args), storage_conn_id=args.storage_conn_id
    )
    return canonical_uri(args.delta_location), log


def engine_of(args: Namespace, log: CheckpointLog) -> Engine:
    """Return the engine that a command names. Without a name it is SCOPE if any batch was ever a job."""
    is_spark = args.engine == "spark" or isinstance(log, IntervalLog)  # SCOPE loads no intervals
    if not is_spark and (args.engine == "scope" or log.has_attempts()):
        table = canonical_uri(args.delta_location)
        return scope_runner(args.scope_conn_id, log, table, args.storage_conn_id)
    context = _context(args.storage_conn_id)
    conn_id = getattr(args, "spark_conn_id", None)
    if conn_id and manager_of(connection_of(conn_id), None, context.log_file):
        conn_id = None  # what a command commits is empty, and any Spark can do it
    ingest = Ingest(
        delta_location=args.delta_location,
        source=FileSource(roots="/", format="parquet"),  # no command reads it
        engine=SparkEngine(spark_conn_id=conn_id),
    )
    return assembly.spark_engine(ingest, log, context)


def _context(storage_conn_id: str | None = None) -> RunContext:
    """Return the context of a command: it waits to the end."""
    return RunContext(task="airflow scope", log_file=log_file(), report=say, storage_conn_id=storage_conn_id)


def log_file() -> Path:
    """Return the file for Spark's output, beside Airflow's own logs."""
    return Path(conf.get("logging", "base_log_folder"), "airflow_provider_scope", "commands", "spark.log")


# ---- SCOPE jobs ----


def scope_runner(
    scope_conn_id: str, log: CheckpointLog, table: str, storage_conn_id: str | None
) -> ScopeRunner:
    """Return an engine that reads and closes batches; it runs none."""
    hook = ScopeHook(scope_conn_id)
    defaults = hook.defaults
    return ScopeRunner(
        log=log,
        wait=assembly.wait_for(hook, _context(), defaults.job_timeout_seconds, defaults.poll_interval),
        settings=JobSettings(
            name="airflow_scope", au=defaults.au, priority=defaults.priority, run_id=assembly.new_id()
        ),
        script=_no_script,
        report=say,
        table_storage=store_of(table, storage_conn_id).storage,
    )


def _no_script(identity: BatchIdentity, entry: OffsetEntry) -> str:
    msg = f"a command runs no batch ({identity.seq} of {len(entry.files)} files)"
    raise AssertionError(msg)


def job_lines(engine: Engine, pipeline: str, entry: OffsetEntry) -> list[str]:
    """Describe the jobs of a batch; none if no jobs run it."""
    if not isinstance(engine, ScopeRunner):
        return []
    return [attempt_text(engine, pipeline, attempt) for attempt in engine.log.attempts(entry.seq)]


def attempt_text(engine: ScopeRunner, pipeline: str, attempt: Attempt) -> str:
    if attempt.void:
        return f"attempt {attempt.number}: no job; the batch is closed"
    guid = job_id(pipeline, attempt)
    job = engine.jobs.get_job(guid)
    settlement = engine.log.find(Settlement, seq=attempt.seq, number=attempt.number)
    decision = "" if settlement is None else f"; settled: {decision_text(committed=settlement.committed)}"
    return f"attempt {attempt.number}: job {guid}, {_state_text(job)}{decision}"


def _state_text(job: Job | None) -> str:
    if job is None:
        return "unknown to the service"
    return f"{job.state}, {job.result}" if job.state.casefold() == "ended" else job.state


def decision_text(*, committed: bool) -> str:
    return "its rows are in the table" if committed else "its rows are not in the table"
