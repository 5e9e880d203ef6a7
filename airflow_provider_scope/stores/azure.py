"""Files in Azure Data Lake Storage Gen2 and Blob Storage, through the connection of an adlfs filesystem.

Only adlfs's account, credentials and event loop are used, and the SDK's client that it made. Its own
operations cache listings, mangle names (``urlsplit`` takes a tab out of them), and silently repeat a
write.

Pages of List Blobs are read from their text. For a million blobs adlfs's ``find``, with the SDK's models,
takes 300 s of CPU, a generic XML parser 13 s, this 3 s (``benchmarks/discovery.py``).
"""

from __future__ import annotations

import asyncio
import logging
import re
from calendar import timegm
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.stores.calls import PASSING, REFUSED, Calls, Failure, Repeating
from airflow_provider_scope.stores.protocol import (
    CONTROL_FILE_LIMIT_BYTES,
    bad,
    existing,
    split,
    with_connection,
)
from airflow_provider_scope.values import FileEntry, no_root

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator


# "ResourceNotFound" is not one of them: it is also the answer to a caller without a key who may not see
# whether the blob exists.
_MISSING = ("BlobNotFound", "ContainerNotFound")
_EXISTING = ("BlobAlreadyExists", "ConditionNotMet", "TargetConditionNotMet")


class AzureCalls(Calls):
    """Runs the SDK's coroutines on the loop of an adlfs filesystem.

    :param timeout_seconds: For the connection, and for each wait for a part of the answer.
    """

    files_advice = "check the account and the connection's rights"
    source_advice = "check the service"
    rights = "the role Storage Blob Data Reader, or correct its credentials"

    def __init__(self, fs: Any, repeating: Repeating | None = None, *, timeout_seconds: float = 60.0) -> None:
        super().__init__(repeating)
        self.options = {
            "retry_total": 0,
            "connection_timeout": timeout_seconds,
            "read_timeout": timeout_seconds,
        }
        """Arguments of every call of the SDK."""
        self._fs = fs
        # At INFO the SDK writes 25 lines for each request into the task's log.
        logging.getLogger("azure.core.pipeline.policies.http_logging_policy").setLevel(logging.WARNING)

    @staticmethod
    def failure_of(err: BaseException) -> Failure:
        status = getattr(err, "status_code", None)
        status = status if isinstance(status, int) else None
        code = getattr(err, "error_code", None)
        headers = getattr(getattr(err, "response", None), "headers", None) or {}
        return Failure(
            status=status,
            code=str(getattr(code, "value", code) or "") or ("" if status else type(err).__name__),
            message=next(iter(str(err).strip().splitlines()), ""),
            request_id=headers.get("x-ms-request-id"),
            retry_after=headers.get("Retry-After"),
            may_pass=status in (None, *PASSING),
            is_refused=status in REFUSED,
        )

    def repeated(
        self,
        call: Callable[[], Coroutine[Any, Any, Any]],
        *,
        none_if: Callable[[Failure], bool] | None = None,
    ) -> Any:
        def run() -> Any:
            return asyncio.run_coroutine_threadsafe(call(), self._fs.loop).result()

        return super().repeated(run, none_if=none_if)


def is_missing(failure: Failure) -> bool:
    """Whether the service says that nothing has this name. Other 404s do not say so."""
    return failure.status == 404 and failure.code in _MISSING


def is_existing(failure: Failure) -> bool:
    return failure.status in (409, 412) and failure.code in _EXISTING


# ---- How a location is written ----

_CONTAINER = re.compile(r"[a-z0-9](?:-?[a-z0-9]){2,62}|\$(?:root|web|logs)")
_HOST = re.compile(r"[a-z0-9-]+(?:\.[a-z0-9-]+)*\.dfs\.[a-z0-9.-]+")
_URL = re.compile(r"(?i)https?://([\w-]+)\.(?:blob|dfs)\.([\w.-]+)/([^/]+)(/.*)?")
_BLOB_URI = re.compile(r"(?i)([^@]+)@([\w.-]+)\.blob\.([\w.-]+)")


def canonical(location: str) -> str:
    """Write it as ``abfss://<container>@<account>.dfs…``.

    :raises InputError: The location is written in another way, or is not valid.
    """
    scheme, authority, path = split(location)
    if scheme not in ("abfss", "abfs"):
        raise bad(location, f"is on {scheme}://, which is not supported", _advice(location))
    container, at, host = authority.partition("@")
    host = host.lower()
    if not at:
        raise bad(location, "names no account", f"write {_uri(container, path)}")
    blob = _BLOB_URI.fullmatch(authority)
    if blob:
        raise bad(
            location, "names the Blob endpoint", f"write abfss://{blob[1]}@{blob[2]}.dfs.{blob[3]}{path}"
        )
    if "." not in host:
        raise with_connection(location, container, _uri(host, path))
    if not _CONTAINER.fullmatch(container):
        raise bad(
            location,
            f"names no container: {container!r} is not a valid name of one",
            "write its name, of 3 to 63 lowercase letters, digits and single hyphens",
        )
    if not _HOST.fullmatch(host) or "\\" in path:
        raise bad(location, "is not valid", f"write {_uri('<container>', '/…')}, without a backslash")
    return f"abfss://{container}@{host}{path}"


def _uri(container: str, path: str) -> str:
    return f"abfss://{container}@<account>.dfs.core.windows.net{path}"


def _advice(location: str) -> str:
    """Say what to write instead of a location of another scheme."""
    scheme, authority, path = split(location)
    url, blob = _URL.fullmatch(location), _BLOB_URI.fullmatch(authority)
    if scheme in ("http", "https"):
        if url is None:
            return "name a folder that can be listed with modification times"
        return f"write abfss://{url[3]}@{url[1]}.dfs.{url[2]}{(url[4] or '').rstrip('/')}"
    if scheme in ("wasb", "wasbs") and blob:
        return f"write abfss://{blob[1]}@{blob[2]}.dfs.{blob[3]}{path}"
    conn_id, at, container = authority.rpartition("@")
    advice = f"write {_uri(container, path)}"
    return f"{advice}, and storage_conn_id={conn_id!r}" if at else advice


# ---- Files ----

SCHEME = "abfss://"

_NEEDS_MARKER = (
    "Without a hierarchical namespace, a folder disappears with its last file: a folder that may be empty "
    "needs a marker, such as the one that the Azure portal creates"
)

PAGE_SIZE = 5000
"""Blobs in one page. The service allows no more."""


class AzureStorage:
    """The containers of one account.

    A folder exists as long as a blob lies below it, or a marker stands for it. A marker is a directory of an
    account with a hierarchical namespace, an empty blob with ``hdi_isfolder``, or one whose name ends with a
    slash. So a root without any of these is missing, not empty; the container itself may be empty.

    The service gives times in whole seconds, so a file seems up to a second older than it is. A change in
    the same second to the same length is not noticed.

    :param fs: An ``adlfs.AzureBlobFileSystem``.
    :param host: The account's host in URIs, such as ``acme.dfs.core.windows.net``, wherever the service is.
    """

    def __init__(
        self, fs: Any, host: str, *, calls: AzureCalls | None = None, page_size: int = PAGE_SIZE
    ) -> None:
        self._client = fs.service_client
        self._host = host
        self._calls = calls or AzureCalls(fs)
        self._page_size = page_size

    def walk(self, root: str) -> Iterator[FileEntry]:
        """List every file below ``root``, page by page. The next page is fetched meanwhile.

        A file that is created or deleted during the listing may or may not be in it.
        """
        container, folder = self._parts(root)
        base = f"{SCHEME}{container}@{self._host}/"
        has_container = has_blobs = False
        with self._calls.listing(root):
            for page in self._pages(container, f"{folder}/" if folder else ""):
                has_container, has_blobs = True, has_blobs or bool(page.blobs)
                yield from entries(page, base)
            if not has_container or (folder and not has_blobs and not self._has_marker(root)):
                raise no_root(root, _NEEDS_MARKER)

    def names(self, folder: str) -> list[str]:
        container, name = self._parts(folder)
        prefix = f"{name}/" if name else ""
        with self._calls.failing("list", folder):
            files = [file for page in self._pages(container, prefix, "/") for file in entries(page, "")]
        return sorted(file.path.removeprefix(prefix) for file in files)

    def read(self, path: str, at_most: int = CONTROL_FILE_LIMIT_BYTES) -> bytes | None:
        blob = self._blob(path)

        async def download() -> bytes:
            stream = await blob.download_blob(**self._calls.options)
            # With a hierarchical namespace a folder reads like an empty file.
            if _is_folder(stream.properties):
                raise self._calls.failed("read", path, "it is a folder")
            if stream.size > at_most:
                raise self._calls.failed("read", path, f"it is larger than {at_most:,} bytes")
            return bytes(await stream.readall())

        with self._calls.failing("read", path):
            data: bytes | None = self._calls.repeated(download, none_if=is_missing)
        return data

    def put_if_absent(self, path: str, data: bytes) -> bytes:
        """Create a file with its content: one Put Blob with ``If-None-Match: *``.

        A request that got no answer may have taken effect, and its repetition is then refused. Some
        repetitions are not made here: aiohttp sends a PUT again by itself when a kept connection breaks.
        """
        return data if self._upload("create", path, data, overwrite=False) else existing(self, path)

    def replace(self, path: str, data: bytes) -> None:
        self._upload("replace", path, data, overwrite=True)

    def _upload(self, verb: str, path: str, data: bytes, *, overwrite: bool) -> bool:
        blob, options = self._blob(path), {"overwrite": overwrite, **self._calls.options}
        with self._calls.failing(verb, path):
            upload = partial(blob.upload_blob, data, **options)
            return self._calls.repeated(upload, none_if=None if overwrite else is_existing) is not None

    def delete(self, path: str) -> None:
        blob = self._blob(path)
        with self._calls.failing("delete", path):
            self._calls.repeated(partial(blob.delete_blob, **self._calls.options), none_if=is_missing)

    def _pages(self, container: str, prefix: str, delimiter: str = "") -> Iterator[Page]:
        """List page by page, the next one being fetched meanwhile; without a container there is none.

        :raises ValueError: A page is incomplete, or the next one would be the same.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="azure-walk") as executor:
            marker = ""
            next_page = executor.submit(self._page, container, prefix, delimiter, marker)
            while True:
                try:
                    page = next_page.result()
                except Exception as err:
                    if is_missing(self._calls.failure_of(err)) and not marker:
                        return
                    raise
                if page.marker and page.marker == marker:
                    msg = "the next page is the page that was read"
                    raise ValueError(msg)
                marker = page.marker
                if marker:
                    next_page = executor.submit(self._page, container, prefix, delimiter, marker)
                yield page
                if not marker:
                    return

    def _page(self, container: str, prefix: str, delimiter: str, marker: str) -> Page:
        """Fetch one page, with metadata: they show which blobs are markers of folders.

        They make the page longer only for blobs that have metadata.

        :raises ValueError: The page is incomplete.
        """
        client = self._client.get_container_client(container)
        options = {
            **self._calls.options,
            "name_starts_with": prefix or None,
            "include": ["metadata"],
            "results_per_page": self._page_size,
            "raw_response_hook": _raise_page_text,
        }

        async def fetch() -> bytes:
            if delimiter:
                listing = client.walk_blobs(delimiter=delimiter, **options)
            else:
                listing = client.list_blobs(**options)
            try:
                await anext(listing.by_page(continuation_token=marker or None))
            except _PageText as text:
                return text.body
            msg = "the SDK did not show the page's text"
            raise RuntimeError(msg)

        return parse_page(self._calls.repeated(fetch))

    def _has_marker(self, root: str) -> bool:
        """Whether a root that has no blobs below it is an empty folder.

        :raises SourceUnreadableError: It is a file.
        """
        get_properties = partial(self._blob(root).get_blob_properties, **self._calls.options)
        properties = self._calls.repeated(get_properties, none_if=is_missing)
        if properties is not None and not _is_folder(properties):
            raise self._calls.unreadable(root, "it is a file, not a folder")
        return properties is not None

    def _blob(self, uri: str) -> Any:
        container, name = self._parts(uri)
        return self._client.get_blob_client(container, name)

    def _parts(self, uri: str) -> tuple[str, str]:
        """Split a canonical URI into container and name.

        :raises InputError: The URI is of another account.
        """
        container, _, place = uri.removeprefix(SCHEME).partition("@")
        host, _, name = place.partition("/")
        if not uri.startswith(SCHEME) or host != self._host:
            raise InputError(
                f"The location {uri!r} does not belong to the account {self._host}.",
                kept="everything; nothing was sent",
                do="name the connection of its account; one connection serves one account",
            )
        return container, name


def _is_folder(properties: Any) -> bool:
    metadata: dict[str, str] = {name.lower(): value for name, value in (properties.metadata or {}).items()}
    return metadata.get("hdi_isfolder", "").lower() == "true"


class _PageText(Exception):  # noqa: N818 - not a fault
    """Carries the text of a page out of the SDK, before the SDK makes models of it."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.body = body


def _raise_page_text(response: Any) -> None:
    if response.http_response.status_code == 200:
        raise _PageText(response.http_response.body())


# ---- pages of List Blobs ----

# The order in which the service and Azurite write the elements; another order is read more slowly.
_IN_USUAL_ORDER = re.compile(
    r"<Name>([^<]*)</Name><Properties><Creation-Time>([^<]*)</Creation-Time>"
    r"<Last-Modified>([^<]*)</Last-Modified><Etag>[^<]*</Etag><Content-Length>(\d+)</Content-Length>"
)
_NAME = re.compile(r'<Name(?: Encoded="(true|false)")?\s*>([^<]*)</Name>')
_CREATED = re.compile(r"<Creation-Time>([^<]+)</Creation-Time>")
_MODIFIED = re.compile(r"<Last-Modified>([^<]+)</Last-Modified>")
_LENGTH = re.compile(r"<Content-Length>(\d+)</Content-Length>")
_FOLDER = re.compile(r"(?i)<ResourceType>directory</ResourceType>|<hdi_isfolder>true</hdi_isfolder>")
_MD5_TAG = "<Content-MD5>"
_NEXT_MARKER = re.compile(r"<NextMarker>([^<]*)</NextMarker>|<NextMarker\s*/>")
_CHARACTER_REFERENCE = re.compile(r"&(?:#x([0-9A-Fa-f]+)|#(\d+)|(amp|lt|gt|quot|apos));")
_NAMED_CHARACTERS = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_MONTHS = ("", "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Page(NamedTuple):
    """One page of a list of blobs, checked for completeness but not yet parsed."""

    blobs: tuple[str, ...]
    """The text of each blob."""
    marker: str
    """Where the next page begins; empty at the end."""


def parse_page(body: bytes) -> Page:
    """Split a page into its blobs.

    :raises ValueError: The page is incomplete.
    """
    text = body.decode("utf-8-sig")
    end = _NEXT_MARKER.search(text, text.rfind("</Blobs>") + 1)
    if end is None:
        end = _NEXT_MARKER.search(text, text.rfind("<NextMarker"))
    if end is None or not text.rstrip().endswith("</EnumerationResults>"):
        msg = "the page is incomplete"
        raise ValueError(msg)
    blobs = text.split("<Blob>")
    return Page(tuple(blobs[1:]), _unescaped(end[1] or ""))


def entries(page: Page, base: str) -> list[FileEntry]:
    """Read the files of a page. Markers that stand for folders are left out.

    The service gives times in whole seconds, so a file may be up to a second younger.

    :param base: The part of a URI before the blob's name.
    :raises ValueError: A blob has no name or no length.
    """
    files: list[FileEntry] = []
    for blob in page.blobs:
        match = _IN_USUAL_ORDER.match(blob)
        if match is None:
            name, created, modified, size = _parse_in_any_order(blob)
        else:
            name, created_at, modified_at, length = match.groups()
            if "&" in name:
                name = _unescaped(name)
            modified, created = _milliseconds(modified_at), _milliseconds(created_at)
            size = int(length)
        if size or not (name.endswith("/") or _FOLDER.search(blob)):
            files.append(FileEntry(modified, base + name, size, created, _md5(blob)))
    return files


def _md5(blob: str) -> str | None:
    """Read the MD5 of a blob's content. New metadata do not change it; large uploads have none.

    The service does not update that of a page blob or an append blob when its bytes change.
    """
    start = blob.find(_MD5_TAG)
    if start < 0 or "<BlobType>BlockBlob<" not in blob:
        return None
    properties, end = blob.find("</Properties>"), blob.find("</Content-MD5>", start)
    return blob[start + len(_MD5_TAG) : end] or None if start < end < properties else None


def _parse_in_any_order(blob: str) -> tuple[str, int | None, int, int]:
    """Parse one blob whatever the order of its elements; 0 is an unknown modification time."""
    name, length = _NAME.search(blob), _LENGTH.search(blob)
    if name is None or length is None:
        msg = "a blob has no name or no length"
        raise ValueError(msg)
    text = _unescaped(name[2])
    created, modified = _CREATED.search(blob), _MODIFIED.search(blob)
    return (
        # Names with characters that XML does not have are percent-encoded, and say so.
        unquote(text) if name[1] == "true" else text,
        _milliseconds(created[1]) if created else None,
        _milliseconds(modified[1]) if modified else 0,
        int(length[1]),
    )


def _unescaped(text: str) -> str:
    return _CHARACTER_REFERENCE.sub(_character, text) if "&" in text else text


def _character(match: re.Match[str]) -> str:
    if match[3]:
        return _NAMED_CHARACTERS[match[3]]
    return chr(int(match[1], 16) if match[1] else int(match[2]))


@lru_cache(maxsize=4096)
def _milliseconds(text: str) -> int:
    """Parse ``Sat, 21 Nov 2026 20:01:03 GMT``."""
    if text[25:] != " GMT":
        msg = f"{text!r} is not a time"
        raise ValueError(msg)
    return (_day(text[5:16]) + int(text[17:19]) * 3600 + int(text[20:22]) * 60 + int(text[23:25])) * 1000


@lru_cache(maxsize=4096)
def _day(text: str) -> int:
    return timegm((int(text[7:]), _MONTHS.index(text[3:6]), int(text[:2]), 0, 0, 0))
