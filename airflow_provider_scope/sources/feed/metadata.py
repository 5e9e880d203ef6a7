"""The table at ``metadata_location``: the batches of a change data feed as rows for people.

It is read and written without a JVM, and updated from the log after a run. It is for people only: no decision
depends on it, and a failure to write it fails no load. Names and meanings follow the metadata table of
cloe-nessy where it has the column.
"""

from __future__ import annotations

import io
import tempfile
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError

from airflow_provider_scope.delta.log import is_in_place, open_table, unreadable
from airflow_provider_scope.exceptions import InputError, StorageError, TableUnreadableError
from airflow_provider_scope.sources.feed import state as feed_state
from airflow_provider_scope.stores.local import local_path
from airflow_provider_scope.values import VersionSlice

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_provider_scope.delta.log import OpenTable
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import CommitRecord, OffsetEntry
    from airflow_provider_scope.protocol.report import RunReport
    from airflow_provider_scope.protocol.view import LogView
    from airflow_provider_scope.stores.protocol import Storage


_OWNER = "batches of the pipeline "
"""The beginning of the table's description; the id of the pipeline that writes the table follows."""
_TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        pa.field("BK", pa.string()),
        pa.field("delta_load_identifier", pa.string()),
        pa.field("source_table_identifier", pa.string()),
        pa.field("is_processed", pa.bool_()),
        pa.field("is_stale", pa.bool_()),
        pa.field("last_read_timestamp", _TIME),
        pa.field("rows", pa.int64()),
        pa.field("start_commit_version", pa.int32()),
        pa.field("end_commit_version", pa.int32()),
        pa.field("start_commit_timestamp_utc", _TIME),
        pa.field("end_commit_timestamp_utc", _TIME),
        pa.field("__DCR", _TIME),
        pa.field("__DMR", _TIME),
        pa.field("batch", pa.int64()),
    ]
)
"""The columns of cloe-nessy's metadata table, with its types, and the number of the batch."""


def read_rows(location: str, storage: Storage, pipeline: str) -> list[BatchRow]:
    """Give the rows that are there, in order; none if there is no table.

    :param location: Canonical URI of the table.
    :param storage: Where it is.
    :param pipeline: The id of the pipeline whose table it has to be.
    :raises InputError: It is another table.
    :raises TableUnreadableError: It could not be read.
    """
    try:
        with open_table(location, storage) as table:
            if table is None:
                return []
            _check_owner(table, location, pipeline)
            names = pa.table(table.delta.get_add_actions(flatten=True))["path"].to_pylist()
        rows: list[BatchRow] = []
        for name in names:
            data = storage.read(f"{location}/{name}")
            if data is None:
                raise unreadable(location, f"the file {name} is missing")
            rows += map(_from_row, pq.read_table(io.BytesIO(data), partitioning=None).to_pylist())
        return sorted(rows, key=lambda row: row.batch)
    except (DeltaError, pa.ArrowException, KeyError, ValueError, TypeError, OSError) as err:
        if isinstance(err, TableUnreadableError | InputError):
            raise
        raise unreadable(location, err) from err


def write_rows(location: str, storage: Storage, pipeline: str, rows: Sequence[BatchRow]) -> None:
    """Replace the rows in one commit; the table is made, if there is none.

    :raises InputError: It is another table.
    :raises StorageError: Somebody else wrote it meanwhile, or it could not be written.
    """
    data = pa.Table.from_pylist([_to_row(row, pipeline) for row in rows], schema=SCHEMA)
    try:
        with open_table(location, storage) as table:
            if table is not None:
                _check_owner(table, location, pipeline)
            if is_in_place(location):
                _write(local_path(location), data, pipeline, is_new=table is None)
            elif table is not None:
                _write_aside(table.folder, data, pipeline, location, storage)
            else:
                with tempfile.TemporaryDirectory(prefix="airflow-provider-scope-feed-") as folder:
                    _write_aside(Path(folder), data, pipeline, location, storage)
    except (DeltaError, pa.ArrowException, OSError, ValueError) as err:
        if isinstance(err, InputError):
            raise
        raise StorageError(f"The table {location} could not be written: {err}.") from err


def _write(folder: str, data: pa.Table, pipeline: str, *, is_new: bool) -> None:
    if is_new:
        write_deltalake(folder, data, mode="error", description=f"{_OWNER}{pipeline}")
    else:
        write_deltalake(folder, data, mode="overwrite")


def _write_aside(folder: Path, data: pa.Table, pipeline: str, location: str, storage: Storage) -> None:
    """Write into a copy of the log here, then copy the new files to the store, data before the commit.

    So the store needs no credentials but those of its ``Storage``, which never overwrites a commit.
    """
    before = {path for path in folder.rglob("*") if path.is_file()}
    _write(str(folder), data, pipeline, is_new=not before)
    made = sorted(path for path in folder.rglob("*") if path.is_file() and path not in before)
    commits = [path for path in made if path.parent.name == "_delta_log" and path.suffix == ".json"]
    rest = [path for path in made if path.parent.name == "_delta_log" and path not in commits]
    for path in made:
        if path.parent.name != "_delta_log":
            storage.replace(f"{location}/{path.relative_to(folder).as_posix()}", path.read_bytes())
    for path in commits:
        data = path.read_bytes()
        if storage.put_if_absent(f"{location}/_delta_log/{path.name}", data) != data:
            raise StorageError(
                f"The commit {path.name} of {location} was written by somebody else in the meantime."
            )
    for path in rest:
        storage.replace(f"{location}/_delta_log/{path.name}", path.read_bytes())


def _check_owner(table: OpenTable, location: str, pipeline: str) -> None:
    described = table.delta.metadata().description or ""
    if described != f"{_OWNER}{pipeline}":
        is_ours = described.startswith(_OWNER)
        owner = f"the pipeline {described.removeprefix(_OWNER)}" if is_ours else "somebody else"
        raise InputError(
            f"The table {location} belongs to {owner}.",
            kept="that table, and the load",
            do="set source.metadata_location to a folder of its own; a table of an earlier checkpoint may "
            "be deleted",
        )


def _to_row(row: BatchRow, pipeline: str) -> dict[str, Any]:
    recorded = _moment(row.recorded_ms)
    return {
        "BK": f"{pipeline}/{row.batch}",
        "delta_load_identifier": row.identifier,
        "source_table_identifier": row.source,
        "is_processed": row.is_processed,
        "is_stale": row.is_stale,
        "last_read_timestamp": _moment(row.last_ms),
        "rows": row.rows,
        "start_commit_version": row.first,
        "end_commit_version": row.last,
        "start_commit_timestamp_utc": _moment(row.first_ms),
        "end_commit_timestamp_utc": _moment(row.last_ms),
        "__DCR": recorded,
        "__DMR": recorded,
        "batch": row.batch,
    }


def _from_row(row: dict[str, Any]) -> BatchRow:
    return BatchRow(
        batch=row["batch"],
        identifier=row["delta_load_identifier"],
        source=row["source_table_identifier"],
        is_processed=row["is_processed"],
        is_stale=row["is_stale"],
        rows=row["rows"],
        first=row["start_commit_version"],
        last=row["end_commit_version"],
        first_ms=_milliseconds(row["start_commit_timestamp_utc"]),
        last_ms=_milliseconds(row["end_commit_timestamp_utc"]),
        recorded_ms=_milliseconds(row["__DCR"]),
    )


def _moment(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)


def _milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


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
            reason = str(err).partition("\n")[0].removesuffix(".")
            report.warnings[TOPIC] = (
                f"the metadata table {self.location} was not written: {reason}. This changes nothing in the "
                "loaded table; the next run that commits a batch writes it"
            )

    def _write(self, view: LogView, pipeline: str) -> None:
        stored = read_rows(self.location, self.storage, pipeline)
        numbers = self.log.kept(first_unknown(stored), view.next_seq)
        batches = [Batch(self.log.offset(seq), self.log.find_commit(seq)) for seq in numbers]
        rows = rows_of(stored, batches, view.overwrite_start)
        if rows != stored:
            write_rows(self.location, self.storage, pipeline, rows)


# ---- the rows ----


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow:
    """One batch."""

    batch: int
    identifier: str
    source: str
    """The location of the source."""
    is_processed: bool
    """Whether the batch was committed."""
    is_stale: bool
    """Whether its rows are no longer in the table, or never were."""
    rows: int | None
    """Rows that it wrote, as the table's log tells them."""
    first: int
    """The first version of the source that it read."""
    last: int
    first_ms: int | None
    """When that version was committed."""
    last_ms: int | None
    recorded_ms: int | None
    """When the batch was recorded as committed, or as abandoned."""

    @property
    def is_final(self) -> bool:
        """Whether a later record can change the row only by making it stale."""
        return self.is_processed or self.is_stale


@dataclass(frozen=True, slots=True)
class Batch:
    """The records of one batch in the log."""

    entry: OffsetEntry
    record: CommitRecord | None


def first_unknown(stored: Iterable[BatchRow]) -> int:
    """Give the first batch that has to be read in the log: rows that are final stay as they are."""
    by_batch = {row.batch: row for row in stored}
    waiting = [row.batch for row in by_batch.values() if not row.is_final]
    return min([*waiting, max(by_batch, default=-1) + 1])


def rows_of(
    stored: Sequence[BatchRow], batches: Iterable[Batch], overwrite_start: int | None
) -> list[BatchRow]:
    """Give the rows of all batches, in order.

    A batch is stale if it was abandoned, if a full refresh came after it, or if a RESTORE removed its rows:
    then the record of a later batch, which was abandoned, holds the remaining state.

    :param stored: The rows in the metadata table; they count where the log was not read.
    :param batches: The other batches, as the log has them.
    :param overwrite_start: The newest full refresh.
    :raises CheckpointCorruptError: A state cannot be read.
    """
    batches = list(batches)
    by_batch = {row.batch: row for row in stored}
    rolled_back: list[tuple[int, int]] = []
    for logged in batches:
        row = _row(logged)
        if row is None:
            continue
        by_batch[row.batch] = row
        record = logged.record
        if record and record.abandoned:
            state = feed_state.decode(record.state, f"the record of batch {record.seq}")
            rolled_back.append((record.seq, -1 if state is None else state.version))
    rows = [by_batch[batch] for batch in sorted(by_batch)]
    return [_stale(row) if _is_stale(row, rolled_back, overwrite_start or 0) else row for row in rows]


def _row(batch: Batch) -> BatchRow | None:
    part, record = batch.entry.slice, batch.record
    if not isinstance(part, VersionSlice):
        return None
    is_given_up = batch.entry.mode == "empty" or (record is not None and record.abandoned)
    return BatchRow(
        batch=batch.entry.seq,
        identifier=part.identifier,
        source=part.location,
        is_processed=record is not None and not is_given_up,
        is_stale=is_given_up,
        rows=record.rows if record and not is_given_up else None,
        first=part.first,
        last=part.last,
        first_ms=part.first_ms,
        last_ms=part.last_ms,
        recorded_ms=record.committed_at_ms if record else None,
    )


def _is_stale(row: BatchRow, rolled_back: Iterable[tuple[int, int]], overwrite_start: int) -> bool:
    return row.batch < overwrite_start or any(
        row.batch < seq and row.last > version for seq, version in rolled_back
    )


def _stale(row: BatchRow) -> BatchRow:
    return replace(row, is_stale=True)
