"""Follow a Delta table by its change data feed, and let a third table follow the second one.

What: orders A are loaded from JSON files. Table B has the same orders, with each change and delete of A.
Table C keeps the versions of each order in B, with the time in which it was the active one. Each task takes
what is new in the table before it, so a delete in A reaches C in one run.
When: tables are built on tables whose rows change, and reading them as a whole each time costs too much.
Needs: Java 17 on the worker. Put your folders in place of the defaults of LANDING and TABLES: a run that an
asset starts has no others. Each load of A starts the second Dag.
"""

from __future__ import annotations

from airflow.sdk import DAG, Asset

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import CdfSource, FileSource, Merge, Scd2, TableSpec

LANDING = "/data/landing/orders"
TABLES = "/data/delta"
ORDERS_A = Asset("orders_a")
WITH_FEED = TableSpec(properties={"delta.enableChangeDataFeed": "true"})

# [START delta_changes]
with DAG("example_changes_to_delta", schedule=None, params={"landing": LANDING, "tables": TABLES}):
    DeltaIncrementalIngestOperator(
        task_id="files_to_a",
        delta_location="{{ params.tables }}/a",
        source=FileSource(
            roots="{{ params.landing }}",
            format="json",
            columns={"order_id": "bigint", "status": "string", "deleted": "boolean"},
        ),
        write=Merge(strategy="upsert", primary_key="order_id", hard_delete="deleted"),
        table=WITH_FEED,
        outlets=[ORDERS_A],
    )

with DAG("example_changes_to_delta_next", schedule=[ORDERS_A], params={"tables": TABLES}):
    a_to_b = DeltaIncrementalIngestOperator(
        task_id="a_to_b",
        delta_location="{{ params.tables }}/b",
        source=CdfSource(table="{{ params.tables }}/a"),
        sql="SELECT order_id, upper(status) AS status FROM @data",
        write=Merge(strategy="upsert", primary_key="order_id"),
        table=WITH_FEED,
    )
    b_to_c = DeltaIncrementalIngestOperator(
        task_id="b_to_c",
        delta_location="{{ params.tables }}/c",
        source=CdfSource(table="{{ params.tables }}/b"),
        write=Scd2(merge_key="order_id"),
    )
    a_to_b >> b_to_c
# [END delta_changes]
