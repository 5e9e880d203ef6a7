"""Everything that the protocol needs of a store.

Locations are canonical, unencoded URIs (``file:///data/landing``). Every implementation passes
``tests/contract/test_storage.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from airflow_provider_scope.exceptions import StorageError

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
