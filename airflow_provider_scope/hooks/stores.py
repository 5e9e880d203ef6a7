"""From a location to what reads and writes there: a ``Storage`` here, properties and jars for Spark."""

from __future__ import annotations

import getpass
import os
import re
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException

from airflow_provider_scope.client.gen1 import Gen1Client
from airflow_provider_scope.client.http import HttpClient
from airflow_provider_scope.client.webhdfs import HDFS, HDFS_TLS
from airflow_provider_scope.core.files import HDFS as HDFS_SCHEMES
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.hooks.adls_gen1 import AdlsGen1Hook
from airflow_provider_scope.hooks.azure_storage import DEFAULT, access_of
from airflow_provider_scope.hooks.connections import connection_missing, connection_of
from airflow_provider_scope.hooks.settings import Fields
from airflow_provider_scope.storage.azure import AzureStorage
from airflow_provider_scope.storage.local import SCHEME, LocalStorage
from airflow_provider_scope.storage.objects import ObjectSource
from airflow_provider_scope.storage.opening import AZURE, GEN1
from airflow_provider_scope.storage.webhdfs import WebHdfsStorage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.providers.common.compat.sdk import Connection

    from airflow_provider_scope.storage.protocol import Storage

REDACTED = "(?i)secret|password|passphrase|token|credential|key|sas|signature"
"""Names of properties whose values Spark hides; its own default shows the key of a storage account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """One place for files. Its properties hold secrets, and are not shown."""

    storage: Storage
    spark_conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What Spark needs to know to reach it."""
    packages: tuple[str, ...] = ()
    """Maven coordinates of what Spark lacks for it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of Spark's process; no secrets."""
    is_for_spark: bool = True
    """Whether Spark can reach it at all."""


def store_of(uri: str, storage_conn_id: str | None = None, *, connection: Connection | None = None) -> Store:
    """Give the store of a canonical URI.

    :param storage_conn_id: The connection; a disk needs none. Without one, Azure Storage is asked as
        whoever the worker is, WebHDFS as the worker's user, and ADLS Gen1 through ``adls_gen1_default``.
    :param connection: The connection itself, where it was read before: a trigger reads it asynchronously.
    :raises InputError: The connection does not fit the location.
    """
    if uri.startswith(SCHEME):
        return Store(storage=LocalStorage())
    if uri.startswith(GEN1):
        hook = AdlsGen1Hook(storage_conn_id or AdlsGen1Hook.default_conn_name, connection=connection)
        return Store(storage=WebHdfsStorage(hook.get_conn()), is_for_spark=False)
    if storage_conn_id and connection is None and uri.startswith((AZURE, *HDFS_SCHEMES)):
        connection = connection_of(storage_conn_id)
    fields = Fields(connection) if connection else None
    if uri.startswith(AZURE):
        return _azure(uri, fields)
    if uri.startswith(HDFS_SCHEMES):
        return _hdfs(uri, fields)
    return Store(storage=ObjectSource(_filesystem(uri.partition("://")[0], storage_conn_id)))


def hadoop_version() -> str:
    """Give the version of Hadoop in the installed pyspark: its jars must be of one version."""
    found = find_spec("pyspark")
    folder = Path(found.origin).parent / "jars" if found and found.origin else Path("jars")
    for jar in folder.glob("hadoop-client-api-*.jar"):
        match = re.fullmatch(r"hadoop-client-api-(.+)\.jar", jar.name)
        if match:
            return match[1]
    raise InputError(
        f"There is no Hadoop client in {folder}.",
        kept="everything; nothing was read or written",
        do="install pyspark on the worker, or name the packages: SparkEngine(packages=[...])",
    )


def _azure(uri: str, fields: Fields | None) -> Store:
    host = uri.removeprefix(AZURE).partition("@")[2].partition("/")[0]
    access = access_of(fields, host) if fields else DEFAULT
    return Store(
        storage=AzureStorage(access.filesystem(host), host),
        spark_conf={**access.spark_conf(host), "spark.redaction.regex": REDACTED},
        packages=(f"org.apache.hadoop:hadoop-azure:{hadoop_version()}",),
    )


def _hdfs(uri: str, fields: Fields | None) -> Store:
    scheme, _, rest = uri.partition("://")
    authority = rest.partition("/")[0]
    host = authority.rpartition(":")[0]
    if fields:
        # The connection may name both namenodes of a pair.
        named = [name.strip().partition(":")[0].lower() for name in fields.host.split(",") if name.strip()]
        if named and host not in named:
            raise InputError(
                f"The connection {fields.conn_id} is for {', '.join(named)}, and the location is on {host}.",
                kept="everything; nothing was read or written",
                do="name the connection of that cluster, or correct the location",
            )
    user = (fields.login if fields else None) or os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    tls = scheme == "swebhdfs"
    http = HttpClient(
        f"{'https' if tls else 'http'}://{authority}",
        None,
        identity={"user.name": user},
        timeout_seconds=fields.number("http_timeout_seconds", 30.0, at_least=0.1) if fields else 30.0,
        retries=fields.integer("http_retries", 3, at_least=0) if fields else 3,
    )
    client = Gen1Client(http, authority, dialect=HDFS_TLS if tls else HDFS)
    return Store(
        storage=WebHdfsStorage(client),
        # Of the client for WebHDFS, pyspark's own jars lack a class of JAX-RS (``RuntimeDelegateImpl``).
        packages=(f"org.apache.hadoop:hadoop-client-minicluster:{hadoop_version()}",),
        environment={"HADOOP_USER_NAME": user},
    )


def _filesystem(scheme: str, conn_id: str | None) -> Any:
    """Give fsspec's filesystem of a scheme: a provider's, through its connection, or fsspec's own."""
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
