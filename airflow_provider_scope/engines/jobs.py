"""What runs jobs that outlive a worker: SCOPE jobs, and applications of Spark on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_scope.engines.kubernetes import PLACE, PREFIX, Kubernetes
from airflow_provider_scope.engines.livy import Livy
from airflow_provider_scope.engines.submit import cluster_mode_refused, deploy_mode
from airflow_provider_scope.engines.yarn import Yarn
from airflow_provider_scope.exceptions import InputError
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
        return Livy(connection)
    if connection.conn_type == "spark":
        return (Kubernetes if (connection.host or "").startswith(PREFIX) else Yarn)(connection)
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
        return Livy(connection)
    if connection is not None and connection.conn_type != "spark":
        raise InputError(
            f"The connection {connection.conn_id} has the type {connection.conn_type!r}: expected spark or "
            "livy.",
            kept="everything; nothing was read or written",
            do="correct the connection, or name another one in `spark_conn_id`",
        )
    mode, where = deploy_mode(connection, conf)
    if mode == "client":
        return None
    if connection is not None:
        master = (connection.host or "").lower()
        if master.startswith(PREFIX):
            _check_place(connection, conf or {})
            return Kubernetes(connection, log_file)
        if master.startswith("yarn"):
            return Yarn(connection, log_file)
    raise cluster_mode_refused(where, connection)


def _check_place(connection: Connection, conf: Mapping[str, Any]) -> None:
    """Refuse settings that only the submission would follow: a trigger knows the connection alone.

    :raises InputError: There is one.
    """
    elsewhere = [name for name in PLACE if name in conf]
    if elsewhere:
        raise InputError(
            f"conf of the engine has {elsewhere[0]}, and the applications of {connection.conn_id} are looked "
            "for where the connection says.",
            kept="everything; nothing was read or written",
            do='set "namespace" in the extra of the connection; the context is that of KUBECONFIG',
        )
