"""An engine on ``deltalake``: real Delta tables, no JVM, a few milliseconds a batch."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from airflow_provider_scope.exceptions import InputError, SparkJobFailedError
from airflow_provider_scope.protocol.probe import probe
from airflow_provider_scope.stores.protocol import open_storage
from airflow_provider_scope.values import check_as_logged
from tests.support.batch_loop import BatchLoop, ConflictError

if TYPE_CHECKING:
    from airflow_provider_scope.protocol.engine import Work
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.recovery import TableState

SOURCE = pa.schema([("id", pa.int64()), ("day", pa.int64())])
"""The columns of the tests' files."""
TABLE = SOURCE.append(pa.field("file", pa.string()))
"""The columns of the table: a row tells the file it came from, so a lost or doubled file shows."""


class DeltaEngine(BatchLoop):
    """Appends, overwrites, and overwrites of ``day = N``, each with its transaction in the same commit."""

    def look(self, location: str, pipeline: str | None, baseline: Any) -> TableState:
        return probe(location, pipeline, baseline, open_storage(location))

    def open(self, work: Work) -> tuple[Any, int | None]:
        try:
            handle = DeltaTable(local(work.table))
        except TableNotFoundError:
            return None, None
        return handle, handle.transaction_version(work.pipeline)

    def read(self, entry: OffsetEntry) -> pa.Table:
        check_unchanged(entry)
        tables = [_rows_of(file.path) for file in entry.files]
        rows = pa.concat_tables([TABLE.empty_table(), *tables])
        if entry.where and not pc.all(_inside(rows, entry.where)).as_py():
            raise SparkJobFailedError(f"a row of batch {entry.seq} lies outside of {entry.where}")
        return rows

    def notes(self, entry: OffsetEntry, rows: pa.Table) -> dict[str, Any]:
        """Return what a commit says of its batch beside the number."""
        return {}

    def no_rows(self) -> pa.Table:
        return TABLE.empty_table()

    def commit(self, work: Work, handle: Any, entry: OffsetEntry, rows: Any, *, abandoned: bool) -> None:
        notes = {} if abandoned else self.notes(entry, rows)
        named = {"seq": entry.seq, "abandoned": abandoned, **notes}
        properties = numbered(work.pipeline, self.txn_version(entry), **named)
        if handle is None:
            if abandoned:
                raise InputError(f"there is no table to give batch {entry.seq} up in")
            create(work, rows, properties)
            return
        replaced = entry.where if entry.mode == "overwrite" else None
        try:
            write_deltalake(handle, rows, mode=entry.mode, predicate=replaced, commit_properties=properties)
        except CommitFailedError as err:
            raise ConflictError(str(err)) from err
        except DeltaError as err:
            raise SparkJobFailedError(f"batch {entry.seq}: {err}") from err

    def leave_half(self, work: Work) -> None:
        """Leave a data file that no commit names."""
        folder = Path(local(work.table))
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(TABLE.empty_table(), folder / "part-99999-of-a-dead-application.parquet")


def numbered(pipeline: str, number: int, **named: Any) -> CommitProperties:
    """Return what a commit says of its batch; the batch has the transaction's number if it has no other."""
    ours = {"abandoned": False, "pipeline": pipeline, "seq": number, **named}
    return CommitProperties(
        custom_metadata={"userMetadata": json.dumps(ours)}, app_transactions=[Transaction(pipeline, number)]
    )


def local(uri: str) -> str:
    """Return the path of a URI."""
    return uri.partition("://")[2]


def check_unchanged(entry: OffsetEntry) -> None:
    """Look at the files of a batch again, just before they are read."""
    paths = ((file, Path(local(file.path))) for file in entry.files)
    found = ((file, path.stat() if path.exists() else None) for file, path in paths)
    looks = ((file, now and (now.st_mtime_ns // 1_000_000, now.st_size)) for file, now in found)
    check_as_logged(entry.seq, looks, kept="everything")


def create(work: Work, rows: pa.Table, properties: CommitProperties) -> None:
    """Create the table with its first rows; only one of several writers succeeds.

    ``write_deltalake(mode="error")`` lets two writers that start together both succeed (the second
    replaces the table's metadata and adds its rows). So the table is made aside, and its first commit
    gets its name by ``link``, which refuses a name that exists.
    """
    final = Path(local(work.table))
    (final / "_delta_log").mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".", dir=final.parent))
    try:
        write_deltalake(str(aside), rows, mode="error", commit_properties=properties)
        for data in aside.glob("*.parquet"):
            data.rename(final / data.name)
        try:
            os.link(aside / "_delta_log" / f"{0:020}.json", final / "_delta_log" / f"{0:020}.json")
        except FileExistsError as err:
            raise ConflictError("another writer created the table") from err
    finally:
        shutil.rmtree(aside)


def _rows_of(path: str) -> pa.Table:
    rows = pq.read_table(local(path)).select(SOURCE.names).cast(SOURCE)
    return rows.append_column("file", pa.array([path] * rows.num_rows, pa.string()))


def _inside(rows: pa.Table, where: str) -> Any:
    day = re.fullmatch(r"day = (\d+)", where)
    assert day, f"the tests' ranges are written as 'day = 1', not {where!r}"
    return pc.equal(rows["day"], int(day[1]))
