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
from deltalake import DeltaTable
from pyarrow import csv, orc
from pyarrow import parquet as pq

from airflow_provider_scope.exceptions import BadFileError, SourceFileChangedError, SourceFileGoneError
from airflow_provider_scope.spark import app
from airflow_provider_scope.spark.files.reading import read
from airflow_provider_scope.spark.target import Target
from tests.spark.conftest import changed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_provider_scope.values import FileEntry

pytestmark = [pytest.mark.spark, pytest.mark.compiled]


# ---- names -------------------------------------------------------------------------------------------


def write_json(table: pa.Table, path: Path) -> None:
    path.write_text("".join(f'{{"a":"{a}"}}\n' for a in table["a"].to_pylist()))


def write_text(table: pa.Table, path: Path) -> None:
    path.write_text("".join(f"{a}\n" for a in table["a"].to_pylist()))


NAMES = {
    "plain/plain": None,
    "plain/w_[x]": "plain/w_x",
    "plain/{p,q}": "plain/p",
    "plain/star*": "plain/star2",
    "plain/q?1": "plain/qx1",
    "plain/back\\slash": "plain/backslash",
    "10:30/a": None,
    "10:30/[x]": "10:30/x",
    "with space/with space": None,
    "100%/per%20cent": "100%/per cent",
    "a=1/50%": None,
    "_x=2/a+b#c&d;e": None,
    "plain/grüße-日本": None,
    "plain/new\nline": None,
    "plain/quote'\"~$,": None,
}
"""Name -> another file that Spark could take for it, and that is not in the batch."""


@pytest.mark.slow
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
def test_files_of_unusual_names_are_read_once_each_and_no_others(
    bench: Any, kind: str, write: Callable[..., None]
) -> None:
    def landed(name: str, value: str) -> FileEntry:
        path = bench.folder / "landing" / f"{name}.{kind}"
        path.parent.mkdir(parents=True, exist_ok=True)
        write(pa.table({"a": [value]}), path)
        return bench.entry(path)

    files = [landed(name, f"file {number}") for number, name in enumerate(NAMES)]
    for decoy in filter(None, NAMES.values()):
        landed(decoy, "decoy")
    column = "value" if kind == "text" else "a"

    rows = bench.read(
        bench.batch(0, *files),
        format=kind,
        options={"header": "true"} if kind == "csv" else {},
        sql=f"SELECT {column} AS a, source_file_uri AS uri FROM @data",
    )

    expected = {(f"file {number}", file.path) for number, file in enumerate(files)}
    assert {(row["a"], row["uri"]) for row in rows} == expected
    assert len(rows) == len(files)


@pytest.mark.parametrize(("kind", "content"), [("csv", "a\n1\n"), ("json", '{"a":"1"}\n')])
def test_a_file_that_is_no_pattern_has_its_own_columns(bench: Any, kind: str, content: str) -> None:
    """Hadoop takes the folder for a URI, once it looks for patterns."""
    file = bench.text(f"10:30/[x].{kind}", content)
    options = {"header": "true"} if kind == "csv" else {}

    assert bench.read(bench.batch(0, file), format=kind, options=options) == [{"a": "1"}]


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
        rows = bench.read(bench.batch(0, bench.entry(path)), format="text")
        read = bench.spark.read.text(f"file://{path}")
        assert read.rdd.getNumPartitions() > 5
    finally:
        bench.spark.conf.unset("spark.sql.files.maxPartitionBytes")

    assert sorted(row["value"] for row in rows) == lines


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


def test_compressed_texts_are_known_by_their_names_and_those_that_are_cut_off_go_aside(bench: Any) -> None:
    whole = [bench.file(name, compressed(name)) for name in COMPRESSED]
    cut = [bench.file(f"cut/{name}", compressed(name)[:-20]) for name in COMPRESSED]

    rows, aside = bench.sort(bench.batch(0, *whole, *cut), format="text")

    assert Counter(row["value"] for row in rows) == dict.fromkeys(LINES, 5)
    assert sorted(row["file"] for row in aside) == sorted(file.path for file in cut)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [{"a": "string"}, None], ids=["declared", "inferred"])
def test_a_file_with_the_name_of_bzip2_that_is_none_is_bad_because_spark_reads_no_row_of_it(
    bench: Any, columns: dict[str, str] | None
) -> None:
    contents = {"text": b"1\n2\n", "almost": b"BZh9 but no bzip2\n", "cut": bz2.compress(b"1\n")[:5]}
    bad = [bench.file(f"{name}.csv.BZ2", content) for name, content in contents.items()]
    entry = bench.batch(0, *bad, bench.file("whole.csv.bz2", bz2.compress(b"1\n2\n")))
    plan = {"format": "csv", "columns": columns, "infers_columns": columns is None}

    error = bench.failure(entry, **plan)
    bench.run(entry, **plan, bad_records="quarantine")

    assert isinstance(error, BadFileError)
    assert all(f"{name}.csv.BZ2: it has a name of bzip2" in error.what for name in contents)
    assert [str(*row.values()) for row in bench.rows()] == ["1", "2"]
    aside = DeltaTable(f"{bench.table}_quarantine").to_pyarrow_table()
    assert sorted(aside["file"].to_pylist()) == sorted(file.path for file in bad)


def test_an_empty_text_that_was_compressed_has_no_rows(bench: Any) -> None:
    entry = bench.batch(0, bench.file("a.csv.bz2", bz2.compress(b"")))

    assert bench.read(entry, format="csv", columns={"a": "string"}) == []


# ---- files that change -------------------------------------------------------------------------------


def test_a_file_that_changes_after_spark_has_looked_at_it_is_named_before_anything_is_written(
    bench: Any,
) -> None:
    """Spark reads a text to the length that it saw, and another file of that name as far as that goes."""
    entry = bench.batch(0, bench.text("a.txt", "1\n2\n"))
    plan = changed(bench.plan, format="text")

    def planned_then_changed() -> Any:
        rows = read(bench.spark, plan, entry)
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
        bench.read(bench.batch(0, *files), format="orc", columns={"a": "bigint", "b": "string"})
