"""Pages of List Blobs, read from their text.

For a million blobs adlfs's ``find``, with the SDK's models, takes 300 s of CPU, a generic XML parser 13 s,
this 3 s (``benchmarks/discovery.py``).
"""

from __future__ import annotations

import re
from calendar import timegm
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from airflow_provider_scope.core.files import FileEntry

# The order in which the service and Azurite write the elements; any other one is read more slowly.
_USUAL = re.compile(
    r"<Name>([^<]*)</Name><Properties><Creation-Time>([^<]*)</Creation-Time>"
    r"<Last-Modified>([^<]*)</Last-Modified><Etag>[^<]*</Etag><Content-Length>(\d+)</Content-Length>"
)
_NAME = re.compile(r'<Name(?: Encoded="(true|false)")?\s*>([^<]*)</Name>')
_CREATED = re.compile(r"<Creation-Time>([^<]+)</Creation-Time>")
_MODIFIED = re.compile(r"<Last-Modified>([^<]+)</Last-Modified>")
_LENGTH = re.compile(r"<Content-Length>(\d+)</Content-Length>")
_FOLDER = re.compile(r"(?i)<ResourceType>directory</ResourceType>|<hdi_isfolder>true</hdi_isfolder>")
_SUM = "<Content-MD5>"
_NEXT = re.compile(r"<NextMarker>([^<]*)</NextMarker>|<NextMarker\s*/>")
_REFERENCE = re.compile(r"&(?:#x([0-9A-Fa-f]+)|#(\d+)|(amp|lt|gt|quot|apos));")
_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_MONTHS = ("", "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Page(NamedTuple):
    """A part of a list of blobs, whole but not yet read."""

    blobs: tuple[str, ...]
    """The text of each blob."""
    marker: str
    """Where the next page begins; empty at the end."""


def parse_page(body: bytes) -> Page:
    """Split a page into its blobs.

    :raises ValueError: It is not a whole page.
    """
    text = body.decode("utf-8-sig")
    end = _NEXT.search(text, text.rfind("</Blobs>") + 1) or _NEXT.search(text, text.rfind("<NextMarker"))
    if end is None or not text.rstrip().endswith("</EnumerationResults>"):
        msg = "the page is incomplete"
        raise ValueError(msg)
    blobs = text.split("<Blob>")
    return Page(tuple(blobs[1:]), _plain(end[1] or ""))


def entries(page: Page, base: str) -> list[FileEntry]:
    """Read the files of a page; markers that stand for folders are none.

    Times are whole seconds, the most the service tells: a file may be up to a second younger.

    :param base: What stands before a blob's name in its URI.
    :raises ValueError: A blob has no name or no length.
    """
    found: list[FileEntry] = []
    for blob in page.blobs:
        match = _USUAL.match(blob)
        if match is None:
            name, created, modified, size = _unusual(blob)
        else:
            name, created_at, modified_at, length = match.groups()
            if "&" in name:
                name = _plain(name)
            modified, created = _milliseconds(modified_at), _milliseconds(created_at)
            size = int(length)
        if size or not (name.endswith("/") or _FOLDER.search(blob)):
            found.append(FileEntry(modified, base + name, size, created, _md5(blob)))
    return found


def _md5(blob: str) -> str | None:
    """Give the sum of a blob's content, which new metadata leave as it is; large uploads have none.

    That of a page blob or an append blob is not kept up to date when its bytes change.
    """
    start = blob.find(_SUM)
    if start < 0 or "<BlobType>BlockBlob<" not in blob:
        return None
    properties, end = blob.find("</Properties>"), blob.find("</Content-MD5>", start)
    return blob[start + len(_SUM) : end] or None if start < end < properties else None


def _unusual(blob: str) -> tuple[str, int | None, int, int]:
    """Read one blob whatever the order of its elements; 0 is an unknown modification time."""
    name, length = _NAME.search(blob), _LENGTH.search(blob)
    if name is None or length is None:
        msg = "a blob has no name or no length"
        raise ValueError(msg)
    text = _plain(name[2])
    created, modified = _CREATED.search(blob), _MODIFIED.search(blob)
    return (
        # Names with characters that XML does not have are percent-encoded, and say so.
        unquote(text) if name[1] == "true" else text,
        _milliseconds(created[1]) if created else None,
        _milliseconds(modified[1]) if modified else 0,
        int(length[1]),
    )


def _plain(text: str) -> str:
    return _REFERENCE.sub(_character, text) if "&" in text else text


def _character(match: re.Match[str]) -> str:
    if match[3]:
        return _NAMED[match[3]]
    return chr(int(match[1], 16) if match[1] else int(match[2]))


@lru_cache(maxsize=4096)
def _milliseconds(text: str) -> int:
    """Read ``Sat, 21 Nov 2026 20:01:03 GMT``."""
    if text[25:] != " GMT":
        msg = f"{text!r} is not a time"
        raise ValueError(msg)
    return (_day(text[5:16]) + int(text[17:19]) * 3600 + int(text[20:22]) * 60 + int(text[23:25])) * 1000


@lru_cache(maxsize=4096)
def _day(text: str) -> int:
    return timegm((int(text[7:]), _MONTHS.index(text[3:6]), int(text[:2]), 0, 0, 0))
