"""Load new files into a Delta table, exactly once.

What: each run loads the parquet files below ``landing`` that no run before it has loaded.
When: files arrive in folders, and a table has to grow by exactly these files, also when a run is
killed, retried, cleared or started twice.
Needs: Java 17 on the worker, nothing else. Trigger it with two folders of yours, or run ``make demo``.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource

with DAG(
    "example_files_to_delta",
    schedule=None,
    params={"landing": "/data/landing", "table": "/data/delta/flights"},
):
    # [START delta_incremental_ingest]
    DeltaIncrementalIngestOperator(
        task_id="load_flights",
        delta_location="{{ params.table }}",
        source=FileSource(
            roots="{{ params.landing }}",
            format="parquet",
            max_files_per_trigger=50,
        ),
        sql="SELECT *, source_file_uri FROM @data",
    )
    # [END delta_incremental_ingest]
