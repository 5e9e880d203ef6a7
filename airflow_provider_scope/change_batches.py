"""The changes of a table for a program of the caller's own, which says when it is done with them.

What was read is recorded where the caller says, so that it outlives the source: ``<number>-offered`` holds
the versions, before anything is read, ``-reader`` names who reads them, ``-consumed`` the state after them.
"""

from __future__ import annotations

import json
import os
import time
import uuid
import warnings
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from airflow_provider_scope.delta.log import open_table
from airflow_provider_scope.exceptions import (
    ChangeFeedError,
    CheckpointCorruptError,
    CheckpointGapError,
    InputError,
)
from airflow_provider_scope.protocol.records import OffsetEntry, typed
from airflow_provider_scope.sources.feed import state as feed_state
from airflow_provider_scope.sources.feed.source import ChangeRows
from airflow_provider_scope.sources.feed.spec import CdfSource
from airflow_provider_scope.sources.spec import is_name
from airflow_provider_scope.spark import feed, settings
from airflow_provider_scope.spark.plan import Plan
from airflow_provider_scope.spark.session import short_cause, with_settings
from airflow_provider_scope.stores.protocol import canonical_root, canonical_uri, open_storage
from airflow_provider_scope.values import VersionSlice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_scope.stores.protocol import Storage

_DIGITS = 20
_START_OVER = "start over with another checkpoint, and with CdfSource(full_load=True) as the source"


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Changes that are delivered until ``consume`` is called."""

    dataframe: DataFrame | None
    """The changes, with ``_change_type``, ``_commit_version`` and ``_commit_timestamp``; None for none."""
    start: int | None
    """The first version of the source."""
    end: int | None
    """The last one."""
    table: str = ""
    """The source's location."""
    place: str = ""
    """Where the batch is recorded."""
    reader: str = ""
    """Who reads it."""


def read_changes(
    spark: SparkSession, source: CdfSource | str | os.PathLike[str], checkpoint: str | os.PathLike[str]
) -> ChangeBatch:
    """Return the changes of a table that are not consumed yet.

    Until ``consume`` is called with the batch, the next call gives the same versions again.

    :param source: The source, or the table: its folder, on a disk that this machine sees, or its name in the
        session's catalog.
    :param checkpoint: The folder that records what was consumed, on such a disk, outside the source. Each
        reader has its own.
    :return: A batch without a DataFrame if there is nothing new.
    :raises ChangeFeedError: The feed does not tell all changes since the last batch, or the table is not the
        one that was read before.
    :raises CheckpointError: The records of the checkpoint are damaged, or some are missing.
    :raises InputError: There is no such table, or the checkpoint lies in it.

    What the report of a run would warn of, such as rows from before the feed, is a Python warning.
    """
    spec = source if isinstance(source, CdfSource) else CdfSource(table=_folder(spark, os.fspath(source)))
    spec = spec.at(canonical_root, canonical_uri)
    table, folder = spec.table, canonical_uri(os.fspath(checkpoint))
    if f"{folder}/".startswith(f"{table}/"):
        raise InputError(
            f"The checkpoint {folder} lies in the source {table}: who drops the table deletes it, and the "
            "next table there would be taken for one that was never read.",
            kept="everything; nothing was read or written",
            do="name a folder outside the source, such as one next to the table that the changes are for",
        )
    storage = open_storage(folder)
    number, state = _newest(storage, folder)
    place = f"{folder}/{number:0{_DIGITS}}"
    rows = ChangeRows(spec=spec, place=folder, storage=open_storage(table))
    rows.read_source_log()
    offered = _offered(storage, place)
    if offered is None:
        report = rows.begin_report(int(time.time() * 1000))
        with _in_a_session():
            planned = rows.slice_after(state, report)
        for message in report.warnings.values():
            warnings.warn(message.replace(feed_state.START_OVER, _START_OVER), stacklevel=2)
        if planned is None:
            return ChangeBatch(None, None, None)
        storage.put_if_absent(f"{place}-offered", json.dumps(asdict(planned)).encode())
        offered = _offered(storage, place) or planned
    entry = OffsetEntry(seq=number, mode="append", slice=offered, refresh_start=None, overwrite_start=None)
    with _in_a_session():
        rows.check(entry)
        rows.check_planned(offered)
    reader = str(uuid.uuid4())
    storage.replace(f"{place}-reader", reader.encode())
    plan = Plan(pipeline="", table="", checkpoint=folder, batches=(), source=spec)
    with _in_a_session(), with_settings(spark, settings.OF_TABLES):
        data = feed.read(spark, plan, entry)
    return ChangeBatch(data, offered.first, offered.last, table, place, reader)


@contextmanager
def _in_a_session() -> Iterator[None]:
    """Say what helps where there is no task."""
    try:
        yield
    except ChangeFeedError as err:
        raise ChangeFeedError(
            err.what, kept=err.kept, do=err.do.replace(feed_state.START_OVER, _START_OVER)
        ) from err


def _folder(spark: SparkSession, table: str) -> str:
    """Return the folder of a table that is named by its folder or as the session's catalog does.

    :raises InputError: The catalog has no Delta table of that name.
    """
    if not is_name(table):
        return table
    try:
        detail = spark.sql(f"DESCRIBE DETAIL {table}").select("format", "location").first()
    except PySparkException as err:
        raise _no_table(table, short_cause(err)) from err
    if detail is None or detail["format"] != "delta":
        raise _no_table(table, f"it is {detail['format'] if detail else 'nothing'}")
    return str(detail["location"])


def _no_table(table: str, why: str) -> InputError:
    return InputError(
        f"{table!r} is neither a folder nor a Delta table in the session's catalog: {why}",
        kept="everything; nothing was read or written",
        do="give the table's folder, as an absolute path or a URI; or its name in the catalog",
    )


def consume(batch: ChangeBatch) -> None:
    """Say that the changes of a batch are where they belong: the next call reads what is after them.

    :raises ChangeFeedError: It was consumed before, another reader has it since, or its table is not there
        any more.
    """
    if not batch.place:
        return
    storage = open_storage(batch.place)
    reader = (storage.read(f"{batch.place}-reader") or b"").decode()
    versions = _offered(storage, batch.place)
    if versions is None or reader != batch.reader:
        raise ChangeFeedError(
            f"The changes {batch.place} have since been given to another reader, which has to consume them.",
            kept="everything; whether the changes count as consumed has not changed",
            do="read them again with read_changes, and consume that batch",
        )
    with _in_a_session(), open_table(batch.table, open_storage(batch.table)) as source_table:
        source = None if source_table is None else str(source_table.delta.metadata().id)
        if source != versions.source:
            raise feed_state.recreated(batch.table, source, versions.source)
    if storage.read(f"{batch.place}-consumed") is not None:
        raise ChangeFeedError(
            f"The changes {batch.place} have already been consumed.",
            kept="everything; the changes still count as consumed",
            do="read the next changes with read_changes",
        )
    storage.put_if_absent(f"{batch.place}-consumed", feed_state.state_after(versions).encode())


def _newest(storage: Storage, folder: str) -> tuple[int, str | None]:
    """Return the number of the batch that is next, and the state before it.

    :raises CheckpointGapError: The record of the batch before it is missing.
    """
    names = storage.names(folder)
    number = max(
        (int(name[:_DIGITS]) for name in names if name[_DIGITS:] in ("-offered", "-consumed")), default=0
    )
    for following, last in ((number + 1, number), (number, number - 1)):
        data = storage.read(f"{folder}/{last:0{_DIGITS}}-consumed") if last >= 0 else b""
        if data is not None:
            return following, data.decode() or None
    raise CheckpointGapError(
        f"The record {folder}/{number - 1:0{_DIGITS}}-consumed is missing: what was consumed is not known.",
        kept="everything; nothing was read",
        do=f"restore the record from a copy; or {_START_OVER}",
    )


def _offered(storage: Storage, place: str) -> VersionSlice | None:
    data = storage.read(f"{place}-offered")
    if data is None:
        return None
    try:
        value: Any = json.loads(data)
        return typed(VersionSlice, place, value)
    except (ValueError, TypeError) as err:
        raise CheckpointCorruptError(
            f"The record {place}-offered cannot be read: {err}.",
            kept="everything; nothing was read",
            do="delete it; the versions are then planned again",
        ) from err
