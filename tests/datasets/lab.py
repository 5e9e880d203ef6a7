"""The way from files to rows, as in production: the plan is written and read, then run."""

from __future__ import annotations

import functools
import json
import struct
import uuid
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyarrow import dataset
from pyspark.errors import PySparkException

from airflow_provider_scope.exceptions import BadFileError, ScopeProviderError
from airflow_provider_scope.protocol import records
from airflow_provider_scope.protocol.records import OffsetEntry
from airflow_provider_scope.sources.files.spec import FileSource
from airflow_provider_scope.spark import app
from airflow_provider_scope.spark import plan as plans
from airflow_provider_scope.spark.files.quarantine import NOTHING_GOOD, sorted_out
from airflow_provider_scope.spark.files.reading import read, read_by
from airflow_provider_scope.spark.plan import Plan
from airflow_provider_scope.values import FileEntry, FileSlice

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tests.datasets.generator import Case, File

REFUSALS = (PySparkException, Py4JJavaError, ScopeProviderError)
"""How the application says that it does not load something."""
_SPLIT = "spark.sql.files.maxPartitionBytes"


class Lab:
    """One source, in a folder of its own, on the shared session."""

    def __init__(self, spark: Any, folder: Path, case: Case) -> None:
        self.spark = spark
        self.folder = folder / uuid.uuid4().hex
        self.case = case
        self.entries = {file.name: self._land(file) for file in case.files}

    @property
    def table(self) -> Path:
        return self.folder / "table"

    def _land(self, file: File) -> FileEntry:
        path = self.folder / "landing" / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
        status = path.stat()
        return FileEntry(status.st_mtime_ns // 1_000_000, f"file://{path}", status.st_size)

    def plan(self, batches: int) -> Plan:
        """Return the plan as the application reads it."""
        plan = Plan(
            pipeline=str(uuid.uuid4()),
            table=f"file://{self.table}",
            checkpoint=f"file://{self.folder}/checkpoint",
            batches=tuple(range(batches)),
            source=FileSource(
                roots="/in",
                format=self.case.format,
                columns=self.case.source_columns,
                options=self.case.options,
            ),
            sql=self.case.sql,
            sql_params={},
        )
        return plans.decode(plans.encode(plan))

    def batch(self, seq: int, files: Sequence[File]) -> OffsetEntry:
        """Return a batch as the application reads it."""
        entry = OffsetEntry(
            seq=seq,
            mode="append",
            slice=FileSlice(tuple(self.entries[file.name] for file in files), None),
            refresh_start=None,
            overwrite_start=None,
        )
        data = records.encode_offset(entry)
        place = self.folder / "checkpoint" / "offsets" / f"{seq:020}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        return records.decode_offset(str(place), data, seq)

    def read(self) -> pa.Table:
        """Read all files as one batch, without a table: cheap, and the same way to the rows."""
        with _splitting(self.spark, self.case.split_bytes):
            plan, entry = self.plan(1), self.batch(0, self.case.files)
            rows = functools.partial(read, self.spark, plan, entry)
            return read_by(self.spark, plan, entry, rows, lambda found: found.toArrow())

    def commit(self, batches: Sequence[Sequence[File]]) -> pa.Table:
        """Load the files in batches, and read the table with another reader."""
        for seq, files in enumerate(batches):
            self.batch(seq, files)
        with _splitting(self.spark, self.case.split_bytes):
            app.run(self.spark, self.plan(len(batches)))
        return read_table(self.table)

    def expected(self) -> list[tuple[Any, ...]]:
        """Return the rows that the files hold."""
        return [row for file in self.case.files for row in self.case.rows(file, self.entries[file.name].path)]

    def declared_in_delta(self) -> list[tuple[str, Any]]:
        """Return the names and types of the table's columns."""
        fields = json.loads(DeltaTable(str(self.table)).schema().to_json())["fields"]
        return [(field["name"], _delta_type(field["type"])) for field in fields]


class _splitting:  # noqa: N801 - reads as a word at the place of use
    """Let Spark read files in small parts."""

    def __init__(self, spark: Any, size: int | None) -> None:
        self.spark, self.size = spark, size

    def __enter__(self) -> None:
        if self.size:
            self.spark.conf.set(_SPLIT, str(self.size))

    def __exit__(self, *_: object) -> None:
        self.spark.conf.unset(_SPLIT)


def _delta_type(kind: Any) -> Any:
    if isinstance(kind, str):
        return kind
    match kind["type"]:
        case "array":
            return {"array": _delta_type(kind["elementType"])}
        case "map":
            return {"map": [_delta_type(kind["keyType"]), _delta_type(kind["valueType"])]}
    return {"struct": [[f["name"], _delta_type(f["type"])] for f in kind["fields"]]}


def read_table(table: Path) -> pa.Table:
    """Read a Delta table without Spark."""
    # Spark writes timestamps of 96 bits, which Arrow takes for nanoseconds unless it is told: 1677 to 2262.
    options = dataset.ParquetReadOptions(coerce_int96_timestamp_unit="us")
    return DeltaTable(str(table)).to_pyarrow_dataset(parquet_read_options=options).to_table()


def cell(value: Any) -> Any:
    """Return a value in a form that is equal for the same value alone: -0.0 is not 0.0, and 1 is not 1.0."""
    if isinstance(value, float):
        return "NaN" if value != value else struct.pack("d", value)  # noqa: PLR0124
    if isinstance(value, dict):
        return ("struct", tuple((k, cell(v)) for k, v in value.items()))
    if isinstance(value, list):
        if value and all(isinstance(v, tuple) for v in value):
            return ("map", tuple(sorted((k, cell(v)) for k, v in value)))
        return ("list", tuple(cell(v) for v in value))
    return (type(value).__name__, value.isoformat() if hasattr(value, "isoformat") else str(value))


def table_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return the rows of an Arrow table."""
    columns = [column.to_pylist() for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else []


def difference(wanted: Iterable[Sequence[Any]], got: Iterable[Sequence[Any]]) -> str:
    """Compare rows as multisets; give what is missing and what is too much, or nothing."""
    wanted, got = list(wanted), list(got)
    want, have = Counter(map(_key, wanted)), Counter(map(_key, got))
    if want == have:
        return ""
    missing, extra = want - have, have - want
    lines = [f"{len(wanted)} rows are in the files, {len(got)} were read"]
    lines += [f"missing: {_told(row)}" for row in _of(missing, wanted)]
    lines += [f"extra:   {_told(row)}" for row in _of(extra, got)]
    return "\n".join(lines)


def _key(row: Sequence[Any]) -> Any:
    return tuple(cell(value) for value in row)


def _of(keys: Counter[Any], rows: list[Sequence[Any]]) -> list[Sequence[Any]]:
    return [row for row in rows if _key(row) in keys][:4]


def _told(row: Sequence[Any]) -> str:
    return repr(tuple(row))[:600]


def check_read(lab: Lab) -> None:
    """Compare what is read with what is in the files: names, types and every value."""
    table = told(lab, lab.read)
    wanted = [(name, kind.arrow) for name, kind in lab.case.selected]
    got = [(field.name, plain_type(field.type)) for field in table.schema]
    assert got == [(n, plain_type(k)) for n, k in wanted], lab.case.describe()
    wrong = difference(lab.expected(), table_rows(table))
    assert not wrong, f"{wrong}\n{lab.case.describe()}"


def check_commit(lab: Lab, batches: Sequence[Sequence[File]]) -> None:
    """Compare the table with what is in the files."""
    table = told(lab, functools.partial(lab.commit, batches))
    assert lab.declared_in_delta() == [(n, k.delta) for n, k in lab.case.selected], lab.case.describe()
    assert table.column_names == [n for n, _ in lab.case.selected], lab.case.describe()
    wrong = difference(lab.expected(), table_rows(table))
    assert not wrong, f"{wrong}\n{lab.case.describe()}"


def check_refused(lab: Lab, wrong_with_it: str) -> str:
    """See that files that are not as declared are an error, and nothing else; give its text."""
    try:
        rows = table_rows(lab.read())
    except REFUSALS as err:
        return str(err)
    told_rows = "\n".join(_told(row) for row in rows[:6])
    raise AssertionError(f"{wrong_with_it}: read without an error\n{lab.case.describe()}\nrows: {told_rows}")


def check_not_committed(lab: Lab, wrong_with_it: str) -> str:
    """See that a batch with such files is an error, and that there is no table then; give its text."""
    try:
        lab.commit([lab.case.files])
    except REFUSALS as err:
        assert not DeltaTable.is_deltatable(str(lab.table)), lab.case.describe()
        return str(app.as_error(err)) if not isinstance(err, ScopeProviderError) else str(err)
    raise AssertionError(f"{wrong_with_it}: committed without an error\n{lab.case.describe()}")


def check_put_aside(lab: Lab) -> None:
    """See that what is bad in the file ``bad`` is put aside, and that the others are loaded whole."""
    place = f"{lab.table}_quarantine"
    lab.batch(0, lab.case.files)
    plan = lab.plan(1)
    files = replace(plan.files, bad_records="quarantine")
    plan = replace(plan, source=files, quarantines=(f"file://{place}",))
    others = [file for file in lab.case.files if not file.name.startswith("bad")]
    with _splitting(lab.spark, lab.case.split_bytes):
        try:
            app.run(lab.spark, plan)
        except BadFileError:
            assert not others
            assert lab.case.source_columns is None
            return
    loaded = Counter(map(_key, table_rows(read_table(lab.table))))
    aside = DeltaTable(place).to_pyarrow_table().to_pylist()
    good = Counter(_key(row) for file in others for row in lab.case.rows(file, lab.entries[file.name].path))
    records = [row for row in aside if row["raw"] is not None]
    assert aside, lab.case.describe()
    assert {row["file"].rpartition("/")[2].partition(".")[0] for row in aside} == {"bad"}
    assert not good - loaded, lab.case.describe()
    # A file is aside as a whole, with or without its records one by one, exactly if no row of it is loaded.
    whole = [row["rule"] for row in aside if row["raw"] is None]
    assert len(whole) == int(loaded == good), lab.case.describe()
    assert not (whole and records) or whole == [NOTHING_GOOD], lab.case.describe()
    # Nothing is loaded and put aside: a spoilt file has at most one record more than it had.
    (bad,) = [file for file in lab.case.files if file not in others]
    at_most = len(lab.case.rows(bad, lab.entries[bad.name].path)) + 1
    assert loaded.total() - good.total() + len(records) <= at_most, lab.case.describe()


def check_each_right_or_aside(lab: Lab) -> None:
    """See that what is loaded of a file are rows of it: all of them, unless something of it is put aside."""
    plan = lab.plan(1)
    plan = replace(plan, source=replace(plan.files, bad_records="quarantine"))
    with ExitStack() as block:
        batch = sorted_out(block, lab.spark, plan, lab.batch(0, lab.case.files))
        loaded = table_rows(batch.good.toArrow()) if batch.good is not None else []
        aside = {row["file"] for row in batch.bad.collect()}
    for file in lab.case.files:
        uri = lab.entries[file.name].path
        wanted = lab.case.rows(file, uri)
        got = [row for row in loaded if row[-1] == uri]
        is_part = uri in aside and not Counter(map(_key, got)) - Counter(map(_key, wanted))
        wrong = "" if is_part else difference(wanted, got)
        assert not wrong, f"{file.name}: {wrong}\n{lab.case.describe()}"


def told(lab: Lab, work: Any) -> pa.Table:
    """Do it, and tell the case beside an error."""
    try:
        return work()
    except REFUSALS as err:
        text = app.as_error(err).what if isinstance(err, Exception) else str(err)
        msg = f"refused: {text[:1500]}\n{lab.case.describe()}"
        raise AssertionError(msg) from None


def plain_type(kind: pa.DataType) -> str:
    """Return a type without the names that Arrow gives to the parts of lists and maps."""
    if pa.types.is_list(kind):
        return f"list<{plain_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{plain_type(kind.key_type)},{plain_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return "struct<" + ",".join(f"{f.name}:{plain_type(f.type)}" for f in kind) + ">"
    return str(kind)


def cut(case: Case, rng: Any, parts: int) -> list[list[File]]:
    """Cut the files of a source into batches, in any order."""
    files = list(case.files)
    rng.shuffle(files)
    parts = min(parts, len(files))
    return [files[i::parts] for i in range(parts)]
