"""The first run of a pipeline: what is in the table already was written by somebody else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import CheckpointCorruptError, InputError
from airflow_provider_scope.protocol import recovery
from airflow_provider_scope.protocol.records import Acceptance

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_scope.protocol.engine import Engine
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.recovery import TableState
    from airflow_provider_scope.protocol.source import Request, Source
    from airflow_provider_scope.protocol.view import LogView


def check(log: CheckpointLog, engine: Engine, view: LogView, request: Request, source: Source) -> bool:
    """Refuse to add files to the rows of others: which files are in the table already is not known.

    A run that replaces rows, and one that says from when on files are new, know it. Or the user says that
    none of them is.

    :return: False if another run has logged a batch meanwhile: the rows may be its, and the log has to be
        read again.
    :raises CheckpointCorruptError: There are records, and no pipeline.
    :raises UnknownRowsError: As said.
    """
    if view.pipeline is None:
        _check_empty(log, view)
    if not view.is_first or view.accepted or request.refresh or request.adds_to_rows or source.says_from_when:
        return True
    table_state = engine.probe(request.table, None, recovery.NO_BASELINE) if view.pipeline else view.table
    if not table_state.has_rows:
        return True
    # Behind the look at the table: whoever wrote the rows logged them, or began, before that.
    if log.is_begun():
        return False
    if not log.shares_table():
        raise recovery.rows_of_others(request.table, log.location, source.begins_after, source.interval)
    return True


def _check_empty(log: CheckpointLog, view: LogView) -> None:
    if not view.is_first or view.last_commit or view.accepted:
        raise CheckpointCorruptError(
            f"The checkpoint {log.location} has records but no pipeline.json.",
            kept="the table and all records; nothing was written",
            do="restore pipeline.json from a copy: without it, nothing shows which batches the table holds",
        )


def table_of_others(log: CheckpointLog, engine: Engine, table: str) -> TableState | None:
    """Return the table if the next run would refuse it because of the rows of others; else None."""
    if log.newest_acceptance() or log.shares_table() or log.takeover(None):
        return None
    table_state = engine.probe(table, None, recovery.NO_BASELINE)
    return None if log.is_begun() or not table_state.has_rows else table_state


def accept(log: CheckpointLog, engine: Engine, table: str, *, new_id: Callable[[], str]) -> Acceptance:
    """Let the first run of a pipeline add its files to the rows that are in the table.

    First the pipeline, then the record: a run in between still refuses the table.

    :param new_id: Gives a fresh UUID as text, for a new pipeline.
    :return: The record; the one that is there, if somebody was faster.
    :raises InputError: There is nothing to accept.
    """
    existing = log.newest_acceptance()
    if existing:
        return existing
    table_state = table_of_others(log, engine, table)
    if table_state is None or table_state.identity is None:
        raise InputError(
            f"{table} holds no rows that a first run would refuse.",
            kept="everything; nothing was written",
            do="run the task",
        )
    if log.pipeline() is None:
        log.begin(new_id(), table_state)
    return log.put(
        Acceptance(number=0, after_commit=-1, table=table_state.identity, table_version=table_state.version)
    )
