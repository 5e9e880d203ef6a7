"""From what the user wrote to the script of a batch."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from airflow_provider_scope.columns import declared
from airflow_provider_scope.exceptions import InputError, SourceUnreadableError
from airflow_provider_scope.scope.dialect import VIRTUAL_FUNCTIONS, check_model, scope_type
from airflow_provider_scope.scope.script import BatchIdentity, ScriptBatch, files_that_fit, generate
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


@dataclass(frozen=True, slots=True)
class Scripts:
    """Makes the scripts of a task's batches."""

    ingest: Ingest
    engine: ScopeEngine
    previews: Sequence[str]
    columns_of_table: Callable[[], Struct | None]
    """Looks at the table; asked only where its columns matter."""

    def script(self, identity: BatchIdentity, entry: OffsetEntry) -> str:
        """Make the script of a batch.

        :raises InputError: A value cannot be part of a script, or a partition column would have to be added.
        """
        batch = self.batch(identity, entry.files, overwrite=entry.overwrites_table)
        if self._adds_columns:
            batch = replace(batch, new_columns=new_columns(self.ingest, self.columns_of_table()))
        return generate(batch)

    def files_that_fit(self, files: tuple[FileEntry, ...]) -> int:
        """Return how many of some files, from the first, one script can name.

        :raises InputError: Not even one.
        """
        batch = self.batch(_SAMPLE, files, overwrite=True)
        if self._adds_columns:
            batch = replace(batch, new_columns=tuple(batch.table_columns))
        count = files_that_fit(batch)
        if not count:
            raise InputError(
                f"The script of a batch is longer than 3 MB with the one file {files[0].path}.",
                kept="the table and the log; no job was submitted",
                do="shorten `sql`",
            )
        return count

    def batch(self, identity: BatchIdentity, files: tuple[FileEntry, ...], *, overwrite: bool) -> ScriptBatch:
        """Gather what a batch's script is made of; the columns that it adds are left out."""
        ingest = self.ingest
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
            feature_previews=tuple(self.previews),
            settings=dict(self.engine.settings or {}),
        )

    @property
    def _adds_columns(self) -> bool:
        return self.ingest.table.schema_evolution != "fail"


def new_columns(ingest: Ingest, table: Struct | None) -> tuple[str, ...]:
    """Return the declared columns that a job has to add to a table.

    :param table: The table's columns as they are; None if there is no table.
    :raises InputError: One of them partitions the table.
    """
    if table is None:
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
