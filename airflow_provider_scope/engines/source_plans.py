"""What a plan says of the source: how Spark reads the batches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_scope.core.plan import ChangesPlan, CursorPlan, DatabasePlan, FilesPlan
from airflow_provider_scope.specs.changes import CdfSource
from airflow_provider_scope.specs.columns import INFER, declared, split_columns
from airflow_provider_scope.specs.cursor import for_plan
from airflow_provider_scope.specs.jdbc import JdbcSource
from airflow_provider_scope.specs.source import FileSource
from airflow_provider_scope.specs.write import Replace
from airflow_provider_scope.storage.opening import canonical_uri

if TYPE_CHECKING:
    from airflow_provider_scope.specs.cursor import TableSource
    from airflow_provider_scope.specs.sources import AnySource
    from airflow_provider_scope.specs.write import Write


def plan_of(
    source: AnySource, write: Write, pinned: str | None, *, fence: bool, database: str = ""
) -> FilesPlan | CursorPlan | ChangesPlan:
    """Give what a plan says of a source.

    :param pinned: The columns that were inferred before, as DDL.
    :param fence: Whether the batches are not read at all.
    :param database: The kind of the database; empty for other sources.
    """
    if isinstance(source, FileSource):
        return _files(source, pinned, fence=fence)
    if isinstance(source, CdfSource):
        replaces = isinstance(write, Replace)
        return ChangesPlan(table=canonical_uri(source.table), deletes=source.deletes, replaces=replaces)
    return _cursor(source, database)


def _files(source: FileSource, pinned: str | None, *, fence: bool) -> FilesPlan:
    infers = source.columns == INFER and not fence
    known = dict(split_columns(pinned)) if infers and pinned else None
    return FilesPlan(
        format=source.format,
        columns=known or declared(source.columns),
        infers_columns=infers,
        options=dict(source.options or {}),
        extra_columns=source.extra_columns,
        missing_columns=source.missing_columns,
        bad_records=source.bad_records,
    )


def _cursor(source: TableSource | JdbcSource, database: str) -> CursorPlan:
    is_named = isinstance(source, JdbcSource) or source.is_named
    made = for_plan(
        source.cursor,
        source.rows_of if is_named else canonical_uri(source.rows_of),
        is_named=is_named,
        pre_filter_sql=source.pre_filter_sql,
        max_rows=source.max_rows_per_batch,
    )
    return replace(made, database=_database(source, database)) if isinstance(source, JdbcSource) else made


def _database(source: JdbcSource, kind: str) -> DatabasePlan:
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
