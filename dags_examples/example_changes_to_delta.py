"""Follow a Delta table by its change data feed, and let a third table follow the second one.

What: orders A are loaded from JSON files. Table B has the same orders, with each change and delete of A.
Table C keeps the versions of each order in B, with the time in which it was the active one. Each task takes
what is new in the table before it, so a delete in A reaches C in one run.
When: tables are built on tables whose rows change, and reading them as a whole each time costs too much.
Needs: Java 17 on the worker. Trigger it with folders of yours.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import CdfSource, FileSource, Merge, Scd2, TableSpec

WITH_FEED = TableSpec(properties={"delta.enableChangeDataFeed": "true"})

with DAG(
    "example_changes_to_delta",
    schedule=None,
    params={"landing": "/data/landing/orders", "tables": "/data/delta"},
):
    # [START delta_changes]
    files_to_a = DeltaIncrementalIngestOperator(
        task_id="files_to_a",
        delta_location="{{ params.tables }}/a",
        source=FileSource(
            roots="{{ params.landing }}",
            format="json",
            columns={"order_id": "bigint", "status": "string", "deleted": "boolean"},
        ),
        write=Merge(strategy="upsert", primary_key="order_id", hard_delete="deleted"),
        table=WITH_FEED,
    )
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
    files_to_a >> a_to_b >> b_to_c
    # [END delta_changes]
