"""Files on a disk of this machine, or on one that is mounted."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_scope.core.files import FileEntry
from airflow_provider_scope.exceptions import (
    SourceNotFoundError,
    SourceUnreadableError,
    StorageError,
)
from airflow_provider_scope.storage.protocol import CONTROL_FILE_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEME = "file://"


def local_path(uri: str) -> str:
    """Give the path of a ``file://`` URI."""
    if not uri.startswith(SCHEME + "/"):
        msg = f"{uri!r} is not a file:///… URI"
        raise ValueError(msg)
    return uri[len(SCHEME) :]


class LocalStorage:
    """The local disk. It follows links to files and folders, and refuses a link that leads nowhere."""

    def walk(self, root: str) -> Iterator[FileEntry]:
        """List every file below ``root``."""
        top = local_path(root)
        try:
            os.lstat(top)  # not `exists`: it takes every error for absence
        except FileNotFoundError as err:
            raise _no_root(root) from err
        except OSError as err:
            raise _unreadable(top, err) from err
        pending = [(top, frozenset({os.path.realpath(top)}))]
        while pending:
            folder, above = pending.pop()
            for entry in _scan(folder):
                path = os.path.join(folder, entry.name)  # noqa: PTH118 - half the time of Path, a million times
                try:
                    if entry.is_dir():
                        real = os.path.realpath(path)
                        if real in above:
                            raise _unreadable(path, "it is a link to a folder above itself")
                        pending.append((path, above | {real}))
                        continue
                    status = entry.stat()
                except OSError as err:
                    raise _unreadable(path, err) from err
                # Birth time is not portable: unknown rather than guessed.
                yield FileEntry(status.st_mtime_ns // 1_000_000, SCHEME + path, status.st_size)

    def names(self, folder: str) -> list[str]:
        """List the names of the files in ``folder``; our own temporary files are left out."""
        try:
            with os.scandir(local_path(folder)) as entries:
                return sorted(e.name for e in entries if not e.name.startswith(".") and e.is_file())
        except FileNotFoundError:
            return []
        except OSError as err:
            raise _failed("list", folder, err) from err

    def read(self, path: str) -> bytes | None:
        """Read a control file."""
        try:
            with Path(local_path(path)).open("rb") as file:
                data = file.read(CONTROL_FILE_LIMIT_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as err:
            raise _failed("read", path, err) from err
        if len(data) > CONTROL_FILE_LIMIT_BYTES:
            raise _failed("read", path, f"it is larger than {CONTROL_FILE_LIMIT_BYTES:,} bytes")
        return data

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create a file with its content: a finished temporary file gets its name by ``link``.

        ``link`` refuses a name that exists and shows name and content at once. Neither opening with
        ``O_EXCL`` (a crash leaves the name with half the content) nor a rename (it replaces) does both.
        """
        final = Path(local_path(path))
        try:
            temporary = _write_temporary(final, data)
            try:
                os.link(temporary, final)
            except FileExistsError:
                return False
            finally:
                temporary.unlink()
            _sync_folder(final.parent)
        except OSError as err:
            raise _failed("create", path, err) from err
        return True

    def replace(self, path: str, data: bytes) -> None:
        """Replace a file at once, by a rename."""
        final = Path(local_path(path))
        try:
            _write_temporary(final, data).replace(final)
            _sync_folder(final.parent)
        except OSError as err:
            raise _failed("replace", path, err) from err

    def delete(self, path: str) -> None:
        """Delete a file."""
        try:
            Path(local_path(path)).unlink(missing_ok=True)
        except OSError as err:
            raise _failed("delete", path, err) from err


def _scan(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as err:
        raise _unreadable(folder, err) from err


def _write_temporary(final: Path, data: bytes) -> Path:
    final.parent.mkdir(parents=True, exist_ok=True)
    # Hidden, so that no listing takes it for a record when a crash leaves it behind.
    handle, name = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=final.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return Path(name)


def _sync_folder(folder: Path) -> None:
    """Make a new name survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _no_root(root: str) -> SourceNotFoundError:
    return SourceNotFoundError(
        f"The source folder {root} does not exist.",
        kept="the table and the checkpoint; nothing was written",
        do="check `roots`. A folder that appears later is created empty first, or waited for by a sensor",
    )


def _unreadable(path: str, err: object) -> SourceUnreadableError:
    return SourceUnreadableError(
        f"{path} could not be listed: {err}.",
        kept="the table and the checkpoint; nothing was written",
        do="give the worker read access to it; a part of the source is never skipped. The next try "
        "lists again",
    )


def _failed(verb: str, path: str, err: object) -> StorageError:
    return StorageError(
        f"Could not {verb} {path}: {err}.",
        kept="everything that was written before",
        do="check the disk and the rights on the folder; the next try reads the log and goes on",
    )
