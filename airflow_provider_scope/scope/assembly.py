"""From what the user wrote to the script of a batch."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from airflow_provider_scope.columns import declared
from airflow_provider_scope.exceptions import InputError, SourceUnreadableError
from airflow_provider_scope.scope.dialect import VIRTUAL_FUNCTIONS, check_model, scope_type
from airflow_provider_scope.scope.script import BatchIdentity, ScriptBatch, files_that_fit
from airflow_provider_scope.specs import capabilities
from airflow_provider_scope.specs.ingest import files_of
from airflow_provider_scope.sql import words
from airflow_provider_scope.values import check_as_logged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_provider_scope.delta.schema import Struct
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.specs import ScopeEngine
    from airflow_provider_scope.specs.ingest import Ingest
    from airflow_provider_scope.stores.webhdfs import Status
    from airflow_provider_scope.values import FileEntry

_SAMPLE = BatchIdentity("00000000-0000-0000-0000-000000000000", 10**19, 10**6)
"""As long as an identity gets, for the size of a script that is not made yet."""

_KEPT = "the batches before it; no job was submitted for this one, and it stays logged"


def check_scope(ingest: Ingest) -> None:
    """Refuse what SCOPE jobs cannot do, before anything is read.

    :raises InputError: With the argument and what to write instead.
    """
    if not ingest.sql.endswith(".sql"):
        check_model(ingest.sql)
    capabilities.check(capabilities.IN_JOBS, {f.name: getattr(ingest, f.name) for f in fields(ingest)})


def script_batch(
    ingest: Ingest,
    engine: ScopeEngine,
    previews: Sequence[str],
    identity: BatchIdentity,
    entry: tuple[bool, tuple[FileEntry, ...]],
) -> ScriptBatch:
    """Give the values of a batch's script.

    :param entry: Whether the batch replaces the table, and its files.
    """
    overwrite, files = entry
    columns = declared(ingest.table.columns) or {}
    extracted = declared(files_of(ingest.source).columns)
    named = words(ingest.sql) | {name.lower() for name in columns}
    return ScriptBatch(
        identity=identity,
        location=ingest.delta_location,
        sql=ingest.sql,
        files=files,
        table_columns=_types(columns, ingest.sql_dialect),
        extract_columns=_types(extracted, ingest.sql_dialect) if extracted else None,
        virtual_columns=tuple(name for name in VIRTUAL_FUNCTIONS if name in named),
        partition_by=tuple(ingest.table.partition_by),
        properties=dict(ingest.table.properties or {}),
        overwrite=overwrite,
        mark_table=True,
        feature_previews=tuple(previews),
        settings=dict(engine.settings or {}),
    )


def new_columns(ingest: Ingest, table: Struct | None) -> tuple[str, ...]:
    """Give the declared columns that a job has to add to a table.

    :param table: The table's columns as they are; None if there is no table.
    :raises InputError: One of them partitions the table.
    """
    if ingest.table.schema_evolution == "fail" or table is None:
        return ()
    existing_names = table.by_name()
    missing = tuple(
        name for name in declared(ingest.table.columns) or {} if name.lower() not in existing_names
    )
    partitions = {name.lower() for name in ingest.table.partition_by}
    for name in missing:
        if name.lower() in partitions:
            raise InputError(
                f"The column {name} cannot be added to the table {ingest.delta_location}: the table is "
                "partitioned by it.",
                kept="the table and the log; no job was submitted",
                do="recreate the table with this partitioning; or leave the column out of table.partition_by",
            )
    return missing


def scripts(
    ingest: Ingest,
    engine: ScopeEngine,
    previews: Sequence[str],
    columns_of_table: Callable[[], Struct | None],
) -> tuple[Callable[[BatchIdentity, OffsetEntry], ScriptBatch], Callable[[tuple[FileEntry, ...]], int]]:
    """Give how an entry becomes a script, and how many of some files one script can name.

    :param columns_of_table: Looks at the table; asked only where its columns matter.
    """
    adds = ingest.table.schema_evolution != "fail"

    def make(identity: BatchIdentity, entry: OffsetEntry) -> ScriptBatch:
        batch = script_batch(ingest, engine, previews, identity, (entry.overwrites_table, entry.files))
        return replace(batch, new_columns=new_columns(ingest, columns_of_table())) if adds else batch

    def fits(files: tuple[FileEntry, ...]) -> int:
        batch = script_batch(ingest, engine, previews, _SAMPLE, (True, files))
        count = files_that_fit(replace(batch, new_columns=tuple(batch.table_columns)) if adds else batch)
        if not count:
            raise InputError(
                f"The script of a batch is longer than 3 MB with the one file {files[0].path}.",
                kept="the table and the log; no job was submitted",
                do="shorten `sql`",
            )
        return count

    return make, fits


def check_unchanged(entry: OffsetEntry, status_of: Callable[[str], Status | None]) -> None:
    """Look at every file of a batch again, just before its job is submitted.

    :raises SourceFileGoneError: One is missing.
    :raises SourceFileChangedError: One has another time or length than its entry says.
    """
    files_now = [(file, status_of(file.path)) for file in entry.files]
    for file, status in files_now:
        if status and status.is_folder:
            raise SourceUnreadableError(f"{file.path} of batch {entry.seq} is a folder now.")
    statuses = (
        (file, (status_now.modified_ms, status_now.size_bytes) if status_now else None)
        for file, status_now in files_now
    )
    check_as_logged(entry.seq, statuses, kept=_KEPT)


def _types(columns: Mapping[str, str], dialect: str | None) -> dict[str, str]:
    return {name: kind if dialect == "scope" else scope_type(kind) for name, kind in columns.items()}
