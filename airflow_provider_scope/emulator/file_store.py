"""The files: WebHDFS operations on the account directory.

Names, lengths and times are the directory's own. Changes happen under one lock; reads need none.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import threading
from typing import IO, TYPE_CHECKING, Any

from airflow_provider_scope.emulator.account import Account, PathError
from airflow_provider_scope.emulator.file_state import Expiry, Handles
from airflow_provider_scope.emulator.file_status import is_plain, ordinal, status, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from airflow_provider_scope.emulator.switches import Controls

    Parts = tuple[str, ...]

_BLOCK = 256 * 1024
_BAD_OFFSET = "org.apache.hadoop.fs.adl.BadOffsetException"
_ACCESS = "org.apache.hadoop.security.AccessControlException"


class RemoteError(Exception):
    """The request is answered with a RemoteException."""

    def __init__(
        self, status: int, exception: str, message: str, java_class: str = "", hresult: str = "0x83090000"
    ) -> None:
        super().__init__(message)
        self.status = status
        self.exception = exception
        self.message = message
        self.java_class = java_class or f"java.lang.{exception}"
        self.hresult = hresult


def missing(parts: Parts) -> RemoteError:
    """Give the error for a path that is not there."""
    message = f"File/Folder does not exist: /{'/'.join(parts)}"
    return RemoteError(404, "FileNotFoundException", message, "java.io.FileNotFoundException", "0x8309000A")


def bad(message: str) -> RemoteError:
    """Give the error for a parameter that is not valid."""
    return RemoteError(400, "IllegalArgumentException", message)


def forbidden(op: str) -> RemoteError:
    """Give the error for a path that may not be used."""
    message = (
        f"{op} failed with error 0x83090aa2 (Forbidden. ACL verification failed. Either the resource "
        "does not exist or the user is not authorized to perform the requested operation.)."
    )
    return RemoteError(403, "AccessControlException", message, _ACCESS, "0x83090aa2")


class FileStore:
    """The files of the account."""

    def __init__(self, account: Account, controls: Controls, clock: Callable[[], float]) -> None:
        self._account = account
        self._controls = controls
        self._clock = clock
        self._lock = threading.RLock()
        self._expiry = Expiry(account.private / "expiry.json")
        self._handles = Handles(clock)
        self._aside = account.private / "writing"
        shutil.rmtree(self._aside, ignore_errors=True)
        self._aside.mkdir()

    # ---- reading ----

    def status(self, parts: Parts, *, object_ids: bool) -> dict[str, Any]:
        """Give the status of a file or folder."""
        return status(self._stat(parts), "", self._expiry.of(parts), object_ids=object_ids)

    def page(
        self, parts: Parts, *, size: int, after: str, before: str, object_ids: bool
    ) -> tuple[list[dict[str, Any]], str]:
        """Give a page of a folder and the token of the next one; a page that is full has a token."""
        found = self._stat(parts)
        if not stat.S_ISDIR(found.st_mode):
            return [status(found, "", self._expiry.of(parts), object_ids=object_ids)], ""
        names = sorted(os.listdir(self._account.path(parts)), key=ordinal)  # noqa: PTH208 - names alone
        low, high = ordinal(after), ordinal(before)
        entries: list[dict[str, Any]] = []
        for name in names:
            if (after and ordinal(name) <= low) or (before and ordinal(name) >= high):
                continue
            if len(entries) == size:
                break
            try:
                child = self._stat((*parts, name))
            except (RemoteError, PathError):
                continue  # deleted or expired since, a link that leads out, or neither file nor folder
            expires = self._expiry.of((*parts, name))
            entries.append(status(child, name, expires, object_ids=object_ids))
        full = len(entries) == size
        return entries, entries[-1]["pathSuffix"] if full else ""

    def read(self, parts: Parts, offset: int, length: int | None) -> Iterator[bytes]:
        """Give a part of a file."""
        found = self._stat(parts)
        if not stat.S_ISREG(found.st_mode):
            raise bad(f"/{'/'.join(parts)} is not a file.")
        if offset >= found.st_size and offset > 0:
            answer = self._controls.now.open_past_end
            if answer != "empty":
                raise RemoteError(
                    int(answer),
                    "BadOffsetException",
                    "OPEN failed with error 0x83090015 (Bad request. Invalid offset.).",
                    _BAD_OFFSET,
                    "0x83090015",
                )
        try:
            # Opened before the answer begins: it may have been deleted a moment ago.
            file = self._account.path(parts).open("rb")
        except FileNotFoundError as err:
            raise missing(parts) from err
        return _pieces(file, offset, length)

    def summary(self, parts: Parts) -> dict[str, int]:
        """Count the files and folders below a path."""
        self._stat(parts)
        return summary(self._account.path(parts), self._account.contains)

    # ---- writing ----

    def create(self, parts: Parts, data: bytes, *, overwrite: bool, sync: str, lease: str | None) -> None:
        """Create or replace a file, and its folders."""
        with self._lock:
            path = self._writable(parts, lease)
            if path.is_dir():
                raise self._exists(parts)
            if path.exists() and not overwrite:
                raise self._exists(parts)
            self._make_folders(parts[:-1])
            self._handles.close(parts)
            self._expiry.set(parts, 0)
            written = self._aside / secrets.token_hex(16)
            written.write_bytes(b"" if sync == "DATA" else data)
            # Link or replace from aside: nobody sees half a file, and no other name shows in the folder.
            written.replace(path)
            if sync != "CLOSE":
                handle = self._handles.open(parts, lease, self._controls.now.lease_seconds)
                handle.pending += data if sync == "DATA" else b""

    def append(self, parts: Parts, data: bytes, *, offset: int | None, sync: str, lease: str | None) -> None:
        """Append to a file; without METADATA or CLOSE neither its length nor its time shows it."""
        with self._lock:
            path = self._writable(parts, lease)
            found = self._stat(parts)
            if not stat.S_ISREG(found.st_mode):
                raise bad(f"/{'/'.join(parts)} is not a file.")
            handle = self._handles.get(parts)
            pending = bytes(handle.pending) if handle else b""
            if offset is not None and offset != found.st_size + len(pending):
                raise RemoteError(
                    400,
                    "BadOffsetException",
                    "APPEND failed with error 0x83090015 (Bad request. Invalid offset.).",
                    _BAD_OFFSET,
                    "0x83090015",
                )
            if sync == "CLOSE":
                self._handles.close(parts)
            else:
                handle = self._handles.open(parts, lease, self._controls.now.lease_seconds)
            if sync == "DATA" and handle is not None:
                handle.pending += data
                return
            if handle is not None:
                handle.pending.clear()
            if pending or data:
                with path.open("ab") as file:
                    file.write(pending + data)

    def append_at_end(self, parts: Parts, data: bytes, *, create: bool) -> None:
        """Append wherever the file ends, as writers do that do not know of each other."""
        with self._lock:
            if create and not self._account.path(parts).exists():
                self.create(parts, data, overwrite=False, sync="CLOSE", lease=None)
            else:
                self.append(parts, data, offset=None, sync="CLOSE", lease=None)

    def concat(self, parts: Parts, sources: list[Parts], *, new: bool, delete_folder: bool) -> None:
        """Join files into one, in order; the sources are removed."""
        with self._lock:
            path = self._writable(parts, None)
            if not sources or parts in sources or len(set(sources)) < len(sources):
                raise bad("The sources are missing, name the target, or name a file twice.")
            for source in sources:
                if not stat.S_ISREG(self._stat(source).st_mode):
                    raise bad(f"/{'/'.join(source)} is not a file.")
            if new and path.exists():
                raise self._exists(parts)
            self._make_folders(parts[:-1])
            with path.open("ab") as target:
                for source in sources:
                    with self._account.path(source).open("rb") as file:
                        shutil.copyfileobj(file, target)
            for source in sources:
                self._account.path(source).unlink()
                self._expiry.moved(source, None)
            if delete_folder and sources[0][:-1]:
                shutil.rmtree(self._account.path(sources[0][:-1]))

    def make_folders(self, parts: Parts) -> bool:
        """Create a folder and those above it."""
        with self._lock:
            self._make_folders(parts)
        return True

    def rename(self, source: Parts, target: Parts, *, overwrite: bool) -> bool:
        """Rename; into the target if it is a folder. False when HDFS would refuse."""
        with self._lock:
            try:
                found = self._stat(source)
            except RemoteError:
                return False
            folder = stat.S_ISDIR(found.st_mode)
            if source == target:
                return not folder
            if not source or target[: len(source)] == source:
                return False
            old, new = self._account.path(source), self._account.path(target)
            if new.is_dir():
                target = (*target, source[-1])
                new = self._account.path(target)
            if not new.parent.is_dir() or (new.exists() and not (overwrite and new.is_file() and not folder)):
                return False
            if self._handles.get(target) is not None:
                return False
            old.replace(new)
            self._handles.close(source)
            self._expiry.moved(target, None)
            self._expiry.moved(source, target)
            return True

    def delete(self, parts: Parts, *, recursive: bool) -> bool:
        """Delete; False when there is nothing."""
        with self._lock:
            try:
                found = self._stat(parts)
            except RemoteError:
                return False
            if not parts:
                raise forbidden("DELETE")
            path = self._account.path(parts)
            if path.is_symlink() or stat.S_ISREG(found.st_mode):
                path.unlink()
            elif recursive:
                shutil.rmtree(path)
            elif any(path.iterdir()):
                raise RemoteError(
                    self._controls.now.nonrecursive_delete_status,
                    "IOException",
                    "DELETE failed: the folder is not empty.",
                    "java.io.IOException",
                )
            else:
                path.rmdir()
            self._handles.close(parts)
            self._expiry.moved(parts, None)
            return True

    def set_expiry(self, parts: Parts, option: str, milliseconds: int) -> None:
        """Set when a file expires."""
        with self._lock:
            found = self._stat(parts)
            if not stat.S_ISREG(found.st_mode):
                raise bad("Only files expire.")
            created = min(found.st_atime_ns, found.st_mtime_ns) // 1_000_000
            bases = {
                "neverexpire": None,
                "relativetonow": int(self._clock() * 1000),
                "relativetocreationdate": created,
                "absolute": 0,
            }
            if option.lower() not in bases or milliseconds < 0:
                raise bad("expiryOption or expireTime is not valid.")
            base = bases[option.lower()]
            self._expiry.set(parts, 0 if base is None else base + milliseconds)

    def set_times(self, parts: Parts, modified: int | None, accessed: int | None) -> None:
        """Set times, in milliseconds since the epoch; None leaves one as it is."""
        with self._lock:
            found = self._stat(parts)
            times = (
                found.st_atime_ns if accessed is None else accessed * 1_000_000,
                found.st_mtime_ns if modified is None else modified * 1_000_000,
            )
            os.utime(self._account.path(parts), ns=times)

    # ---- the rest ----

    def _stat(self, parts: Parts) -> os.stat_result:
        """Look at a file or folder; one that expired is deleted on the way.

        :raises RemoteError: It is not there.
        """
        path = self._account.path(parts)
        try:
            found = path.stat()
        except (FileNotFoundError, NotADirectoryError) as err:
            raise missing(parts) from err
        if not is_plain(found):
            raise missing(parts)
        expires = self._expiry.of(parts)
        if expires and expires <= self._clock() * 1000:
            with self._lock:
                path.unlink(missing_ok=True)
                self._expiry.set(parts, 0)
            raise missing(parts)
        return found

    def _writable(self, parts: Parts, lease: str | None) -> Path:
        if not parts:
            raise bad("The root is not a file.")
        if self._handles.locked_against(parts, lease):
            raise RemoteError(403, "IOException", "Another writer has the file open.", "java.io.IOException")
        return self._account.path(parts)

    def _make_folders(self, parts: Parts) -> None:
        path = self._account.path(parts)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as err:
            raise self._exists(parts) from err

    def _exists(self, parts: Parts) -> RemoteError:
        return RemoteError(
            403,
            "FileAlreadyExistsException",
            f"/{'/'.join(parts)} already exists.",
            "org.apache.hadoop.fs.FileAlreadyExistsException",
        )


def _pieces(file: IO[bytes], offset: int, length: int | None) -> Iterator[bytes]:
    with file:
        file.seek(offset)
        left = length
        while left is None or left > 0:
            piece = file.read(_BLOCK if left is None else min(_BLOCK, left))
            if not piece:
                return
            left = None if left is None else left - len(piece)
            yield piece
