"""From a canonical URI to what reads and writes there: a ``Storage`` here, properties and jars for Spark."""

from __future__ import annotations

import getpass
import os
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.hooks.settings import connection_missing, fields_of
from airflow_provider_scope.stores.hdfs import WebHdfsStorage
from airflow_provider_scope.stores.kinds import kind_of, scheme_of
from airflow_provider_scope.stores.objects import ObjectSource
from airflow_provider_scope.stores.protocol import Store

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection


def store_of(uri: str, storage_conn_id: str | None = None, *, connection: Connection | None = None) -> Store:
    """Open the store of a canonical URI.

    :param storage_conn_id: The connection; a disk needs none. Without one, Azure Storage is asked as
        whoever the worker is, WebHDFS as the worker's user, and ADLS Gen1 through ``adls_gen1_default``.
    :param connection: The connection itself, where it was read before: a trigger reads it asynchronously.
    :raises InputError: The connection does not fit the location.
    """
    kind = kind_of(uri)
    store: Store = resolve_name(kind.open)(uri, storage_conn_id, connection)
    hadoop = [f"org.apache.hadoop:{name}:{hadoop_version()}" for name in kind.spark_packages]
    return replace(
        store, spark_conf={**kind.spark_conf, **store.spark_conf}, packages=(*hadoop, *store.packages)
    )


def hadoop_version() -> str:
    """Find the version of Hadoop in the installed pyspark: its jars must be of one version."""
    spec = find_spec("pyspark")
    folder = Path(spec.origin).parent / "jars" if spec and spec.origin else Path("jars")
    for jar in folder.glob("hadoop-client-api-*.jar"):
        match = re.fullmatch(r"hadoop-client-api-(.+)\.jar", jar.name)
        if match:
            return match[1]
    raise InputError(
        f"There is no Hadoop client in {folder}.",
        kept="everything; nothing was read or written",
        do="install pyspark on the worker, or name the packages: SparkEngine(packages=[...])",
    )


def open_hdfs(uri: str, conn_id: str | None, connection: Connection | None) -> Store:
    """Open a cluster; without a connection as the worker's user.

    :raises InputError: The connection is for another cluster.
    """
    # Not with the module: it imports requests, and Dag files import this one.
    from airflow_provider_scope.stores.http import HttpClient
    from airflow_provider_scope.stores.webhdfs import WebHdfsClient

    fields = fields_of(conn_id, connection)
    scheme, _, place = uri.partition("://")
    authority = place.partition("/")[0]
    host = authority.rpartition(":")[0]
    if fields:
        # The connection may name both namenodes of a pair.
        named = [name.strip().partition(":")[0].lower() for name in fields.host.split(",") if name.strip()]
        if named and host not in named:
            raise fields.for_another("cluster", ", ".join(named), host)
    user = (fields.login if fields else None) or os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    http = HttpClient(
        f"{'https' if scheme == 'swebhdfs' else 'http'}://{authority}",
        None,
        user=user,
        **(fields.requests() if fields else {}),
    )
    client = WebHdfsClient(http, f"{scheme}://{authority}")
    return Store(storage=WebHdfsStorage(client), environment={"HADOOP_USER_NAME": user})


def open_by_fsspec(uri: str, conn_id: str | None, _: object) -> Store:
    """Open a store: a provider's, through its connection, or fsspec's own.

    :raises InputError: There is no such filesystem, or it takes no connection.
    """
    return Store(storage=ObjectSource(_filesystem(scheme_of(uri), conn_id)))


def _filesystem(scheme: str, conn_id: str | None) -> Any:
    from airflow.sdk.io.fs import get_fs, has_fs  # loads all providers' filesystems
    from fsspec import filesystem  # type: ignore[import-untyped]

    try:
        if has_fs(scheme):
            return get_fs(scheme, conn_id)
        if conn_id is None:
            return filesystem(scheme, skip_instance_cache=True)
    except AirflowNotFoundException as err:
        raise connection_missing(conn_id or "") from err
    except (ImportError, ValueError) as err:
        raise _no_filesystem(scheme, f"could not be opened: {err}") from err
    raise _no_filesystem(scheme, "takes no connection: no installed provider has a filesystem for it")


def _no_filesystem(scheme: str, why: str) -> InputError:
    return InputError(
        f"The store {scheme}:// {why}.",
        kept="everything; nothing was read or written",
        do="install the provider with its filesystem, such as apache-airflow-providers-amazon[s3fs]",
    )
