"""From a location to its storage."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.storage.local import SCHEME, LocalStorage

if TYPE_CHECKING:
    from airflow_provider_scope.storage.protocol import Storage


GEN1 = "adl://"


def canonical_root(location: str) -> str:
    """Give the canonical URI of a folder that is listed; ``adl://`` is possible here.

    :raises InputError: As ``canonical_uri``.
    """
    if not location.startswith(GEN1):
        return canonical_uri(location)
    account, _, path = location.removeprefix(GEN1).partition("/")
    return GEN1 + account.lower() + os.path.normpath("/" + path).rstrip("/")


def canonical_uri(location: str) -> str:
    """Give the canonical, unencoded URI of a path or URI, without a slash at the end.

    :raises InputError: The location is empty, relative, or of a store that is not supported.
    """
    text = location
    if text.startswith("file:") and not text.startswith("file://"):
        text = text[len("file:") :]
    path = text.removeprefix(SCHEME)
    if "://" in path:
        scheme = path.split("://", 1)[0]
        raise InputError(
            f"The location {location!r} is on {scheme}://, which is not supported.",
            kept="everything; nothing was read or written",
            do="write a local path, or a file:///… URI",
        )
    if not path.startswith("/"):
        raise InputError(
            f"The location {location!r} is relative; the worker's folder is not yours.",
            kept="everything; nothing was read or written",
            do=f"write an absolute path, such as {os.path.abspath(path)!r}",  # noqa: PTH100 - text only
        )
    return SCHEME + os.path.normpath("/" + path.lstrip("/"))


def open_storage(uri: str) -> Storage:
    """Give the storage of a canonical URI."""
    if uri.startswith(SCHEME):
        return LocalStorage()
    msg = f"no storage for {uri!r}"
    raise ValueError(msg)
