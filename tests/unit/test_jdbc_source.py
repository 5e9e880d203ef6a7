"""What a ``JdbcSource`` takes, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_scope.core import plan as plans
from airflow_provider_scope.engines.source_plans import plan_of
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.specs import Cursor, JdbcSource
from airflow_provider_scope.specs.sources import source_from

CURSOR = Cursor(column="n")


def test_a_dict_with_a_connection_is_one() -> None:
    found = source_from({"conn_id": "shop", "table": "orders", "cursor": {"column": "n"}})
    assert found == JdbcSource(conn_id="shop", table="orders", cursor=CURSOR)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, "table or query, one of the two"),
        ({"table": "a", "query": "SELECT 1"}, "table or query, one of the two"),
        ({"table": "a", "options": {"url": "jdbc:x"}}, r"options\['url'\] is refused"),
        ({"table": "a", "options": {"numPartitions": 2}}, r"options\['numPartitions'\] is refused"),
        ({"table": "a", "options": {"fetchsize": 0}}, "at least 1"),
        ({"table": "a", "options": [("fetchsize", 1)]}, "a dict of options"),
        ({"table": "a", "max_rows_per_batch": 0}, "at least 1"),
    ],
)
def test_what_is_not_valid_is_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        JdbcSource(conn_id="shop", cursor=CURSOR, **fields)


def test_a_plan_comes_back_as_it_was_and_holds_no_connection() -> None:
    source = JdbcSource(conn_id="shop", query="SELECT 1 AS n", cursor=CURSOR, options={"FETCHSIZE": "5"})
    plan = plans.Plan(
        pipeline="p",
        table="t",
        checkpoint="c",
        batches=(1,),
        source=plan_of(source, "append", None, fence=False, database="postgresql"),
    )
    assert plans.decode(plans.encode(plan)) == plan
    assert plan.cursor.database == plans.DatabasePlan(
        kind="postgresql", table=None, query="SELECT 1 AS n", options={"fetchsize": "5"}, zone="UTC"
    )
