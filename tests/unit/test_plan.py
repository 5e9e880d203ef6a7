"""The plan file: the source reaches Spark as the user wrote it, and nothing of its connection does."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.spark.plan import Plan, decode, encode
from airflow_provider_scope.specs import CdfSource, Cursor, FileSource, JdbcSource, TableSource

SOURCES = {
    "files": FileSource(
        roots=("file:///a", "file:///b"),
        format="csv",
        columns={"b": "int", "a": "string"},
        starting_timestamp="2026-01-31T00:00:00+00:00",
        options={"header": "true"},
    ),
    "table": TableSource(table="file:///t", cursor=Cursor(column="id", lag=3, dedup_key=("id", "b"))),
    "database": JdbcSource(
        conn_id="shop",
        query="SELECT * FROM orders",
        cursor=Cursor(column="id"),
        num_partitions=4,
        partition_column="id",
        options={"fetchsize": 10},
    ),
    "feed": CdfSource(table="file:///t", start_version=3),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_a_source_is_in_the_application_what_it_was_in_the_worker(source):
    plan = Plan(pipeline="p", table="file:///d", checkpoint="file:///c", batches=(3, 4), source=source)

    assert decode(encode(plan)) == plan


def test_the_bounds_of_a_cursor_are_those_of_each_slice_and_not_in_the_plan():
    cursor = Cursor(column="at", initial_value=datetime(2026, 1, 31, tzinfo=UTC))
    source = TableSource(table="file:///t", cursor=cursor)
    plan = Plan(pipeline="p", table="file:///d", checkpoint="file:///c", batches=(3,), source=source)

    assert decode(encode(plan)).cursor.cursor == Cursor(column="at")


def test_a_database_is_named_by_its_connection_alone():
    plan = Plan(pipeline="p", table="t", checkpoint="c", batches=(), source=SOURCES["database"])

    named = {"conn_id", "cursor", "table", "query", "pre_filter_sql", "max_rows_per_batch", "num_partitions"}
    assert json.loads(encode(plan))["source"].keys() == named | {
        "kind", "partition_column", "time_zone", "options",
    }  # fmt: skip


@pytest.mark.parametrize("option", ["url", "user", "password", "Password"])
def test_the_options_of_a_database_hold_nothing_of_its_connection(option):
    with pytest.raises(InputError, match=option):
        JdbcSource(conn_id="shop", table="t", cursor=Cursor(column="id"), options={option: "hunter2"})
