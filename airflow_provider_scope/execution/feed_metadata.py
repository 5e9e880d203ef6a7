"""Bring the table at ``metadata_location`` up to the log, when a run is over.

Its rows say nothing that the log does not say, so that it cannot be written fails no load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_scope.core.feed_metadata import Batch, first_unknown, rows_of
from airflow_provider_scope.table.feed_metadata import read_rows, write_rows

if TYPE_CHECKING:
    from airflow_provider_scope.checkpoint.log import CheckpointLog
    from airflow_provider_scope.core.report import RunReport
    from airflow_provider_scope.execution.view import LogView
    from airflow_provider_scope.storage.protocol import Storage

TOPIC = "metadata table"
"""The topic of the report's warning."""


@dataclass(frozen=True, slots=True)
class FeedMetadata:
    """Writes the table of one pipeline."""

    log: CheckpointLog
    location: str
    """Canonical URI of the table."""
    storage: Storage
    """Where it is."""

    def after(self, view: LogView, report: RunReport) -> None:
        """Write the rows, if the run committed a batch and they would change; a failure is a warning."""
        if not report.batches or view.pipeline is None:
            return
        try:
            self._write(view, view.pipeline.pipeline)
        except Exception as err:  # noqa: BLE001 - whatever it is, the load is done
            what = str(err).partition("\n")[0].removesuffix(".")
            report.warnings[TOPIC] = (
                f"the metadata table {self.location} was not written: {what}. This changes nothing in the "
                "loaded table; the next run that commits a batch writes it"
            )

    def _write(self, view: LogView, pipeline: str) -> None:
        known = read_rows(self.location, self.storage, pipeline)
        begin = max(first_unknown(known), self.log.vacuumed_below())
        found = [
            Batch(self.log.offset(seq), self.log.find_commit(seq)) for seq in range(begin, view.next_seq)
        ]
        rows = rows_of(known, found, view.overwrite_start)
        if rows != known:
            write_rows(self.location, self.storage, pipeline, rows)
