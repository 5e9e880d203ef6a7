"""Requests and answers of WebHDFS, for Azure Data Lake Storage Gen1 and for plain HDFS."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.stores.wire import not_understood
from airflow_provider_scope.values import no_root

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_scope.stores.http import HttpClient
    from airflow_provider_scope.stores.wire import Answer


API_VERSION = "2018-09-01"
"""The version whose pages have a continuation token."""

BLOCK_BYTES = 4 * 1024 * 1024
"""Bytes of one read or write."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The differences between the services that speak WebHDFS."""

    scheme: str
    block_bytes: int | None
    """Most bytes of one write; None if there is no limit."""
    version: Mapping[str, str] = field(default_factory=dict)
    is_gen1: bool = False
    """Reads and writes need no redirect, and a page of a folder has a continuation token."""


GEN1 = Dialect("adl://", BLOCK_BYTES, {"api-version": API_VERSION}, is_gen1=True)
HDFS = Dialect("webhdfs://", None)
HDFS_TLS = Dialect("swebhdfs://", None)


class WebHdfs:
    """The single requests to one account or cluster; ``Gen1Client`` combines them."""

    def __init__(self, http: HttpClient, authority: str, dialect: Dialect) -> None:
        self.http = http
        self.root = f"{dialect.scheme}{authority}"
        self.block_bytes = dialect.block_bytes
        self._authority = authority
        self._dialect = dialect
        self._has_batches = not dialect.is_gen1

    def uri(self, path: str) -> str:
        """Give the canonical URI of a path.

        :raises InputError: The path is of another account, or not absolute.
        """
        return self.root + self.inside(path)

    def list_page(self, folder: str, after: str, size: int, doing: str) -> Page:
        """List one page of a folder.

        :raises SourceNotFoundError: The folder does not exist.
        :raises ServiceError: The folder could not be listed.
        """
        if self._has_batches:
            answer = self.call(
                "GET", folder, "LISTSTATUS_BATCH", doing, {"startAfter": after} if after else {}
            )
            if not is_unsupported(answer):
                return parse_batch(self._listing(answer, folder, doing), after, doing)
            self._has_batches = False
        params = {"listSize": str(size)} if self._dialect.is_gen1 else {}
        if after:
            params["listAfter"] = after
        answer = self.call("GET", folder, "LISTSTATUS", doing, params)
        is_whole = not self._dialect.is_gen1
        return parse_page(self._listing(answer, folder, doing), after, doing, is_whole=is_whole)

    def read(self, path: str, start: int, end: int, doing: str) -> bytes | None:
        """Read a range of a file; None if the service says that it does not exist.

        :raises ServiceError: The range could not be read in full.
        """
        data = bytearray()
        while start + len(data) < end:
            offset = start + len(data)
            # An answer may be shorter than the range that was asked for.
            part = self._open(path, offset, min(BLOCK_BYTES, end - offset), doing)
            if part is None:
                return None
            if not part or len(part) > end - offset:
                raise not_understood(doing, f"{len(part):,} bytes came at {offset:,}, the file has {end:,}")
            data += part
        return bytes(data)

    def read_version(self, path: str, size: int, doing: str) -> bytes | None:
        """Read a file of the given length; None if the service says that it does not exist.

        A file below ``BLOCK_BYTES`` comes in one answer, so it is one version of the file. One more byte is
        asked for: if it comes, the file has become longer.

        :raises ServiceError: The file could not be read in full, or has another length.
        """
        if size == 0 or size >= BLOCK_BYTES:
            return self.read(path, 0, size, doing)
        data = self._open(path, 0, size + 1, doing)
        if data is not None and len(data) != size:
            raise not_understood(doing, f"{len(data):,} bytes came, the file has {size:,}")
        return data

    def _open(self, path: str, offset: int, length: int, doing: str) -> bytes | None:
        params = {"offset": str(offset), "length": str(length)}
        if self._dialect.is_gen1:
            params["read"] = "true"
        answer = self.call("GET", path, "OPEN", doing, params)
        return None if is_missing(answer) else accepted(answer, doing).body

    def create(self, path: str, data: bytes, doing: str, *, overwrite: bool) -> Answer:
        """Create a file with its content in one request.

        :raises InputError: The content does not fit into one request.
        """
        limit = self._dialect.block_bytes
        if limit is not None and len(data) > limit:
            raise InputError(
                f"Could not {doing}: it has {len(data):,} bytes, and at most {limit:,} are written at once.",
                kept="everything that was there before",
                do="write less at a time; a larger file would be seen before it is complete",
            )
        params = {"overwrite": "true" if overwrite else "false"}
        if self._dialect.is_gen1:
            # write=true: the body goes to this URL, without WebHDFS's redirect.
            params |= {"write": "true", "syncFlag": "CLOSE"}
        return self.call("PUT", path, "CREATE", doing, params, data=data, repeatable=overwrite)

    def call(
        self,
        method: str,
        path: str,
        operation: str,
        doing: str,
        params: Mapping[str, str] | None = None,
        *,
        data: bytes | None = None,
        repeatable: bool = True,
    ) -> Answer:
        return self.http.request(
            method,
            "/webhdfs/v1" + quote(self.inside(path)),
            doing=doing,
            params={"op": operation, **self._dialect.version, **(params or {})},
            data=data,
            repeatable=repeatable,
            in_two_steps=data is not None and not self._dialect.is_gen1,
        )

    def _listing(self, answer: Answer, folder: str, doing: str) -> Any:
        if is_missing(answer):
            raise no_root(self.uri(folder))
        return accepted(answer, doing).json(doing)

    def inside(self, path: str) -> str:
        """Give the path inside the account, without empty parts."""
        inside = path
        scheme = self._dialect.scheme
        if path.startswith(scheme):
            authority, slash, rest = path[len(scheme) :].partition("/")
            if authority.casefold() != self._authority.casefold():
                raise bad_path(path, f"a path of the account {self._authority}")
            inside = slash + rest
        if inside and not inside.startswith("/"):
            raise bad_path(path, f"{self.root}/… or an absolute path")
        parts = [part for part in inside.split("/") if part]
        if any(part in (".", "..") for part in parts):
            raise bad_path(path, "a path without '.' and '..'")
        return "/" + "/".join(parts)


def bad_path(path: str, expected: str) -> InputError:
    """Give the error for a path that is not valid."""
    return InputError(
        f"The path {path!r} is not valid: expected {expected}.",
        kept="everything; nothing was sent",
        do="correct the path, or name the connection of its account",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One file or folder."""

    name: str
    """Empty if the request was about this file or folder itself."""
    is_folder: bool
    size_bytes: int
    """Stale while a writer has the file open."""
    modified_ms: int
    """0 if the service does not give it. For a folder: when a direct child was created or deleted."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of the listing of a folder."""

    entries: tuple[Status, ...]
    after: str
    """Where the next page begins; empty at the end."""


def is_missing(answer: Answer) -> bool:
    """Tell whether the service says that nothing has this path. Other 404s do not say so."""
    return answer.status == 404 and answer.code == "FileNotFoundException"  # noqa: PLR2004


def is_unsupported(answer: Answer) -> bool:
    """Tell whether the service does not know an operation."""
    return answer.status in (400, 501) and answer.code in (
        "UnsupportedOperationException",
        "IllegalArgumentException",
    )


def accepted(answer: Answer, doing: str) -> Answer:
    """Give the answer if it is a success.

    :raises ServiceError: The answer is a refusal.
    """
    if not answer.ok:
        raise answer.error(doing)
    return answer


def parse_boolean(answer: Answer, doing: str) -> bool:
    """Read the answer of an operation that says whether it was done.

    :raises ServiceError: The operation was refused, or the answer says neither.
    """
    value = accepted(answer, doing).json(doing)
    result = value.get("boolean") if isinstance(value, dict) else None
    if not isinstance(result, bool):
        raise not_understood(doing, "the answer is neither true nor false")
    return result


def parse_page(value: Any, after: str, doing: str, *, is_whole: bool = False) -> Page:
    """Read one page of the listing of a folder.

    :param after: The token or name after which the page was to begin.
    :param is_whole: Whether a page without a token is the whole listing, as in plain WebHDFS.
    :raises ServiceProtocolError: The page is incomplete, or the next page would be the same.
    """
    statuses = value.get("FileStatuses") if isinstance(value, dict) else None
    entries = statuses.get("FileStatus") if isinstance(statuses, dict) else None
    token = (
        statuses.get("continuationToken", "" if is_whole else None) if isinstance(statuses, dict) else None
    )
    if not isinstance(entries, list) or not isinstance(token, str):
        # Without the token it is not known whether more pages follow.
        raise not_understood(doing, "the page has no list of files, or no continuation token")
    if token and token == after:
        raise not_understood(doing, "the next page is the page that was read")
    return Page(tuple(parse_status(entry, doing) for entry in entries), token)


def parse_batch(value: Any, after: str, doing: str) -> Page:
    """Read an answer to LISTSTATUS_BATCH: one page in plain WebHDFS.

    :raises ServiceProtocolError: The page is incomplete, or the next page would be the same.
    """
    listing = value.get("DirectoryListing") if isinstance(value, dict) else None
    partial = listing.get("partialListing") if isinstance(listing, dict) else None
    remaining = listing.get("remainingEntries") if isinstance(listing, dict) else None
    page = parse_page(partial, "", doing, is_whole=True)
    if type(remaining) is not int or (remaining > 0 and not page.entries):
        raise not_understood(doing, "the page does not say how many entries follow")
    last = page.entries[-1].name if remaining > 0 else ""
    if last and last == after:
        raise not_understood(doing, "the next page is the page that was read")
    return Page(page.entries, last)


def parse_status(value: object, doing: str) -> Status:
    """Read one ``FileStatus``.

    :raises ServiceProtocolError: The entry is neither a file nor a folder, or has no valid name or length.
    """
    if not isinstance(value, dict) or value.get("type") not in ("FILE", "DIRECTORY"):
        raise not_understood(doing, "an entry is neither a file nor a folder")
    name, size, modified = value.get("pathSuffix"), value.get("length"), value.get("modificationTime")
    if not isinstance(name, str) or "/" in name or name in (".", ".."):
        raise not_understood(doing, f"an entry has the name {name!r}")
    if type(size) is not int or size < 0:
        raise not_understood(doing, f"the entry {name!r} has the length {size!r}")
    return Status(
        name=name,
        is_folder=value["type"] == "DIRECTORY",
        size_bytes=size,
        modified_ms=modified if type(modified) is int else 0,
    )
