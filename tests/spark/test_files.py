"""The bytes that a batch loads are those of the files that were logged, whatever their names and packing."""

from __future__ import annotations

import bz2
import gzip
import random
import zlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import csv, orc
from pyarrow import parquet as pq

from airflow_provider_scope.exceptions import (
    BadFileError,
    SourceFileChangedError,
    SourceFileGoneError,
)
from airflow_provider_scope.spark import app
from airflow_provider_scope.spark.files.reading import select
from airflow_provider_scope.spark.target import Target
from tests.spark.conftest import changed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.spark


# ---- names -------------------------------------------------------------------------------------------


def write_json(table: pa.Table, path: Path) -> None:
    path.write_text("".join(f'{{"a":"{a}"}}\n' for a in table["a"].to_pylist()))


def write_text(table: pa.Table, path: Path) -> None:
    path.write_text("".join(f"{a}\n" for a in table["a"].to_pylist()))


@pytest.mark.parametrize(
    ("kind", "write"),
    [
        ("orc", orc.write_table),
        ("parquet", pq.write_table),
        ("csv", csv.write_csv),
        ("json", write_json),
        ("text", write_text),
    ],
)
def test_every_format_reads_unusual_names_beside_each_other(
    bench: Any, kind: str, write: Callable[..., None]
) -> None:
    folders = ["plain", "with space", "100%", "a=1", "_x=2"]
    names = [
        "plain",
        "with space",
        "per%20cent",
        "50%",
        "a+b#c&d;e",
        "grüße-日本",
        "new\nline",
        "quote'\"",
        "~$,",
    ]
    files = []
    for number, name in enumerate(names):
        path = bench.folder / "landing" / folders[number % len(folders)] / f"{name}.{kind}"
        path.parent.mkdir(parents=True, exist_ok=True)
        write(pa.table({"a": [str(number)]}), path)
        files.append(bench.entry(path))
    column = "value" if kind == "text" else "a"

    bench.run(
        bench.batch(0, *files),
        format=kind,
        options={"header": "true"} if kind == "csv" else {},
        sql=f"SELECT CAST({column} AS string) a, source_file_uri uri FROM @data",
    )

    assert bench.rows() == sorted(
        ({"a": str(number), "uri": file.path} for number, file in enumerate(files)), key=repr
    )


# ---- compression -------------------------------------------------------------------------------------


def test_a_compressed_text_that_several_tasks_read_has_every_line_once(bench: Any) -> None:
    digits = random.Random(5)
    lines = [f"{number:06} {digits.getrandbits(200):064x}" for number in range(6_000)]
    text = "".join(f"{line}\n" for line in lines).encode()
    half = len(text) // 2
    path = bench.folder / "a.txt.bz2"
    path.write_bytes(bz2.compress(text[:half], 1) + bz2.compress(text[half:], 1))  # 100 kB of text in a block
    bench.spark.conf.set("spark.sql.files.maxPartitionBytes", "30000")
    try:
        bench.run(bench.batch(0, bench.entry(path)), format="text")
        read = bench.spark.read.text(f"file://{path}")
        assert read.rdd.getNumPartitions() > 5
    finally:
        bench.spark.conf.unset("spark.sql.files.maxPartitionBytes")

    assert [row["value"] for row in bench.rows()] == lines


COMPRESSED = {
    "a.gz": gzip.compress,
    "A.GZ": gzip.compress,
    "a.gzip": gzip.compress,
    "a.bz2": bz2.compress,
    "a.deflate": zlib.compress,
}
LINES = [str(number) for number in range(1_000)]


def compressed(name: str) -> bytes:
    return COMPRESSED[name]("".join(f"{line}\n" for line in LINES).encode())


def test_compressed_texts_are_told_by_their_names(bench: Any) -> None:
    for name in COMPRESSED:
        (bench.folder / name).write_bytes(compressed(name))

    bench.run(bench.batch(0, *[bench.entry(bench.folder / name) for name in COMPRESSED]), format="text")

    assert Counter(row["value"] for row in bench.rows()) == dict.fromkeys(LINES, 5)


@pytest.mark.parametrize("name", [*COMPRESSED])
def test_a_compressed_text_that_is_cut_off_is_an_error_that_names_it(bench: Any, name: str) -> None:
    (bench.folder / name).write_bytes(compressed(name)[:-20])

    error = bench.failure(bench.batch(0, bench.entry(bench.folder / name)), format="text")

    assert f"/{name}" in error.what


@pytest.mark.parametrize(
    "content",
    [b"1\n2\n", b"BZh9 but no bzip2\n", bz2.compress(b"1\n")[:5]],
    ids=["text", "almost", "cut off in the first bytes"],
)
def test_a_file_with_the_name_of_bzip2_that_is_none_is_an_error_because_spark_reads_no_row_of_it(
    bench: Any, content: bytes
) -> None:
    path = bench.folder / "a.csv.BZ2"
    path.write_bytes(content)

    with pytest.raises(BadFileError, match=r"a\.csv\.BZ2: it has a name of bzip2"):
        bench.run(bench.batch(0, bench.entry(path)), format="csv", columns={"a": "string"})

    assert not bench.table.exists()


def test_an_empty_text_that_was_compressed_has_no_rows(bench: Any) -> None:
    path = bench.folder / "a.csv.bz2"
    path.write_bytes(bz2.compress(b""))

    bench.run(bench.batch(0, bench.entry(path)), format="csv", columns={"a": "string"})

    assert bench.rows() == []


# ---- files that change -------------------------------------------------------------------------------


def test_a_file_that_changes_after_spark_has_looked_at_it_is_named_before_anything_is_written(
    bench: Any,
) -> None:
    """Spark reads a text to the length that it saw, and another file of that name as far as that goes."""
    entry = bench.batch(0, bench.text("a.txt", "1\n2\n"))
    plan = changed(bench.plan, format="text")

    def planned_then_changed() -> Any:
        rows = select(bench.spark, plan, entry)
        bench.text("a.txt", "1\n2\n3\n")
        return rows

    with pytest.raises(SourceFileChangedError, match="has changed since it was logged"):
        app.run_batch(plan, Target(bench.spark, plan), entry, planned_then_changed)

    assert not bench.table.exists()


def test_a_file_that_is_gone_before_spark_looks_at_it_is_named(bench: Any) -> None:
    entry = bench.batch(0, bench.text("a.txt", "1\n"))
    (bench.folder / "landing" / "a.txt").unlink()

    with pytest.raises(SourceFileGoneError, match=r"a\.txt of batch 0 is missing"):
        bench.run(entry, format="text")


def test_a_file_that_grows_while_it_is_read_is_named_after_its_rows_were_committed(bench: Any) -> None:
    file = bench.text("a.txt", "1\n")

    def grow(value: str) -> str:
        with open(file.path.removeprefix("file://"), "a") as writer:  # noqa: PTH123 - runs in Spark's process
            writer.write("2\n")
        return value

    bench.spark.udf.register("grow", grow)
    with pytest.raises(
        SourceFileChangedError, match=r"a\.txt of batch 0 was changed while it was read"
    ) as caught:
        bench.run(
            bench.batch(0, file, bench.text("b.txt", "")),
            format="text",
            sql="SELECT grow(value) v FROM @data",
        )

    assert "2 bytes at" in caught.value.what
    assert "now 4 bytes at" in caught.value.what
    assert "version 0 of the table" in caught.value.kept
    assert bench.rows() == [{"v": "1"}]


def test_a_file_that_is_removed_while_it_is_read_is_loaded(bench: Any) -> None:
    file = bench.text("a.txt", "1\n")

    def remove(value: str) -> str:
        import os

        os.unlink(file.path.removeprefix("file://"))  # noqa: PTH108 - runs in Spark's process
        return value

    bench.spark.udf.register("remove", remove)

    bench.run(bench.batch(0, file), format="text", sql="SELECT remove(value) v FROM @data")

    assert bench.rows() == [{"v": "1"}]


def test_each_orc_file_is_asked_for_its_own_columns(bench: Any) -> None:
    """Options that two readers share hold the footer of the first: a file without a column would pass."""
    landing = bench.folder / "landing"
    landing.mkdir()
    files = []
    for number in range(4):
        columns = {"a": [number], "b": ["x"]} if number % 2 == 0 else {"a": [number]}
        orc.write_table(pa.table(columns), str(landing / f"{number}"))
        files.append(bench.entry(landing / f"{number}"))

    with pytest.raises(BadFileError, match=r"2 of the 4 files .*/1: it has no column b; .*/3: it has no"):
        bench.run(bench.batch(0, *files), format="orc", columns={"a": "bigint", "b": "string"})
