"""What one run is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_provider_scope.core.discovery import Rules
    from airflow_provider_scope.core.files import FileEntry


class Listing(Protocol):
    """Where files are listed: a storage, or a hook."""

    def walk(self, root: str) -> Iterator[FileEntry]:
        """List every file below a folder, or raise; see ``storage.protocol.Storage``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What one run is asked to do."""

    table: str
    """Canonical URI of the table."""
    roots: tuple[str, ...]
    rules: Rules
    max_files: int | None
    max_bytes: int | None
    max_batches: int | None = None
    refresh: bool = False
    """Load everything again, replacing the table, or the rows that ``where`` names."""
    where: str | None = None
    safety_buffer_seconds: float = 0
    first_batch: int | None = None
    """Where a run began that waited in between: its report holds the batches of the earlier part, too."""
    infers_columns: bool = False
    """Whether the columns of the first batch since the table was begun or replaced are those of all."""
    fail_on_empty: bool = False
    """Whether a source without a file that matches is an error."""
    fits: Callable[[tuple[FileEntry, ...]], int] | None = None
    """How many of some files one batch can take, from the first; None is all."""

    @property
    def replaces_table(self) -> bool:
        """Whether everything that is in the table goes."""
        return self.refresh and self.where is None

    @property
    def reads_history(self) -> bool:
        """Whether it is the path of a file that tells that it was loaded, and not its time."""
        return self.rules.late_files == "ingest"
