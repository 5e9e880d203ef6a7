"""Exactly the files of the batch are read, and every row of them, whatever their names."""

from __future__ import annotations

import datetime as dt

import pytest
from deltalake import DeltaTable

from airflow_provider_scope.exceptions import (
    BadFileError,
    BadRecordError,
    SourceFileChangedError,
    SourceFileGoneError,
    SourceMismatchError,
    SqlError,
)
from airflow_provider_scope.spark.files import listing
from airflow_provider_scope.spark.files.reading import select
from tests.spark.conftest import changed

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

    bench.run(bench.batch(0, empty, full), columns={"a": "bigint"})

    assert bench.rows() == [{"a": 7}]


def test_columns_that_only_a_later_file_has_are_not_dropped(bench):
    first = bench.parquet("1.parquet", a=[1])
    second = bench.parquet("2.parquet", a=[2], b=["x"])

    bench.run(bench.batch(0, first, second))

    assert bench.rows() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


def test_a_csv_value_that_does_not_parse_is_an_error_and_writes_no_row(bench):
    file = bench.text("a.csv", "1\nx\n")

    error = bench.failure(bench.batch(0, file), format="csv", columns={"a": "int"})

    assert isinstance(error, BadRecordError)
    assert "a is not int: 'x'" in error.what
    assert file.path in error.what
    assert not DeltaTable.is_deltatable(str(bench.table))


def test_a_csv_header_in_another_order_is_an_error(bench):
    file = bench.text("a.csv", "b,a\n1,2\n")

    error = bench.failure(
        bench.batch(0, file),
        format="csv",
        columns={"a": "int", "b": "int"},
        options={"header": "true"},
    )

    assert isinstance(error, BadFileError)
    assert "Header: b, a Schema: a, b Expected: a but found: b" in error.what


def test_a_row_that_breaks_a_rule_is_an_error_that_names_rule_and_row(bench):
    file = bench.parquet("a.parquet", a=[1, None], b=["x", "y"])

    error = bench.failure(
        bench.batch(0, file), expect={"has a": "a > 0"}, sql="SELECT *, source_file_uri FROM @data"
    )

    assert isinstance(error, BadRecordError)
    assert "it breaks the rule 'has a' (a > 0)" in error.what
    assert file.path in error.what
    assert '"b":"y"' in error.what
    assert not DeltaTable.is_deltatable(str(bench.table))


@pytest.mark.parametrize(
    "sql", ["SELECT a FROM @data", "SELECT count(*) n FROM @data", "SELECT a FROM @data WHERE a < 2"]
)
def test_a_bad_record_is_seen_whatever_the_select_leaves_out(bench, sql):
    file = bench.text("a.csv", "1,2\n5,x\n")

    error = bench.failure(bench.batch(0, file), sql=sql, format="csv", columns={"a": "int", "b": "int"})

    assert "b is not int: 'x'" in error.what


@pytest.mark.parametrize("kind", ["csv", "json", "text", "parquet"])
def test_odd_names_beside_tidy_ones_are_read_once_each(bench, kind):
    names = ["a", "b", "w_[x]", "{p,q}", "star*", "q?", "back\\slash", "per%20cent", "a b", "grüße#"]
    files = []
    for number, name in enumerate(names):
        if kind == "parquet":
            files.append(bench.parquet(f"{name}.parquet", v=[f"row {number}"]))
        else:
            line = f'{{"v":"row {number}"}}' if kind == "json" else f"row {number}"
            files.append(bench.text(f"{name}.{kind}", line + "\n"))
    column = "value" if kind == "text" else "v"

    bench.run(
        bench.batch(0, *files),
        format=kind,
        columns=None if kind == "text" else {"v": "string"},
        sql=f"SELECT {column} AS v, source_file_uri AS f FROM @data",
    )

    expected = [{"v": f"row {number}", "f": file.path} for number, file in enumerate(files)]
    assert bench.rows() == sorted(expected, key=repr)


def test_a_scan_of_other_files_than_the_batch_has_is_an_error(bench):
    """What Spark 4.2 does with ``__globPaths__=false``: it adds the whole list again (SPARK-58518)."""
    paths = [bench.text(f"{name}.csv", "1\n").path for name in ("a", "w_[x]")]
    data = bench.spark.read.option("__globPaths__", "false").csv(paths)

    with pytest.raises(SourceMismatchError, match=r"a\.csv 2 times instead of 1"):
        listing.check_listed(data, paths)


def test_the_users_options_say_how_a_format_is_read(bench):
    file = bench.text("a.csv", "1;x\n2;NA\n")

    bench.run(
        bench.batch(0, file),
        format="csv",
        columns={"id": "int", "a": "string"},
        options={"sep": ";", "nullValue": "NA"},
    )

    assert bench.rows() == [{"id": 1, "a": "x"}, {"id": 2, "a": None}]


@pytest.mark.parametrize(
    ("kind", "content", "column"),
    [("json", '{"a":1}\n{"a":2}\n', "a"), ("text", "1\n2\n", "value")],
)
def test_other_formats_are_read(bench, kind, content, column):
    file = bench.text(f"a.{kind}", content)

    bench.run(bench.batch(0, file), format=kind)

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

    with pytest.raises(SourceFileGoneError, match=r"b\.parquet of batch 0 is missing"):
        bench.run(bench.batch(0, file, other))

    assert not bench.table.exists()


def test_a_file_that_grew_is_named_before_anything_is_read(bench):
    file = bench.text("a.txt", "1\n")
    bench.text("a.txt", "1\n2\n")

    with pytest.raises(SourceFileChangedError, match="has changed since it was logged"):
        bench.run(bench.batch(0, file), format="text")


def test_options_are_known_in_any_case_and_ours_are_not_taken_from_the_user(bench):
    good = bench.text("a.csv", '1,"x \\"y\\""\n')
    bad = bench.text("b.csv", "1\n")
    told = {"Escape": "\\", "MODE": "FAILFAST", "EnforceSchema": "false"}
    csv = {"format": "csv", "columns": {"a": "int", "b": "string"}, "options": told}

    bench.run(bench.batch(0, good), **csv)
    error = bench.failure(bench.batch(1, bad), **csv)

    assert bench.rows() == [{"a": 1, "b": 'x "y"'}]
    assert "it has not the 2 fields of the columns a, b" in error.what


def test_a_text_is_converted_once_for_its_check_and_its_value(bench):
    entry = bench.batch(0, bench.text("a.csv", "1.50,2026-01-01\n"))
    plan = changed(
        bench.plan,
        format="csv",
        columns={"v": "decimal(10,2)", "day": "date"},
        options={},
    )
    done = select(bench.spark, plan, entry)._jdf.queryExecution().optimizedPlan().toString()
    assert done.count("as decimal(10,2)") == 1
    assert done.count("as date)") == 1
