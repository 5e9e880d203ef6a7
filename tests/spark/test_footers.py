"""Footers that one call into Java reads say what each says when it is read alone."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyarrow import orc

from airflow_provider_scope.exceptions import BadFileError, InputError
from airflow_provider_scope.spark.files import footers, shapes

pytestmark = pytest.mark.spark


def test_many_footers_are_what_each_is_alone(bench):
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC).replace(tzinfo=None)
    kinds = [
        {"a": [1]},
        {"a": ["x"]},
        {"b": pa.array([now], pa.timestamp("ns"))},
        {"b": pa.array([now], pa.timestamp("us", "UTC")), "a": [{"c": [1]}]},
    ]
    names = ["{}.parquet", "{} é\n[x]*.parquet", "{}%20;,?.parquet"]
    files = [bench.parquet(names[n % 3].format(n), **kinds[n % 4]) for n in range(footers.MANY)]
    of_spark = bench.folder / "of spark"
    bench.spark.range(3).coalesce(1).write.parquet(f"file://{of_spark}")
    paths = [file.path for file in files] + [f"file://{path}" for path in of_spark.glob("*.parquet")]
    paths += [f"file://{bench.folder}/missing.parquet", bench.file("empty.parquet", b"").path]
    paths += [bench.file("text.parquet", b"no parquet at all").path]
    whole = Path(files[0].path.removeprefix("file://")).read_bytes()
    paths += [bench.file("cut.parquet", whole[:4] + whole[-8:]).path]
    conf = bench.spark._jsparkSession.sessionState().newHadoopConf()

    together = footers.read(bench.spark, "parquet", conf, paths)
    alone = [footers.read(bench.spark, "parquet", conf, [path])[0] for path in paths]

    assert together[:-4] == alone[:-4]
    assert len(set(alone[:-4])) == len(kinds) + 1
    assert all(isinstance(footer, Exception) for footer in together[-4:])
    assert list(map(type, together)) == list(map(type, alone))


def test_the_columns_of_a_file_are_those_that_spark_infers_and_start_no_job(bench):
    """Another type than Spark's would be read as other values; by itself Spark starts a job for a footer."""
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC).replace(tzinfo=None)
    kinds = {"us": pa.timestamp("us"), "utc": pa.timestamp("us", "UTC"), "ns": pa.timestamp("ns")}
    columns = {name: pa.array([now], kind) for name, kind in kinds.items()}
    columns |= {f"i{n}": pa.array([1], kind) for n, kind in enumerate([pa.int8(), pa.uint32(), pa.uint64()])}
    columns |= {
        "wide": [Decimal("1.5")],
        "bytes": [b"x"],
        "day": [now.date()],
        "f": pa.array([1], pa.float32()),
    }
    columns |= {
        "nested": [[{"A b": {"c": [True]}}]],
        "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8())),
    }
    paths = [bench.parquet("x=1/odd é\n[x].parquet", **columns).path, bench.parquet("a.parquet", a=[1]).path]
    of_spark = bench.folder / "of spark"
    sql = "SELECT 1.50BD AS d, array(named_struct('t', current_timestamp())) AS s, id FROM range(1)"
    bench.spark.sql(sql).write.parquet(f"file://{of_spark}")
    paths += [f"file://{path}" for path in of_spark.glob("*.parquet")]
    conf = bench.spark._jsparkSession.sessionState().newHadoopConf()
    scheduler = bench.spark.sparkContext._jsc.sc().dagScheduler()
    jobs = scheduler.numTotalJobs()

    read = [shapes._columns(bench.spark, "parquet", conf, path) for path in paths]

    assert scheduler.numTotalJobs() == jobs
    alone = bench.spark.read.format("parquet").option("__globPaths__", "false")
    assert read == [(alone.load(path).schema, {}) for path in paths]
    assert scheduler.numTotalJobs() == jobs + len(paths)


def test_one_bad_file_among_many_is_named(bench):
    files = [bench.parquet(f"{n}.parquet", a=[n]) for n in range(footers.MANY)]
    bad = bench.file("bad.parquet", b"no parquet at all")
    other = bench.parquet("other.parquet", a=["text"])

    error = bench.failure(bench.batch(0, *files, bad), reads=True)
    mixed = bench.failure(bench.batch(0, *files, other), reads=True, columns={"a": "bigint"})

    assert isinstance(error, BadFileError)
    assert "bad.parquet" in error.what
    assert isinstance(mixed, BadFileError)
    assert "other.parquet" in mixed.what
    assert "0.parquet" not in mixed.what


@pytest.mark.parametrize("count", [1, footers.MANY // 2])
def test_what_spark_wrote_of_the_columns_of_one_file_is_not_that_of_another(bench, count):
    def copies(name, sql):
        folder = bench.folder / name
        bench.spark.sql(sql).coalesce(1).write.parquet(f"file://{folder}")
        (path,) = folder.glob("*.parquet")
        return [bench.file(f"{name}{number}.parquet", path.read_bytes()) for number in range(count)]

    months = copies("months", "SELECT INTERVAL '3' MONTH AS n")
    numbers = copies("numbers", "SELECT 3 AS n")

    rows, aside = bench.sort(bench.batch(0, *months, *numbers), columns={"n": "int"})

    assert rows == [{"n": 3}] * count
    assert {row["file"] for row in aside} == {file.path for file in months}
    assert {row["rule"] for row in aside} == {"n is interval month, declared is int"}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "write"), [("parquet", pq.write_table), ("orc", orc.write_table)])
def test_a_file_without_columns_has_no_rows(bench, kind, write):
    """Arrow writes such a file of no data; Java's reader of parquet, and Spark's of ORC, fail on it."""

    def file(name, columns=()):
        path = bench.folder / name
        write(pa.table(dict(columns)), path)
        return bench.file(f"{name}.{kind}", path.read_bytes())

    upper = {"format": kind, "sql": "SELECT upper(name) AS name FROM @data", "bad_records": "quarantine"}
    bad = bench.file(f"bad.{kind}", b"no file of this format")
    assert bench.run(bench.batch(0, file("rows", {"name": ["a"]}), file("none")), **upper) == 0
    assert bench.run(bench.batch(1, file("alone")), **upper) == 1
    assert bench.run(bench.batch(2, file("beside"), bad), **upper) == 2

    assert bench.read(bench.batch(3, file("declared")), columns={"name": "string"}, **upper) == []
    assert bench.rows() == [{"name": "A"}]
    quarantine = DeltaTable(f"{bench.table}_quarantine").to_pyarrow_table()
    assert quarantine["file"].to_pylist() == [bad.path]


def test_a_name_that_looks_like_a_type_takes_no_values_of_another_column(bench):
    """A schema as text has `x (UNKNOWN)` for a column of that name, and for a column x without a type."""
    row = {"x": "a", "x (UNKNOWN)": 1, "t": 7, "t (TIMESTAMP(NANOS,true))": 8, "none": None}
    file = bench.parquet("names.parquet", **{name: pa.array([value]) for name, value in row.items()})

    assert bench.read(bench.batch(0, file)) == [row]


def test_files_without_columns_make_no_table(bench):
    with pytest.raises(InputError, match="does not exist yet, so batch 0 cannot be committed to it without"):
        bench.run(bench.batch(0, bench.parquet("none.parquet")))
