"""Which files a pipeline has loaded, as its log says; the table is not looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from airflow_provider_scope.core.files import printable
from airflow_provider_scope.core.recovery import MISSING_TABLE
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.execution import dbt_scope
from airflow_provider_scope.execution.view import read_log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_scope.checkpoint.audit import AuditFiles
    from airflow_provider_scope.checkpoint.log import CheckpointLog
    from airflow_provider_scope.core.interval import Window
    from airflow_provider_scope.core.recovery import TableState
    from airflow_provider_scope.execution.engine import Engine
    from airflow_provider_scope.execution.view import LogView


class _NoTable:
    """In place of an engine."""

    def probe(self, *_: object) -> TableState:
        return MISSING_TABLE


def read_loaded(log: CheckpointLog, audit: AuditFiles, roots: Sequence[str], now_ms: int) -> LogView:
    """Read the log of a pipeline, or what its first run would take over from dbt-scope.

    :param roots: Canonical URIs of the folders whose files matter.
    :raises ScopeProviderError: The log, or what dbt-scope left, could not be read.
    """
    view = read_log(log, audit, cast("Engine", _NoTable()), log.location)
    if view.newest is None and view.taken is None and not dbt_scope.look(log, view, roots, now_ms):
        return read_loaded(log, audit, roots, now_ms)
    return view


def check_not_loaded_before(
    log: CheckpointLog, audit: AuditFiles, roots: Sequence[str], window: Window, now_ms: int
) -> None:
    """Refuse to begin an interval of which ``mode="incremental"``, or dbt-scope, has loaded files already.

    :param log: The log of ``mode="incremental"`` in the same checkpoint, which need not exist.
    :raises InputError: As said.
    """
    view = read_loaded(log, audit, roots, now_ms)
    doubled = sorted(path for path, (modified_ms, *_) in view.seen.items() if modified_ms in window)
    if doubled:
        raise InputError(
            f'Files of the interval {window.name} were loaded before, by mode="incremental" or by dbt-scope '
            f"({log.location}): {len(doubled):,}, such as {printable(doubled[0])}. Their rows would be "
            "in the table twice.",
            kept="the table and all records; nothing was written",
            do="load intervals that end before the first of them. To load these files again, use "
            "write=Replace(where=…) with the interval's rows",
        )
