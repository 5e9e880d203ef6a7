"""From what the user wrote to a run that can start."""

from __future__ import annotations

import random
import time
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_provider_scope.columns import INFER
from airflow_provider_scope.delta.log import table_columns
from airflow_provider_scope.engines import clock, sources
from airflow_provider_scope.engines.places import check_one_store, check_places, quarantine_of
from airflow_provider_scope.engines.spark import SparkRunner
from airflow_provider_scope.engines.submit import check_client_mode
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.hooks.databases import database_of
from airflow_provider_scope.hooks.scope import ScopeHook
from airflow_provider_scope.hooks.settings import connection_of
from airflow_provider_scope.hooks.stores import store_of
from airflow_provider_scope.protocol import repair
from airflow_provider_scope.protocol.derived import AuditFiles
from airflow_provider_scope.protocol.intervals import IntervalLog, NoAuditFiles
from airflow_provider_scope.protocol.log import CheckpointLog
from airflow_provider_scope.protocol.run import MicroBatchExecution
from airflow_provider_scope.protocol.source import Request
from airflow_provider_scope.scope.assembly import Scripts, check_scope, check_unchanged
from airflow_provider_scope.scope.engine import ScopeRunner
from airflow_provider_scope.scope.submission import JobSettings, JobWait
from airflow_provider_scope.sources.cursor.spec import JdbcSource
from airflow_provider_scope.sources.feed.spec import CdfSource
from airflow_provider_scope.sources.files.spec import FileSource
from airflow_provider_scope.specs import Replace, ScopeEngine, SparkEngine
from airflow_provider_scope.specs.engine import check_tag
from airflow_provider_scope.stores.kinds import kind_of
from airflow_provider_scope.stores.protocol import canonical_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from airflow.providers.common.compat.sdk import Connection

    from airflow_provider_scope.hooks.adls_gen1 import AdlsGen1Hook
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.source import Source
    from airflow_provider_scope.scope.script import BatchIdentity
    from airflow_provider_scope.sources.files.source import Files
    from airflow_provider_scope.specs import Checkpoint
    from airflow_provider_scope.specs.ingest import Ingest
    from airflow_provider_scope.values import FileEntry, Window


INLINE_WAIT_SECONDS = 15.0
"""How long a deferrable task polls a job in the worker: a deferral costs some seconds, and one that ends
within ten makes Airflow 3.3 fail the task."""


def new_id() -> str:
    """Give a fresh UUID."""
    return str(uuid.uuid4())


def open_log(
    delta_location: str,
    checkpoint: Checkpoint,
    window: Window | None = None,
    *,
    storage_conn_id: str | None = None,
    connection: Connection | None = None,
) -> CheckpointLog:
    """Give the log of the pipeline that writes to a table.

    :param window: The interval whose pipeline it is; None is the pipeline of ``mode="incremental"``.
    :param storage_conn_id: The connection of the checkpoint's store; ``connection`` is itself.
    """
    table = canonical_uri(delta_location)
    location = canonical_uri(checkpoint.location) if checkpoint.location else f"{table}/_checkpoint"
    storage = store_of(location, storage_conn_id, connection=connection).storage
    return IntervalLog(storage, location, window) if window else CheckpointLog(storage, location)


def audit_files(log: CheckpointLog, checkpoint: Checkpoint) -> AuditFiles:
    """Give the audit files beside a log; an interval has none."""
    if isinstance(log, IntervalLog):
        return NoAuditFiles(log)
    return AuditFiles(
        log,
        compaction_interval=checkpoint.compaction_interval,
        retention_files=checkpoint.retention_files,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What a run needs to know of the task that it is."""

    task: str
    """``<dag>.<task>``."""
    table_name: str = ""
    """The table's folder, where only the connection says where tables are; empty if there can be no such."""
    log_file: Path
    """Where Spark's output goes."""
    report: Callable[[str], None]
    """Takes each line of progress."""
    storage_conn_id: str | None = None
    deferrable: bool = False
    poll_interval: float | None = None
    deadline: float | None = None
    """When the task's time is over, seconds since the epoch."""


def spark_runner(
    ingest: Ingest,
    log: CheckpointLog,
    log_file: Path,
    storage_conn_id: str | None = None,
    roots: tuple[str, ...] = (),
) -> SparkRunner:
    """Give the running engine for a user's ``SparkEngine``.

    :param storage_conn_id: The connection of the stores.
    :param roots: Where files are read; none for a command that reads none.
    :raises InputError: An open batch was submitted as a SCOPE job, Spark cannot reach a location, or its
        driver would run on a cluster.
    :raises ConnectionMissingError: There is no such Spark connection.
    """
    if not isinstance(ingest.engine, SparkEngine):
        msg = "the engine is not Spark"
        raise TypeError(msg)
    conn_id = ingest.engine.spark_conn_id
    check_client_mode(connection_of(conn_id) if conn_id else None, ingest.engine.conf)
    with_jobs = [entry.seq for entry in repair.open_entries(log) if log.attempts(entry.seq)]
    if with_jobs:
        raise InputError(
            f"Batch {with_jobs[0]} of {log.location} is open and has SCOPE jobs, which Spark cannot check.",
            kept="everything; nothing was written",
            do="settle it before you change the engine of the pipeline: run the task once with SCOPE, or "
            "abandon the batch with --engine scope",
        )
    table = canonical_uri(ingest.delta_location)
    stores = {uri: store_of(uri, storage_conn_id) for uri in (table, log.location, *roots[:1])}
    _check_for_spark(stores)
    source = ingest.source
    return SparkRunner(
        engine=ingest.engine,
        source=source,
        table=ingest.table,
        sql=ingest.sql,
        sql_params=ingest.sql_params,
        storage=log.storage,
        log_file=log_file,
        new_id=new_id,
        quarantine=quarantine_of(table, ingest.table.quarantine),
        write=ingest.write,
        table_storage=stores[table].storage,
        stores=tuple(stores.values()),
        database=(
            database_of(source.conn_id, parts=source.num_partitions or 1)
            if isinstance(source, JdbcSource)
            else None
        ),
    )


def scope_runner(
    ingest: Ingest, engine: ScopeEngine, log: CheckpointLog, context: RunContext, source: AdlsGen1Hook | None
) -> tuple[ScopeRunner, Callable[[tuple[FileEntry, ...]], int]]:
    """Give the running engine for a user's ``ScopeEngine``, and how many of some files fit into one script.

    :raises InputError: SCOPE jobs cannot do what the task asks for.
    """
    check_scope(ingest)
    name = engine.job_tag or context.task.rpartition(".")[2]
    check_tag("job_tag" if engine.job_tag else "task_id", name)
    hook = ScopeHook(engine.scope_conn_id)
    defaults = hook.defaults
    scripts = Scripts(
        ingest,
        engine,
        engine.feature_previews or (defaults.feature_previews,),
        lambda: table_columns(canonical_uri(ingest.delta_location), runner.table_storage),
    )

    def script(identity: BatchIdentity, entry: OffsetEntry) -> str:
        if source is not None:
            check_unchanged(entry, source.get_status)
        return scripts.script(identity, entry)

    runner = ScopeRunner(
        log=log,
        wait=JobWait(
            jobs=hook,
            timeout_seconds=engine.job_timeout_seconds or defaults.job_timeout_seconds,
            poll_seconds=context.poll_interval or defaults.poll_interval,
            inline_wait_seconds=INLINE_WAIT_SECONDS if context.deferrable else None,
            clock=time.time,
            sleep=time.sleep,
            random=random.random,
            deadline=context.deadline,
        ),
        settings=JobSettings(
            name=name,
            au=engine.au or defaults.au,
            priority=engine.priority or defaults.priority,
            run_id=new_id(),
            task=context.task,
        ),
        script=script,
        report=context.report,
    )
    return runner, scripts.files_that_fit


def assemble(
    ingest: Ingest, context: RunContext
) -> tuple[MicroBatchExecution, Request, SparkRunner | ScopeRunner]:
    """Put the parts of a run together; nothing is written yet."""
    ingest = located(ingest, context)
    check_places(ingest)
    conn_id = context.storage_conn_id
    log = open_log(ingest.delta_location, ingest.checkpoint, ingest.window, storage_conn_id=conn_id)
    request = make_request(ingest)
    sources.check_intervals(ingest, log, request, lambda: _log_beside(ingest, conn_id))
    source: Source
    runner: SparkRunner | ScopeRunner
    if isinstance(ingest.source, CdfSource):
        source, read = sources.make_changes(ingest, ingest.source, log, conn_id)
        runner = spark_runner(ingest, log, context.log_file, conn_id, read)
    elif not isinstance(ingest.source, FileSource):
        source, read = sources.make_cursor(ingest, ingest.source, log, conn_id)
        runner = spark_runner(ingest, log, context.log_file, conn_id, read)
    else:
        source, runner = _files_and_runner(ingest, ingest.source, log, context, request)
    if isinstance(runner, SparkRunner):
        runner.report = context.report
    execution = MicroBatchExecution(
        log,
        audit_files(log, ingest.checkpoint),
        source,
        runner,
        now_ms=clock.now_ms,
        new_id=new_id,
    )
    if isinstance(ingest.source, CdfSource):
        execution.after = sources.metadata_of_feed(ingest.source, log, conn_id)
    return execution, request, runner


def _files_and_runner(
    ingest: Ingest, source: FileSource, log: CheckpointLog, context: RunContext, request: Request
) -> tuple[Files, SparkRunner | ScopeRunner]:
    conn_id = context.storage_conn_id
    roots = sources.roots_of(source)
    check_one_store(roots)
    store = store_of(roots[0], conn_id)
    files = sources.make_files(source, log, store.hook or store.storage, clock.now_ms(), ingest.window)
    if not isinstance(ingest.engine, ScopeEngine):
        return files, spark_runner(ingest, log, context.log_file, conn_id, roots)
    runner, fits = scope_runner(ingest, ingest.engine, log, context, store.hook)
    runner.table_storage = store_of(request.table, conn_id).storage
    defaults = ScopeHook(ingest.engine.scope_conn_id).defaults
    return replace(
        files,
        fits=fits,
        max_files=source.max_files_per_trigger or defaults.max_files_per_trigger,
        max_bytes=source.max_bytes_per_trigger or defaults.max_bytes_per_trigger,
    ), runner


def _log_beside(ingest: Ingest, conn_id: str | None) -> tuple[CheckpointLog, AuditFiles]:
    """Give the log of ``mode="incremental"`` in the checkpoint of an interval."""
    log = open_log(ingest.delta_location, ingest.checkpoint, storage_conn_id=conn_id)
    return log, audit_files(log, ingest.checkpoint)


def located(ingest: Ingest, context: RunContext) -> Ingest:
    """Give the arguments with the table's location: the one that was given, or the connection's.

    :raises InputError: Neither says where the table is.
    """
    if ingest.delta_location or not isinstance(ingest.engine, ScopeEngine):
        return ingest
    location = ScopeHook(ingest.engine.scope_conn_id).defaults.delta_location(context.table_name)
    return replace(ingest, delta_location=location)


def _check_for_spark(uris: Iterable[str]) -> None:
    for uri in uris:
        kind = kind_of(uri)
        if not kind.is_for_spark:
            raise InputError(
                f"The folder {uri} is on {kind.name}, which Spark cannot read.",
                kept="everything; nothing was read or written",
                do="use engine=ScopeEngine(), or folders on another store",
            )


def make_request(ingest: Ingest) -> Request:
    """Give what a run is asked to do."""
    replace = ingest.write if isinstance(ingest.write, Replace) else None
    return Request(
        table=canonical_uri(ingest.delta_location),
        max_batches=ingest.max_batches_per_run,
        refresh=ingest.full_refresh or replace is not None,
        where=replace.where if replace else None,
        is_snapshot=replace is not None and replace.where is None,
        adds_to_rows=ingest.first_run == "add",
        infers_columns=getattr(ingest.source, "columns", None) == INFER,
    )
