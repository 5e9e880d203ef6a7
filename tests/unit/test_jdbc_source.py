"""What a ``JdbcSource`` takes, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.hooks.databases import database_of
from airflow_provider_scope.spark.databases import refusal_of
from airflow_provider_scope.specs import Cursor, JdbcSource
from airflow_provider_scope.specs.ingest import source_from

CURSOR = Cursor(column="n")


def test_a_dict_with_a_connection_is_one() -> None:
    found = source_from({"conn_id": "shop", "table": "orders", "cursor": {"column": "n"}})
    assert found == JdbcSource(conn_id="shop", table="orders", cursor=CURSOR)


@pytest.mark.parametrize(
    ("fields", "told"),
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
def test_what_is_not_valid_is_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
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
