"""Files over WebHDFS: Azure Data Lake Storage Gen1 and plain HDFS.

Both show a file's name while it is written, and a writer that dies leaves a part of it. So a control file
is written under a name of its own, and gets its final one by RENAME, which shows name and content at
once. Without ``renameoptions`` it refuses a name that exists. HDFS does so by its specification. Gen1 does
so by the contract of Hadoop's live tests (``adls.xml``: ``rename-overwrites-dest`` is false,
``supports-atomic-rename`` is true).
"""

from __future__ import annotations

import re
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from airflow_provider_scope.exceptions import (
    ScopeProviderError,
    ServiceOutcomeUnknownError,
    StorageError,
)
from airflow_provider_scope.stores.opening import bad, split
from airflow_provider_scope.stores.protocol import CONTROL_FILE_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_scope.values import FileEntry

RENAMES = 4
"""Tries of a RENAME whose answers get lost."""

_HOST = re.compile(r"(?:[a-z0-9._-]+|\[[0-9a-f:.]+\]):[0-9]{1,5}")


def canonical_gen1(location: str) -> str:
    """Give the canonical URI on ADLS Gen1.

    :raises InputError: It names no account.
    """
    _, authority, path = split(location)
    if not authority:
        raise bad(location, "names no account", "write adl://<account>.azuredatalakestore.net/…")
    return f"adl://{authority.lower()}{path}"


def canonical_hdfs(location: str) -> str:
    """Give the canonical URI on HDFS, at the namenode's HTTP address.

    :raises InputError: It is another address, or names a user.
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


class Files(Protocol):
    """What is needed of ``client.gen1.Gen1Client``, which is above this layer."""

    def walk(self, root: str) -> Iterator[FileEntry]:
        """List every file below a folder."""

    def names(self, path: str) -> list[str]:
        """List the names of the files in a folder."""

    def get_status(self, path: str) -> Any:
        """Describe a file or folder: ``is_folder``, ``size_bytes``; None if it does not exist."""

    def read_whole(self, path: str) -> bytes | None:
        """Read a file that others may replace meanwhile."""

    def upload(self, path: str, data: bytes) -> None:
        """Create or replace a file of any size."""

    def rename(self, path: str, to: str, *, overwrite: bool = False) -> bool:
        """Rename a file; False if it does not exist, or ``to`` does."""

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Delete a file."""


class WebHdfsStorage:
    """The files of one account or cluster."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def walk(self, root: str) -> Iterator[FileEntry]:
        """List every file below ``root``, several folders at a time."""
        return self._files.walk(root)

    def names(self, folder: str) -> list[str]:
        """List the names of the files in ``folder``; our own temporary files are left out."""
        with _failing("list", folder):
            return [name for name in self._files.names(folder) if not name.startswith(".")]

    def read(self, path: str, at_most: int = CONTROL_FILE_LIMIT_BYTES) -> bytes | None:
        """Read a control file."""
        with _failing("read", path):
            status = self._file("read", path)
            if status is None:
                return None
            if status.size_bytes > at_most:
                raise _failed("read", path, f"it is larger than {at_most:,} bytes")
            return self._files.read_whole(path)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create a file with its content: a finished temporary file gets its name by RENAME."""
        with _failing("create", path):
            # Onto a folder RENAME would move the file inside.
            if self._file("create", path) is not None:
                return False
            with self._temporary(path, data) as written:
                return self._rename("create", written, path, overwrite=False)

    def replace(self, path: str, data: bytes) -> None:
        """Replace a file at once, by RENAME."""
        with _failing("replace", path):
            self._file("replace", path)
            with self._temporary(path, data) as written:
                if not self._rename("replace", written, path, overwrite=True):
                    raise _failed("replace", path, "the service did not")

    def delete(self, path: str) -> None:
        """Delete a file."""
        with _failing("delete", path):
            if self._file("delete", path) is not None:
                self._files.delete(path)

    def _file(self, verb: str, path: str) -> Any:
        """Give the status of a file; None if there is nothing.

        :raises StorageError: It is a folder.
        """
        status = self._files.get_status(path)
        if status is not None and status.is_folder:
            raise _failed(verb, path, "it is a folder")
        return status

    def _rename(self, verb: str, written: str, path: str, *, overwrite: bool) -> bool:
        """Give a temporary file its name; False if the name is taken.

        Nobody else knows the temporary name: when it is gone, the RENAME without an answer took effect.
        """
        doubt: ServiceOutcomeUnknownError | None = None
        for _ in range(RENAMES):
            try:
                if self._files.rename(written, path, overwrite=overwrite):
                    return True
            except ServiceOutcomeUnknownError as err:
                doubt = err
                continue
            if doubt and self._files.get_status(written) is None:
                return True
            if self._file(verb, path) is None:
                raise _failed(verb, path, "the service says that the name is taken, and that it is free")
            return False
        raise doubt or _failed(verb, path, "the service did not")

    @contextmanager
    def _temporary(self, path: str, data: bytes) -> Iterator[str]:
        """Write ``data`` beside ``path``. The name is hidden: a crash may leave it behind."""
        written = f"{path.rpartition('/')[0]}/.{secrets.token_hex(16)}.tmp"
        try:
            self._files.upload(written, data)
            yield written
        finally:
            # What went wrong before is what matters; the file is in nobody's way.
            with suppress(ScopeProviderError):
                self._files.delete(written)


@contextmanager
def _failing(verb: str, path: str) -> Iterator[None]:
    """Turn the client's errors into the storage's.

    :raises StorageError: There was one.
    """
    try:
        yield
    except StorageError:
        raise
    except ScopeProviderError as err:
        raise _failed(verb, path, err.what) from err


def _failed(verb: str, path: str, why: str) -> StorageError:
    return StorageError(
        f"Could not {verb} {path}: {why.removesuffix('.')}.",
        kept="everything that was written before",
        do="check the service and the connection's rights; the next try reads the log and goes on",
    )
