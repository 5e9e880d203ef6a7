"""From the source that a user wrote to one that a run can ask, and to what a plan tells Spark of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.columns import INFER, declared, split_columns
from airflow_provider_scope.delta.log import table_columns
from airflow_provider_scope.delta.schema import evolve
from airflow_provider_scope.engines import clock
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.hooks.databases import fetch, kind_of
from airflow_provider_scope.hooks.stores import store_of
from airflow_provider_scope.protocol.intervals import check_beside_intervals
from airflow_provider_scope.sources.cursor import databases, newer
from airflow_provider_scope.sources.cursor.source import CursorRows, check_range_not_loaded
from airflow_provider_scope.sources.cursor.spec import JdbcSource, TableSource, bound_of
from airflow_provider_scope.sources.cursor.state import window_bounds
from airflow_provider_scope.sources.feed.metadata import FeedMetadata
from airflow_provider_scope.sources.feed.source import ChangeRows
from airflow_provider_scope.sources.feed.spec import CdfSource
from airflow_provider_scope.sources.files.discovery import Rules
from airflow_provider_scope.sources.files.source import Files, check_not_loaded_before
from airflow_provider_scope.sources.files.spec import (
    MAX_BYTES_PER_TRIGGER,
    MAX_FILES_ON_SPARK,
    FileSource,
)
from airflow_provider_scope.spark.plan import ChangesPlan, CursorPlan, DatabasePlan, FilesPlan
from airflow_provider_scope.specs.ingest import SELECT_ALL
from airflow_provider_scope.specs.write import Merge, Replace, Scd2
from airflow_provider_scope.stores.protocol import canonical_root, canonical_uri
from airflow_provider_scope.validation import instant_ms
from airflow_provider_scope.values import TEXT_FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_scope.delta.schema import Struct
    from airflow_provider_scope.protocol.derived import AuditFiles
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.report import RunReport
    from airflow_provider_scope.protocol.source import Request
    from airflow_provider_scope.protocol.view import LogView
    from airflow_provider_scope.sources.cursor.state import Bound, CursorRule, CursorState
    from airflow_provider_scope.sources.files.source import Listing
    from airflow_provider_scope.specs.ingest import AnySource, Ingest
    from airflow_provider_scope.specs.write import Write
    from airflow_provider_scope.values import Window


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
            instant_ms("starting_timestamp", source.starting_timestamp)
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
    rows = ChangeRows(
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
        check_columns=_column_check(ingest, source, conn_id),
    )
    return rows, (table,)


def _column_check(ingest: Ingest, source: CdfSource, conn_id: str | None) -> Callable[[Struct], None] | None:
    """Give what refuses columns of a feed that do not fit the target; None if only Spark can tell."""
    writes_columns_as_they_are = isinstance(ingest.write, Merge) and source.deletes == "apply"
    if ingest.sql != SELECT_ALL or ingest.table.schema_evolution != "fail" or not writes_columns_as_they_are:
        return None
    target = canonical_uri(ingest.delta_location)

    def check(columns: Struct) -> None:
        existing = table_columns(target, store_of(target, conn_id).storage)
        if existing:
            evolve("fail", columns, existing, target)

    return check


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
    # A SELECT before the cursor may make other rows of old ones.
    rule = None if source.pre_filter_sql else cursor.rule
    table, is_pinned = source.rows_of, False
    if isinstance(source, TableSource) and not source.is_named:
        table, is_pinned = canonical_uri(source.table), True
    rows = CursorRows(
        log=log,
        table=table,
        is_pinned=is_pinned,
        column=cursor.column,
        first=first,
        end=end,
        interval=ingest.window.name if ingest.window else None,
        loads_once=ingest.write == "append",
        storage=store_of(table, conn_id).storage if is_pinned else None,
        rule=rule,
        is_unchanged=_unchanged_check(source, rule, first)
        if rule and isinstance(source, JdbcSource)
        else None,
    )
    return rows, (table,) if is_pinned else ()


def _unchanged_check(
    source: JdbcSource, rule: CursorRule, first: Bound | None
) -> Callable[[CursorState], bool] | None:
    """Give what asks a database whether it has no row that the next load would take."""
    if "sessionInitStatement" in (source.options or {}):
        return None  # it may say what the table's name means

    def is_unchanged(state: CursorState) -> bool:
        rows_of = databases.rows_of(source.table, source.query)
        query = newer.question(kind_of(source.conn_id), rows_of, rule, state, first)
        rows = fetch(source.conn_id, *query) if query else None
        return rows is not None and newer.are_known(rows, rule, state)

    return is_unchanged


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
            starting_at_ms=instant_ms("starting_timestamp", source.starting_timestamp),
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


def plan_of(
    source: AnySource, write: Write, pinned: str | None, *, fence: bool, database: str = ""
) -> FilesPlan | CursorPlan | ChangesPlan:
    """Give what a plan says of a source.

    :param pinned: The columns that were inferred before, as DDL.
    :param fence: Whether the batches are not read at all.
    :param database: The kind of the database; empty for other sources.
    """
    if isinstance(source, FileSource):
        return _files_plan(source, pinned, fence=fence)
    if isinstance(source, CdfSource):
        replaces = isinstance(write, Replace)
        return ChangesPlan(table=canonical_uri(source.table), deletes=source.deletes, replaces=replaces)
    return _cursor_plan(source, database)


def _files_plan(source: FileSource, pinned: str | None, *, fence: bool) -> FilesPlan:
    infers = source.columns == INFER and not fence
    pinned_columns = dict(split_columns(pinned)) if infers and pinned else None
    return FilesPlan(
        format=source.format,
        columns=pinned_columns or declared(source.columns),
        infers_columns=infers,
        options=dict(source.options or {}),
        extra_columns=source.extra_columns,
        missing_columns=source.missing_columns,
        bad_records=source.bad_records,
        max_bad_records=source.max_bad_records,
        max_bad_share=source.max_bad_share,
    )


def _cursor_plan(source: TableSource | JdbcSource, database: str) -> CursorPlan:
    is_named = isinstance(source, JdbcSource) or source.is_named
    return CursorPlan(
        rule=source.cursor.rule,
        table=source.rows_of if is_named else canonical_uri(source.rows_of),
        is_named=is_named,
        pre_filter_sql=source.pre_filter_sql,
        max_rows=source.max_rows_per_batch,
        database=_database_plan(source, database) if isinstance(source, JdbcSource) else None,
    )


def _database_plan(source: JdbcSource, kind: str) -> DatabasePlan:
    options = {name: str(value) for name, value in (source.options or {}).items()}
    return DatabasePlan(
        kind=kind,
        table=source.table,
        query=source.query,
        options=options,
        zone=source.time_zone,
        partition_column=source.partition_column,
        num_partitions=source.num_partitions,
    )
