"""Footers that one call into Java reads say what each says when it is read alone."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider_scope.exceptions import BadFileError
from airflow_provider_scope.spark.files import footers

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
