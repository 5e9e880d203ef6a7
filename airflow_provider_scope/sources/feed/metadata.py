"""The table at ``metadata_location``: the batches of a change data feed as rows for people.

It is read and written without a JVM, and updated from the log after a run. It is for people only: no decision
depends on it, and a failure to write it fails no load. Names and meanings follow the metadata table of
cloe-nessy where it has the column.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError

from airflow_provider_scope.delta.log import is_in_place, open_table, read_table
from airflow_provider_scope.exceptions import InputError, StorageError
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
"""The columns of cloe-nessy's metadata table, with its types, and the number of the batch.

``is_processed``: the batch was committed. ``is_stale``: its rows are no longer in the table, or never were.
``rows``: as many as it wrote, as the table's log tells. The timestamps of commits are those of the source's
versions; ``__DCR`` and ``__DMR`` say when the batch was recorded as committed, or as abandoned.
"""
Row: TypeAlias = dict[str, Any]


def read_rows(location: str, storage: Storage, pipeline: str) -> list[Row]:
    """Return the rows that are there, in order; none if there is no table.

    :param location: Canonical URI of the table.
    :param storage: Where it is.
    :param pipeline: The id of the pipeline whose table it has to be.
    :raises InputError: It is another table.
    :raises TableUnreadableError: It could not be read.
    """
    parts = read_table(location, storage, SCHEMA.names, lambda table: _check_owner(table, location, pipeline))
    rows: list[Row] = [row for part in parts for row in part.to_pylist()]
    return sorted(rows, key=lambda row: row["batch"])


def write_rows(location: str, storage: Storage, pipeline: str, rows: Sequence[Row]) -> None:
    """Replace the rows in one commit; the table is made, if there is none.

    :raises InputError: It is another table.
    :raises StorageError: Somebody else wrote it meanwhile, or it could not be written.
    """
    data = pa.Table.from_pylist(rows, schema=SCHEMA)
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
    other_files = [path for path in made if path.parent.name == "_delta_log" and path not in commits]
    for path in made:
        if path.parent.name != "_delta_log":
            storage.replace(f"{location}/{path.relative_to(folder).as_posix()}", path.read_bytes())
    for path in commits:
        data = path.read_bytes()
        if storage.put_if_absent(f"{location}/_delta_log/{path.name}", data) != data:
            raise StorageError(
                f"The commit {path.name} of {location} was written by somebody else in the meantime."
            )
    for path in other_files:
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
        batches = [(self.log.offset(seq), self.log.find_commit(seq)) for seq in numbers]
        rows = rows_of(pipeline, stored, batches, view.overwrite_start)
        if rows != stored:
            write_rows(self.location, self.storage, pipeline, rows)


# ---- the rows ----


def first_unknown(stored: Iterable[Row]) -> int:
    """Return the first batch that has to be read in the log: rows that are final stay as they are."""
    is_final: dict[int, bool] = {row["batch"]: row["is_processed"] or row["is_stale"] for row in stored}
    return min([*(batch for batch in is_final if not is_final[batch]), max(is_final, default=-1) + 1])


def rows_of(
    pipeline: str,
    stored: Iterable[Row],
    batches: Iterable[tuple[OffsetEntry, CommitRecord | None]],
    overwrite_start: int | None,
) -> list[Row]:
    """Return the rows of all batches, in order.

    A batch is stale if it was abandoned, if a full refresh came after it, or if a RESTORE removed its rows:
    then the record of a later batch, which was abandoned, holds the remaining state.

    :param pipeline: The id of the pipeline.
    :param stored: The rows in the metadata table; they count where the log was not read.
    :param batches: The entries and records of the other batches.
    :param overwrite_start: The newest full refresh.
    :raises CheckpointCorruptError: A state cannot be read.
    """
    rows = {row["batch"]: row for row in stored}
    rolled_back: list[tuple[int, int]] = []
    for entry, record in batches:
        if not isinstance(entry.slice, VersionSlice):
            continue
        rows[entry.seq] = _row(pipeline, entry, entry.slice, record)
        if record and record.abandoned:
            state = feed_state.decode(record.state, f"the record of batch {record.seq}")
            rolled_back.append((record.seq, -1 if state is None else state.version))
    for seq, row in rows.items():
        if seq < (overwrite_start or 0) or any(
            seq < later and row["end_commit_version"] > version for later, version in rolled_back
        ):
            rows[seq] = {**row, "is_stale": True}
    return [rows[seq] for seq in sorted(rows)]


def _row(pipeline: str, entry: OffsetEntry, versions: VersionSlice, record: CommitRecord | None) -> Row:
    is_given_up = entry.mode == "empty" or (record is not None and record.abandoned)
    recorded = _moment(record.committed_at_ms if record else None)
    return {
        "BK": f"{pipeline}/{entry.seq}",
        "delta_load_identifier": versions.identifier,
        "source_table_identifier": versions.location,
        "is_processed": record is not None and not is_given_up,
        "is_stale": is_given_up,
        "last_read_timestamp": _moment(versions.last_ms),
        "rows": record.rows if record and not is_given_up else None,
        "start_commit_version": versions.first,
        "end_commit_version": versions.last,
        "start_commit_timestamp_utc": _moment(versions.first_ms),
        "end_commit_timestamp_utc": _moment(versions.last_ms),
        "__DCR": recorded,
        "__DMR": recorded,
        "batch": entry.seq,
    }


def _moment(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
