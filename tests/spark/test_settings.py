"""A session whose defaults say the opposite gives the right rows, or the error, all the same."""

from __future__ import annotations

import datetime as dt
import gzip
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from airflow_provider_scope.exceptions import ScopeProviderError
from airflow_provider_scope.spark import app
from airflow_provider_scope.spark.settings import EXACT

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.spark, pytest.mark.compiled]


@pytest.fixture
def session(bench) -> Callable[..., None]:
    """Make a session whose settings somebody else has made."""

    def make(**conf: str) -> None:
        bench.spark = bench.spark.newSession()
        for name, value in conf.items():
            bench.spark.conf.set(name, value)

    return make


def failure(bench, *entries: Any, **changes: Any) -> str:
    with pytest.raises((PySparkException, Py4JJavaError, ScopeProviderError)) as caught:
        bench.run_plan(*entries, **changes)
    assert not DeltaTable.is_deltatable(str(bench.table))
    error = caught.value if isinstance(caught.value, ScopeProviderError) else app.as_error(caught.value)
    return error.what


def test_every_exact_setting_is_one_that_a_session_takes_and_a_parquet_column_has_any_letter_case(
    bench, session
):
    session(**{"spark.sql.caseSensitive": "true"})

    bench.run_plan(bench.batch(0, bench.parquet("a.parquet", ID=[1])), columns={"id": "bigint"})

    assert bench.rows() == [{"id": 1}]
    assert {name: bench.spark.conf.get(name) for name in EXACT} == {
        name: setting.value for name, setting in EXACT.items()
    }
    assert [name for name in EXACT if not bench.spark.conf.isModifiable(name)] == []


def test_zone_and_letter_case_and_kind_of_timestamp(bench, session):
    session(
        **{
            "spark.sql.session.timeZone": "America/New_York",
            "spark.sql.timestampType": "TIMESTAMP_NTZ",
            "spark.sql.caseSensitive": "true",
        }
    )
    text = bench.text("a.csv", "1,2026-01-01 00:00:00\n")

    bench.run_plan(
        bench.batch(0, text),
        format="csv",
        columns={"id": "int", "at": "timestamp"},
        sql="SELECT ID, AT FROM @data",
    )

    assert bench.rows() == [{"ID": 1, "AT": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}]


def test_parameters_reach_the_select_and_json_values_stay_as_they_are(bench, session):
    session(
        **{
            "spark.sql.legacy.parameterSubstitution.constantsOnly": "false",
            "spark.sql.json.enableExactStringParsing": "false",
        }
    )
    file = bench.text("a.json", '{"a": {"x" :  1.0}, "b": 1}\n{"a": "y", "b": 2}\n')

    bench.run_plan(
        bench.batch(0, file),
        format="json",
        columns={"a": "string", "b": "int"},
        sql="SELECT a FROM @data WHERE b = :wanted",
        sql_params={"wanted": 1},
    )

    assert bench.rows() == [{"a": '{"x" :  1.0}'}]


def test_a_broken_file_is_an_error(bench, session):
    session(**{"spark.sql.files.ignoreCorruptFiles": "true", "spark.sql.files.ignoreMissingFiles": "true"})
    good, bad = bench.text("a.csv", "1\n"), bench.folder / "landing" / "b.csv.gz"
    bad.write_bytes(gzip.compress(b"2\n" * 1000)[:20])

    what = failure(
        bench,
        bench.batch(0, good, bench.entry(bad)),
        format="csv",
        columns={"a": "int"},
    )

    assert "b.csv.gz" in what


@pytest.mark.parametrize(
    ("content", "sql", "said"),
    [
        ("1,2,3\n4,5\n", "SELECT count(*) AS n FROM @data", "it has not the 3 fields"),
        ("9,2,3\n1\n", "SELECT a, b, c FROM @data WHERE a > 5", "it has not the 3 fields"),
        (
            '{"a":9,"b":2}\n{"a":1,"b":"x"}\n',
            "SELECT a, b FROM @data WHERE a > 5",
            "b is not int",
        ),
    ],
)
def test_a_broken_row_is_an_error_whatever_the_select_leaves_out(bench, session, content, sql, said):
    kind = "json" if content.startswith("{") else "csv"
    session(
        **{
            "spark.sql.csv.parser.columnPruning.enabled": "true",
            "spark.sql.csv.filterPushdown.enabled": "true",
            "spark.sql.json.filterPushdown.enabled": "true",
        }
    )
    file = bench.text(f"a.{kind}", content)
    columns = {"a": "int", "b": "int", "c": "int"}

    what = failure(bench, bench.batch(0, file), format=kind, columns=columns, sql=sql)

    assert said in what


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT CAST(concat('x', a) AS int) AS n FROM @data", "CAST_INVALID_INPUT"),
        (
            "SELECT to_timestamp(concat('2026-01-01 10:00 x', a), 'yyyy-MM-dd HH:mm') AS n FROM @data",
            "10:00 x1",
        ),
        ("SELECT map(a, 1, a + 0, 2) AS n FROM @data", "DUPLICATED_MAP_KEY"),
    ],
)
def test_what_cannot_be_kept_is_an_error_and_no_null(bench, session, sql, said):
    session(
        **{
            "spark.sql.ansi.enabled": "false",
            "spark.sql.legacy.timeParserPolicy": "LEGACY",
            "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
        }
    )

    assert said in failure(bench, bench.batch(0, bench.parquet("a.parquet", a=[1])), sql=sql)


def test_an_old_date_of_an_unknown_calendar_is_an_error_until_the_calendar_is_named(bench, session):
    session(**{"spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY"})
    path = bench.folder / "landing" / "a.parquet"
    bench.parquet("a.parquet", a=[dt.date(1200, 1, 1)])
    # As Hive names itself, which wrote the days of the Julian calendar; the text has the same length.
    written = path.read_bytes().replace(b"parquet-cpp-arrow version", b"parquet-mr version 1.8.0 ")
    path.write_bytes(written)
    file = bench.entry(path)

    what = failure(bench, bench.batch(0, file))
    bench.run_plan(bench.batch(0, file), options={"datetimeRebaseMode": "CORRECTED"})
    # Of a writer that has but one calendar nobody has to name it.
    bench.run_plan(bench.batch(1, bench.parquet("b.parquet", a=[dt.date(1200, 1, 2)])))

    assert "READ_ANCIENT_DATETIME" in what
    assert bench.rows() == [{"a": dt.date(1200, 1, 1)}, {"a": dt.date(1200, 1, 2)}]


def test_a_row_outside_of_the_range_that_is_replaced_is_an_error(bench, session):
    session(**{"spark.databricks.delta.replaceWhere.constraintCheck.enabled": "false"})
    bench.run_plan(bench.batch(0, bench.parquet("a.parquet", a=[1], d=["mon"])))
    outside = bench.batch(
        1, bench.parquet("b.parquet", a=[3], d=["wed"]), mode="overwrite", where="d = 'tue'"
    )
    bench.spark.conf.set("spark.databricks.delta.replaceWhere.constraintCheck.enabled", "false")

    with pytest.raises((PySparkException, Py4JJavaError), match="violated by row"):
        bench.run_plan(outside)

    assert bench.rows() == [{"a": 1, "d": "mon"}]


def test_a_key_with_a_quote_and_a_backslash_is_found(bench, session):
    session(**{"spark.sql.parser.escapedStringLiterals": "true"})
    write = {"kind": "merge", "strategy": "upsert", "primary_key": ["id"]}
    for seq in range(2):
        file = bench.parquet(f"{seq}.parquet", id=["a'b\\c"], n=[seq])
        bench.run_plan(bench.batch(seq, file), write=write)

    assert bench.rows() == [{"id": "a'b\\c", "n": 1}]


def test_an_old_date_is_written_in_the_one_calendar_of_the_format(bench, session):
    session(**{"spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY"})

    bench.run_plan(bench.batch(0, bench.parquet("a.parquet", a=[dt.date(1200, 1, 1)])))

    assert bench.rows() == [{"a": dt.date(1200, 1, 1)}]


def test_a_dollar_in_a_select_or_in_a_name_is_a_dollar(bench, session):
    session(**{"spark.sql.variable.substitute": "true"})
    entry = bench.batch(0, bench.text("a.csv", "${env:HOME}\n1\n"))

    bench.run_plan(
        entry,
        format="csv",
        options={"header": "true"},
        columns={"${env:HOME}": "int"},
        sql="SELECT `${env:HOME}` AS home, '${env:PATH} ${spark.app.name}' AS text FROM @data",
    )

    assert bench.rows() == [{"home": 1, "text": "${env:PATH} ${spark.app.name}"}]
