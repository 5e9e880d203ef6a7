"""Where rows come from: a folder for each kind of source, with its spec, its decisions, and its facts."""

from __future__ import annotations

from typing import NamedTuple

from airflow_provider_scope.sources.cursor.spec import JdbcSource, TableSource
from airflow_provider_scope.sources.feed.spec import CdfSource
from airflow_provider_scope.sources.files.spec import FileSource

AnySource = FileSource | TableSource | JdbcSource | CdfSource


class Parts(NamedTuple):
    """How a source is recognized, and where its other parts are, which are imported when they are needed."""

    field: str
    """A field without default: a dict that has it is of this source, unless it is of one in a row above."""
    facts: str
    """The module below ``sources`` whose ``of_run`` makes the ``Source`` of a run of the user's spec."""
    reader: str
    """The module below ``spark`` that reads the slices."""


PARTS: dict[type[AnySource], Parts] = {
    JdbcSource: Parts("conn_id", facts="cursor.source", reader="cursor"),
    TableSource: Parts("cursor", facts="cursor.source", reader="cursor"),
    CdfSource: Parts("table", facts="feed.source", reader="feed"),
    FileSource: Parts("roots", facts="files.source", reader="files.file_slice"),
}
