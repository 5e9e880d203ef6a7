"""Storages by URI for tests; each process imports only what its own storage needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_scope.stores.calls import Repeating
from airflow_provider_scope.stores.kinds import kind_of, scheme_of
from airflow_provider_scope.stores.protocol import open_storage

if TYPE_CHECKING:
    from airflow_provider_scope.stores.protocol import Storage

GEN1_AUTHORITY = "acme.azuredatalakestore.net"
HDFS_AUTHORITY = "namenode:9870"
HDFS_USER = "me"


def connect(uri: str, address: str, *, timeout_seconds: float = 60.0, page_size: int = 5000) -> Storage:
    """Open the storage of a URI; ``address`` is where its service is. Nothing waits between tries."""
    options: dict[str, Any] = {"timeout_seconds": timeout_seconds, "repeating": Repeating(sleep=_do_not)}
    scheme = scheme_of(uri)
    return CONNECT[scheme](uri, address, page_size, options) if scheme in CONNECT else open_storage(uri)


def _azurite(uri: str, address: str, page_size: int, options: dict[str, Any]) -> Storage:
    from airflow_provider_scope.stores.azure import AzureCalls, AzureStorage
    from tests.support import azurite

    fs = azurite.filesystem(address)
    return AzureStorage(fs, azurite.HOST, calls=AzureCalls(fs, **options), page_size=page_size)


def _gen1(uri: str, address: str, page_size: int, options: dict[str, Any]) -> Storage:
    from airflow_provider_scope.stores.calls import Token, Tokens
    from airflow_provider_scope.stores.hdfs import WebHdfsStorage
    from airflow_provider_scope.stores.http import HttpClient
    from airflow_provider_scope.stores.webhdfs import WebHdfsClient

    http = HttpClient(address, Tokens(lambda: Token("token-1", 4_000_000_000.0)), **options)
    return WebHdfsStorage(WebHdfsClient(http, f"adl://{GEN1_AUTHORITY}"))


def _hdfs(uri: str, address: str, page_size: int, options: dict[str, Any]) -> Storage:
    from airflow_provider_scope.stores.hdfs import WebHdfsStorage
    from airflow_provider_scope.stores.http import HttpClient
    from airflow_provider_scope.stores.webhdfs import WebHdfsClient

    http = HttpClient(address, None, user=HDFS_USER, **options)
    authority = uri.removeprefix("webhdfs://").partition("/")[0]
    return WebHdfsStorage(WebHdfsClient(http, f"webhdfs://{authority}"))


def _s3(uri: str, address: str, page_size: int, options: dict[str, Any]) -> Storage:
    from airflow_provider_scope.stores.s3 import S3Calls, S3Storage
    from tests.support import s3

    client = s3.access(address).client(timeout_seconds=options.pop("timeout_seconds"))
    return S3Storage(client, calls=S3Calls(**options), page_size=min(page_size, 1000))


def _toy(uri: str, address: str, page_size: int, options: dict[str, Any]) -> Storage:
    from tests.support import toy_store

    # Another process of a race has not registered it.
    if kind_of(uri) is toy_store.ROW:
        return open_storage(uri)
    with toy_store.registered():
        return open_storage(uri)


CONNECT = {"abfss": _azurite, "adl": _gen1, "webhdfs": _hdfs, "s3": _s3, "toy": _toy}
"""By the scheme; what is not here needs no connection."""


def _do_not(seconds: float) -> None:
    """Stand in for sleep."""
