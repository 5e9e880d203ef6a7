"""Files over WebHDFS, on Azure Data Lake Storage Gen1 and on plain HDFS."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_provider_scope.exceptions import (
    InputError,
    ServiceAuthError,
    ServiceError,
    ServiceUnavailableError,
    SourceError,
    SourceNotFoundError,
    SourceRefusedError,
    SourceUnreadableError,
)
from airflow_provider_scope.stores.calls import not_understood, unreadable
from airflow_provider_scope.values import FileEntry, no_root

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_provider_scope.stores.calls import Answer
    from airflow_provider_scope.stores.http import HttpClient


_VERSION = {"api-version": "2018-09-01"}
"""Of Gen1: the version whose pages have a continuation token."""

BLOCK_BYTES = 4 * 1024 * 1024
"""Bytes of one read, and of one write on Gen1."""

PAGE_SIZE = 4000
"""Entries of one page that both of Microsoft's clients ask for; the service may give fewer."""

WALK_THREADS = 8

_READ_TRIES = 5
"""How often a file is read if it is replaced meanwhile."""


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


class WebHdfsClient:
    """The files of one account or cluster. Paths are ``<root>/…`` or ``/…``, unencoded.

    :param root: How its URIs begin, whatever host the requests go to: ``adl://acme.azuredatalakestore.net``,
        or ``webhdfs://`` or ``swebhdfs://`` with the namenode's host and port.
    """

    def __init__(self, http: HttpClient, root: str, *, threads: int = WALK_THREADS) -> None:
        self.http = http
        self._root = root
        self._threads = threads
        self._is_gen1 = root.startswith("adl://")
        """Reads and writes need no redirect, and a page of a folder has a continuation token."""
        self._has_batches = not self._is_gen1

    def uri(self, path: str) -> str:
        """Return the canonical URI of a path.

        :raises InputError: The path is of another account, or not absolute.
        """
        return self._root + self._inside(path)

    # ---- folders -------------------------------------------------------------------------------

    def list_page(self, path: str, *, after: str = "", size: int = PAGE_SIZE) -> Page:
        """List one page of a folder.

        :param after: ``Page.after`` of the page before.
        :raises SourceNotFoundError: The folder does not exist.
        :raises SourceRefusedError: It may not be listed.
        :raises SourceUnreadableError: It could not be listed, or is a file.
        """
        doing = f"list the folder {self.uri(path)}"
        try:
            page = self._list_page(path, after, size, doing)
            if page.after and page.after == after:
                raise not_understood(doing, "the next page is the page that was read")
        except ServiceError as err:
            raise _unreadable(err) from err
        if any(not entry.name for entry in page.entries):  # the answer for a file is the file itself
            raise unreadable(self.uri(path), "it is a file, not a folder", "check the source's folders")
        return page

    def _list_page(self, folder: str, after: str, size: int, doing: str) -> Page:
        if self._has_batches:
            params = {"startAfter": after} if after else {}
            answer = self._call("GET", folder, "LISTSTATUS_BATCH", doing, params)
            if not is_unsupported(answer):
                return parse_batch(self._listing(answer, folder, doing), doing)
            self._has_batches = False
        params = {"listSize": str(size)} if self._is_gen1 else {}
        if after:
            params["listAfter"] = after
        answer = self._call("GET", folder, "LISTSTATUS", doing, params)
        return parse_page(self._listing(answer, folder, doing), doing, is_whole=not self._is_gen1)

    def _listing(self, answer: Answer, folder: str, doing: str) -> Any:
        if is_missing(answer):
            raise no_root(self.uri(folder))
        return answer.accepted(doing).json(doing)

    def names(self, path: str) -> list[str]:
        """List the names of the files in a folder, sorted; empty if the folder does not exist.

        :raises SourceError: It could not be listed in full.
        """
        names: list[str] = []
        after = ""
        while True:
            try:
                page = self.list_page(path, after=after)
            except SourceNotFoundError:
                if after:
                    raise
                return []
            names += [entry.name for entry in page.entries if not entry.is_folder]
            if not page.after:
                return sorted(names)
            after = page.after

    def walk(self, root: str) -> Iterator[FileEntry]:
        """List every file below a folder, in any order, several folders at a time.

        A folder that is deleted during the listing counts as absent, as long as the root itself remains. The
        memory holds a page for each thread, and the names of the folders that are still to be listed.

        :raises SourceNotFoundError: The root does not exist.
        :raises SourceRefusedError: The root, or a folder below it, may not be listed.
        :raises SourceUnreadableError: It could not be listed in full.
        """
        top = self._inside(root)
        pending = [(top, "")]
        running: dict[Future[Page], tuple[str, str]] = {}
        with ThreadPoolExecutor(self._threads, thread_name_prefix="webhdfs-walk") as pool:
            try:
                while pending or running:
                    while pending and len(running) < self._threads:
                        folder, after = pending.pop()
                        running[pool.submit(self.list_page, folder, after=after)] = (folder, after)
                    finished, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in finished:
                        folder, _ = running.pop(future)
                        page = self._page_or_empty(future, folder, top)
                        if page.after:
                            pending.append((folder, page.after))
                        for entry in page.entries:
                            path = f"{folder.rstrip('/')}/{entry.name}"
                            if entry.is_folder:
                                pending.append((path, ""))
                            else:
                                # The service gives no creation times: unknown rather than guessed.
                                yield FileEntry(entry.modified_ms, self._root + path, entry.size_bytes)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _page_or_empty(self, future: Future[Page], folder: str, top: str) -> Page:
        try:
            page = future.result()
        except SourceNotFoundError as err:
            if folder == top:
                raise
            if not self._is_folder(top):
                raise unreadable(
                    self.uri(top), "it was deleted during the listing", "check the source's folders"
                ) from err
            return Page((), "")
        return page

    def _is_folder(self, path: str) -> bool:
        try:
            status = self.get_status(path)
        except ServiceError as err:
            raise _unreadable(err) from err
        return status is not None and status.is_folder

    # ---- files ---------------------------------------------------------------------------------

    def get_status(self, path: str) -> Status | None:
        """Describe a file or folder; None only if the service says that it does not exist.

        :raises ServiceError: It could not be read.
        """
        doing = f"read the status of {self.uri(path)}"
        answer = self._call("GET", path, "GETFILESTATUS", doing)
        if is_missing(answer):
            return None
        return parse_status(_part(answer.accepted(doing).json(doing), "FileStatus"), doing)

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes | None:
        """Read a file or a range of it; None only if the service says that it does not exist.

        :raises ServiceError: It could not be read in full.
        """
        doing = f"read {self.uri(path)}"
        status = self.get_status(path)
        if status is None:
            return None
        end = status.size_bytes if length is None else min(status.size_bytes, offset + length)
        return self._read_range(path, offset, end, doing)

    def read_whole(self, path: str, status: Status) -> bytes | None:
        """Read a file that others may replace meanwhile; None if it does not exist any more.

        :param status: Its status, as it was just read.
        :raises ServiceError: It could not be read in full, or changes all the time.
        """
        doing = f"read {self.uri(path)}"
        for _ in range(_READ_TRIES):
            problem: ServiceError | None = None
            data: bytes | None = None
            try:
                data = self._read_version(path, status.size_bytes, doing)
                if data is not None and status.size_bytes < BLOCK_BYTES:
                    return data
            except ServiceError as err:
                problem = err
            current = self.get_status(path)
            if current is None:
                return None
            if current == status:
                if problem:
                    raise problem
                if data is not None:
                    return data
            status = current
        raise ServiceUnavailableError(
            f"Could not {doing}: it was replaced {_READ_TRIES} times in the meantime.",
            kept="everything that was there before",
            do="nothing: the next try reads it again",
        )

    def upload(self, path: str, data: bytes) -> None:
        """Create or replace a file of any size; it can be seen before it is complete.

        :raises ServiceError: It is not known what the file holds.
        """
        doing = f"write {self.uri(path)}"
        block = BLOCK_BYTES if self._is_gen1 else len(data) or 1

        def attempt() -> None:
            self._create(path, data[:block], doing)
            for offset in range(block, len(data), block):
                params = {"append": "true", "offset": str(offset), "syncFlag": "CLOSE"}
                part = data[offset : offset + block]
                answer = self._call("POST", path, "APPEND", doing, params, data=part, repeatable=False)
                answer.accepted(doing)

        # Whatever an append did: the next try begins with a new file.
        self.http.once(attempt, lambda _: None)

    def mkdirs(self, path: str) -> None:
        """Create a folder and those above it; one that exists is fine.

        :raises ServiceError: It was not created.
        """
        doing = f"create the folder {self.uri(path)}"
        if not parse_boolean(self._call("PUT", path, "MKDIRS", doing), doing):
            raise not_understood(doing, "the service says that it did not")

    def rename(self, path: str, to: str, *, overwrite: bool = False) -> bool:
        """Rename a file or folder; onto a folder that exists it moves inside.

        :param overwrite: Replace a file that exists.
        :return: False if the service did not: ``path`` does not exist, or ``to`` does.
        :raises ServiceError: It was not renamed, or that is not known.
        """
        doing = f"rename {self.uri(path)} to {self.uri(to)}"
        params = {"destination": self._inside(to)}
        if overwrite:
            params["renameoptions"] = "OVERWRITE"
        answer = self._call("PUT", path, "RENAME", doing, params, repeatable=False)
        if (overwrite and is_missing(answer)) or answer.code == "FileAlreadyExistsException":
            return False
        # With options plain HDFS says nothing when it did it.
        return (overwrite and answer.ok and not answer.body) or parse_boolean(answer, doing)

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Delete a file or folder; one that does not exist is fine.

        :raises InputError: The root of the account.
        :raises ServiceError: It was not deleted.
        """
        if self._inside(path) == "/":
            raise bad_path(path, "a file or a folder, not the root of the account")
        doing = f"delete {self.uri(path)}"
        params = {"recursive": "true" if recursive else "false"}
        answer = self._call("DELETE", path, "DELETE", doing, params)
        if not is_missing(answer):
            parse_boolean(answer, doing)

    # ---- requests ------------------------------------------------------------------------------

    def _read_range(self, path: str, start: int, end: int, doing: str) -> bytes | None:
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

    def _read_version(self, path: str, size: int, doing: str) -> bytes | None:
        """Read a file of the given length; None if the service says that it does not exist.

        A file below ``BLOCK_BYTES`` comes in one answer, so it is one version of the file. One more byte is
        asked for: if it comes, the file has become longer.

        :raises ServiceError: The file could not be read in full, or has another length.
        """
        if size == 0 or size >= BLOCK_BYTES:
            return self._read_range(path, 0, size, doing)
        data = self._open(path, 0, size + 1, doing)
        if data is not None and len(data) != size:
            raise not_understood(doing, f"{len(data):,} bytes came, the file has {size:,}")
        return data

    def _open(self, path: str, offset: int, length: int, doing: str) -> bytes | None:
        params = {"offset": str(offset), "length": str(length)}
        if self._is_gen1:
            params["read"] = "true"
        answer = self._call("GET", path, "OPEN", doing, params)
        return None if is_missing(answer) else answer.accepted(doing).body

    def _create(self, path: str, data: bytes, doing: str) -> None:
        params = {"overwrite": "true"}
        if self._is_gen1:
            # write=true: the body goes to this URL, without WebHDFS's redirect.
            params |= {"write": "true", "syncFlag": "CLOSE"}
        self._call("PUT", path, "CREATE", doing, params, data=data).accepted(doing)

    def _call(
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
            "/webhdfs/v1" + quote(self._inside(path)),
            doing=doing,
            params={"op": operation, **(_VERSION if self._is_gen1 else {}), **(params or {})},
            data=data,
            repeatable=repeatable,
            in_two_steps=data is not None and not self._is_gen1,
        )

    def _inside(self, path: str) -> str:
        """Return the path inside the account, without empty parts."""
        inside = path
        scheme, _, authority = self._root.partition("://")
        if path.startswith(f"{scheme}://"):
            named, slash, below = path.removeprefix(f"{scheme}://").partition("/")
            if named.casefold() != authority.casefold():
                raise bad_path(path, f"a path of the account {authority}")
            inside = slash + below
        if inside and not inside.startswith("/"):
            raise bad_path(path, f"{self._root}/… or an absolute path")
        parts = [part for part in inside.split("/") if part]
        if any(part in (".", "..") for part in parts):
            raise bad_path(path, "a path without '.' and '..'")
        return "/" + "/".join(parts)


def is_missing(answer: Answer) -> bool:
    """Whether the service says that nothing has this path. Other 404s do not say so."""
    return answer.status == 404 and answer.code == "FileNotFoundException"


def is_unsupported(answer: Answer) -> bool:
    codes = ("UnsupportedOperationException", "IllegalArgumentException")
    return answer.status == 400 and answer.code in codes


def _part(value: Any, *keys: str) -> Any:
    """Return what lies below these keys; None if an object on the way is none, or lacks its key."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def parse_boolean(answer: Answer, doing: str) -> bool:
    """Read the answer of an operation that says whether it was done.

    :raises ServiceError: The operation was refused, or the answer says neither.
    """
    result = _part(answer.accepted(doing).json(doing), "boolean")
    if not isinstance(result, bool):
        raise not_understood(doing, "the answer is neither true nor false")
    return result


def parse_page(value: Any, doing: str, *, is_whole: bool) -> Page:
    """Read one page of the listing of a folder.

    :param is_whole: Whether a page without a token is the whole listing, as in plain WebHDFS.
    :raises ServiceProtocolError: The page is incomplete.
    """
    entries = _part(value, "FileStatuses", "FileStatus")
    token = _part(value, "FileStatuses", "continuationToken")
    if token is None and is_whole:
        token = ""
    if not isinstance(entries, list) or not isinstance(token, str):
        # Without the token it is not known whether more pages follow.
        raise not_understood(doing, "the page has no list of files, or no continuation token")
    return Page(tuple(parse_status(entry, doing) for entry in entries), token)


def parse_batch(value: Any, doing: str) -> Page:
    """Read an answer to LISTSTATUS_BATCH: one page in plain WebHDFS.

    :raises ServiceProtocolError: The page is incomplete.
    """
    page = parse_page(_part(value, "DirectoryListing", "partialListing"), doing, is_whole=True)
    remaining = _part(value, "DirectoryListing", "remainingEntries")
    if type(remaining) is not int or (remaining > 0 and not page.entries):
        raise not_understood(doing, "the page does not say how many entries follow")
    return Page(page.entries, page.entries[-1].name if remaining > 0 else "")


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


def bad_path(path: str, expected: str) -> InputError:
    return InputError(
        f"The path {path!r} is not valid: expected {expected}.",
        kept="everything; nothing was sent",
        do="correct the path, or name the connection of its account",
    )


def _unreadable(err: ServiceError) -> SourceError:
    kept = "the table and the checkpoint; nothing was written"
    if isinstance(err, ServiceAuthError):
        rights = "read and execute rights on the folder and those above it"
        return SourceRefusedError(err.what, kept=kept, do=f"give the connection's identity {rights}")
    return SourceUnreadableError(
        err.what,
        kept=kept,
        do="check the service; a part of the source is never skipped. The next try lists again",
    )
