"""Files over WebHDFS, on Azure Data Lake Storage Gen1 and on plain HDFS."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import (
    ServiceAuthError,
    ServiceError,
    ServiceOutcomeUnknownError,
    ServiceUnavailableError,
    SourceError,
    SourceNotFoundError,
    SourceRefusedError,
    SourceUnreadableError,
)
from airflow_provider_scope.stores.webhdfs import (
    BLOCK_BYTES,
    GEN1,
    Dialect,
    Page,
    Status,
    WebHdfs,
    accepted,
    bad_path,
    is_missing,
    parse_boolean,
    parse_status,
)
from airflow_provider_scope.stores.wire import not_understood
from airflow_provider_scope.values import FileEntry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_scope.stores.http import HttpClient

PAGE_SIZE = 4000
"""Entries of one page that both of Microsoft's clients ask for; the service may give fewer."""

WALK_THREADS = 8

_READ_TRIES = 5
"""How often a file is read if it is replaced meanwhile."""


class Gen1Client:
    """The files of one account or cluster. Paths are ``adl://<authority>/…`` or ``/…``, unencoded.

    :param authority: The account's host, such as ``acme.azuredatalakestore.net``, or the namenode's host
        and port; it is the authority of the URIs, whatever host the requests go to.
    """

    def __init__(
        self, http: HttpClient, authority: str, *, threads: int = WALK_THREADS, dialect: Dialect = GEN1
    ) -> None:
        self._files = WebHdfs(http, authority, dialect)
        self._threads = threads

    def close(self) -> None:
        self._files.http.close()

    def uri(self, path: str) -> str:
        """Give the canonical URI of a path.

        :raises InputError: The path is of another account, or not absolute.
        """
        return self._files.uri(path)

    def list_page(self, path: str, *, after: str = "", size: int = PAGE_SIZE) -> Page:
        """List one page of a folder.

        :param after: ``Page.after`` of the page before.
        :raises SourceNotFoundError: The folder does not exist.
        :raises SourceRefusedError: It may not be listed.
        :raises SourceUnreadableError: It could not be listed.
        """
        folder = self._files.inside(path)
        doing = f"list the folder {self.uri(folder)}"
        try:
            return self._files.list_page(folder, after, size, doing)
        except ServiceError as err:
            raise _unreadable(err) from err

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
                if names or after:
                    raise
                return []
            if any(not entry.name for entry in page.entries):
                raise _not_listed(self.uri(path), "it is a file, not a folder")
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
        top = self._files.inside(root)
        pending = [(top, "")]
        running: dict[Future[Page], tuple[str, str]] = {}
        with ThreadPoolExecutor(self._threads, thread_name_prefix="gen1-walk") as pool:
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
                                yield FileEntry(entry.modified_ms, self._files.root + path, entry.size_bytes)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def get_status(self, path: str) -> Status | None:
        """Describe a file or folder; None only if the service says that it does not exist.

        :raises ServiceError: It could not be read.
        """
        doing = f"read the status of {self.uri(path)}"
        answer = self._files.call("GET", path, "GETFILESTATUS", doing)
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
        return self._files.read(path, offset, end, doing)

    def read_whole(self, path: str) -> bytes | None:
        """Read a file that others may replace meanwhile; None if it does not exist.

        :raises ServiceError: It could not be read in full, or changes all the time.
        """
        doing = f"read {self.uri(path)}"
        for _ in range(_READ_TRIES):
            status = self.get_status(path)
            if status is None:
                return None
            problem: ServiceError | None = None
            try:
                data = self._files.read_version(path, status.size_bytes, doing)
                if data is not None and status.size_bytes < BLOCK_BYTES:
                    return data
            except ServiceError as err:
                problem = err
            if self.get_status(path) == status:
                if problem:
                    raise problem
                if data is not None:
                    return data
        raise ServiceUnavailableError(
            f"Could not {doing}: it was replaced {_READ_TRIES} times in the meantime.",
            kept="everything that was there before",
            do="nothing: the next try reads it again",
        )

    def write(self, path: str, data: bytes, *, create: bool = True) -> bool:
        """Create a file with its whole content unless it exists, or replace it.

        Plain HDFS shows the name before the content. ``upload`` and ``rename`` show both at once.

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
        for _ in self._files.http.repeating.tries():
            try:
                answer = self._files.create(path, data, doing, overwrite=False)
            except ServiceOutcomeUnknownError as err:
                stored = self._read_back(path, err)
                if stored is not None:
                    return stored == data
                problem = err
            else:
                if answer.code == "FileAlreadyExistsException":
                    return False
                accepted(answer, doing)
                return True
        raise problem

    def replace(self, path: str, data: bytes) -> None:
        """Create or replace a file.

        :raises InputError: The content does not fit into one request.
        :raises ServiceError: It is not known whether the content was replaced.
        """
        doing = f"replace {self.uri(path)}"
        accepted(self._files.create(path, data, doing, overwrite=True), doing)

    def upload(self, path: str, data: bytes) -> None:
        """Create or replace a file of any size; it can be seen before it is complete.

        :raises ServiceError: It is not known what the file holds.
        """
        doing = f"write {self.uri(path)}"
        block = self._files.block_bytes or len(data) or 1
        for is_last in self._files.http.repeating.tries():
            try:
                accepted(self._files.create(path, data[:block], doing, overwrite=True), doing)
                for offset in range(block, len(data), block):
                    params = {"append": "true", "offset": str(offset), "syncFlag": "CLOSE"}
                    part = data[offset : offset + block]
                    answer = self._files.call(
                        "POST", path, "APPEND", doing, params, data=part, repeatable=False
                    )
                    accepted(answer, doing)
            except ServiceOutcomeUnknownError:
                if is_last:
                    raise
            else:
                return

    def mkdirs(self, path: str) -> None:
        """Create a folder and those above it; one that exists is fine.

        :raises ServiceError: It was not created.
        """
        doing = f"create the folder {self.uri(path)}"
        if not parse_boolean(self._files.call("PUT", path, "MKDIRS", doing), doing):
            raise not_understood(doing, "the service says that it did not")

    def rename(self, path: str, to: str, *, overwrite: bool = False) -> bool:
        """Rename a file or folder; onto a folder that exists it moves inside.

        :param overwrite: Replace a file that exists.
        :return: False if the service did not: ``path`` does not exist, or ``to`` does.
        :raises ServiceOutcomeUnknownError: It is not known whether it was renamed.
        :raises ServiceError: It was not renamed.
        """
        doing = f"rename {self.uri(path)} to {self.uri(to)}"
        params = {"destination": self._files.inside(to)}
        if overwrite:
            params["renameoptions"] = "OVERWRITE"
        answer = self._files.call("PUT", path, "RENAME", doing, params, repeatable=False)
        if (overwrite and is_missing(answer)) or answer.code == "FileAlreadyExistsException":
            return False
        # With options plain HDFS says nothing when it did it.
        return (overwrite and answer.ok and not answer.body) or parse_boolean(answer, doing)

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Delete a file or folder; one that does not exist is fine.

        :raises InputError: The root of the account.
        :raises ServiceError: It was not deleted.
        """
        if self._files.inside(path) == "/":
            raise bad_path(path, "a file or a folder, not the root of the account")
        doing = f"delete {self.uri(path)}"
        params = {"recursive": "true" if recursive else "false"}
        answer = self._files.call("DELETE", path, "DELETE", doing, params)
        if not is_missing(answer):
            parse_boolean(answer, doing)

    def _page_or_empty(self, future: Future[Page], folder: str, top: str) -> Page:
        try:
            page = future.result()
        except SourceNotFoundError as err:
            if folder == top:
                raise
            if not self._is_folder(top):
                raise _not_listed(self.uri(top), "it was deleted during the listing") from err
            return Page((), "")
        if any(not entry.name for entry in page.entries):  # the answer for a file is the file itself
            raise _not_listed(self.uri(folder), "it is a file, not a folder")
        return page

    def _is_folder(self, path: str) -> bool:
        try:
            status = self.get_status(path)
        except ServiceError as err:
            raise _unreadable(err) from err
        return status is not None and status.is_folder

    def _read_back(self, path: str, unknown: ServiceOutcomeUnknownError) -> bytes | None:
        try:
            return self.read(path)
        except ServiceError as err:
            raise ServiceOutcomeUnknownError(
                f"{unknown.what} {err.what}", kept=unknown.kept, do=unknown.do
            ) from err


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


def _not_listed(uri: str, why: str) -> SourceUnreadableError:
    return SourceUnreadableError(
        f"Could not list the folder {uri}: {why}.",
        kept="the table and the checkpoint; nothing was written",
        do="check `roots`; the next try lists again",
    )
