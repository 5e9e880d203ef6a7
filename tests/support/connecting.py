"""Storages by URI for tests; each process imports only what its own storage needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_scope.storage.opening import open_storage

if TYPE_CHECKING:
    from airflow_provider_scope.storage.protocol import Storage

GEN1_AUTHORITY = "acme.azuredatalakestore.net"
HDFS_AUTHORITY = "namenode:9870"
HDFS_USER = "me"


def connect(uri: str, address: str, *, timeout_seconds: float = 60.0, page_size: int = 5000) -> Storage:
    """Give the storage of a URI; ``address`` is where its service is. Nothing waits between tries."""
    if uri.startswith("abfss://"):
        from airflow_provider_scope.storage.azure import AzureStorage
        from airflow_provider_scope.storage.azure_calls import AzureCalls
        from tests.support import azurite

        fs = azurite.filesystem(address)
        calls = AzureCalls(fs, timeout_seconds=timeout_seconds, sleep=_do_not)
        return AzureStorage(fs, azurite.HOST, calls=calls, page_size=page_size)
    if uri.startswith("file://"):
        return open_storage(uri)
    from airflow_provider_scope.client.gen1 import Gen1Client
    from airflow_provider_scope.client.http import HttpClient
    from airflow_provider_scope.client.tokens import Token, Tokens
    from airflow_provider_scope.client.webhdfs import GEN1, HDFS
    from airflow_provider_scope.storage.webhdfs import WebHdfsStorage

    options: dict[str, Any] = {"timeout_seconds": timeout_seconds, "sleep": _do_not}
    if uri.startswith("adl://"):
        tokens = Tokens(lambda: Token("token-1", 4_000_000_000.0))
        http = HttpClient(address, tokens, **options)
        return WebHdfsStorage(Gen1Client(http, GEN1_AUTHORITY, dialect=GEN1))
    http = HttpClient(address, None, identity={"user.name": HDFS_USER}, **options)
    authority = uri.removeprefix("webhdfs://").partition("/")[0]
    return WebHdfsStorage(Gen1Client(http, authority, dialect=HDFS))


def _do_not(seconds: float) -> None:
    """Stand in for sleep."""
