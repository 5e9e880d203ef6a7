"""From a location to its canonical URI, and to its storage where that needs no connection."""

from __future__ import annotations

import os
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.stores.kinds import KINDS, LOCAL, kind_of, scheme_of

if TYPE_CHECKING:
    from airflow_provider_scope.stores.protocol import Storage


def canonical_root(location: str) -> str:
    """Give the canonical URI of a folder to be listed; it may be on any fsspec store.

    :raises InputError: As ``canonical_uri``, but for the stores that hold no checkpoint.
    """
    uri: str = resolve_name(kind_of(location).canonical)(location)
    return uri


def canonical_uri(location: str) -> str:
    """Give the canonical, unencoded URI of a table or checkpoint, without a slash at the end.

    :raises InputError: The location is empty or relative, or on a store that is not supported or cannot
        create a file only if it is absent.
    """
    reason = kind_of(location).no_control_files
    if not reason:
        return canonical_root(location)
    able = [kind for kind in KINDS if not kind.no_control_files and kind is not LOCAL]
    *first, last = [f"{scheme}://" for kind in able for scheme in kind.schemes]
    raise bad(
        location,
        f"is on {scheme_of(location)}://, which can hold sources, but not tables or checkpoints: {reason}. "
        "Two runs could both believe that they logged a batch",
        f"name a location on {', '.join(first)} or {last} or on a disk",
    )


def open_storage(uri: str) -> Storage:
    """Give the storage of a canonical URI that needs no connection.

    :raises InputError: The store needs a connection.
    """
    kind = kind_of(uri)
    if kind.needs_connection:
        raise bad(uri, "cannot be opened without a connection", "name it in `storage_conn_id`")
    storage: Storage = resolve_name(kind.open)(uri, None, None).storage
    return storage


# ---- for the modules of the stores --------------------------------------------------------------------


def split(location: str) -> tuple[str, str, str]:
    """Give scheme, authority and path; the path has no empty parts, and no slash at the end."""
    authority, _, path = location.partition("://")[2].partition("/")
    return scheme_of(location), authority, os.path.normpath("/" + path.lstrip("/")).rstrip("/")


def with_connection(location: str, conn_id: str, uri: str) -> InputError:
    """Give the error for a location with a connection in it.

    :param uri: What to write instead.
    """
    return bad(
        location,
        "has a connection in it, as Airflow's ObjectStoragePath writes it; Spark would read it as a part of "
        "the address",
        f"write {uri}, and storage_conn_id={conn_id!r}",
    )


def bad(location: str, why: str, do: str) -> InputError:
    """Give the error for a location that cannot be used as it is written."""
    return InputError(
        f"The location {location!r} {why}.",
        kept="everything; nothing was read or written",
        do=do,
    )
