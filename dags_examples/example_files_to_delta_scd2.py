"""Keep every version of a row, with the time in which it was the active one.

What: each file is a full extract of the customers. A customer that changed gets a new version, and one that
is not in the extract any more is retired.
When: the past matters: which address did a customer have on the day of an order?
Needs: Java 17 on the worker. Trigger it with two folders of yours.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource, Scd2

with DAG(
    "example_files_to_delta_scd2",
    schedule=None,
    params={"landing": "/data/landing/customers", "table": "/data/delta/customers"},
):
    # [START delta_scd2]
    DeltaIncrementalIngestOperator(
        task_id="keep_customers",
        delta_location="{{ params.table }}",
        source=FileSource(
            roots="{{ params.landing }}",
            format="csv",
            options={"header": "true"},
            columns={"customer_id": "bigint", "city": "string"},
            # One batch is one extract.
            max_files_per_trigger=1,
        ),
        write=Scd2(),
    )
    # [END delta_scd2]
