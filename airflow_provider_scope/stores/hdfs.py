"""Files over WebHDFS: Azure Data Lake Storage Gen1 and plain HDFS.

Both show a file's name while it is written, and a writer that dies leaves a part of the file. So a control
file is written under a temporary name, and gets its final name by RENAME, which shows name and content at
once. Without ``renameoptions``, RENAME refuses a name that exists. HDFS does so by its specification, Gen1
by the contract of Hadoop's live tests (``adls.xml``: ``rename-overwrites-dest`` is false,
``supports-atomic-rename`` is true).
"""

from __future__ import annotations

import re
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import ScopeProviderError, StorageError
from airflow_provider_scope.stores.calls import failed
from airflow_provider_scope.stores.protocol import CONTROL_FILE_LIMIT_BYTES, bad, existing, split

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_scope.stores.webhdfs import Status, WebHdfsClient
    from airflow_provider_scope.values import FileEntry

_HOST = re.compile(r"(?:[a-z0-9._-]+|\[[0-9a-f:.]+\]):[0-9]{1,5}")


def canonical_gen1(location: str) -> str:
    """Write it as ``adl://<account>…``.

    :raises InputError: The location names no account.
    """
    _, authority, path = split(location)
    if not authority:
        raise bad(location, "names no account", "write adl://<account>.azuredatalakestore.net/…")
    return f"adl://{authority.lower()}{path}"


def canonical_hdfs(location: str) -> str:
    """Write it as ``webhdfs://…``, at the namenode's HTTP address.

    :raises InputError: The location has another scheme, names a user, or names no port.
    """
    scheme, authority, path = split(location)
    if scheme == "hdfs":
        host = authority.partition(":")[0] or "<namenode>"
        do = f"write the namenode's HTTP address: webhdfs://{host}:9870{path}"
        raise bad(location, "is on hdfs://, which is not supported", do)
    authority = authority.lower()
    if "@" in authority:
        user, host = authority.rsplit("@", 1)
        raise bad(
            location, "names a user", f"write {scheme}://{host}{path}; {user} belongs in the connection"
        )
    if not _HOST.fullmatch(authority):
        port = 9870 if scheme == "webhdfs" else 9871
        raise bad(location, "names no port", f"write {scheme}://{authority or '<namenode>'}:{port}{path}")
    return f"{scheme}://{authority}{path}"


class WebHdfsStorage:
    """The files of one account or cluster."""

    def __init__(self, files: WebHdfsClient) -> None:
        self._files = files

    def walk(self, root: str) -> Iterator[FileEntry]:
        return self._files.walk(root)

    def names(self, folder: str) -> list[str]:
        """List the names of the files in ``folder``, without temporary files."""
        with _failing("list", folder):
            return [name for name in self._files.names(folder) if not name.startswith(".")]

    def read(self, path: str, at_most: int = CONTROL_FILE_LIMIT_BYTES) -> bytes | None:
        with _failing("read", path):
            status = self._file_status("read", path)
            if status is None:
                return None
            if status.size_bytes > at_most:
                raise _failed("read", path, f"it is larger than {at_most:,} bytes")
            return self._files.read_whole(path, status)

    def put_if_absent(self, path: str, data: bytes) -> bytes:
        """Create a file with its content: a complete temporary file gets its name by RENAME."""
        with _failing("create", path):
            # Onto a folder RENAME would move the file inside.
            if self._file_status("create", path) is not None:
                return existing(self, path)
            with self._temporary_file(path, data) as temporary:
                is_ours = self._rename(temporary, path, overwrite=False)
            return data if is_ours else existing(self, path)

    def replace(self, path: str, data: bytes) -> None:
        """Replace a file at once, by RENAME."""
        with _failing("replace", path):
            self._file_status("replace", path)
            with self._temporary_file(path, data) as temporary:
                if not self._rename(temporary, path, overwrite=True):
                    raise _failed("replace", path, "the service did not")

    def delete(self, path: str) -> None:
        with _failing("delete", path):
            if self._file_status("delete", path) is not None:
                self._files.delete(path)

    def _file_status(self, verb: str, path: str) -> Status | None:
        """Read the status of a file; None if nothing has this name.

        :raises StorageError: It is a folder.
        """
        status = self._files.get_status(path)
        if status is not None and status.is_folder:
            raise _failed(verb, path, "it is a folder")
        return status

    def _rename(self, temporary: str, path: str, *, overwrite: bool) -> bool:
        """Rename a temporary file; False if the name is taken.

        Nobody else knows the temporary name: if no file has it any more, a RENAME without an answer took
        effect.
        """

        def is_done() -> bool:
            return self._files.get_status(temporary) is None

        return self._files.http.once(
            lambda: self._files.rename(temporary, path, overwrite=overwrite) or is_done(),
            lambda _: is_done() or None,
        )

    @contextmanager
    def _temporary_file(self, path: str, data: bytes) -> Iterator[str]:
        """Write ``data`` beside ``path``, under a hidden name: a crash may leave the file there."""
        temporary = f"{path.rpartition('/')[0]}/.{secrets.token_hex(16)}.tmp"
        try:
            self._files.upload(temporary, data)
            yield temporary
        finally:
            # The error that came before matters more, and a file that stays is in nobody's way.
            with suppress(ScopeProviderError):
                self._files.delete(temporary)


@contextmanager
def _failing(verb: str, path: str) -> Iterator[None]:
    """Raise the errors of the client as ``StorageError``."""
    try:
        yield
    except StorageError:
        raise
    except ScopeProviderError as err:
        raise _failed(verb, path, err.what) from err


def _failed(verb: str, path: str, why: str) -> StorageError:
    return failed(verb, path, why.removesuffix("."), "check the service and the connection's rights")
