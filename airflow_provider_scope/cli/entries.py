"""How the commands print batches, states and times, and how far a table is behind its source."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.cli.output import SHOWN_AT_MOST, counted, say
from airflow_provider_scope.engines import clock
from airflow_provider_scope.exceptions import ChangeFeedError, CheckpointCorruptError, ScopeProviderError
from airflow_provider_scope.hooks.stores import store_of
from airflow_provider_scope.protocol import recovery, repair
from airflow_provider_scope.sources.cursor import state as cursor_state
from airflow_provider_scope.sources.feed.source import ChangeRows
from airflow_provider_scope.stores.kinds import place_of
from airflow_provider_scope.stores.local import SCHEME, local_path
from airflow_provider_scope.stores.protocol import canonical_uri
from airflow_provider_scope.values import FileSlice, VersionSlice, duration_text, iso_time, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.view import LogView
    from airflow_provider_scope.values import FileEntry


def show_batches(
    entries: Sequence[OffsetEntry],
    indent: str,
    view: LogView | None = None,
    details: Callable[[OffsetEntry], list[str]] = lambda _: [],
) -> None:
    """Print a line for each batch, and below it what ``view`` and ``details`` say about the batch."""
    for entry in entries[:SHOWN_AT_MOST]:
        mode = entry.mode if entry.where is None else f"{entry.mode} where {entry.where}"
        say(f"{indent}{entry.seq}: {mode}{_size_text(entry)}: {entry.slice.text()}")
        commit = repair.settled(view, entry) if view else None
        if commit:
            outcome = (
                "its rows are no longer in the table"
                if commit.abandoned
                else f"in the table as version {commit.version}"
            )
            say(f"{' ' * len(indent)}   {outcome}; the next run records that")
        for line in details(entry):
            say(f"{' ' * len(indent)}   {line}")
    if len(entries) > SHOWN_AT_MOST:
        say(f"{indent}and {len(entries) - SHOWN_AT_MOST:,} more")


def batch_facts(entries: Sequence[OffsetEntry]) -> list[dict[str, Any]]:
    """Batches as they appear in the JSON output."""
    return [
        {
            "batch": entry.seq,
            "mode": entry.mode,
            "where": entry.where,
            "reads": entry.slice.text(),
            "files": [printable(file.path) for file in entry.slice.audited],
            "bytes": entry.size_bytes,
        }
        for entry in entries
    ]


def _size_text(entry: OffsetEntry) -> str:
    """Say how much a batch of files reads; of other batches this is not known before they run."""
    if not isinstance(entry.slice, FileSlice):
        return ""
    return f", {counted(len(entry.files), 'file')}, {counted(entry.size_bytes, 'byte')}"


def state_text(state: str | None, where: str) -> str:
    """Describe the state of a source in one line.

    :param where: The place of the state, as errors name it.
    """
    if state is None:
        return "none: the next batch begins at the start (ranges have no state)"
    try:
        cursor = cursor_state.decode(state, where)
    except CheckpointCorruptError:
        return state  # of a source that is no cursor
    if cursor is None or cursor.last is None:
        return "no row with a value was loaded yet"
    version = "" if cursor.version is None else f", version {cursor.version} of the source"
    remaining = ", of which rows are left" if cursor.more else ""
    return f"{cursor.column} up to {cursor.last}{version}{remaining}"


def only_refresh(checkpoint: str) -> str:
    """Say how a pipeline goes on if its state is lost.

    :param checkpoint: The folder of the log.
    """
    return recovery.load_again(checkpoint, "only a run with full_refresh=True can go on")


def span(batches: Sequence[int]) -> str:
    """Name batches by the first and the last one."""
    if not batches:
        return "nothing"
    if len(batches) == 1:
        return f"batch {batches[0]}"
    part = "" if batches[-1] - batches[0] < len(batches) else f"{len(batches):,} of "
    return f"{part}batches {batches[0]} to {batches[-1]}"


def time_text(milliseconds: int) -> str:
    """Describe a time, and how long ago it was in its two largest units."""
    ago = duration_text(clock.now_ms() - milliseconds)
    return f"{iso_time(milliseconds)[:19]}Z ({ago} ago)"


def blocking_files(entry: OffsetEntry) -> list[str]:
    """List the files that have changed since their batch was logged, a line for each.

    Only files on a disk are checked: other stores would have to be listed.
    """
    lines = [line for line in map(_blocking_text, entry.slice.audited) if line]
    rest = [f"and {len(lines) - SHOWN_AT_MOST:,} more"] if len(lines) > SHOWN_AT_MOST else []
    return [*lines[:SHOWN_AT_MOST], *rest]


def _blocking_text(file: FileEntry) -> str:
    if not file.path.startswith(SCHEME):
        return ""
    try:
        status = os.stat(local_path(file.path))  # noqa: PTH116 - a name may be no valid text
    except FileNotFoundError:
        return f"blocked: {printable(file.path)} is missing"
    except OSError as err:
        return f"blocked: {printable(file.path)} could not be checked: {err.strerror}"
    if file.is_still(status.st_mtime_ns // 1_000_000, status.st_size):
        return ""
    return f"blocked: {printable(file.path)} has changed since it was logged"


def show_lag(view: LogView, table: str, log: CheckpointLog, storage_conn_id: str | None) -> str | None:
    """Print how far a table is behind its change feed; nothing for other sources.

    :return: Why the next run cannot read the source, empty if it can; None if the source was not checked.
    """
    newest = view.newest.slice if view.newest else None
    if not isinstance(newest, VersionSlice) or view.is_state_lost:
        return None
    try:
        source = canonical_uri(newest.location)
        if place_of(source) not in (place_of(table), place_of(log.location)):
            # The record is not trusted: it must not send credentials to a host that nobody named.
            say(f"behind      not checked: {source} is on another store; `airflow scope list` checks it")
            return None
        rows = ChangeRows(place=log.location, table=source, storage=store_of(source, storage_conn_id).storage)
        lag, warnings = rows.unread(view, clock.now_ms())
    except ScopeProviderError as err:
        say(f"behind      not known: {err.what}")
        say(f"            do: {err.do}")
        if isinstance(err, ChangeFeedError):
            return "the next run will refuse the source: see `behind`"
        return "the source could not be read, and the next run fails if that stays so: see `behind`"
    if view.state is None:
        say(f"behind      everything: nothing of {source} is loaded")
        return ""
    if lag is None:
        say(f"behind      nothing: version {rows.source_log.newest} of {source} is loaded")
        return ""
    say(f"behind      {counted(lag.commits, 'commit')} of {source}, {counted(lag.size_bytes, 'byte')}")
    oldest = "its time is not known" if lag.oldest_ms is None else time_text(lag.oldest_ms)
    say(f"            the oldest is version {lag.version}: {oldest}")
    for warning in warnings:
        say(f"            warning: {warning}")
    return ""
