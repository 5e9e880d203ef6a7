"""Any store that fsspec has a filesystem for."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException

from airflow_provider_scope.core.stores import scheme_of
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.hooks.connections import connection_missing
from airflow_provider_scope.storage.objects import ObjectSource
from airflow_provider_scope.storage.protocol import Store


def open_store(uri: str, conn_id: str | None, _: object) -> Store:
    """Give a store: a provider's, through its connection, or fsspec's own.

    :raises InputError: There is no such filesystem, or it takes no connection.
    """
    return Store(storage=ObjectSource(_filesystem(scheme_of(uri), conn_id)))


def _filesystem(scheme: str, conn_id: str | None) -> Any:
    """Give the filesystem of a scheme."""
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
