"""Everything that the protocol needs of a store, and the way to it from a location.

Locations are canonical, unencoded URIs (``file:///data/landing``). Every implementation passes
``tests/contract/test_storage.py``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Protocol

from airflow_provider_scope.exceptions import InputError, StorageError
from airflow_provider_scope.stores.kinds import KINDS, LOCAL, kind_of, scheme_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_provider_scope.values import FileEntry

CONTROL_FILE_LIMIT_BYTES = 256 * 1024 * 1024
"""No record may be larger: the checkpoint is untrusted input, and reading it must not fill the memory.

Nothing larger is written either, since it could not be read back.
"""


class Storage(Protocol):
    """A place for files. A failure is never taken for absence: only a real not-found is."""

    def walk(self, root: str) -> Iterator[FileEntry]:
        """List every file below a folder, recursively, in any order.

        :raises SourceNotFoundError: The folder does not exist.
        :raises SourceUnreadableError: It, or any folder below it, could not be listed in full.
        """

    def names(self, folder: str) -> list[str]:
        """List the names of the files in a folder, sorted; a folder that does not exist is empty.

        :raises StorageError: The folder could not be listed.
        """

    def read(self, path: str, at_most: int = CONTROL_FILE_LIMIT_BYTES) -> bytes | None:
        """Read a control file; None if it does not exist.

        :param at_most: The most bytes that the file may have.
        :raises StorageError: The file could not be read, or is larger.
        """

    def put_if_absent(self, path: str, data: bytes) -> bytes:
        """Create a control file with its whole content at once, unless it exists.

        Whoever has to know whose file it is writes something that nobody else would, and compares: so a
        write whose answer got lost is recognised when its repetition is refused.

        :return: The content that the file has now: ``data``, or what was there before.
        :raises StorageError: It is not known whether the file was created. Read it back.
        """

    def replace(self, path: str, data: bytes) -> None:
        """Create or replace a control file at once.

        :raises StorageError: It is not known whether the content was replaced.
        """

    def delete(self, path: str) -> None:
        """Delete a control file; one that does not exist is fine.

        :raises StorageError: It is not known whether the file was deleted.
        """


def existing(storage: Storage, path: str) -> bytes:
    """Read a control file that the storage refused to create because it exists.

    :raises StorageError: Nothing is there now.
    """
    data = storage.read(path)
    if data is None:
        raise StorageError(
            f"Could not create {path}: the name was taken, and nothing has it now.",
            kept="everything that was written before",
            do="see that nothing else deletes files there; the next try reads the log and goes on",
        )
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """One opened place for files. Fields that may hold secrets are not in its ``repr``."""

    storage: Storage
    spark_conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Spark's settings to reach it."""
    packages: tuple[str, ...] = ()
    """Maven coordinates of the packages that Spark needs for it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of Spark's process; no secrets."""
    hook: Any = field(default=None, repr=False)
    """The hook of the connection, if there is one: it reads the status of single files, and parts of them."""


def canonical_root(location: str) -> str:
    """Return the canonical URI of a folder to be listed; it may be on any fsspec store.

    :raises InputError: As ``canonical_uri``, but for the stores that hold no checkpoint.
    """
    uri: str = resolve_name(kind_of(location).canonical)(location)
    return uri


def canonical_uri(location: str) -> str:
    """Return the canonical, unencoded URI of a table or checkpoint, without a slash at the end.

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
    """Open the storage of a canonical URI that needs no connection.

    :raises InputError: The store needs a connection.
    """
    kind = kind_of(uri)
    if kind.needs_connection:
        raise bad(uri, "cannot be opened without a connection", "name it in `storage_conn_id`")
    storage: Storage = resolve_name(kind.open)(uri, None, None).storage
    return storage


# ---- for the modules of the stores --------------------------------------------------------------------


def split(location: str) -> tuple[str, str, str]:
    """Return scheme, authority and path; the path has no empty parts, and no slash at the end."""
    authority, _, path = location.partition("://")[2].partition("/")
    return scheme_of(location), authority, os.path.normpath("/" + path.lstrip("/")).rstrip("/")


def with_connection(location: str, conn_id: str, uri: str) -> InputError:
    """Return the error for a location with a connection in it.

    :param uri: What to write instead.
    """
    return bad(
        location,
        "has a connection in it, as Airflow's ObjectStoragePath writes it; Spark would read it as a part of "
        "the address",
        f"write {uri}, and storage_conn_id={conn_id!r}",
    )


def bad(location: str, why: str, do: str) -> InputError:
    return InputError(
        f"The location {location!r} {why}.",
        kept="everything; nothing was read or written",
        do=do,
    )
