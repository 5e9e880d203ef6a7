"""A landing folder, a table and the way from files to a committed batch, on the shared session."""

from __future__ import annotations

import functools
import json
from contextlib import ExitStack
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from airflow_provider_scope.delta.schema import TableSpec
from airflow_provider_scope.exceptions import ScopeProviderError
from airflow_provider_scope.protocol import records
from airflow_provider_scope.protocol.records import OffsetEntry
from airflow_provider_scope.sources.files.spec import FileSource
from airflow_provider_scope.spark import app
from airflow_provider_scope.spark.files.quarantine import sorted_out
from airflow_provider_scope.spark.files.reading import read, read_by
from airflow_provider_scope.spark.plan import Plan
from airflow_provider_scope.spark.target import Target
from airflow_provider_scope.values import FileEntry, FileSlice
from tests.spark.jdbc_world import running_server
from tests.support import warm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.spark.jdbc_world import Server, World

pytestmark = pytest.mark.spark

FILES = {item.name for item in fields(FileSource)}
TABLE = {item.name for item in fields(TableSpec)} - FILES


def changed(plan: Plan, **changes: Any) -> Plan:
    """Return a plan with other values; what belongs to the files goes there."""
    of_files = {name: changes.pop(name) for name in FILES & {*changes}}
    of_table = {name: changes.pop(name) for name in TABLE & {*changes}}
    if "table_columns" in changes:
        of_table["columns"] = changes.pop("table_columns")
    if changes.pop("infers_columns", False):
        changes["inferred_columns"], of_files["columns"] = of_files.get("columns"), "infer"
    return replace(plan.with_spec(**of_table), source=replace(plan.files, **of_files), **changes)


class Bench:
    """Write files, run batches of them, read the table back with another reader."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.table = folder / "table"
        self.plan = Plan(
            pipeline="11111111-1111-1111-1111-111111111111",
            table=f"file://{self.table}",
            checkpoint=f"file://{folder}/checkpoint",
            batches=(),
            source=FileSource(roots="/in", format="parquet"),
            sql="SELECT * FROM @data",
            sql_params={},
            quarantines=(f"file://{self.table}_quarantine",),
        )

    def parquet(self, name: str, **columns: list[Any]) -> FileEntry:
        path = self.folder / "landing" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), path)
        return self.entry(path)

    def text(self, name: str, content: str) -> FileEntry:
        return self.file(name, content.encode())

    def file(self, name: str, content: bytes) -> FileEntry:
        path = self.folder / "landing" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return self.entry(path)

    def entry(self, path: Path) -> FileEntry:
        status = path.stat()
        return FileEntry(status.st_mtime_ns // 1_000_000, f"file://{path}", status.st_size)

    def batch(self, seq: int, *files: FileEntry, **changes: Any) -> OffsetEntry:
        entry = OffsetEntry(
            seq=seq, mode="append", slice=FileSlice(files, None), refresh_start=None, overwrite_start=None
        )
        return replace(entry, **changes)

    def make(self, partition_by: list[str] | None = None, /, **columns: Any) -> None:
        """Make the table as batch 0 would, by another writer: much faster than to commit it."""
        notes = json.dumps({"abandoned": False, "pipeline": self.plan.pipeline, "seq": 0})
        ours = CommitProperties(
            {"userMetadata": notes}, app_transactions=[Transaction(self.plan.pipeline, 0)]
        )
        table, rows = str(self.table), pa.table(columns)
        write_deltalake(table, rows, partition_by=partition_by, commit_properties=ours)

    def run(self, entry: OffsetEntry, **changes: Any) -> int | None:
        plan = changed(self.plan, **changes)
        rows = functools.partial(read, self.spark, plan, entry)
        return app.run_batch(plan, Target(self.spark, plan), entry, rows)

    def read(self, entry: OffsetEntry, **changes: Any) -> list[dict[str, Any]]:
        """Read the rows that a batch would commit: much faster than to commit them."""
        plan = changed(self.plan, **changes)
        rows = functools.partial(read, self.spark, plan, entry)
        return read_by(self.spark, plan, entry, rows, lambda data: data.toArrow().to_pylist())

    def sort(self, entry: OffsetEntry, **changes: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Read the rows that a batch would commit to the table, and those to the quarantine."""
        plan = changed(self.plan, **{**changes, "bad_records": "quarantine"})
        with ExitStack() as block:
            batch = sorted_out(block, self.spark, plan, entry)
            good = batch.good.toArrow().to_pylist() if batch.good is not None else []
            return good, batch.bad.toArrow().to_pylist()

    def failure(self, entry: OffsetEntry, *, reads: bool = False, **changes: Any) -> ScopeProviderError:
        """Run a batch that Spark refuses, and give the error as the application reports it.

        :param reads: Whether to read alone, which is faster: then nothing is said of the table.
        """
        with pytest.raises((PySparkException, Py4JJavaError, ScopeProviderError)) as caught:
            (self.read if reads else self.run)(entry, **changes)
        return caught.value if isinstance(caught.value, ScopeProviderError) else app.as_error(caught.value)

    def run_plan(self, *entries: OffsetEntry, **changes: Any) -> None:
        for entry in entries:
            place = self.folder / "checkpoint" / "offsets" / f"{entry.seq:020}"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(records.encode_offset(entry))
        app.run(self.spark, changed(self.plan, batches=tuple(e.seq for e in entries), **changes))

    def rows(self) -> list[dict[str, Any]]:
        table = DeltaTable(str(self.table)).to_pyarrow_table()
        return sorted(table.to_pylist(), key=repr)

    def version(self) -> int:
        return DeltaTable(str(self.table)).version()


@pytest.fixture
def bench(spark: Any, tmp_path: Path) -> Bench:
    return Bench(spark, tmp_path)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def world(postgres_server: Server, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    warm.use(monkeypatch, spark)
    return postgres_server.new(tmp_path, monkeypatch)
