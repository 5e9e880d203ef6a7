"""The records and files in the quarantine of a pipeline, read without a JVM."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from airflow_provider_scope.delta.log import open_table, unreadable
from airflow_provider_scope.exceptions import TableUnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_scope.stores.protocol import Storage

_COLUMNS = ["pipeline", "batch", "file", "record", "rule", "raw"]


@dataclass(slots=True)
class QuarantinedFile:
    """The part of one file, in one batch, that is in the quarantine."""

    batch: int
    file: str | None
    """None where the SELECT did not tell the file of a row."""
    whole: str | None = None
    """Why the whole file could not be loaded; None if only records of it were quarantined."""
    rules: dict[str, int] = field(default_factory=dict)
    """Rule -> records or rows that broke it."""
    record: int | None = None
    """The number of the first such record in the file."""
    raw: str | None = None
    """Its text."""

    @property
    def records(self) -> int:
        """How many records or rows of the file are quarantined."""
        return sum(self.rules.values())


def read_quarantine(location: str, storage: Storage, pipeline: str) -> list[QuarantinedFile]:
    """Read what a pipeline has in its quarantine, by batch and file; empty if there is no such table.

    :param location: Canonical URI of the quarantine.
    :param storage: Where it is.
    :raises TableUnreadableError: It could not be read.
    """
    files: dict[tuple[int, str | None], QuarantinedFile] = {}
    for part in _parts(location, storage):
        rows_of_pipeline = part.filter(pc.equal(part["pipeline"], pipeline))
        for row in rows_of_pipeline.to_pylist():
            _add(files, row)
    return sorted(files.values(), key=lambda quarantined: (quarantined.batch, quarantined.file or ""))


def _add(files: dict[tuple[int, str | None], QuarantinedFile], row: dict[str, object]) -> None:
    batch, file, record = row["batch"], row["file"], row["record"]
    quarantined = files.setdefault((batch, file), QuarantinedFile(batch, file))  # type: ignore[arg-type] # as its columns are
    if record is None and row["raw"] is None:
        quarantined.whole = str(row["rule"])
        return
    rule = str(row["rule"])
    quarantined.rules[rule] = quarantined.rules.get(rule, 0) + 1
    if quarantined.raw is None or (isinstance(record, int) and record < (quarantined.record or record + 1)):
        quarantined.record, quarantined.raw = record, str(row["raw"])  # type: ignore[assignment] # a number or None


def _parts(location: str, storage: Storage) -> Iterator[pa.RecordBatch]:
    """Read the rows of the table, a part at a time."""
    try:
        with open_table(location, storage) as table:
            if table is None:
                return
            names = pa.table(table.delta.get_add_actions(flatten=True))["path"].to_pylist()
        for name in names:
            data = storage.read(f"{location}/{name}")
            if data is None:
                raise unreadable(location, f"the file {name} is missing")
            file = pq.ParquetFile(io.BytesIO(data))
            if not {*_COLUMNS} <= {*file.schema_arrow.names}:
                raise unreadable(
                    location, f"it is not a quarantine table: it has the columns {file.schema_arrow.names}"
                )
            yield from file.iter_batches(columns=_COLUMNS)
    except (DeltaError, pa.ArrowException, KeyError, ValueError, OSError) as err:
        if isinstance(err, TableUnreadableError):
            raise
        raise unreadable(location, err) from err
