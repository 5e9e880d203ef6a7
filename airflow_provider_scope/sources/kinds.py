"""The sources that a user can write; what holds for each of them is derived from here."""

from __future__ import annotations

from airflow_provider_scope.sources.cursor.spec import JdbcSource, TableSource
from airflow_provider_scope.sources.feed.spec import CdfSource
from airflow_provider_scope.sources.files.spec import FileSource

AnySource = FileSource | TableSource | JdbcSource | CdfSource
BY_FIELD: tuple[tuple[str, type[AnySource]], ...] = (
    ("conn_id", JdbcSource),
    ("cursor", TableSource),
    ("table", CdfSource),
)
"""A field that one kind alone has: the first that a dict has tells what it is of. Else it is of files."""
