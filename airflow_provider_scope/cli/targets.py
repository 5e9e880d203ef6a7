"""What a command is about: a table, the log of its pipeline, the engine, and the intervals."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from airflow.providers.common.compat.sdk import conf

from airflow_provider_scope.cli.output import address_of, first_of, say, set_address, show
from airflow_provider_scope.engines import assembly
from airflow_provider_scope.engines.assembly import RunContext
from airflow_provider_scope.exceptions import InputError, TableError
from airflow_provider_scope.hooks.scope import ScopeHook
from airflow_provider_scope.hooks.stores import store_of
from airflow_provider_scope.protocol import repair
from airflow_provider_scope.protocol.intervals import IntervalLog, known_intervals
from airflow_provider_scope.protocol.probe import probe
from airflow_provider_scope.protocol.records import Settlement
from airflow_provider_scope.protocol.recovery import NO_BASELINE
from airflow_provider_scope.protocol.view import read_log
from airflow_provider_scope.scope.engine import ScopeRunner
from airflow_provider_scope.scope.fate import job_id
from airflow_provider_scope.scope.submission import JobSettings
from airflow_provider_scope.specs import Checkpoint, FileSource, SparkEngine
from airflow_provider_scope.specs.ingest import Ingest
from airflow_provider_scope.stores.kinds import kind_of
from airflow_provider_scope.stores.protocol import canonical_uri
from airflow_provider_scope.values import Window, counted, iso_time, window_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_scope.protocol.derived import AuditFiles
    from airflow_provider_scope.protocol.engine import Engine
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import Attempt, OffsetEntry, Pipeline
    from airflow_provider_scope.protocol.view import LogView
    from airflow_provider_scope.scope.jobs import BatchIdentity
    from airflow_provider_scope.stores.protocol import Storage


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A table, the log of the pipeline that loads it, and what is said of the engine."""

    table: str
    """Canonical URI."""
    log: CheckpointLog
    storage_conn_id: str | None = None
    engine_name: Literal["spark", "scope"] | None = None
    spark_conn_id: str | None = None
    scope_conn_id: str | None = None

    @classmethod
    def of(cls, args: Namespace) -> Target:
        """Open the table that the arguments of a command name."""
        return cls(
            table=canonical_uri(args.delta_location),
            log=assembly.open_log(
                args.delta_location,
                Checkpoint(location=args.checkpoint),
                named_interval(args),
                storage_conn_id=args.storage_conn_id,
            ),
            storage_conn_id=args.storage_conn_id,
            engine_name=getattr(args, "engine", None),
            spark_conn_id=getattr(args, "spark_conn_id", None),
            scope_conn_id=getattr(args, "scope_conn_id", None),
        )

    def storage_of(self, uri: str) -> Storage:
        """Open the store of a location, through the connection of the command."""
        return store_of(uri, self.storage_conn_id).storage

    def audit_files(self) -> AuditFiles:
        return assembly.audit_files(self.log, Checkpoint())

    def engine(self) -> Engine:
        """Return the engine that is named. Without a name it is SCOPE if jobs run the batches."""
        is_spark = self.engine_name == "spark" or isinstance(self.log, IntervalLog)  # SCOPE has no intervals
        if not is_spark and (self.engine_name == "scope" or self._is_of_jobs()):
            return self.scope_runner()
        context = _context(self.storage_conn_id)
        # What a command commits is empty, and any Spark can do it.
        settings = assembly.on_this_machine(SparkEngine(spark_conn_id=self.spark_conn_id), context.log_file)
        source = FileSource(roots="/", format="parquet")  # no command reads it
        ingest = Ingest(delta_location=self.table, source=source, engine=settings)
        return assembly.spark_engine(ingest, self.log, context)

    def _is_of_jobs(self) -> bool:
        """Return whether jobs run the batches: Spark cannot, or committed nothing after the newest job."""
        if not all(kind_of(uri).is_for_spark for uri in (self.table, self.log.location)):
            return True
        newest, pipeline = self.log.newest_attempted(), self.log.pipeline()
        if newest < 0 or pipeline is None:
            return newest >= 0
        if any(seq > newest for seq in self.log.tail().committed):
            return False
        table_state = probe(self.table, pipeline.pipeline, NO_BASELINE, self.storage_of(self.table))
        return table_state.newest_batch < newest

    def scope_runner(self) -> ScopeRunner:
        """Return an engine that reads and closes batches; it runs none."""
        hook = scope_hook(self.scope_conn_id)
        defaults = hook.defaults
        return ScopeRunner(
            log=self.log,
            wait=assembly.wait_for(hook, _context(), defaults.job_timeout_seconds, defaults.poll_interval),
            settings=JobSettings(
                name="airflow_scope",
                au=defaults.au,
                priority=defaults.priority,
                run_id=assembly.new_id(),
                account=hook.service.authority,
            ),
            script=_no_script,
            report=say,
            table_storage=self.storage_of(self.table),
        )

    def checked_view(self, engine: Engine) -> LogView:
        """Read the log and the table.

        :raises TableError: A run would refuse the table.
        """
        view = read_log(self.log, engine, self.table)
        view.check_table()
        view.check_decided()
        return view

    def windows(self) -> list[Window]:
        """Return the intervals of the checkpoint, in their order."""
        return known_intervals(self.log.storage, self.log.location)

    def windows_alone(self) -> list[Window]:
        """Return the intervals of a checkpoint that has no other pipeline; none if it has one."""
        return [] if isinstance(self.log, IntervalLog) or self.log.pipeline() else self.windows()

    def of_interval(self, window: Window) -> Target:
        return replace(self, log=IntervalLog(self.log.storage, self.log.location, window))

    def interval_states(self) -> dict[Window, IntervalState]:
        """Compare the table with the records of its intervals, as the run of each does."""
        intervals = {window: self.of_interval(window) for window in self.windows()}
        if not intervals:
            return {}
        engine = next(iter(intervals.values())).engine()
        return {window: interval.interval_state(engine) for window, interval in intervals.items()}

    def interval_state(self, engine: Engine) -> IntervalState:
        if self.log.pipeline() is None:
            return IntervalState(())
        try:
            view = self.checked_view(engine)
        except TableError as err:
            if err.is_retryable:
                raise  # the error is not about this interval
            return IntervalState(self.log.open_entries(), err)
        return IntervalState(view.open)


def open_pipeline(args: Namespace) -> tuple[Target, Pipeline]:
    """Open what a command names, and read its pipeline.

    :raises InputError: There is none, or the command does not say which.
    """
    target = Target.of(args)
    check_interval_named(args, target)
    return target, repair.existing_pipeline(target.log)


def named_interval(args: Namespace) -> Window | None:
    """Return the interval that a command names; None if it names none.

    :raises InputError: The name is not that of an interval.
    """
    name = getattr(args, "interval", None)
    # An empty text, as of a variable of the shell that is not set, is refused: it is not no interval.
    window = None if name is None else window_of(name)
    if name is not None and window is None:
        raise InputError(
            f"--interval={name} is not valid: expected <start>_<end>, such as "
            "20260101T000000000Z_20260102T000000000Z.",
            kept="everything; nothing was read or written",
            do="copy the name from `airflow scope status` or from the task's log",
        )
    return window


def check_interval_named(args: Namespace, target: Target) -> None:
    """Refuse a command that names no interval for a checkpoint that has only intervals.

    :raises InputError: The command must name an interval, or is not for intervals.
    """
    windows = target.windows_alone()
    if not windows:
        return
    do = (
        "nothing: an interval has no derived files, and keeps all of its records, because only they show "
        "which files it loaded"
    )
    if hasattr(args, "interval"):
        do = (
            f"name one, such as --interval {windows[-1].name}: `airflow scope status` shows those with "
            "open batches"
        )
    raise InputError(
        f"{target.log.location} has {counted(len(windows), 'interval')}, and no other pipeline.",
        kept="everything; nothing was written",
        do=do,
    )


def each_pipeline(args: Namespace) -> Iterator[Namespace]:
    """Return the arguments for each pipeline that a command is about, and print the name of each interval.

    :raises InputError: Both one interval and all of them are named, or there is none.
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
    target = Target.of(args)
    windows = [window for window in target.windows() if target.of_interval(window).log.pipeline()]
    if not windows:
        raise InputError(
            f"There is no interval in {target.log.location}.",
            kept="everything; nothing was written",
            do="leave --all-intervals out; or check the location: if the checkpoint is outside the table, "
            "add --checkpoint",
        )
    for window in windows:
        say(f"interval {window.name}:")
        yield Namespace(**{**vars(args), "interval": window.name})


def show_intervals(args: Namespace, target: Target) -> None:
    """Print how many intervals there are, and name those with open batches and those that refuse the table.

    :raises TableError: The next run of an interval refuses the table.
    """
    states = target.interval_states()
    if not states:
        return
    first, last = iso_time(min(states).start_ms)[:19], iso_time(max(states).end_ms)[:19]
    say(f"intervals   {len(states):,}, from {first}Z to {last}Z")
    unfinished = [f"{window.name}: {state.text}" for window, state in states.items() if state.text]
    show("", first_of(unfinished, "more that are open or refused") or ["all batches are committed"])
    refused = {window.name: state.error for window, state in states.items() if state.error}
    if refused:
        name, error = next(iter(refused.items()))
        interval = {"interval": name} if len(refused) == 1 else {"all_intervals": True}
        set_address(replace(address_of(args), **interval))
        raise error


def _context(storage_conn_id: str | None = None) -> RunContext:
    """Return the context of a command: it waits to the end."""
    return RunContext(task="airflow scope", log_file=log_file(), report=say, storage_conn_id=storage_conn_id)


def log_file() -> Path:
    """Return the file for Spark's output, beside Airflow's own logs."""
    return Path(conf.get("logging", "base_log_folder"), "airflow_provider_scope", "commands", "spark.log")


# ---- SCOPE jobs ----


def scope_hook(conn_id: str | None) -> ScopeHook:
    return ScopeHook(conn_id or ScopeHook.default_conn_name)


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
    state = job.state if job else "unknown to the service"
    result = f", {job.result}" if job and state.casefold() == "ended" else ""
    settlement = engine.log.find(Settlement, seq=attempt.seq, number=attempt.number)
    decision = f"; settled: {decision_text(committed=settlement.committed)}" if settlement else ""
    return f"attempt {attempt.number}: job {guid}, {state}{result}{decision}"


def decision_text(*, committed: bool) -> str:
    return "its rows are in the table" if committed else "its rows are not in the table"
