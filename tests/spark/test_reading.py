"""Exactly the files of the batch are read, and every row of them, whatever their names."""

from __future__ import annotations

import datetime as dt

import pytest
from deltalake import DeltaTable

from airflow_provider_scope.exceptions import SourceFileGoneError, SqlError

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("name", "decoy"),
    [
        ("part[1].parquet", "part1.parquet"),
        ("a{b,c}.parquet", "ab.parquet"),
        ("star*.parquet", "star2.parquet"),
        ("q?1.parquet", "qx1.parquet"),
        ("back\\slash.parquet", "backslash.parquet"),
    ],
)
def test_a_name_with_glob_characters_is_that_file_alone(bench, name, decoy):
    file = bench.parquet(name, a=[1])
    bench.parquet(decoy, a=[2])

    bench.run(bench.batch(0, file))

    assert bench.rows() == [{"a": 1}]


@pytest.mark.parametrize(
    "name",
    [
        "with space.parquet",
        "per%20cent.parquet",
        "a+b#c&d.parquet",
        "grüße-日本.parquet",
        "new\nline.parquet",
    ],
)
def test_an_unusual_name_is_read_and_its_uri_is_not_encoded(bench, name):
    file = bench.parquet(name, a=[1, 2])

    bench.run(bench.batch(0, file), sql="SELECT a, source_file_uri FROM @data")

    assert bench.rows() == [
        {"a": 1, "source_file_uri": file.path},
        {"a": 2, "source_file_uri": file.path},
    ]


def test_a_folder_with_a_colon_in_its_name_is_read(bench):
    file = bench.parquet("10:30/a.parquet", a=[1])

    bench.run(bench.batch(0, file))

    assert bench.rows() == [{"a": 1}]


def test_virtual_columns_come_from_the_log_and_an_unknown_time_is_null(bench):
    file = bench.parquet("a.parquet", a=[1])._replace(created_ms=None)

    bench.run(
        bench.batch(0, file),
        sql="SELECT a, source_file_length l, source_file_created c, source_file_modified m FROM @data",
    )

    modified = dt.datetime.fromtimestamp(file.modified_ms / 1000, dt.UTC)
    assert bench.rows() == [{"a": 1, "l": file.size_bytes, "c": None, "m": modified}]


def test_a_virtual_column_named_beside_the_star_is_there_once(bench):
    file = bench.parquet("a.parquet", a=[1])

    bench.run(bench.batch(0, file), sql="SELECT *, source_file_uri FROM @data")

    assert bench.rows() == [{"a": 1, "source_file_uri": file.path}]


def test_a_file_without_rows_is_no_error(bench):
    empty = bench.parquet("empty.parquet", a=[])
    full = bench.parquet("full.parquet", a=[7])

    bench.run(bench.batch(0, empty, full), source_columns={"a": "bigint"})

    assert bench.rows() == [{"a": 7}]


def test_columns_that_only_a_later_file_has_are_not_dropped(bench):
    first = bench.parquet("1.parquet", a=[1])
    second = bench.parquet("2.parquet", a=[2], b=["x"])

    bench.run(bench.batch(0, first, second))

    assert bench.rows() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


def test_a_csv_value_that_does_not_parse_is_an_error_and_writes_no_row(bench):
    file = bench.text("a.csv", "1\nx\n")

    error = bench.failure(bench.batch(0, file), source_format="csv", source_columns={"a": "int"})

    assert "MALFORMED" in error.what
    assert "a.csv" in error.what
    assert not DeltaTable.is_deltatable(str(bench.table))


def test_a_csv_header_in_another_order_is_an_error(bench):
    file = bench.text("a.csv", "b,a\n1,2\n")

    error = bench.failure(
        bench.batch(0, file),
        source_format="csv",
        source_columns={"a": "int", "b": "int"},
        source_options={"header": "true"},
    )

    assert "CSV header does not conform to the schema" in error.what


def test_the_users_options_win_over_strict_reading(bench):
    file = bench.text("a.csv", "1\nx\n")

    bench.run(
        bench.batch(0, file),
        source_format="csv",
        source_columns={"a": "int"},
        source_options={"mode": "PERMISSIVE"},
    )

    assert bench.rows() == [{"a": 1}, {"a": None}]


@pytest.mark.parametrize(
    ("kind", "content", "column"),
    [("json", '{"a":1}\n{"a":2}\n', "a"), ("text", "1\n2\n", "value")],
)
def test_other_formats_are_read(bench, kind, content, column):
    file = bench.text(f"a.{kind}", content)

    bench.run(bench.batch(0, file), source_format=kind)

    assert [str(row[column]) for row in bench.rows()] == ["1", "2"]


def test_parameters_are_values_and_never_text(bench):
    file = bench.parquet("a.parquet", a=["x", "1' OR '1'='1"])

    bench.run(
        bench.batch(0, file),
        sql="SELECT a FROM @data WHERE a = :wanted",
        sql_params={"wanted": "1' OR '1'='1"},
    )

    assert bench.rows() == [{"a": "1' OR '1'='1"}]


def test_sql_that_does_not_compile_names_its_cause_in_a_line(bench):
    file = bench.parquet("a.parquet", a=[1])

    error = bench.failure(bench.batch(0, file), sql="SELECT nope FROM @data")

    assert isinstance(error, SqlError)
    assert "`nope`" in error.what
    assert error.what.count("\n") == 0
    assert not bench.table.exists()


def test_a_file_that_vanished_is_named_before_anything_is_read(bench):
    file = bench.parquet("a.parquet", a=[1])
    other = bench.parquet("b.parquet", a=[2])
    (bench.folder / "landing" / "b.parquet").unlink()

    with pytest.raises(SourceFileGoneError, match=r"b\.parquet of batch 0 is gone"):
        bench.run(bench.batch(0, file, other))

    assert not bench.table.exists()


def test_a_file_that_grew_is_named_before_anything_is_read(bench):
    file = bench.text("a.txt", "1\n")
    bench.text("a.txt", "1\n2\n")

    with pytest.raises(SourceFileGoneError, match="has changed since it was logged"):
        bench.run(bench.batch(0, file), source_format="text")
