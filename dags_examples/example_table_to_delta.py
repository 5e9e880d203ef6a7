"""Load what is new in a Delta table by a column that grows: orders by the time of their last change.

What: each run reads the orders that changed since the last one, and merges them by their number. Orders that
were changed at the time of the last one, and come later, are loaded too, and none is loaded twice.
When: a table is too large to be read as a whole each time, and its writers set such a column.
Needs: Java 17 on the worker. Trigger it with two tables of yours.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import Cursor, Merge, TableSource

with DAG(
    "example_table_to_delta",
    schedule=None,
    params={"source": "/data/delta/orders_raw", "table": "/data/delta/orders", "since": "2026-01-01"},
):
    # [START delta_table]
    DeltaIncrementalIngestOperator(
        task_id="load_orders",
        delta_location="{{ params.table }}",
        source=TableSource(
            table="{{ params.source }}",
            cursor=Cursor(column="changed_at", initial_value="{{ params.since }}", lag=3600),
        ),
        write=Merge(strategy="upsert", primary_key="order_id", dedup_sort=("changed_at", "desc")),
    )
    # [END delta_table]
