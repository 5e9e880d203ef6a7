"""The files that count as loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_provider_scope.core.discovery import Seen, Status, status

if TYPE_CHECKING:
    from collections.abc import ItemsView, Iterable, Iterator

    from airflow_provider_scope.core.files import FileEntry
    from airflow_provider_scope.core.takeover import LoadedFile


class History(Mapping[str, Status]):
    """Path -> what the file was when it was loaded. Who reads and fills it knows nothing of how it is kept.

    :param files: Those of a snapshot; they are taken, not copied: there may be a million.
    """

    def __init__(self, files: Seen | None = None) -> None:
        self._files: Seen = {} if files is None else files

    @classmethod
    def of_dbt_scope(cls, files: Iterable[LoadedFile]) -> History:
        """Give the history of a table that dbt-scope has loaded, which notes no sums."""
        return cls({file.path: (file.modified_ms, file.size_bytes, None) for file in files})

    def update(self, files: Iterable[FileEntry]) -> None:
        """Let files count as loaded, as they are in a slice."""
        self._files.update((file.path, status(file)) for file in files)

    def remove(self, files: Iterable[FileEntry]) -> None:
        """Let files count as not loaded."""
        for file in files:
            self._files.pop(file.path, None)

    def get(self, path: str, default: Status | None = None) -> Status | None:  # type: ignore[override]
        """Give what a file was when it was loaded; None if it was not."""
        return self._files.get(path, default)

    def items(self) -> ItemsView[str, Status]:
        """Give all of them."""
        return self._files.items()

    def __getitem__(self, path: str) -> Status:
        return self._files[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)
