"""Answers of Azure Data Lake Storage Gen1 as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.client.wire import not_understood

if TYPE_CHECKING:
    from airflow_provider_scope.client.wire import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One file or folder."""

    name: str
    """Empty for what was asked for itself."""
    is_folder: bool
    size_bytes: int
    """Stale while a writer has the file open."""
    modified_ms: int
    """0 if the service does not tell. Of a folder: when a direct child was created or deleted."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a folder's list."""

    entries: tuple[Status, ...]
    after: str
    """Where the next page begins; empty at the end."""


def is_missing(answer: Answer) -> bool:
    """Tell whether the service says that there is nothing; no other 404 says so."""
    return answer.status == 404 and answer.code == "FileNotFoundException"  # noqa: PLR2004


def is_unsupported(answer: Answer) -> bool:
    """Tell whether the service does not know an operation."""
    return answer.status in (400, 501) and answer.code in (
        "UnsupportedOperationException",
        "IllegalArgumentException",
    )


def accepted(answer: Answer, doing: str) -> Answer:
    """Give the answer if it is a success.

    :raises ServiceError: It is a refusal.
    """
    if not answer.ok:
        raise answer.error(doing)
    return answer


def parse_boolean(answer: Answer, doing: str) -> bool:
    """Read the answer of an operation that says whether it was done.

    :raises ServiceError: It was refused, or says neither.
    """
    value = accepted(answer, doing).json(doing)
    result = value.get("boolean") if isinstance(value, dict) else None
    if not isinstance(result, bool):
        raise not_understood(doing, "the answer is neither true nor false")
    return result


def parse_page(value: Any, after: str, doing: str, *, is_whole: bool = False) -> Page:
    """Read a page of a folder's list.

    :param after: Where it was asked to begin.
    :param is_whole: Whether a page without a token is all there is, as in plain WebHDFS.
    :raises ServiceProtocolError: It is not whole, or does not lead on.
    """
    statuses = value.get("FileStatuses") if isinstance(value, dict) else None
    entries = statuses.get("FileStatus") if isinstance(statuses, dict) else None
    token = (
        statuses.get("continuationToken", "" if is_whole else None) if isinstance(statuses, dict) else None
    )
    if not isinstance(entries, list) or not isinstance(token, str):
        # Without the token nobody knows whether this is all there is.
        raise not_understood(doing, "the page has no list of files, or no continuation token")
    if token and token == after:
        raise not_understood(doing, "the next page is the page that was read")
    return Page(tuple(parse_status(entry, doing) for entry in entries), token)


def parse_batch(value: Any, after: str, doing: str) -> Page:
    """Read an answer to LISTSTATUS_BATCH, plain WebHDFS's pages.

    :raises ServiceProtocolError: It is not whole, or does not lead on.
    """
    listing = value.get("DirectoryListing") if isinstance(value, dict) else None
    partial = listing.get("partialListing") if isinstance(listing, dict) else None
    left = listing.get("remainingEntries") if isinstance(listing, dict) else None
    page = parse_page(partial, "", doing, is_whole=True)
    if type(left) is not int or (left > 0 and not page.entries):
        raise not_understood(doing, "the page does not say how many entries follow")
    last = page.entries[-1].name if left > 0 else ""
    if last and last == after:
        raise not_understood(doing, "the next page is the page that was read")
    return Page(page.entries, last)


def parse_status(value: object, doing: str) -> Status:
    """Read one ``FileStatus``.

    :raises ServiceProtocolError: It is neither a file nor a folder, or its name leads elsewhere.
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
