"""From the source that a user wrote to one that a run can ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.checkpoint.intervals import check_beside_intervals
from airflow_provider_scope.core.bounds import window_bounds
from airflow_provider_scope.core.discovery import Rules
from airflow_provider_scope.core.files import TEXT_FORMATS
from airflow_provider_scope.engines import clock
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.execution.changes import ChangeRows
from airflow_provider_scope.execution.cursor import CursorRows, check_range_not_loaded
from airflow_provider_scope.execution.feed_metadata import FeedMetadata
from airflow_provider_scope.execution.files import Files
from airflow_provider_scope.execution.loaded import check_not_loaded_before
from airflow_provider_scope.hooks.stores import store_of
from airflow_provider_scope.specs.changes import CdfSource
from airflow_provider_scope.specs.cursor import TableSource, bound_of, for_plan
from airflow_provider_scope.specs.ingest import SELECT_ALL
from airflow_provider_scope.specs.source import (
    MAX_BYTES_PER_TRIGGER,
    MAX_FILES_ON_SPARK,
    FileSource,
    instant_ms,
    starting_at_ms,
)
from airflow_provider_scope.specs.write import Merge, Replace, Scd2
from airflow_provider_scope.storage.opening import canonical_root, canonical_uri

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_scope.checkpoint.audit import AuditFiles
    from airflow_provider_scope.checkpoint.log import CheckpointLog
    from airflow_provider_scope.core.interval import Window
    from airflow_provider_scope.core.report import RunReport
    from airflow_provider_scope.execution.files import Listing
    from airflow_provider_scope.execution.request import Request
    from airflow_provider_scope.execution.view import LogView
    from airflow_provider_scope.specs.ingest import Ingest
    from airflow_provider_scope.specs.jdbc import JdbcSource


def check_intervals(
    ingest: Ingest,
    log: CheckpointLog,
    request: Request,
    beside: Callable[[], tuple[CheckpointLog, AuditFiles]],
) -> None:
    """Refuse a run that would load again what an interval, or the incremental load beside it, has loaded.

    :param beside: Gives the log of ``mode="incremental"`` in the same checkpoint.
    :raises InputError: As said.
    """
    source = ingest.source
    if ingest.mode == "incremental":
        check_beside_intervals(
            log.storage,
            log.location,
            starting_at_ms(source.starting_timestamp)
            if isinstance(source, FileSource)
            else _begins_ms(source),
            replaces_table=request.refresh and request.where is None,
            argument="starting_timestamp" if isinstance(source, FileSource) else "cursor.initial_value",
        )
    elif ingest.window is None:
        raise InputError(
            'mode="data_interval" loads one interval, and none is named.',
            kept="everything; nothing was read or written",
            do="name it with --interval <start>_<end>, as `airflow scope status` shows it",
        )
    elif request.where is None and log.pipeline() is None:
        other, audit = beside()
        if isinstance(source, FileSource):
            check_not_loaded_before(other, audit, roots_of(source), ingest.window, clock.now_ms())
        else:
            check_range_not_loaded(other, ingest.window)


def _begins_ms(source: TableSource | JdbcSource | CdfSource) -> int | None:
    if isinstance(source, CdfSource):
        return None
    first = bound_of("initial_value", source.cursor.initial_value)
    return first.milliseconds() if first else None


def make_changes(
    ingest: Ingest, source: CdfSource, log: CheckpointLog, conn_id: str | None
) -> tuple[ChangeRows, tuple[str, ...]]:
    """Give the source of a run, and the URIs that Spark has to reach for it."""
    table = canonical_uri(source.table)
    made = ChangeRows(
        place=log.location,
        table=table,
        storage=store_of(table, conn_id).storage,
        identifier=source.identifier,
        full_load=source.full_load,
        start_version=source.start_version,
        end_version=source.end_version,
        start_ms=instant_ms("start_timestamp", source.start_timestamp),
        max_commits=source.max_commits_per_batch,
        max_bytes=source.max_bytes_per_batch,
        needs_feed=not isinstance(ingest.write, Replace),
        goes_by_keys=isinstance(ingest.write, (Merge, Scd2)),
        goes_by_names=isinstance(ingest.write, (Merge, Scd2)) and ingest.sql == SELECT_ALL,
    )
    return made, (table,)


def metadata_of_feed(
    source: CdfSource, log: CheckpointLog, conn_id: str | None
) -> Callable[[LogView, RunReport], None] | None:
    """Give what writes the table at ``metadata_location`` after a run; None if there is to be none."""
    if source.metadata_location is None:
        return None
    location = canonical_uri(source.metadata_location)
    return FeedMetadata(log, location, store_of(location, conn_id).storage).after


def make_cursor(
    ingest: Ingest, source: TableSource | JdbcSource, log: CheckpointLog, conn_id: str | None
) -> tuple[CursorRows, tuple[str, ...]]:
    """Give the source of a run, and the URIs that Spark has to reach for it."""
    cursor = source.cursor
    first, end = (
        bound_of("initial_value", cursor.initial_value),
        bound_of("end_value", cursor.end_value),
    )
    if ingest.window:
        first, end = window_bounds(ingest.window)
    table, is_pinned = source.rows_of, False
    if isinstance(source, TableSource) and not source.is_named:
        table, is_pinned = canonical_uri(source.table), True
    made = CursorRows(
        log=log,
        table=table,
        is_pinned=is_pinned,
        column=cursor.column,
        first=first,
        end=end,
        interval=ingest.window.name if ingest.window else None,
        loads_once=ingest.write == "append",
        storage=store_of(table, conn_id).storage if is_pinned else None,
        # A SELECT before the cursor may make other rows of old ones.
        rule=None if source.pre_filter_sql else for_plan(cursor).rule(cursor.column),
    )
    return made, (table,) if is_pinned else ()


def roots_of(source: FileSource) -> tuple[str, ...]:
    """Give the canonical URIs of the folders that a task loads."""
    return tuple(dict.fromkeys(canonical_root(root) for root in source.roots))


def make_files(
    source: FileSource, log: CheckpointLog, listing: Listing, at_ms: int, window: Window | None
) -> Files:
    """Give the source of a run at a time."""
    return Files(
        log=log,
        listing=listing,
        roots=roots_of(source),
        rules=Rules(
            patterns=source.name_patterns,
            young_after_ms=at_ms - int(source.safety_buffer_seconds * 1000),
            starting_at_ms=starting_at_ms(source.starting_timestamp),
            window=window,
            late_files=source.late_files,
            on_changed_file=source.on_changed_file,
            is_text=source.format in TEXT_FORMATS,
        ),
        max_files=source.max_files_per_trigger or MAX_FILES_ON_SPARK,
        max_bytes=source.max_bytes_per_trigger or MAX_BYTES_PER_TRIGGER,
        safety_buffer_seconds=source.safety_buffer_seconds,
        fail_on_empty=bool(source.fail_on_empty),
    )
