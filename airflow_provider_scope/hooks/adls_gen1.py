"""Files of Azure Data Lake Storage Gen1, through a connection."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.exceptions import ScopeProviderError
from airflow_provider_scope.hooks.credentials import ServiceHook
from airflow_provider_scope.stores.hdfs import WebHdfsStorage
from airflow_provider_scope.stores.protocol import Store
from airflow_provider_scope.stores.webhdfs import PAGE_SIZE, WebHdfsClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow.providers.common.compat.sdk import Connection

    from airflow_provider_scope.stores.webhdfs import Page, Status
    from airflow_provider_scope.values import FileEntry


class AdlsGen1Hook(ServiceHook):
    """Lists, reads and writes files. Its calls block: a trigger makes them in a thread.

    Paths are ``adl://<account>.azuredatalakestore.net/…`` or ``/…``, unencoded.

    :param adls_gen1_conn_id: A connection of type ``adls_gen1``, or ``azure_data_lake`` of the Azure
        provider.
    :param connection: The connection itself, where it was read before: a trigger reads it asynchronously.
    """

    conn_name_attr = "adls_gen1_conn_id"
    default_conn_name = "adls_gen1_default"
    conn_type = "adls_gen1"
    hook_name = "Azure Data Lake Storage Gen1"

    suffix = "azuredatalakestore.net"

    def __init__(
        self,
        adls_gen1_conn_id: str = default_conn_name,
        *,
        connection: Connection | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(adls_gen1_conn_id, connection, **kwargs)
        self.adls_gen1_conn_id = adls_gen1_conn_id

    @cached_property
    def _client(self) -> WebHdfsClient:
        return WebHdfsClient(self._http, f"adl://{self.service.authority}")

    def get_conn(self) -> WebHdfsClient:
        """Return the client.

        :raises InputError: The connection is not valid.
        """
        return self._client

    def walk(self, root: str) -> Iterator[FileEntry]:
        """List every file below a folder, in any order; see its client."""
        return self._client.walk(root)

    def list_page(self, path: str, *, after: str = "", size: int = PAGE_SIZE) -> Page:
        """List a part of a folder; see ``WebHdfsClient.list_page``."""
        return self._client.list_page(path, after=after, size=size)

    def get_status(self, path: str) -> Status | None:
        """Describe a file or folder; None only if the service says that it does not exist."""
        return self._client.get_status(path)

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes | None:
        """Read a file or a range of it; None only if the service says that it does not exist."""
        return self._client.read(path, offset=offset, length=length)

    def write(self, path: str, data: bytes, *, create: bool = True) -> bool:
        """Create a file with its whole content unless it exists, or replace it; whether it has this content.

        :raises StorageError: It is not known whether it was written.
        """
        files = WebHdfsStorage(self._client)
        if create:
            return files.put_if_absent(path, data) == data
        files.replace(path, data)
        return True

    def mkdirs(self, path: str) -> None:
        """Create a folder and those above it; one that exists is fine."""
        self._client.mkdirs(path)

    def rename(self, path: str, to: str) -> bool:
        """Rename a file or folder; False if the service did not."""
        return self._client.rename(path, to)

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Delete a file or folder; one that does not exist is fine."""
        self._client.delete(path, recursive=recursive)

    def test_connection(self) -> tuple[bool, str]:
        """Get a token and list a folder; say what that shows and what it does not."""
        try:
            folder = self._fields.text("base_path") or "/"
            self.list_page(folder, size=1)
        except ScopeProviderError as err:
            return False, str(err)
        return True, (
            f"{self.service.url} accepted the identity and listed the folder {folder}. Not checked: the "
            "right to list other folders, to read and to write."
        )


def open_store(uri: str, conn_id: str | None, connection: Connection | None) -> Store:  # noqa: ARG001 - of every kind
    """Open an account; without a connection through ``adls_gen1_default``.

    :raises InputError: The connection is not valid.
    """
    hook = AdlsGen1Hook(conn_id or AdlsGen1Hook.default_conn_name, connection=connection)
    return Store(storage=WebHdfsStorage(hook.get_conn()), hook=hook)
