"""Everything that the protocol needs of a store.

Locations are canonical, unencoded URIs (``file:///data/landing``). Every implementation passes
``tests/contract/test_storage.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

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

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create a control file with its whole content at once, unless it exists.

        :return: False if it existed.
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
