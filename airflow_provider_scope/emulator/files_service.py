"""The file service: from WebHDFS requests to the files and back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from airflow_provider_scope.emulator.account import PathError, decoded_parts, parts_of
from airflow_provider_scope.emulator.file_status import acl_status, listing
from airflow_provider_scope.emulator.file_store import FileStore, RemoteError, bad, forbidden, missing
from airflow_provider_scope.emulator.web import Response
from airflow_provider_scope.emulator.wire import files_error, files_headers

if TYPE_CHECKING:
    from airflow_provider_scope.emulator.switches import Controls
    from airflow_provider_scope.emulator.web import Request

    Parts = tuple[str, ...]

_METHODS = {
    "GET": (
        *("LISTSTATUS", "MSLISTSTATUS", "GETFILESTATUS", "MSGETFILESTATUS", "GETCONTENTSUMMARY", "OPEN"),
        *("CHECKACCESS", "GETACLSTATUS", "MSGETACLSTATUS"),
    ),
    "PUT": (
        *("CREATE", "MKDIRS", "RENAME", "SETEXPIRY", "SETPERMISSION", "SETOWNER", "SETTIMES"),
        *("SETACL", "MODIFYACLENTRIES", "REMOVEACLENTRIES", "REMOVEACL", "REMOVEDEFAULTACL"),
    ),
    "POST": ("APPEND", "CONCAT", "MSCONCAT", "CONCURRENTAPPEND"),
    "DELETE": ("DELETE",),
}
_BOOLEAN = frozenset({"RENAME", "MKDIRS", "DELETE"})
_STREAMING = {"CREATE": "write", "APPEND": "append", "OPEN": "read"}
_EXTENSION_ONLY = frozenset({"SETEXPIRY", "CONCURRENTAPPEND"})
_LARGEST = 2**63 - 1


class FilesService:
    """Answers requests for files."""

    def __init__(self, store: FileStore, controls: Controls) -> None:
        self._store = store
        self._controls = controls

    def answer(self, request: Request, path: str, *, extension: bool) -> Response:
        """Answer a request for a percent-encoded path; ``extension`` is the /webhdfsext part."""
        op = (request.param("op") or "").upper()
        try:
            _check_operation(op, request.method, extension=extension)
            parts = decoded_parts(path)
            self._check_access(op, parts)
            if op in _STREAMING and not _flag(request, _STREAMING[op]):
                return _redirect(request, _STREAMING[op])
            return self._do(op, request, parts, extension=extension)
        except PathError as err:
            refused = forbidden(op)
            refused.message = f"{refused.message} {err}"
            return _error(refused, extension=extension)
        except RemoteError as err:
            return _error(err, extension=extension)
        except FileNotFoundError:
            return _error(missing(decoded_parts(path)), extension=extension)
        except OSError as err:
            text = f"{op} failed: {err.strerror}."
            return _error(RemoteError(403, "IOException", text, "java.io.IOException"), extension=extension)

    def _do(self, op: str, request: Request, parts: Parts, *, extension: bool) -> Response:
        object_ids = (request.param("tooid") or "true").lower() != "false"
        if request.method == "GET":
            return self._look(op.removeprefix("MS"), request, parts, object_ids=object_ids)
        if op in _BOOLEAN:
            return self._change_names(op, request, parts)
        if op == "CREATE":
            return self._create(request, parts)
        if op == "APPEND":
            self._append(request, parts)
        elif op == "CONCURRENTAPPEND":
            self._concurrent_append(request, parts)
        elif op in ("CONCAT", "MSCONCAT"):
            self._concat(op, request, parts)
        elif op == "SETEXPIRY":
            option = request.param("expiryOption") or ""
            self._store.set_expiry(parts, option, _number(request, "expireTime") or 0)
        elif op == "SETTIMES":
            times = [_number(request, name) for name in ("modificationtime", "accesstime")]
            self._store.set_times(parts, times[0], times[1])
        else:  # owners, permissions and access lists are the same for everything
            self._store.status(parts, object_ids=True)
        return Response(200, b"", files_headers(extension=extension))

    def _look(self, op: str, request: Request, parts: Parts, *, object_ids: bool) -> Response:
        if op == "LISTSTATUS":
            return self._list(request, parts, object_ids=object_ids)
        if op == "OPEN":
            return self._open(request, parts)
        if op == "GETCONTENTSUMMARY":
            return _ok({"ContentSummary": self._store.summary(parts)})
        status = self._store.status(parts, object_ids=object_ids)
        if op == "GETACLSTATUS":
            return _ok(acl_status(object_ids=object_ids))
        if op == "CHECKACCESS":
            return Response(200, b"", files_headers(extension=False))
        return _ok({"FileStatus": status})

    def _change_names(self, op: str, request: Request, parts: Parts) -> Response:
        if op == "RENAME":
            return self._rename(request, parts)
        if op == "MKDIRS":
            return _ok({"boolean": self._store.make_folders(parts)})
        return _ok({"boolean": self._store.delete(parts, recursive=_flag(request, "recursive"))})

    def _list(self, request: Request, parts: Parts, *, object_ids: bool) -> Response:
        cap = self._controls.now.list_cap
        entries, token = self._store.page(
            parts,
            size=min(_number(request, "listSize") or cap, cap),
            after=request.param("listAfter") or "",
            before=request.param("listBefore") or "",
            object_ids=object_ids,
        )
        return _ok(listing(entries, token, request.param("api-version")))

    def _open(self, request: Request, parts: Parts) -> Response:
        pieces = self._store.read(parts, _number(request, "offset") or 0, _number(request, "length"))
        headers = {**files_headers(extension=False), "Content-Type": "application/octet-stream"}
        return Response(200, headers=headers, stream=pieces)

    def _create(self, request: Request, parts: Parts) -> Response:
        self._check_size(request)
        self._store.create(
            parts,
            request.body,
            overwrite=_flag(request, "overwrite"),
            sync=_sync(request),
            lease=request.param("leaseid"),
        )
        headers = files_headers(extension=False)
        headers["Location"] = f"{request.origin}{request.path}?{request.raw_query}"
        return Response(201, b"", headers)

    def _append(self, request: Request, parts: Parts) -> None:
        self._check_size(request)
        self._store.append(
            parts,
            request.body,
            offset=_number(request, "offset"),
            sync=_sync(request),
            lease=request.param("leaseid"),
        )

    def _concurrent_append(self, request: Request, parts: Parts) -> None:
        if self._controls.now.concurrent_append == "refuse":
            raise _unsupported("CONCURRENTAPPEND", "POST")
        self._check_size(request)
        create = (request.param("appendMode") or "").lower() == "autocreate"
        self._store.append_at_end(parts, request.body, create=create)

    def _concat(self, op: str, request: Request, parts: Parts) -> None:
        sources = _sources(request) if op == "MSCONCAT" else _names(request.param("sources") or "")
        for source in sources:
            self._check_access(op, source)
        self._store.concat(
            parts,
            sources,
            new=op == "MSCONCAT",
            delete_folder=_flag(request, "deleteSourceDirectory"),
        )

    def _rename(self, request: Request, parts: Parts) -> Response:
        destination = request.param("destination")
        if not destination:
            raise bad("destination is required.")
        target = parts_of(destination)
        self._check_access("RENAME", target)
        overwrite = (request.param("renameoptions") or "").upper() == "OVERWRITE"
        if self._store.rename(parts, target, overwrite=overwrite):
            return _ok({"boolean": True})
        return _ok({"boolean": False}, status="0x8309000A")

    def _check_access(self, op: str, parts: Parts) -> None:
        for denied in self._controls.now.denied_paths:
            prefix = parts_of(denied)
            if parts[: len(prefix)] == prefix:
                raise forbidden(op)

    def _check_size(self, request: Request) -> None:
        limit = self._controls.now.max_append_bytes
        if len(request.body) > limit:
            raise bad(f"One call writes at most {limit} bytes.")


def _check_operation(op: str, method: str, *, extension: bool) -> None:
    if op not in _METHODS.get(method, ()) or (op in _EXTENSION_ONLY) != extension:
        raise _unsupported(op, method)


def _unsupported(op: str, method: str) -> RemoteError:
    text = f"Operation {op or '(none)'} is not supported for {method}."
    return RemoteError(400, "UnsupportedOperationException", text)


def _error(err: RemoteError, *, extension: bool) -> Response:
    return files_error(
        err.status,
        err.exception,
        err.message,
        java_class=err.java_class,
        hresult=err.hresult,
        extension=extension,
    )


def _ok(payload: dict[str, Any], status: str = "0x0") -> Response:
    headers = files_headers(extension=False, status=status)
    headers["Content-Type"] = "application/json; charset=utf-8"
    return Response(200, json.dumps(payload, ensure_ascii=False).encode("utf-8", "surrogatepass"), headers)


def _redirect(request: Request, flag: str) -> Response:
    """Send a plain WebHDFS client to the second step, which carries the data."""
    kept = [part for part in request.raw_query.split("&") if part.partition("=")[0].lower() != flag]
    headers = files_headers(extension=False)
    headers["Location"] = f"{request.origin}{request.path}?{'&'.join([*kept, f'{flag}=true'])}"
    return Response(307, b"", headers)


def _flag(request: Request, name: str) -> bool:
    return (request.param(name) or "").lower() == "true"


def _number(request: Request, name: str) -> int | None:
    text = request.param(name)
    if text is None or text == "":
        return None
    if not (text.isascii() and text.isdigit()) or int(text[:20]) > _LARGEST:
        raise bad(f"{name}={text} is not a number.")
    return int(text)


def _sync(request: Request) -> str:
    sync = (request.param("syncFlag") or "CLOSE").upper()
    if sync not in ("DATA", "METADATA", "CLOSE"):
        raise bad(f"syncFlag={sync} is not valid.")
    return sync


def _names(text: str) -> list[Parts]:
    return [parts_of(name) for name in text.split(",") if name]


def _sources(request: Request) -> list[Parts]:
    """Read the body of MSCONCAT: JSON, or the older ``sources=a,b``."""
    text = request.body.decode("utf-8", errors="replace")
    if not text.lstrip().startswith("{"):
        return _names(unquote(text.strip().removeprefix("sources=")))
    try:
        names = json.loads(text)["sources"]
        return [parts_of(name) for name in names]
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        raise bad("The body does not name the sources.") from err
