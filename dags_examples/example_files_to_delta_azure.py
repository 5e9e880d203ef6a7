"""Load new files of Azure Storage into a Delta table beside them.

What: each run loads the parquet files below ``landing`` that no run before it has loaded.
When: files, table and checkpoint are in Azure Data Lake Storage Gen2.
Needs: Java 17 on the worker, and a connection ``lake`` of type ``wasb`` with the account's key, a shared
access signature, or tenant, client id and secret; without ``storage_conn_id``, the identity of the worker.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource

with DAG(
    "example_files_to_delta_azure",
    schedule=None,
    params={"lake": "abfss://lake@acme.dfs.core.windows.net"},
):
    DeltaIncrementalIngestOperator(
        task_id="load_flights",
        delta_location="{{ params.lake }}/delta/flights",
        source=FileSource(
            roots="{{ params.lake }}/landing",
            format="parquet",
        ),
        sql="SELECT *, source_file_uri FROM @data",
        storage_conn_id="lake",
    )
