"""Control files and source files as the application reaches them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import SourceFileGoneError, SourceUnreadableError

if TYPE_CHECKING:
    from airflow_provider_scope.core.files import FileEntry
    from airflow_provider_scope.core.records import OffsetEntry


def read(uri: str) -> bytes:
    """Read a control file."""
    return Path(uri.removeprefix("file://")).read_bytes()


def check_unchanged(entry: OffsetEntry) -> None:
    """Look at every file of a batch again, just before it is read.

    :raises SourceFileGoneError: One vanished, or has another time or length than its entry says.
    :raises SourceUnreadableError: The status of one could not be read.
    """
    for file in entry.files:
        try:
            status = Path(file.path.removeprefix("file://")).stat()
        except FileNotFoundError as err:
            raise _gone(entry, file, "is gone") from err
        except OSError as err:
            raise SourceUnreadableError(
                f"The file {file.path} of batch {entry.seq} could not be looked at: {err}.",
                kept="the batches before it; this one stays logged",
                do="give Spark read access to it; the next try reads it again",
            ) from err
        modified_ms = status.st_mtime_ns // 1_000_000
        # The size of a structured stream is that of its folder too; its own time tells enough.
        same_size = status.st_size == file.size_bytes or file.path.endswith(".ss")
        if modified_ms != file.modified_ms or not same_size:
            raise _gone(
                entry,
                file,
                f"has changed since it was logged ({file.size_bytes:,} bytes at {file.modified_ms} ms, now "
                f"{status.st_size:,} bytes at {modified_ms} ms)",
            )


def _gone(entry: OffsetEntry, file: FileEntry, what: str) -> SourceFileGoneError:
    return SourceFileGoneError(
        f"The file {file.path} of batch {entry.seq} {what}.",
        kept="the batches before it; this one wrote no row and stays logged",
        do="put the file back as it was; or give the batch up with `airflow scope abandon`: its other "
        "files, and this one as it is then, are loaded by the next run",
    )
