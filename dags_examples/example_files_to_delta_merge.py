"""Keep a table of the newest row of each key: new rows, changes and deletes from files.

What: each run merges the JSON files that no run before it has loaded. Of the rows of one order in a run the
newest one counts, and an order with ``deleted`` goes from the table.
When: a source sends what changed, such as the log of a database.
Needs: Java 17 on the worker. Trigger it with two folders of yours.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource, Merge

with DAG(
    "example_files_to_delta_merge",
    schedule=None,
    params={"landing": "/data/landing/orders", "table": "/data/delta/orders"},
):
    # [START delta_merge]
    DeltaIncrementalIngestOperator(
        task_id="merge_orders",
        delta_location="{{ params.table }}",
        source=FileSource(
            roots="{{ params.landing }}",
            format="json",
            columns={
                "order_id": "bigint",
                "status": "string",
                "changed_at": "timestamp",
                "deleted": "boolean",
            },
        ),
        write=Merge(
            strategy="upsert",
            primary_key="order_id",
            dedup_sort=("changed_at", "desc"),
            hard_delete="deleted",
        ),
    )
    # [END delta_merge]
