"""What a ``JdbcSource`` takes and refuses, and how a range of a database's values is divided."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.hooks.databases import database_of
from airflow_provider_scope.sources.cursor.databases import DECIMAL, FLOAT, WHOLE, edges, finding, ranges
from airflow_provider_scope.spark.databases import refusal_of
from airflow_provider_scope.specs import Cursor, JdbcSource
from airflow_provider_scope.specs.ingest import source_from

CURSOR = Cursor(column="n")


def test_a_dict_with_a_connection_is_one() -> None:
    source = source_from({"conn_id": "shop", "table": "orders", "cursor": {"column": "n"}})
    assert source == JdbcSource(conn_id="shop", table="orders", cursor=CURSOR)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "either table or query"),
        ({"table": "a", "query": "SELECT 1"}, "either table or query"),
        ({"table": "a", "options": {"url": "jdbc:x"}}, r"options\['url'\] is refused"),
        ({"table": "a", "options": {"numPartitions": 2}}, r"options\['numPartitions'\] is refused"),
        ({"table": "a", "options": {"fetchsize": 0}}, "at least 1"),
        ({"table": "a", "options": [("fetchsize", 1)]}, "a mapping with text keys"),
        ({"table": "a", "max_rows_per_batch": 0}, "at least 1"),
        (
            {"query": "SELECT 1", "num_partitions": 4},
            "partition_column=None.*a column of the query, as num_partitions is set",
        ),
        (
            {"table": "a", "partition_column": "n"},
            "num_partitions=None.*a number, as partition_column is set",
        ),
        ({"table": "a", "partition_column": "n", "num_partitions": 0}, "num_partitions=0.*at least 1"),
        ({"table": "a", "partition_column": "", "num_partitions": 2}, "partition_column=''"),
    ],
)
def test_what_is_not_valid_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        JdbcSource(conn_id="shop", cursor=CURSOR, **fields)


def test_a_number_that_a_template_renders_to_text_is_one() -> None:
    columns = {"cursor": CURSOR, "partition_column": "id"}
    source = JdbcSource(conn_id="shop", table="t", num_partitions="{{ 4 }}", **columns)  # type: ignore[arg-type]
    assert source.num_partitions == "{{ 4 }}"
    source = JdbcSource(conn_id="shop", table="t", num_partitions="4", **columns)  # type: ignore[arg-type]
    assert source.num_partitions == 4


def test_parts_of_a_table_need_no_column() -> None:
    source = JdbcSource(conn_id="shop", table="t", cursor=CURSOR, num_partitions=3)
    assert (source.partition_column, source.num_partitions) == (None, 3)
    assert JdbcSource(conn_id="shop", query="SELECT 1", cursor=CURSOR, num_partitions=1).num_partitions == 1


def test_a_database_that_shares_no_snapshot_is_not_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("sqlite", "mysql"):
        fields = {"conn_type": kind, "host": "/data/shop", "schema": "sales"}
        monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(fields))
        assert database_of("shop").kind == kind
        with pytest.raises(InputError, match=r"num_partitions=2 is not possible.*(sqlite|mysql)"):
            database_of("shop", parts=2)
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", "postgres://me@shop/sales")
    assert database_of("shop", parts=2).kind == "postgresql"


def test_a_driver_that_does_not_know_the_url_is_missing_although_its_state_says_no_connection() -> None:
    error = refusal_of("08001", "t", "java.sql.SQLException: No suitable driver")

    assert isinstance(error, InputError)
    assert "driver for reading t is missing" in error.what


# ---- each row is in one part, whatever its value is --------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "count", "kind", "expected"),
    [
        ("0", "100", 4, WHOLE, ["25", "50", "75"]),
        ("-5", "4", 3, WHOLE, ["-2", "1"]),
        ("1", "3", 9, WHOLE, ["2"]),
        ("7", "7", 4, WHOLE, []),
        ("-9223372036854775808", "9223372036854775807", 2, WHOLE, ["-1"]),
        ("0", "1", 4, DECIMAL, ["0.25", "0.5", "0.75"]),
        ("1e40", "1e40", 3, DECIMAL, []),
        ("-1.7976931348623157e+308", "1.7976931348623157e+308", 2, FLOAT, ["0.0"]),
        ("0", "5e-324", 4, FLOAT, ["5e-324"]),
        ("0.1", "0.1", 4, FLOAT, []),
        ("1", "9", 1, WHOLE, []),
    ],
)
def test_the_parts_of_a_range(low: str, high: str, count: int, kind: str, expected: list[str]) -> None:
    assert edges(low, high, count, kind) == expected


NUMBERS: dict[str, Any] = {
    WHOLE: (st.integers(), int, str),
    FLOAT: (st.floats(allow_nan=False, allow_infinity=False), float, repr),
    DECIMAL: (st.decimals(allow_nan=False, allow_infinity=False, places=12), Decimal, "{:f}".format),
}
"""Kind -> its values, how one is read, and how it is written."""


@pytest.mark.parametrize("kind", NUMBERS)
@given(data=st.data(), count=st.integers(1, 40))
def test_edges_are_ascending_and_lie_in_the_range(kind: str, data: st.DataObject, count: int) -> None:
    values, read, write = NUMBERS[kind]
    low, high = sorted(data.draw(st.tuples(values, values)))

    inner = [read(edge) for edge in edges(write(low), write(high), count, kind)]

    assert len(inner) < count
    assert all(before < after for before, after in pairwise([low, *inner]))
    assert all(edge <= high for edge in inner)


@given(
    st.lists(st.none() | st.integers(-50, 50)), st.integers(-20, 20), st.integers(0, 40), st.integers(1, 9)
)
def test_each_row_meets_one_condition(values: list[int | None], low: int, width: int, count: int) -> None:
    """Asked of a database: also what lies beyond both ends, and what has no value."""
    conditions = ranges("n", edges(str(low), str(low + width), count, WHOLE))
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t (n INTEGER)")
        connection.executemany("INSERT INTO t VALUES (?)", [(value,) for value in values])
        rows = [row[0] for sql in conditions for row in connection.execute(f"SELECT n FROM t WHERE {sql}")]
    assert sorted(rows, key=repr) == sorted(values, key=repr)


@pytest.mark.parametrize("value", ["'late text'", "x'00ff'", "'it''s'", "'a\nb'", f"'{'x' * 99}'", "1e20"])
@pytest.mark.parametrize("name", ["n", 'it\'s a "name"'])
def test_the_query_of_an_error_finds_the_rows_of_the_value(name: str, value: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    with closing(sqlite3.connect(":memory:")) as shop:
        shop.execute(f"CREATE TABLE t (id INTEGER, {quoted})")
        shop.execute(f"INSERT INTO t VALUES (1, 5), (2, {value}), (3, NULL)")
        # As the reader of SQLite shows it.
        ((shown,),) = shop.execute(
            f"SELECT replace(substr(quote({quoted}), 1, 50), char(10), ' ') FROM t WHERE id = 2"
        )

        rows = shop.execute(finding("sqlite", "t AS q", f"column {name} has the value {shown}")).fetchall()

    assert [row[0] for row in rows] == [2]


@pytest.mark.parametrize(
    ("kind", "query"),
    [
        ("postgresql", "SELECT * FROM t AS q WHERE \"x\"::text = 'NaN'"),
        (
            "mysql",
            "SELECT * FROM t AS q WHERE `x` IS NOT NULL AND TIMESTAMPDIFF(DAY, '1970-01-01', `x`) IS NULL",
        ),
        ("jdbc", ""),
    ],
)
def test_the_query_of_an_error_is_of_the_database(kind: str, query: str) -> None:
    assert finding(kind, "t AS q", "column x has the value NaN") == query
