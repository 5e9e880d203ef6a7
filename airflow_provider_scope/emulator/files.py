"""The file service: WebHDFS operations on the account directory, and on nothing outside of it.

Names, lengths and times are the directory's own. Changes happen under one lock; reads need none.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import stat
import sys
import threading
import uuid
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

from airflow_provider_scope.emulator.web import Response, json_response, timestamp
from airflow_provider_scope.exceptions import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_provider_scope.emulator.switches import Controls
    from airflow_provider_scope.emulator.web import Request

Parts = tuple[str, ...]
"""The segments of a path."""

# ---- the account directory: from the paths of the service to files ----

PRIVATE = ".emulator"
"""The folder of the emulator's own state; no path of the service leads there."""


def parts_of(path: str) -> Parts:
    """Split a path into segments, without ``.`` and empty ones, since clients send both.

    :raises InputError: A segment is ``..``, or not a valid name.
    """
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts or any("\0" in part for part in parts):
        raise InputError(f"{path!r} is not a path of the account.")
    return parts


def decoded_parts(path: str) -> Parts:
    """Split a percent-encoded path into segments. A plus does not mean a blank.

    :raises InputError: The path is not valid.
    """
    try:
        return parts_of(unquote(path, errors="strict"))
    except UnicodeDecodeError as err:
        raise InputError("The path is not encoded as UTF-8.") from err


class Account:
    """The directory that holds the files of the account."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root.resolve()
        self.private = self.root / PRIVATE
        self.private.mkdir(exist_ok=True)

    def claim(self) -> IO[bytes]:
        """Lock the directory for this process, until the returned file is closed or the process ends.

        :raises InputError: Another emulator has it.
        """
        file = (self.private / "lock").open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as err:
            file.close()
            raise InputError(
                f"Another emulator uses {self.root}.",
                kept="everything; no port was opened",
                do="stop it, or name another directory",
            ) from err
        return file

    def path(self, parts: Parts) -> Path:
        """Return the local path of a file or folder. Links are followed as long as they stay inside.

        :raises InputError: The path leads out of the account, or to the emulator's own state.
        """
        path = self.root.joinpath(*parts)
        if not self.contains(path):
            raise InputError(f"/{'/'.join(parts)} is not a path of the account.")
        return path

    def contains(self, path: Path) -> bool:
        """Return whether a path, with links followed, is in the account and not in its private folder."""
        real = Path(os.path.realpath(path))
        return real.is_relative_to(self.root) and not real.is_relative_to(self.private)

    def local(self, uri: str) -> Path:
        """Return the local path of a URI or path in a script.

        ``abfss://<container>@<account>...`` and ``adl://<account>...`` lose scheme and host: the
        container of an ``abfss`` URI is a folder below the root, so
        ``abfss://data@acct.dfs.core.windows.net/a/b`` is ``<root>/data/a/b``. A ``file:`` URI and a plain
        path that lies below the root are taken as they are; any other plain path is one of the account.

        :raises InputError: The path leads out of the account, or its scheme is not known.
        """
        scheme, separator, place = uri.partition("://")
        if not separator:
            scheme, place = "", uri
        match scheme:
            case "abfss" | "abfs":
                authority, _, path = place.partition("/")
                container, at, _ = authority.partition("@")
                if not (container and at):
                    raise InputError(f"{uri} has no container.")
                return self.path(parts_of(f"{container}/{path}"))
            case "adl":
                return self.path(parts_of(place.partition("/")[2]))
            case "" | "file":
                candidate = Path("/", *parts_of(place))
                if candidate.is_relative_to(self.root) and self.contains(candidate):
                    return candidate
                if scheme == "file":
                    raise InputError(f"{uri} lies outside of the account directory.")
                return self.path(parts_of(place))
        raise InputError(f"{uri}: the scheme {scheme} is not known to the emulator.")


# ---- errors, as the service writes them ----

_STATUS = {
    "AccessControlException": 403,
    "BadOffsetException": 400,
    "FileAlreadyExistsException": 403,
    "FileNotFoundException": 404,
    "IOException": 403,
    "IllegalArgumentException": 400,
    "UnsupportedOperationException": 400,
}
"""Exception -> the status of its answer."""
_MADE_TO_FAIL = {401: "SecurityException", 403: "AccessControlException", 429: "ThrottledException"}
"""Status of a fault -> the exception with which the service reports it."""
_FORBIDDEN = (
    "failed with error 0x83090aa2 (Forbidden. ACL verification failed. Either the resource does not exist or "
    "the user is not authorized to perform the requested operation.)."
)
_BAD_OFFSET = "failed with error 0x83090015 (Bad request. Invalid offset.)."


class RemoteError(Exception):
    """The request is answered with a RemoteException."""

    def __init__(self, exception: str, message: str) -> None:
        super().__init__(message)
        self.exception = exception

    def response(self) -> Response:
        return error_response(_STATUS[self.exception], self.exception, str(self))


def error_response(status: int, exception: str, message: str) -> Response:
    """Return an error as the service writes it, always with a length: a client does not parse others."""
    request_id = str(uuid.uuid4())
    remote = {"exception": exception, "message": f"{message} [{request_id}][{timestamp()}]"}
    return json_response(status, {"RemoteException": remote}, request_id=request_id)


def _missing(parts: Parts) -> RemoteError:
    return RemoteError("FileNotFoundException", f"File/Folder does not exist: /{'/'.join(parts)}")


def _exists(parts: Parts) -> RemoteError:
    return RemoteError("FileAlreadyExistsException", f"/{'/'.join(parts)} already exists.")


# ---- the operations ----

_STREAMING = {"create": "write", "append": "append", "open": "read"}
"""Operations with a body on one side -> the flag without which plain WebHDFS redirects them."""
_PIECE_BYTES = 256 * 1024


class FilesService:
    name = "files"

    def __init__(self, account: Account, controls: Controls) -> None:
        self._account = account
        self._controls = controls
        self._lock = threading.Lock()
        self._temporary_folder = account.private / "writing"
        shutil.rmtree(self._temporary_folder, ignore_errors=True)
        self._temporary_folder.mkdir()

    def operation(self, request: Request, _: list[str]) -> str:
        return (request.param("op") or "").lower()

    def failure(self, status: int) -> Response:
        exception = _MADE_TO_FAIL.get(status, "RuntimeException")
        return error_response(status, exception, "The request was made to fail.")

    def answer(self, operation: str, request: Request, path: list[str]) -> Response:
        encoded = "/".join(path[2:])  # what follows /webhdfs/v1/
        try:
            return self._answer(operation, request, encoded)
        except InputError as err:
            text = f"{operation.upper()} {_FORBIDDEN} {err}"
            return RemoteError("AccessControlException", text).response()
        except RemoteError as err:
            return err.response()
        except FileNotFoundError:
            return _missing(decoded_parts(encoded)).response()
        except OSError as err:
            text = f"{operation.upper()} failed: {err.strerror}."
            return RemoteError("IOException", text).response()

    def _answer(self, operation: str, request: Request, path: str) -> Response:
        answer = self._OPERATIONS.get((request.method, operation))
        if answer is None:
            text = f"Operation {operation.upper() or '(none)'} is not supported for {request.method}."
            raise RemoteError("UnsupportedOperationException", text)
        parts = decoded_parts(path)
        self._check_access(operation, parts)
        flag = _STREAMING.get(operation)
        if flag and not _flag(request, flag):
            return _redirect(request, flag)
        return answer(self, request, parts)

    # ---- reading ----

    def _get_status(self, _: Request, parts: Parts) -> Response:
        return _ok({"FileStatus": _status(self._stat(parts), "")})

    def _list(self, request: Request, parts: Parts) -> Response:
        """Return one page of a folder. A full page has a token, with which the next one begins."""
        stats = self._stat(parts)
        if not stat.S_ISDIR(stats.st_mode):
            return _page([_status(stats, "")], "")
        cap = self._controls.now.list_cap
        size = min(_number(request, "listSize") or cap, cap)
        after = request.param("listAfter")
        entries: list[dict[str, Any]] = []
        for name in sorted(os.listdir(self._account.path(parts)), key=_ordinal):  # noqa: PTH208 - names alone
            if after and _ordinal(name) <= _ordinal(after):
                continue
            if len(entries) == size:
                break
            try:
                entries.append(_status(self._stat((*parts, name)), name))
            except (RemoteError, InputError):
                continue  # deleted meanwhile, a link that leads out, or neither file nor folder
        return _page(entries, entries[-1]["pathSuffix"] if len(entries) == size else "")

    def _open(self, request: Request, parts: Parts) -> Response:
        size = self._file_size(parts)
        offset = _number(request, "offset") or 0
        if 0 < size <= offset:
            raise RemoteError("BadOffsetException", f"OPEN {_BAD_OFFSET}")
        # Opened before the answer begins, since the file may have been deleted meanwhile.
        file = self._account.path(parts).open("rb")
        headers = {"Content-Type": "application/octet-stream"}
        return Response(200, headers=headers, stream=_pieces(file, offset, _number(request, "length")))

    # ---- writing: written data show at once, whatever ``syncFlag`` says, and no lease locks a file ----

    def _create(self, request: Request, parts: Parts) -> Response:
        self._check_size(request)
        with self._lock:
            path = self._account.path(parts)
            if path.is_dir() or (path.exists() and not _flag(request, "overwrite")):
                raise _exists(parts)
            self._make_folders(parts[:-1])
            temporary = self._temporary_folder / secrets.token_hex(16)
            temporary.write_bytes(request.body)
            # Moved from another folder: nobody sees half a file, and the folder shows no temporary name.
            temporary.replace(path)
        return Response(201)

    def _append(self, request: Request, parts: Parts) -> Response:
        self._check_size(request)
        with self._lock:
            if _number(request, "offset") not in (None, self._file_size(parts)):
                raise RemoteError("BadOffsetException", f"APPEND {_BAD_OFFSET}")
            with self._account.path(parts).open("ab") as file:
                file.write(request.body)
        return Response(200)

    def _mkdirs(self, _: Request, parts: Parts) -> Response:
        with self._lock:
            self._make_folders(parts)
        return _ok({"boolean": True})

    def _rename(self, request: Request, parts: Parts) -> Response:
        destination = request.param("destination")
        if not destination:
            raise RemoteError("IllegalArgumentException", "destination is required.")
        target = parts_of(destination)
        self._check_access("rename", target)
        overwrite = (request.param("renameoptions") or "").upper() == "OVERWRITE"
        with self._lock:
            return _ok({"boolean": self._try_rename(parts, target, overwrite=overwrite)})

    def _try_rename(self, source: Parts, target: Parts, *, overwrite: bool) -> bool:
        """Rename, or move into the target if it is a folder. False where HDFS would refuse."""
        try:
            is_folder = stat.S_ISDIR(self._stat(source).st_mode)
        except RemoteError:
            return False
        if source == target:
            return not is_folder
        if not source or target[: len(source)] == source:
            return False
        path = self._account.path(target)
        if path.is_dir():
            path = self._account.path((*target, source[-1]))
        replaces = overwrite and path.is_file() and not is_folder
        if not path.parent.is_dir() or (path.exists() and not replaces):
            return False
        self._account.path(source).replace(path)
        return True

    def _delete(self, request: Request, parts: Parts) -> Response:
        with self._lock:
            try:
                stats = self._stat(parts)
            except RemoteError:
                return _ok({"boolean": False})
            if not parts:
                raise RemoteError("AccessControlException", f"DELETE {_FORBIDDEN}")
            path = self._account.path(parts)
            if path.is_symlink() or stat.S_ISREG(stats.st_mode):
                path.unlink()
            elif _flag(request, "recursive"):
                shutil.rmtree(path)
            elif any(path.iterdir()):
                raise RemoteError("IOException", "DELETE failed: the folder is not empty.")
            else:
                path.rmdir()
        return _ok({"boolean": True})

    # ---- what several operations need ----

    def _stat(self, parts: Parts) -> os.stat_result:
        """Read the status of a file or folder.

        :raises RemoteError: The path is neither a file nor a folder.
        """
        try:
            stats = self._account.path(parts).stat()
        except (FileNotFoundError, NotADirectoryError) as err:
            raise _missing(parts) from err
        if not (stat.S_ISREG(stats.st_mode) or stat.S_ISDIR(stats.st_mode)):
            raise _missing(parts)
        return stats

    def _file_size(self, parts: Parts) -> int:
        stats = self._stat(parts)
        if not stat.S_ISREG(stats.st_mode):
            raise RemoteError("IllegalArgumentException", f"/{'/'.join(parts)} is not a file.")
        return stats.st_size

    def _make_folders(self, parts: Parts) -> None:
        try:
            self._account.path(parts).mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as err:
            raise _exists(parts) from err

    def _check_access(self, operation: str, parts: Parts) -> None:
        for denied in self._controls.now.denied_paths:
            prefix = parts_of(denied)
            if parts[: len(prefix)] == prefix:
                raise RemoteError("AccessControlException", f"{operation.upper()} {_FORBIDDEN}")

    def _check_size(self, request: Request) -> None:
        limit = self._controls.now.max_append_bytes
        if len(request.body) > limit:
            raise RemoteError("IllegalArgumentException", f"One call writes at most {limit} bytes.")

    _OPERATIONS: ClassVar[dict[tuple[str, str], Callable[[FilesService, Request, Parts], Response]]] = {
        ("GET", "liststatus"): _list,
        ("GET", "getfilestatus"): _get_status,
        ("GET", "open"): _open,
        ("PUT", "create"): _create,
        ("PUT", "mkdirs"): _mkdirs,
        ("PUT", "rename"): _rename,
        ("POST", "append"): _append,
        ("DELETE", "delete"): _delete,
    }


def _flag(request: Request, name: str) -> bool:
    return (request.param(name) or "").lower() == "true"


def _number(request: Request, name: str) -> int | None:
    text = request.param(name)
    if not text:
        return None
    if not re.fullmatch("[0-9]{1,18}", text):
        raise RemoteError("IllegalArgumentException", f"{name}={text} is not a number.")
    return int(text)


def _ordinal(name: str) -> bytes:
    """Return the sort key of the recorded order: by code unit, upper case before lower case."""
    return name.encode("utf-16-be", errors="surrogatepass")


def _pieces(file: IO[bytes], offset: int, length: int | None) -> Iterator[bytes]:
    remaining = sys.maxsize if length is None else length
    with file:
        file.seek(offset)
        while piece := file.read(min(_PIECE_BYTES, remaining)):
            remaining -= len(piece)
            yield piece


# ---- answers ----


def _status(stats: os.stat_result, suffix: str) -> dict[str, Any]:
    """Return the status of a file or folder, with keys in the recorded order."""
    is_folder = stat.S_ISDIR(stats.st_mode)
    modified = stats.st_mtime_ns // 1_000_000
    entry: dict[str, Any] = {
        "length": 0 if is_folder else stats.st_size,
        "pathSuffix": suffix,
        "type": "DIRECTORY" if is_folder else "FILE",
        "blockSize": 0 if is_folder else 268435456,
        # On the service, reads do not change it; on this disk they may.
        "accessTime": min(stats.st_atime_ns // 1_000_000, modified),
        "modificationTime": modified,
        "replication": 0 if is_folder else 1,
        "permission": "770",
        "owner": "6d0e5a4c-3b52-4b8e-9a55-2f3a1c7e9b10",
        "group": "c2b1f0de-7a41-4f0f-8f2b-90d1a6b4e311",
    }
    if not is_folder:
        entry["msExpirationTime"] = 0
    entry["aclBit"] = False
    return entry


def _page(entries: list[dict[str, Any]], token: str) -> Response:
    return _ok({"FileStatuses": {"continuationToken": token, "FileStatus": entries}})


def _ok(payload: dict[str, Any]) -> Response:
    return json_response(200, payload)


def _redirect(request: Request, flag: str) -> Response:
    """Send a plain WebHDFS client to the second step, which carries the data."""
    kept = [part for part in request.raw_query.split("&") if part.partition("=")[0].lower() != flag]
    location = f"{request.origin}{request.path}?{'&'.join([*kept, f'{flag}=true'])}"
    return Response(307, headers={"Location": location})
