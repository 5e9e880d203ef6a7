"""Files of Azure Data Lake Storage Gen1 over its WebHDFS-compatible REST interface."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow_provider_scope.client.statuses import (
    Page,
    Status,
    accepted,
    is_missing,
    parse_boolean,
    parse_page,
    parse_status,
)
from airflow_provider_scope.client.wire import not_understood
from airflow_provider_scope.core.files import FileEntry
from airflow_provider_scope.exceptions import (
    InputError,
    ServiceAuthError,
    ServiceError,
    ServiceOutcomeUnknownError,
    SourceError,
    SourceNotFoundError,
    SourceRefusedError,
    SourceUnreadableError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_provider_scope.client.http import HttpClient
    from airflow_provider_scope.client.wire import Answer

SCHEME = "adl://"
API_VERSION = "2018-09-01"
"""The version whose pages have a continuation token."""

PAGE_SIZE = 4000
"""Entries of one page that both of Microsoft's clients ask for; the service may give fewer."""

BLOCK_BYTES = 4 * 1024 * 1024
"""Bytes of one read or write."""

WALK_THREADS = 8


class Gen1Client:
    """The files of one account. Paths are ``adl://<authority>/…`` or ``/…``, unencoded.

    :param authority: The account's host, such as ``acme.azuredatalakestore.net``; it makes the paths'
        URIs, wherever the service is.
    """

    def __init__(self, http: HttpClient, authority: str, *, threads: int = WALK_THREADS) -> None:
        self._http = http
        self._authority = authority
        self._threads = threads

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def uri(self, path: str) -> str:
        """Give the canonical URI of a path.

        :raises InputError: It is of another account, or not an absolute path.
        """
        return f"{SCHEME}{self._authority}{self._path(path)}"

    def list_page(self, path: str, *, after: str = "", size: int = PAGE_SIZE) -> Page:
        """List a part of a folder.

        :param after: ``Page.after`` of the page before.
        :raises SourceNotFoundError: The folder does not exist.
        :raises SourceRefusedError: It may not be listed.
        :raises SourceUnreadableError: It could not be listed.
        """
        folder = self._path(path)
        doing = f"list the folder {self.uri(folder)}"
        params = {"listSize": str(size)}
        if after:
            params["listAfter"] = after
        try:
            answer = self._call("GET", folder, "LISTSTATUS", doing, params)
            if is_missing(answer):
                raise _no_folder(self.uri(folder))
            return parse_page(accepted(answer, doing).json(doing), after, doing)
        except ServiceError as err:
            raise _unreadable(err) from err

    def walk(self, root: str) -> Iterator[FileEntry]:
        """List every file below a folder, in any order, several folders at a time.

        A folder that is deleted while the listing goes on is not there, as long as the root is. The
        memory holds a page for each thread and the folders that wait.

        :raises SourceNotFoundError: The root does not exist.
        :raises SourceRefusedError: The root, or a folder below it, may not be listed.
        :raises SourceUnreadableError: It could not be listed in full.
        """
        top = self._path(root)
        account = SCHEME + self._authority
        waiting = [(top, "")]
        running: dict[Future[Page], tuple[str, str]] = {}
        with ThreadPoolExecutor(self._threads, thread_name_prefix="gen1-walk") as pool:
            try:
                while waiting or running:
                    while waiting and len(running) < self._threads:
                        folder, after = waiting.pop()
                        running[pool.submit(self.list_page, folder, after=after)] = (folder, after)
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        folder, _ = running.pop(future)
                        page = self._page_or_gone(future, folder, top)
                        if page.after:
                            waiting.append((folder, page.after))
                        for entry in page.entries:
                            path = f"{folder.rstrip('/')}/{entry.name}"
                            if entry.is_folder:
                                waiting.append((path, ""))
                            else:
                                # Creation times are not told: unknown rather than guessed.
                                yield FileEntry(entry.modified_ms, account + path, entry.size_bytes)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def get_status(self, path: str) -> Status | None:
        """Describe a file or folder; None only if the service says that it does not exist.

        :raises ServiceError: It could not be read.
        """
        doing = f"read the status of {self.uri(path)}"
        answer = self._call("GET", path, "GETFILESTATUS", doing)
        if is_missing(answer):
            return None
        value = accepted(answer, doing).json(doing)
        return parse_status(value.get("FileStatus") if isinstance(value, dict) else None, doing)

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes | None:
        """Read a file or a range of it; None only if the service says that it does not exist.

        :raises ServiceError: It could not be read in full.
        """
        doing = f"read {self.uri(path)}"
        status = self.get_status(path)
        if status is None:
            return None
        end = status.size_bytes if length is None else min(status.size_bytes, offset + length)
        data = bytearray()
        while offset + len(data) < end:
            start = offset + len(data)
            # An answer may be shorter than what was asked for.
            params = {"offset": str(start), "length": str(min(BLOCK_BYTES, end - start)), "read": "true"}
            answer = self._call("GET", path, "OPEN", doing, params)
            if is_missing(answer):
                return None
            part = accepted(answer, doing).body
            if not part or len(part) > end - start:
                raise not_understood(doing, f"{len(part):,} bytes came at {start:,}, the file has {end:,}")
            data += part
        return bytes(data)

    def write(self, path: str, data: bytes, *, create: bool = True) -> bool:
        """Create a file with its whole content unless it exists, or replace it.

        :param create: False replaces a file that exists.
        :return: False if it existed and ``create``.
        :raises InputError: The content does not fit into one request: it could not appear at once.
        :raises ServiceOutcomeUnknownError: It is not known whether the file was created. Read it back.
        :raises ServiceError: It was not written.
        """
        if not create:
            self.replace(path, data)
            return True
        doing = f"create {self.uri(path)}"
        for tries in range(1, self._http.retries + 2):
            try:
                answer = self._create(path, data, doing, overwrite=False)
            except ServiceOutcomeUnknownError as err:
                found = self._read_back(path, err)
                if found is not None:
                    return found == data
                problem = err
            else:
                if answer.code == "FileAlreadyExistsException":
                    return False
                accepted(answer, doing)
                return True
            if tries <= self._http.retries:
                self._http.pause(tries)
        raise problem

    def replace(self, path: str, data: bytes) -> None:
        """Create or replace a file.

        :raises InputError: The content does not fit into one request.
        :raises ServiceError: It is not known whether the content was replaced.
        """
        doing = f"replace {self.uri(path)}"
        accepted(self._create(path, data, doing, overwrite=True), doing)

    def mkdirs(self, path: str) -> None:
        """Create a folder and those above it; one that exists is fine.

        :raises ServiceError: It was not created.
        """
        doing = f"create the folder {self.uri(path)}"
        if not parse_boolean(self._call("PUT", path, "MKDIRS", doing), doing):
            raise not_understood(doing, "the service says that it did not")

    def rename(self, path: str, to: str) -> bool:
        """Rename a file or folder; onto a folder that exists it moves inside.

        :return: False if the service did not: ``path`` does not exist, or ``to`` does.
        :raises ServiceOutcomeUnknownError: It is not known whether it was renamed.
        :raises ServiceError: It was not renamed.
        """
        doing = f"rename {self.uri(path)} to {self.uri(to)}"
        params = {"destination": self._path(to)}
        return parse_boolean(self._call("PUT", path, "RENAME", doing, params, repeatable=False), doing)

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Delete a file or folder; one that does not exist is fine.

        :raises InputError: The root of the account.
        :raises ServiceError: It was not deleted.
        """
        if self._path(path) == "/":
            raise _bad_path(path, "a file or a folder, not the root of the account")
        doing = f"delete {self.uri(path)}"
        params = {"recursive": "true" if recursive else "false"}
        answer = self._call("DELETE", path, "DELETE", doing, params)
        if not is_missing(answer):
            parse_boolean(answer, doing)

    def _page_or_gone(self, future: Future[Page], folder: str, top: str) -> Page:
        try:
            page = future.result()
        except SourceNotFoundError as err:
            if folder == top:
                raise
            if not self._is_folder(top):
                raise _stopped(self.uri(top), "it was deleted during the listing") from err
            return Page((), "")
        if any(not entry.name for entry in page.entries):  # the answer for a file is the file itself
            raise _stopped(self.uri(folder), "it is a file, not a folder")
        return page

    def _is_folder(self, path: str) -> bool:
        try:
            status = self.get_status(path)
        except ServiceError as err:
            raise _unreadable(err) from err
        return status is not None and status.is_folder

    def _create(self, path: str, data: bytes, doing: str, *, overwrite: bool) -> Answer:
        if len(data) > BLOCK_BYTES:
            raise InputError(
                f"Could not {doing}: it has {len(data):,} bytes, and at most {BLOCK_BYTES:,} are "
                "written at once.",
                kept="everything that was there before",
                do="write less at a time; a larger file would be seen before it is complete",
            )
        # write=true: the body goes to this URL, without WebHDFS's redirect.
        params = {"overwrite": "true" if overwrite else "false", "write": "true", "syncFlag": "CLOSE"}
        return self._call("PUT", path, "CREATE", doing, params, data=data, repeatable=overwrite)

    def _read_back(self, path: str, doubt: ServiceOutcomeUnknownError) -> bytes | None:
        try:
            return self.read(path)
        except ServiceError as err:
            raise ServiceOutcomeUnknownError(
                f"{doubt.what} {err.what}", kept=doubt.kept, do=doubt.do
            ) from err

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
        return self._http.request(
            method,
            "/webhdfs/v1" + quote(self._path(path)),
            doing=doing,
            params={"op": operation, "api-version": API_VERSION, **(params or {})},
            data=data,
            repeatable=repeatable,
        )

    def _path(self, path: str) -> str:
        """Give the path inside the account, without empty parts."""
        inside = path
        if path.startswith(SCHEME):
            authority, slash, rest = path[len(SCHEME) :].partition("/")
            if authority.casefold() != self._authority.casefold():
                raise _bad_path(path, f"a path of the account {self._authority}")
            inside = slash + rest
        if inside and not inside.startswith("/"):
            raise _bad_path(path, f"{SCHEME}{self._authority}/… or an absolute path")
        parts = [part for part in inside.split("/") if part]
        if any(part in (".", "..") for part in parts):
            raise _bad_path(path, "a path without '.' and '..'")
        return "/" + "/".join(parts)


def _bad_path(path: str, expected: str) -> InputError:
    return InputError(
        f"The path {path!r} is not valid: expected {expected}.",
        kept="everything; nothing was sent",
        do="correct the path, or name the connection of its account",
    )


def _no_folder(uri: str) -> SourceNotFoundError:
    return SourceNotFoundError(
        f"The source folder {uri} does not exist.",
        kept="the table and the checkpoint; nothing was written",
        do="check `roots`. A folder that appears later is created empty first, or waited for by a sensor",
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


def _stopped(uri: str, why: str) -> SourceUnreadableError:
    return SourceUnreadableError(
        f"Could not list the folder {uri}: {why}.",
        kept="the table and the checkpoint; nothing was written",
        do="check `roots`; the next try lists again",
    )
