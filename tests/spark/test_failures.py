"""What a user reads of a failure of Spark: the whole cause, and whether another try helps."""

from __future__ import annotations

import pytest

from airflow_provider_scope.exceptions import InputError, SparkJobFailedError, SqlError
from airflow_provider_scope.spark import app

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT a/(a-1) AS q FROM @data", "[DIVIDE_BY_ZERO] Division by zero."),
        ("SELECT CAST('x' || a AS INT) AS q FROM @data", "[CAST_INVALID_INPUT] The value 'x1' of the type"),
        ("SELECT CAST(raise_error('not this one') AS INT) AS q FROM @data", "not this one"),
        # The reason is on a line of its own.
        ("SELECT NULL AS nothing FROM @data", "All columns in the table schema have VOID type"),
        ("SELECT typo FROM @data", "`typo` cannot be resolved"),
    ],
)
def test_sql_that_fails_on_the_same_rows_each_time_is_not_tried_again(bench, sql, said):
    error = bench.failure(bench.batch(0, bench.parquet("a.parquet", a=[1])), sql=sql)

    assert type(error) is SqlError
    assert said in error.what
    assert "\n" not in error.what
    assert not error.is_retryable
    assert error.kept
    assert "the next run loads the batch" in error.do


@pytest.mark.parametrize(
    ("options", "said"),
    [({"header": "maybe"}, "header flag can be true or false"), ({"encoding": "klingon"}, "but got klingon")],
)
def test_an_option_that_a_reader_does_not_take_is_not_tried_again(bench, options, said):
    file = bench.text("a.csv", "a\n1\n")

    error = bench.failure(
        bench.batch(0, file), reads=True, format="csv", columns={"a": "int"}, options=options
    )

    assert isinstance(error, InputError)
    assert said in error.what
    assert "options" in error.do


def test_a_setting_that_spark_does_not_take_is_not_tried_again(bench):
    bench.spark = bench.spark.newSession()
    bench.spark.conf.set("spark.sql.files.maxPartitionBytes", "128m")
    with pytest.raises(Exception, match="many") as caught:
        bench.spark.conf.set("spark.sql.shuffle.partitions", "many")

    error = app.as_error(caught.value)

    assert type(error) is InputError
    assert "`conf`" in error.do


def test_a_path_that_spark_does_not_see_is_no_fault_of_the_sql(bench):
    error = bench.failure(
        bench.batch(0, bench.parquet("a.parquet", a=[1])), sql="SELECT * FROM parquet.`/nowhere` JOIN @data"
    )

    assert type(error) is SparkJobFailedError
    assert "/nowhere" in error.what
    assert "LC_ALL=C.UTF-8" in error.do
    assert error.is_retryable


@pytest.mark.parametrize(("kind", "content"), [("json", "a,b\n1,2\n"), ("csv", "")])
def test_files_without_a_column_are_named_with_the_format_that_they_may_not_be(bench, kind, content):
    file = bench.text("a.csv", content)

    error = bench.failure(bench.batch(0, file), format=kind, infers_columns=True)

    assert type(error) is InputError
    assert f"They may not be {kind}: {file.path}." in error.what
    assert "`format`" in error.do
