"""What accepting a table that diverged means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_scope.core.records import CommitRecord
    from airflow_provider_scope.core.recovery import TableState
    from airflow_provider_scope.core.source_state import Behind


@dataclass(frozen=True, slots=True)
class Consequences:
    """What accepting a table as it is means."""

    table: TableState
    newest_commit: int
    rolled_back: tuple[CommitRecord, ...]
    """Committed batches whose rows are no longer in the table; without a state they count as loaded."""
    gone: tuple[int, ...]
    """Open batches that had been committed to the table, and whose rows are gone: they come again."""
    seen_version: int
    """The version to go on from: below the commits of open batches that are still to be recorded."""
    back: tuple[int, ...]
    """Batches that were abandoned before there was a table, and whose rows are in it."""
    vacuumed: int
    """Batches below this number may have lost their rows, too: their records were purged. 0 if none has."""
    needs_transaction: bool
    """The table has to be told which batch is its newest: it was created again."""
    begins: Behind | None = None
    """Where the next batch begins; None if the source has no state."""
