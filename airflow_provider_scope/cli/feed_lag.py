"""How far a table is behind the change feed that it is loaded from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.cli.entries import when
from airflow_provider_scope.cli.output import counted, say
from airflow_provider_scope.core.slices import VersionSlice
from airflow_provider_scope.core.stores import place_of
from airflow_provider_scope.engines import clock
from airflow_provider_scope.exceptions import ChangeFeedError, ScopeProviderError
from airflow_provider_scope.execution.changes import ChangeRows
from airflow_provider_scope.hooks.stores import store_of
from airflow_provider_scope.storage.opening import canonical_uri

if TYPE_CHECKING:
    from airflow_provider_scope.checkpoint.log import CheckpointLog
    from airflow_provider_scope.execution.view import LogView


def show(view: LogView, table: str, log: CheckpointLog, storage_conn_id: str | None) -> bool:
    """Say what a table does not hold of its feed yet; nothing of other sources.

    :return: Whether the next run will refuse the source as it is.
    """
    newest = view.newest.slice if view.newest else None
    if not isinstance(newest, VersionSlice) or view.is_state_lost:
        return False
    if newest.location is None:
        say("behind      not known: the log does not say where the source is; `airflow scope plan` shows it")
        return False
    try:
        source = canonical_uri(newest.location)
        if place_of(source) not in (place_of(table), place_of(log.location)):
            # The record is not trusted: it must not send credentials to a host that nobody named.
            say(f"behind      not checked: {source} is on another store; `airflow scope plan` checks it")
            return False
        rows = ChangeRows(place=log.location, table=source, storage=store_of(source, storage_conn_id).storage)
        lag, warnings = rows.unread(view, clock.now_ms())
    except ScopeProviderError as err:
        say(f"behind      not known: {err.what}")
        say(f"            do: {err.do}")
        return isinstance(err, ChangeFeedError)
    if view.state is None:
        say(f"behind      everything: nothing of {source} is loaded")
        return False
    if lag is None:
        say(f"behind      nothing: version {rows.source_log.newest} of {source} is loaded")
        return False
    say(f"behind      {counted(lag.commits, 'commit')} of {source}, {counted(lag.size_bytes, 'byte')}")
    oldest = "its time is not known" if lag.oldest_ms is None else when(lag.oldest_ms)
    say(f"            the oldest is version {lag.version}: {oldest}")
    for warning in warnings:
        say(f"            warning: {warning}")
    return False
