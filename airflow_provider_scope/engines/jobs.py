"""What runs jobs that outlive a worker: SCOPE jobs, and applications of Spark on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_scope.engines.livy import Livy
from airflow_provider_scope.engines.submit import cluster_mode_refused, deploy_mode
from airflow_provider_scope.engines.yarn import Yarn
from airflow_provider_scope.hooks.scope import ScopeHook

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from airflow.providers.common.compat.sdk import Connection

    from airflow_provider_scope.engines.manager import Manager, WatchedJobs


def jobs_of(connection: Connection) -> WatchedJobs:
    """Return the jobs of a connection, by its type.

    :raises InputError: The connection is not valid.
    """
    if connection.conn_type == "livy":
        return Livy(connection.conn_id, connection)
    if connection.conn_type == "spark":
        return Yarn(connection.conn_id, connection)
    return ScopeHook(connection.conn_id, connection=connection)


def manager_of(
    connection: Connection | None, conf: Mapping[str, Any] | None, log_file: Path
) -> Manager | None:
    """Return what runs Spark's driver; None if the worker does.

    :param connection: Of type ``spark`` or ``livy``; None is local mode.
    :param conf: What the user says of Spark.
    :param log_file: Where the output of ``spark-submit`` goes.
    :raises InputError: The cluster runs no driver, or the connection is not valid.
    """
    if connection is not None and connection.conn_type == "livy":
        return Livy(connection.conn_id, connection)
    mode, where = deploy_mode(connection, conf)
    if mode == "client":
        return None
    if connection is None or not (connection.host or "").lower().startswith("yarn"):
        raise cluster_mode_refused(where, connection)
    return Yarn(connection.conn_id, connection, log_file)
