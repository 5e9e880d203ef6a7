"""Load new files of HDFS into a Delta table beside them.

What: each run loads the parquet files below ``landing`` that no run before it has loaded.
When: files, table and checkpoint are on a cluster whose namenode answers WebHDFS.
Needs: Java 17 on the worker, and a connection ``hdfs`` whose login is the user's name there; without
``storage_conn_id``, it is the name of the worker's user.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource

with DAG(
    "example_files_to_delta_hdfs",
    schedule=None,
    params={"lake": "webhdfs://namenode:9870"},
):
    DeltaIncrementalIngestOperator(
        task_id="load_flights",
        delta_location="{{ params.lake }}/delta/flights",
        source=FileSource(
            roots="{{ params.lake }}/landing",
            format="parquet",
        ),
        sql="SELECT *, source_file_uri FROM @data",
        storage_conn_id="hdfs",
    )
