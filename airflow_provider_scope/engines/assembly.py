"""From what the user wrote to a run that can start."""

from __future__ import annotations

import json
import logging
import math
import random
import time
import uuid
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_scope.delta.log import table_columns
from airflow_provider_scope.engines import clock
from airflow_provider_scope.engines.cluster import ClusterEngine, check_for_cluster, check_no_application
from airflow_provider_scope.engines.jobs import manager_of
from airflow_provider_scope.engines.places import check_places
from airflow_provider_scope.engines.spark import PlanEngine, SubmitEngine, check_no_jobs
from airflow_provider_scope.engines.submit import DEPLOY_MODE
from airflow_provider_scope.exceptions import InputError, ScopeProviderError
from airflow_provider_scope.hooks import databases as database_hooks
from airflow_provider_scope.hooks.scope import ScopeHook
from airflow_provider_scope.hooks.settings import connection_of
from airflow_provider_scope.hooks.stores import store_of
from airflow_provider_scope.protocol.derived import AuditFiles
from airflow_provider_scope.protocol.engine import Work
from airflow_provider_scope.protocol.intervals import IntervalLog, NoAuditFiles, check_beside_intervals
from airflow_provider_scope.protocol.log import CheckpointLog
from airflow_provider_scope.protocol.records import encode_offset
from airflow_provider_scope.protocol.run import MicroBatchExecution
from airflow_provider_scope.protocol.source import Access, Request
from airflow_provider_scope.protocol.view import pinned_columns
from airflow_provider_scope.scope.engine import ScopeRunner, Scripts, check_unchanged
from airflow_provider_scope.scope.script import check_scope
from airflow_provider_scope.scope.submission import JobSettings
from airflow_provider_scope.sources import PARTS
from airflow_provider_scope.sources.feed.metadata import FeedMetadata
from airflow_provider_scope.sources.files.discovery import check_one_store
from airflow_provider_scope.sources.files.source import Files
from airflow_provider_scope.spark import plan as plans
from airflow_provider_scope.specs import Replace, ScopeEngine, SparkEngine
from airflow_provider_scope.specs.engine import check_tag
from airflow_provider_scope.specs.ingest import files_of
from airflow_provider_scope.stores.kinds import kind_of
from airflow_provider_scope.stores.protocol import canonical_root, canonical_uri
from airflow_provider_scope.waiting import Jobs, JobWait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from airflow.providers.common.compat.sdk import Connection

    from airflow_provider_scope.protocol.engine import Engine
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.report import RunReport
    from airflow_provider_scope.protocol.source import Source
    from airflow_provider_scope.protocol.view import LogView
    from airflow_provider_scope.scope.jobs import BatchIdentity
    from airflow_provider_scope.sources import AnySource
    from airflow_provider_scope.specs import Checkpoint
    from airflow_provider_scope.specs.ingest import Ingest
    from airflow_provider_scope.values import Window

logger = logging.getLogger(__name__)

_J = TypeVar("_J", bound=Jobs)
INLINE_WAIT_SECONDS = 15.0
"""How long a deferrable task polls a job in the worker: a deferral costs some seconds, and one that ends
within ten makes Airflow 3.3 fail the task."""


def new_id() -> str:
    return str(uuid.uuid4())


def open_log(
    delta_location: str,
    checkpoint: Checkpoint,
    window: Window | None = None,
    *,
    storage_conn_id: str | None = None,
    connection: Connection | None = None,
) -> CheckpointLog:
    """Return the log of the pipeline that writes to a table.

    :param window: The interval whose pipeline it is; None is the pipeline of ``mode="incremental"``.
    :param storage_conn_id: The connection of the checkpoint's store; ``connection`` is itself.
    """
    table = canonical_uri(delta_location)
    location = canonical_uri(checkpoint.location) if checkpoint.location else f"{table}/_checkpoint"
    storage = store_of(location, storage_conn_id, connection=connection).storage
    return IntervalLog(storage, location, window) if window else CheckpointLog(storage, location)


def audit_files(log: CheckpointLog, checkpoint: Checkpoint) -> AuditFiles:
    """Return the audit files beside a log; an interval has none."""
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
    task_id: str = ""
    """How the names of its SCOPE jobs begin, unless its engine says so; an id of a Dag may have dots, too."""
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
    resumed: bool = False
    """Whether the try goes on after a wait: a job that failed meanwhile fails it."""


def spark_engine(ingest: Ingest, log: CheckpointLog, context: RunContext) -> PlanEngine:
    """Return the running engine for a user's ``SparkEngine``.

    :raises InputError: An open batch was submitted as a SCOPE job, or Spark cannot reach a location.
    :raises ConnectionMissingError: There is no such Spark connection.
    """
    settings, source = ingest.engine, ingest.source
    if not isinstance(settings, SparkEngine):
        msg = "the engine is not Spark"
        raise TypeError(msg)
    connection = connection_of(settings.spark_conn_id) if settings.spark_conn_id else None
    manager = manager_of(connection, settings.conf, context.log_file)
    check_no_jobs(log, log.open_entries())
    table = canonical_uri(ingest.delta_location)
    places = (table, log.location, *source.folders[:1])
    stores = {uri: store_of(uri, context.storage_conn_id) for uri in places}
    _check_for_spark(stores)
    common: dict[str, Any] = {
        "ingest": ingest,
        "settings": settings,
        "stores": stores,
        "report": context.report,
        "storage": log.storage,
        "table_storage": stores[table].storage,
        "database": source.database and database_hooks.database_of(source.database, parts=source.connections),
    }
    if manager is None:
        return SubmitEngine(**common, log_file=context.log_file, new_id=new_id, task=context.task)
    check_for_cluster(ingest, settings, [table, log.location, *source.folders], manager)
    return ClusterEngine(
        **common,
        wait=replace(wait_for(manager, context, math.inf, manager.poll_interval), forgets_ended=True),
        resumed=context.resumed,
    )


def on_this_machine(settings: SparkEngine, log_file: Path) -> SparkEngine:
    """Return settings with which the driver runs here: in local mode in place of one on a cluster."""
    conn_id, conf = settings.spark_conn_id, settings.conf or {}
    if not conn_id or manager_of(connection_of(conn_id), conf, log_file) is None:
        return settings
    local_conf = {name: value for name, value in conf.items() if name != DEPLOY_MODE}
    return replace(settings, spark_conn_id=None, conf=local_conf)


def wait_for(jobs: _J, context: RunContext, timeout_seconds: float, poll_seconds: float) -> JobWait[_J]:
    """Return how jobs are waited for.

    :param poll_seconds: Where the task does not say.
    """
    return JobWait(
        jobs=jobs,
        timeout_seconds=timeout_seconds,
        poll_seconds=context.poll_interval or poll_seconds,
        inline_wait_seconds=INLINE_WAIT_SECONDS if context.deferrable else None,
        clock=time.time,
        sleep=time.sleep,
        random=random.random,
        report=logger.info,
        deadline=context.deadline,
    )


def _files_and_jobs(
    ingest: Ingest, engine: ScopeEngine, log: CheckpointLog, context: RunContext
) -> tuple[Files, ScopeRunner]:
    """Return the source and the engine of SCOPE jobs; what the task does not say, the connection does.

    :raises InputError: SCOPE jobs cannot do what the task asks for.
    """
    spec = files_of(ingest.source)
    check_one_store(spec.folders)
    table = canonical_uri(ingest.delta_location)
    _check_for_jobs([*spec.folders, table])
    source = store_of(spec.folders[0], context.storage_conn_id)
    check_scope(ingest)
    check_no_application(log)
    name = engine.job_tag or context.task_id
    check_tag("job_tag" if engine.job_tag else "task_id", name)
    hook = ScopeHook(engine.scope_conn_id)
    defaults = hook.defaults
    table_storage = store_of(table, context.storage_conn_id).storage
    scripts = Scripts(
        ingest,
        engine,
        engine.feature_previews or (defaults.feature_previews,),
        lambda: table_columns(table, table_storage),
    )

    def script(identity: BatchIdentity, entry: OffsetEntry) -> str:
        check_no_application(log)
        if source.hook is not None:
            check_unchanged(entry, source.hook.get_status)
        return scripts.script(identity, entry)

    runner = ScopeRunner(
        log=log,
        wait=wait_for(
            hook, context, engine.job_timeout_seconds or defaults.job_timeout_seconds, defaults.poll_interval
        ),
        settings=JobSettings(
            name=name,
            au=engine.au or defaults.au,
            priority=engine.priority or defaults.priority,
            run_id=new_id(),
            task=context.task,
            account=hook.service.authority,
        ),
        script=script,
        report=context.report,
        table_storage=table_storage,
        resumed=context.resumed,
    )
    files = Files(
        spec=replace(
            spec,
            max_files_per_trigger=spec.max_files_per_trigger or defaults.max_files_per_trigger,
            max_bytes_per_trigger=spec.max_bytes_per_trigger or defaults.max_bytes_per_trigger,
        ),
        log=log,
        listing=source.storage,
        now_ms=clock.now_ms(),
        fits=scripts.files_that_fit,
    )
    return files, runner


def assemble(ingest: Ingest, context: RunContext) -> tuple[MicroBatchExecution, Request, Engine]:
    """Put the parts of a run together; nothing is written yet."""
    ingest, log = placed(ingest, context)
    conn_id = context.storage_conn_id
    request = make_request(ingest)
    source: Source
    engine: Engine
    if isinstance(ingest.engine, ScopeEngine):
        source, engine = _files_and_jobs(ingest, ingest.engine, log, context)
    else:
        source = _source(ingest, log, conn_id)
        engine = spark_engine(ingest, log, context)
    _check_intervals(ingest, log, request, source, conn_id)
    execution = MicroBatchExecution(
        log,
        audit_files(log, ingest.checkpoint),
        source,
        engine,
        now_ms=clock.now_ms,
        new_id=new_id,
        after=_after(ingest.source, log, conn_id),
    )
    return execution, request, engine


def placed(ingest: Ingest, context: RunContext) -> tuple[Ingest, CheckpointLog]:
    """Return the arguments with all their locations, as canonical URIs, and the log that goes with them."""
    ingest = located(ingest, context)
    check_places(ingest)
    ingest = replace(ingest, source=ingest.source.at(canonical_root, canonical_uri))
    conn_id = context.storage_conn_id
    return ingest, open_log(ingest.delta_location, ingest.checkpoint, ingest.window, storage_conn_id=conn_id)


def _check_intervals(
    ingest: Ingest,
    log: CheckpointLog,
    request: Request,
    source: Source,
    conn_id: str | None,
) -> None:
    """Refuse a run that would load again what an interval, or the incremental load beside it, has loaded.

    :raises InputError: As said.
    """
    if ingest.mode == "incremental":
        check_beside_intervals(
            log.storage,
            log.location,
            ingest.source.begins_ms,
            replaces_table=request.replaces_table,
            argument=ingest.source.begins_by,
        )
    elif ingest.window is None:
        raise InputError(
            'mode="data_interval" loads one interval, and none is named.',
            kept="everything; nothing was read or written",
            do="name it with --interval <start>_<end>, as `airflow scope status` shows it",
        )
    elif request.where is None and log.pipeline() is None:
        beside = open_log(ingest.delta_location, ingest.checkpoint, storage_conn_id=conn_id)
        source.check_not_loaded_before(beside, audit_files(beside, ingest.checkpoint))


def _after(
    source: AnySource, log: CheckpointLog, conn_id: str | None
) -> Callable[[LogView, RunReport], None] | None:
    """Return what writes the table of batches after a run; None if there is to be none."""
    location = source.metadata_table
    return FeedMetadata(log, location, store_of(location, conn_id).storage).after if location else None


def _source(ingest: Ingest, log: CheckpointLog, conn_id: str | None) -> Source:
    access = Access(
        now_ms=clock.now_ms(),
        store=partial(store_of, storage_conn_id=conn_id),
        database_kind=database_hooks.kind_of,
        database_rows=database_hooks.fetch,
    )
    facts = import_module(f"airflow_provider_scope.sources.{PARTS[type(ingest.source)].facts}")
    source: Source = facts.of_run(ingest.source, ingest, log, access)
    return source


def located(ingest: Ingest, context: RunContext) -> Ingest:
    """Return the arguments with the table's location: the one that was given, or the connection's.

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


def _check_for_jobs(uris: Iterable[str]) -> None:
    for uri in uris:
        kind = kind_of(uri)
        if not kind.is_for_jobs:
            raise InputError(
                f"The folder {uri} is on {kind.name}, which SCOPE jobs do not reach.",
                kept="everything; nothing was read or written",
                do="use engine=SparkEngine(); or files on ADLS Gen1, and a table there or on Azure Storage",
            )


@dataclass(frozen=True, slots=True)
class Findings:
    """What a batch holds, as Spark has read it."""

    refusals: tuple[ScopeProviderError, ...]
    """All that a run would refuse."""
    bad: tuple[str, ...]
    """A line for each rule that records, rows of the SELECT or files break."""
    warned: tuple[str, ...]
    """A line for each rule that rows break which are loaded."""
    rows: int | None
    """How many rows a run would write; None if it would not write them as they are."""


def rehearse(execution: MicroBatchExecution, entry: OffsetEntry, context: RunContext) -> Findings:
    """Read a batch by Spark on this machine, with all checks of a run, and write nothing.

    :param execution: It has read the log and the table; the log need not hold the batch.
    :param context: As it was assembled with.
    :raises InputError: The batches are SCOPE jobs.
    :raises EngineError: Spark failed before it could read.
    """
    view, request = execution.view, execution.request
    if not isinstance(execution.engine, PlanEngine):
        raise InputError(
            "The batches of this task are SCOPE jobs: what they read, only they can tell.",
            kept="everything; nothing was written",
            do="leave --read out: `airflow scope plan` checks the script",
        )
    settings = on_this_machine(execution.engine.settings, context.log_file)
    with TemporaryDirectory(prefix="airflow-provider-scope-read-") as folder:
        location = canonical_uri(folder)
        log = CheckpointLog(store_of(location).storage, location)
        log.storage.replace(f"{location}/offsets/{entry.seq:020}", encode_offset(entry))
        columns = pinned_columns(execution.log, view) if request.infers_columns else None
        pipeline = view.pipeline.pipeline if view.pipeline else new_id()
        work = Work(pipeline, request.table, location, view.first, columns, reads_only=True)
        ingest = replace(execution.engine.ingest, engine=settings)
        spark_engine(ingest, log, replace(context, report=lambda _: None)).run(work, [entry])
        findings = json.loads(log.storage.read(plans.findings_path(location)) or b"{}")
    refusals = tuple(map(ScopeProviderError.from_dict, findings["refusals"]))
    return Findings(refusals, tuple(findings["bad"]), tuple(findings["warned"]), findings["rows"])


def make_request(ingest: Ingest) -> Request:
    replace = ingest.write if isinstance(ingest.write, Replace) else None
    return Request(
        table=canonical_uri(ingest.delta_location),
        max_batches=ingest.max_batches_per_run,
        refresh=ingest.full_refresh or replace is not None,
        where=replace.where if replace else None,
        is_snapshot=replace is not None and replace.where is None,
        adds_to_rows=ingest.first_run == "add",
        infers_columns=ingest.source.infers_columns,
    )
