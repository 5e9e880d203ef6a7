"""Which source a user means: a spec, or a dict of its fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_scope.specs import validation
from airflow_provider_scope.specs.changes import CdfSource
from airflow_provider_scope.specs.cursor import TableSource
from airflow_provider_scope.specs.jdbc import JdbcSource
from airflow_provider_scope.specs.source import FileSource

AnySource = FileSource | TableSource | JdbcSource | CdfSource
_BY_FIELD: tuple[tuple[str, type[AnySource]], ...] = (
    ("conn_id", JdbcSource),
    ("cursor", TableSource),
    ("table", CdfSource),
)
"""A field that one kind alone has: the first that a dict has tells what it is of."""


def source_from(value: Any) -> AnySource:
    """Make the source out of what the user wrote.

    :raises InputError: It is none, or a value in it is not valid.
    """
    if isinstance(value, AnySource):
        return value
    named = value if isinstance(value, Mapping) else {}
    kind = next((kind for field, kind in _BY_FIELD if field in named), FileSource)
    return validation.from_dict(kind, "source", value)


def puts_bad_records_aside(source: AnySource) -> bool:
    """Tell whether records that cannot be loaded go to the quarantine; only files have such."""
    return isinstance(source, FileSource) and source.bad_records == "quarantine"


def files_of(source: AnySource) -> FileSource:
    """Give a source of files, for what reads nothing else.

    :raises TypeError: It is another one.
    """
    if not isinstance(source, FileSource):
        msg = f"the source is a {type(source).__name__}"
        raise TypeError(msg)
    return source
