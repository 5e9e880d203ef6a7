"""Where the pipeline keeps its log."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_scope.specs import validation


@validation.with_known_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The checkpoint of a pipeline; one checkpoint is one pipeline.

    :param location: A folder. None is ``_checkpoint`` below the table. A second pipeline on the same
        table needs a location of its own.
    :param compaction_interval: A segment of the loaded files that is this many times as large as what
        comes is not merged with it.
    :param retention_files: Files kept in ``sources/``, those of the newest batches.
    :raises InputError: A value is not valid.
    """

    location: str | None = None
    compaction_interval: int = 10
    retention_files: int = 100

    def __post_init__(self) -> None:
        """Validate; values that are templates are let through."""
        if self.location is not None:
            validation.text("location", self.location)
        for name in ("compaction_interval", "retention_files"):
            value = validation.number(name, getattr(self, name), at_least=1)
            if value is None:
                raise validation.bad(name, value, "a whole number")
            validation.set_field(self, name, value)
