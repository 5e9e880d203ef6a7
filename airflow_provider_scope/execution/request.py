"""What one run is asked to do, whatever its source is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What one run is asked to do."""

    table: str
    """Canonical URI of the table."""
    max_batches: int | None = None
    refresh: bool = False
    """Load everything again, replacing the table, or the rows that ``where`` names."""
    where: str | None = None
    first_batch: int | None = None
    """Where a run began that waited in between: its report holds the batches of the earlier part, too."""
    infers_columns: bool = False
    """Whether the columns of the first batch since the table was begun or replaced are those of all."""

    @property
    def replaces_table(self) -> bool:
        """Whether everything that is in the table goes."""
        return self.refresh and self.where is None
