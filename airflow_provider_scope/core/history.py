"""The files that count as loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.core.discovery import status
from airflow_provider_scope.core.files import is_below

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from airflow_provider_scope.core.discovery import Seen, Status
    from airflow_provider_scope.core.files import FileEntry
    from airflow_provider_scope.core.takeover import LoadedFile


class History:
    """What each file was like when it was loaded; of one that was loaded twice, the last time.

    There may be millions: ``checkpoint.seen.SeenFiles`` keeps most of them in columns.
    """

    def __init__(self) -> None:
        self._files: Seen = {}
        self._removed: set[str] = set()

    @classmethod
    def of_dbt_scope(cls, files: Iterable[LoadedFile]) -> History:
        """Give the history of a table that dbt-scope has loaded, which notes no sums."""
        history = cls()
        history._files = {file.path: (file.modified_ms, file.size_bytes, None) for file in files}
        return history

    def update(self, files: Iterable[FileEntry]) -> None:
        """Let files count as loaded, as they are in a slice."""
        added = {file.path: status(file) for file in files}
        self._files.update(added)
        self._removed.difference_update(added)

    def remove(self, files: Iterable[FileEntry]) -> None:
        """Let files count as not loaded."""
        for file in files:
            self._files.pop(file.path, None)
            self._removed.add(file.path)

    def __bool__(self) -> bool:
        return bool(self._files)

    def items(self) -> Iterator[tuple[str, Status]]:
        """Give all of them."""
        return self.outside(())

    def find(self, paths: Sequence[str]) -> Seen:
        """Give those of some files that are loaded."""
        return {path: self._files[path] for path in paths if path in self._files}

    def outside(self, roots: tuple[str, ...]) -> Iterator[tuple[str, Status]]:
        """Give those that lie below none of some folders."""
        return ((path, before) for path, before in self._files.items() if not is_below(path, roots))

    def without_same(self, files: Sequence[FileEntry]) -> list[FileEntry]:
        """Leave out files that are loaded and have not changed since, as far as that is plain to see."""
        return [file for file in files if self._files.get(file.path) != status(file)]
