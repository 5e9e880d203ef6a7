"""From what the user wrote to a run that can start."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

from airflow_provider_scope.checkpoint.audit import AuditFiles
from airflow_provider_scope.checkpoint.log import CheckpointLog
from airflow_provider_scope.core.discovery import Rules
from airflow_provider_scope.engines.spark import SparkRunner
from airflow_provider_scope.execution.micro_batch import MicroBatchExecution, Request
from airflow_provider_scope.specs import Replace
from airflow_provider_scope.specs.source import MAX_FILES_ON_SPARK, starting_at_ms
from airflow_provider_scope.storage.opening import canonical_uri, open_storage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_provider_scope.specs import Checkpoint
    from airflow_provider_scope.specs.ingest import Ingest


def now_ms() -> int:
    """Give the time, milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def new_id() -> str:
    """Give a fresh UUID."""
    return str(uuid.uuid4())


def open_log(delta_location: str, checkpoint: Checkpoint) -> CheckpointLog:
    """Give the log of the pipeline that writes to a table."""
    table = canonical_uri(delta_location)
    location = canonical_uri(checkpoint.location) if checkpoint.location else f"{table}/_checkpoint"
    return CheckpointLog(open_storage(location), location)


def audit_files(log: CheckpointLog, checkpoint: Checkpoint) -> AuditFiles:
    """Give the audit files beside a log."""
    return AuditFiles(
        log,
        compaction_interval=checkpoint.compaction_interval,
        retention_files=checkpoint.retention_files,
    )


def spark_runner(ingest: Ingest, log: CheckpointLog, log_file: Path) -> SparkRunner:
    """Give the running engine for a user's ``SparkEngine``."""
    return SparkRunner(
        engine=ingest.engine,
        source=ingest.source,
        table=ingest.table,
        sql=ingest.sql,
        sql_params=ingest.sql_params,
        storage=log.storage,
        log_file=log_file,
        new_id=new_id,
    )


def assemble(
    ingest: Ingest, log_file: Path, report: Callable[[str], None]
) -> tuple[MicroBatchExecution, Request, SparkRunner]:
    """Put the parts of a run together; nothing is read or written yet."""
    log = open_log(ingest.delta_location, ingest.checkpoint)
    runner = spark_runner(ingest, log, log_file)
    runner.report = report
    request = make_request(ingest, now_ms())
    execution = MicroBatchExecution(
        log,
        audit_files(log, ingest.checkpoint),
        open_storage(request.roots[0]),
        runner,
        now_ms=now_ms,
        new_id=new_id,
    )
    return execution, request, runner


def make_request(ingest: Ingest, at_ms: int) -> Request:
    """Give what a run at a time is asked to do."""
    source = ingest.source
    replace = ingest.write if isinstance(ingest.write, Replace) else None
    return Request(
        table=canonical_uri(ingest.delta_location),
        roots=tuple(dict.fromkeys(canonical_uri(root) for root in source.roots)),
        rules=Rules(
            patterns=tuple(source.patterns),
            young_after_ms=at_ms - int(source.safety_buffer_seconds * 1000),
            starting_at_ms=starting_at_ms(source.starting_timestamp),
            late_files=source.late_files,
            on_changed_file=source.on_changed_file,
        ),
        max_files=source.max_files_per_trigger or MAX_FILES_ON_SPARK,
        max_bytes=source.max_bytes_per_trigger,
        max_batches=ingest.max_batches_per_run,
        refresh=ingest.full_refresh or replace is not None,
        where=replace.where if replace else None,
        safety_buffer_seconds=source.safety_buffer_seconds,
    )
