"""Connections by their id, and what to do about one that is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

from airflow_provider_scope.exceptions import ConnectionMissingError
from airflow_provider_scope.hooks.settings import Fields

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection


def connection_of(conn_id: str) -> Connection:
    """Give a connection.

    :raises ConnectionMissingError: Airflow has none of this id, or its store of secrets does not answer.
    """
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as err:
        raise connection_missing(conn_id) from err


def fields_of(conn_id: str | None, connection: Connection | None) -> Fields | None:
    """Give the fields of a connection, or of the one of this id; None if none is named."""
    if connection is None and conn_id:
        connection = connection_of(conn_id)
    return Fields(connection) if connection else None


def connection_missing(conn_id: str) -> ConnectionMissingError:
    """Give the error for a connection that Airflow does not know."""
    return ConnectionMissingError(
        f"Airflow has no connection {conn_id!r}.",
        kept="everything; nothing was read or written",
        do=f"define it (`airflow connections add {conn_id} …`, the UI, or the variable "
        f"AIRFLOW_CONN_{conn_id.upper()}), or correct its name in the Dag. If it is defined, the secrets "
        "backend did not answer: Airflow reports both in the same way, and the next try asks again",
    )
