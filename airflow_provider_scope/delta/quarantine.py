"""What lies in the quarantine of a pipeline, read without a JVM."""

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
class Aside:
    """What of one file, in one batch, is in the quarantine."""

    batch: int
    file: str | None
    """None where the SELECT did not tell the file of a row."""
    whole: str | None = None
    """Why the file could not be loaded as a whole; None if records of it were put aside."""
    rules: dict[str, int] = field(default_factory=dict)
    """Rule -> records or rows that broke it."""
    record: int | None = None
    """The number of the first such record in the file."""
    raw: str | None = None
    """Its text."""

    @property
    def records(self) -> int:
        """How many records or rows."""
        return sum(self.rules.values())


def read_quarantine(location: str, storage: Storage, pipeline: str) -> list[Aside]:
    """Read what a pipeline has in its quarantine, by batch and file; nothing if there is no such table.

    :param location: Canonical URI of the quarantine.
    :param storage: Where it is.
    :raises TableUnreadableError: It could not be read.
    """
    found: dict[tuple[int, str | None], Aside] = {}
    for part in _parts(location, storage):
        mine = part.filter(pc.equal(part["pipeline"], pipeline))
        for row in mine.to_pylist():
            _add(found, row)
    return sorted(found.values(), key=lambda aside: (aside.batch, aside.file or ""))


def _add(found: dict[tuple[int, str | None], Aside], row: dict[str, object]) -> None:
    batch, file, record = row["batch"], row["file"], row["record"]
    aside = found.setdefault((batch, file), Aside(batch, file))  # type: ignore[arg-type] # as its columns are
    if record is None and row["raw"] is None:
        aside.whole = str(row["rule"])
        return
    rule = str(row["rule"])
    aside.rules[rule] = aside.rules.get(rule, 0) + 1
    if aside.raw is None or (isinstance(record, int) and record < (aside.record or record + 1)):
        aside.record, aside.raw = record, str(row["raw"])  # type: ignore[assignment] # a number or None


def _parts(location: str, storage: Storage) -> Iterator[pa.RecordBatch]:
    """Give the rows of the table, a part at a time."""
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
