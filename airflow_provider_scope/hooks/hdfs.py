"""HDFS through its WebHDFS service."""

from __future__ import annotations

import getpass
import os
from typing import TYPE_CHECKING

from airflow_provider_scope.hooks.settings import fields_of
from airflow_provider_scope.stores.calls import Repeating
from airflow_provider_scope.stores.hdfs import WebHdfsStorage
from airflow_provider_scope.stores.http import HttpClient
from airflow_provider_scope.stores.protocol import Store
from airflow_provider_scope.stores.webhdfs import HDFS, HDFS_TLS, Gen1Client

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection


def open_store(uri: str, conn_id: str | None, connection: Connection | None) -> Store:
    """Open a cluster; without a connection as the worker's user.

    :raises InputError: The connection is for another cluster.
    """
    fields = fields_of(conn_id, connection)
    scheme, _, rest = uri.partition("://")
    authority = rest.partition("/")[0]
    host = authority.rpartition(":")[0]
    if fields:
        # The connection may name both namenodes of a pair.
        named = [name.strip().partition(":")[0].lower() for name in fields.host.split(",") if name.strip()]
        if named and host not in named:
            raise fields.for_another("cluster", ", ".join(named), host)
    user = (fields.login if fields else None) or os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    tls = scheme == "swebhdfs"
    http = HttpClient(
        f"{'https' if tls else 'http'}://{authority}",
        None,
        user=user,
        timeout_seconds=fields.number("http_timeout_seconds", 30.0, at_least=0.1) if fields else 30.0,
        repeating=Repeating(retries=fields.integer("http_retries", 3, at_least=0) if fields else 3),
    )
    client = Gen1Client(http, authority, dialect=HDFS_TLS if tls else HDFS)
    return Store(storage=WebHdfsStorage(client), environment={"HADOOP_USER_NAME": user})
