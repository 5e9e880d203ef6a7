"""Load what is new in a table of a database by a column that grows: orders by their number.

What: each run asks the database for the orders that came since the last one, and adds them to the table.
When: a database is too large to be read as a whole each time, and its rows have such a column.
Needs: Java 17 on the worker, which reaches a Maven repository once; a connection ``shop``, such as
``airflow connections add shop --conn-json '{"conn_type": "sqlite", "host": "/data/shop.db"}'``: with
``--conn-type`` Airflow would take the type for ``generic`` where its provider for SQLite is not installed.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import Cursor, JdbcSource

with DAG("example_database_to_delta", schedule=None, params={"table": "/data/delta/orders"}):
    # [START database_delta]
    DeltaIncrementalIngestOperator(
        task_id="load_orders",
        delta_location="{{ params.table }}",
        source=JdbcSource(conn_id="shop", table="orders", cursor=Cursor(column="order_id", lag=100)),
    )
    # [END database_delta]
