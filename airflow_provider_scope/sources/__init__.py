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
    """The function that makes the ``Source`` of a run of the user's spec, as ``module:function``."""
    reader: str
    """The module of the Spark application that reads the slices."""


PARTS: dict[type[AnySource], Parts] = {
    JdbcSource: Parts(
        "conn_id",
        "airflow_provider_scope.sources.cursor.source:of_run",
        "airflow_provider_scope.spark.cursor",
    ),
    TableSource: Parts(
        "cursor",
        "airflow_provider_scope.sources.cursor.source:of_run",
        "airflow_provider_scope.spark.cursor",
    ),
    CdfSource: Parts(
        "table",
        "airflow_provider_scope.sources.feed.source:of_run",
        "airflow_provider_scope.spark.feed",
    ),
    FileSource: Parts(
        "roots",
        "airflow_provider_scope.sources.files.source:of_run",
        "airflow_provider_scope.spark.files.file_slice",
    ),
}
