"""Files on a local or mounted disk."""

from __future__ import annotations

import errno
import os
import re
import secrets
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import InputError, SourceUnreadableError, StorageError
from airflow_provider_scope.failures import NO_LINKS_ADVICE
from airflow_provider_scope.stores.calls import failed
from airflow_provider_scope.stores.protocol import CONTROL_FILE_LIMIT_BYTES, Store, existing
from airflow_provider_scope.values import FileEntry, no_root

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEME = "file://"

_NAME_IN_CATALOG = re.compile(r"[\w-]+(\.[\w-]+){1,2}")


def local_path(uri: str) -> str:
    if not uri.startswith(SCHEME + "/"):
        msg = f"{uri!r} is not a file:///… URI"
        raise ValueError(msg)
    return uri[len(SCHEME) :]


def canonical(location: str) -> str:
    """Write it as the URI of an absolute path or URI.

    :raises InputError: The location is relative.
    """
    text = location
    if text.startswith("file:") and not text.startswith("file://"):
        text = text[len("file:") :]
    path = text.removeprefix(SCHEME)
    if not path.startswith("/"):
        problem = "is relative, and workers do not run in your folder"
        do = f"write an absolute path, such as {os.path.abspath(path)!r}"  # noqa: PTH100 - text only
        if location in ("", "None"):
            problem = "names no folder"
            do = "write an absolute path; if it is a template or an XComArg, correct what gave this value"
        elif location.startswith("dbfs:"):
            problem = "is in the file system of Databricks, which only its clusters see"
            do = (
                "write the address of the storage that it stands for, such as "
                "'abfss://container@account.dfs.core.windows.net/folder'"
            )
        elif _NAME_IN_CATALOG.fullmatch(location):
            do += (
                ". If it is a name in a catalog, write the table's folder, which "
                f"`DESCRIBE DETAIL {location}` shows as its location"
            )
        raise InputError(
            f"The location {location!r} {problem}.", kept="everything; nothing was read or written", do=do
        )
    return SCHEME + os.path.normpath("/" + path.lstrip("/"))


def open_store(*_: object) -> Store:
    """Return the disk, whatever the URI and the connection."""
    return Store(storage=LocalStorage())


class LocalStorage:
    """The local disk.

    It follows links to files and folders, and refuses a link that leads nowhere. A file that is deleted
    during a listing counts as absent, as long as the root itself remains.
    """

    def walk(self, root: str) -> Iterator[FileEntry]:
        top = local_path(root)
        identity = _identity(root)
        real_top = os.path.realpath(top)
        pending = [(top, frozenset({real_top}))]
        while pending:
            folder, ancestors = pending.pop()
            for entry in _scan(folder, root, identity):
                path = os.path.join(folder, entry.name)  # noqa: PTH118 - half the time of Path, a million times
                try:
                    if entry.is_dir():
                        real = os.path.realpath(path)
                        if real in ancestors:
                            raise _unreadable(
                                path, "it is a link to a folder above itself", f"remove the link {path}"
                            )
                        # The files of a link such as `latest` are listed under their own paths.
                        if not (entry.is_symlink() and _is_shown(real, real_top)):
                            pending.append((path, ancestors | {real}))
                        continue
                    status = entry.stat()
                except OSError as err:
                    if _was_deleted(path, root, identity, err):
                        continue
                    raise _unreadable(path, err) from err
                # Birth time is not portable: unknown rather than guessed.
                yield FileEntry(status.st_mtime_ns // 1_000_000, SCHEME + path, status.st_size)

    def names(self, folder: str) -> list[str]:
        """List the names of the files in ``folder``, without temporary files."""
        try:
            with os.scandir(local_path(folder)) as entries:
                return sorted(e.name for e in entries if not e.name.startswith(".") and _is_file(e, folder))
        except FileNotFoundError as err:
            if _broken_link(local_path(folder)):
                raise _failed("list", folder, err) from err
            return []
        except OSError as err:
            raise _failed("list", folder, err) from err

    def read(self, path: str, at_most: int = CONTROL_FILE_LIMIT_BYTES) -> bytes | None:
        try:
            with Path(local_path(path)).open("rb") as file:
                data = file.read(at_most + 1)
        except FileNotFoundError as err:
            if _broken_link(local_path(path)):
                raise _failed("read", path, err) from err
            return None
        except OSError as err:
            raise _failed("read", path, err) from err
        if len(data) > at_most:
            raise _failed("read", path, f"it is larger than {at_most:,} bytes")
        return data

    def put_if_absent(self, path: str, data: bytes) -> bytes:
        """Create a file with its content: a complete temporary file gets its name by ``link``.

        ``link`` refuses a name that exists and shows name and content at once. Neither opening with
        ``O_EXCL`` (a crash leaves the name with half the content) nor a rename (it replaces) does both.
        """
        final = Path(local_path(path))
        try:
            with _temporary_file(final, data) as temporary:
                try:
                    os.link(temporary, final)
                except FileExistsError:
                    return existing(self, path)
                except OSError as err:
                    if err.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
                        raise
                    raise failed("create", path, err, NO_LINKS_ADVICE) from err
            _sync_folder(final.parent)
        except OSError as err:
            raise _failed("create", path, err) from err
        return data

    def replace(self, path: str, data: bytes) -> None:
        """Replace a file at once, by a rename."""
        final = Path(local_path(path))
        try:
            with _temporary_file(final, data) as temporary:
                temporary.replace(final)
            _sync_folder(final.parent)
        except OSError as err:
            raise _failed("replace", path, err) from err

    def delete(self, path: str) -> None:
        try:
            Path(local_path(path)).unlink(missing_ok=True)
        except OSError as err:
            raise _failed("delete", path, err) from err


def _scan(folder: str, root: str, identity: tuple[int, int]) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries  # one by one: each keeps its status, half a kilobyte
    except OSError as err:
        if not _was_deleted(folder, root, identity, err):
            raise _unreadable(folder, err) from err


def _is_shown(folder: str, root: str) -> bool:
    """Return whether a folder lies below a root, and in no folder that may be hidden."""
    inside = folder.removeprefix(root.rstrip("/") + "/")
    return inside != folder and not re.search(
        r"(^|/)(\.|_[^=/]*(/|$)|_(common_)?metadata)|\._COPYING_(/|$)", inside
    )


def _was_deleted(path: str, root: str, identity: tuple[int, int], err: OSError) -> bool:
    """Whether a file or folder was deleted after the listing named it.

    :raises SourceError: The root is missing too, or is another folder now: so it is when a disk is unmounted.
    """
    if not isinstance(err, FileNotFoundError) or _exists(path):
        return False  # a link that leads nowhere is there
    if _identity(root) != identity:
        raise _unreadable(
            local_path(root),
            "another folder took its place during the listing",
            "see that its disk is mounted",
        ) from err
    return True


def _identity(root: str) -> tuple[int, int]:
    """Read the device and inode number of a root.

    :raises SourceError: The root does not exist, or its status could not be read.
    """
    top = local_path(root)
    if not _exists(top) and not _broken_link(top):
        raise no_root(root)
    try:
        status = os.stat(top)  # noqa: PTH116 - as above
    except OSError as err:
        raise _unreadable(top, err) from err
    return status.st_dev, status.st_ino


def _exists(path: str) -> bool:
    """Whether a path exists; ``os.path.exists`` would take every error for absence."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    except OSError as err:
        raise _unreadable(path, err) from err
    return True


@contextmanager
def _temporary_file(final: Path, data: bytes) -> Iterator[Path]:
    """Write ``data`` to a temporary file beside ``final``, and delete that file at the end.

    Its name is hidden, so that no listing takes it for a record if a crash leaves it there.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    path = final.parent / f".{secrets.token_hex(16)}.tmp"
    # Not `mkstemp`: only the owner may read its files, and several users may share a checkpoint.
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield path
    finally:
        path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make sure that a new name in the folder survives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_file(entry: os.DirEntry[str], folder: str) -> bool:
    """Whether an entry of a folder is a file.

    :raises StorageError: The entry is a link that leads nowhere, so it is not known what it is.
    """
    if entry.is_file():
        return True
    if entry.is_symlink() and _broken_link(entry.path):
        raise _failed("list", folder, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), entry.path))
    return False


def _broken_link(path: str) -> str | None:
    """Find the link on a path that leads nowhere: the path itself or a folder above it; None without one."""
    # Functions of `os.path`, because those of `Path` raise for names that are too long.
    for part in (path, *map(str, Path(path).parents)):
        if os.path.exists(part):  # noqa: PTH110
            return None
        if os.path.islink(part):  # noqa: PTH114
            return part
    return None


def _refusing_path(path: str) -> str:
    """Find what refuses access: a folder above that may not be entered, the folder, or the file."""
    ancestors = Path(path).parents
    closed = next((folder for folder in reversed(ancestors) if not os.access(folder, os.X_OK)), None)
    if closed and closed.exists():
        return str(closed)
    if os.path.lexists(path) and not os.access(path, os.R_OK):
        return path
    return str(next((folder for folder in ancestors if folder.exists()), path))


def _cause(path: str, err: object) -> tuple[str, str]:
    if isinstance(err, PermissionError):
        return str(err), f"give the worker's user permission on {_refusing_path(err.filename or path)}"
    if isinstance(err, NotADirectoryError):
        file = next(part for part in (path, *map(str, Path(path).parents)) if os.path.lexists(part))
        return f"{file} is a file, and no folder", "name a folder; for some of its files, use `patterns`"
    link = _broken_link(getattr(err, "filename", None) or path) if isinstance(err, OSError) else None
    if link:
        target = os.readlink(link)  # noqa: PTH115 - as it is written
        return (
            f"{link} is a link to {target}, which does not exist",
            f"bring back {target}, such as by mounting its disk; or correct or remove the link {link}",
        )
    return str(err), "check the disk: free space, and how it is mounted" if isinstance(err, OSError) else ""


def _unreadable(path: str, err: object, do: str = "") -> SourceUnreadableError:
    why, advice = _cause(path, err)
    return SourceUnreadableError(
        f"{path} could not be listed: {why}.",
        kept="the table and the checkpoint; nothing was written",
        do=f"{do or advice}. A part of the source is never skipped. The next try lists again",
    )


def _failed(verb: str, path: str, err: object) -> StorageError:
    why, advice = _cause(local_path(path), err)
    return failed(verb, path, why, advice or "check the file")
