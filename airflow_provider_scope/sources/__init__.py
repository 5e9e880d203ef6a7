"""Where rows come from: a folder for each kind of source, with its spec, its decisions, and its facts."""

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
