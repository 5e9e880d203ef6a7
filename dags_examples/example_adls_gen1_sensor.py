"""Wait for new files on ADLS Gen1, then load them into a Delta table, exactly once.

What: each run waits until the landing folder holds a file that the pipeline has not loaded and that no
writer has touched for a minute, and loads what is there.
When: files arrive at times that nobody knows, and a run without files should not start a job.
Needs: connections ``adla_scope_default`` and ``adls_gen1_default``, and a triggerer.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.sensors.adls_gen1 import AdlsGen1FileSensor
from airflow_provider_scope.specs import FileSource, ScopeEngine, TableSpec

with DAG(
    "example_adls_gen1_sensor",
    schedule=None,
    params={"landing": "adl://demo.azuredatalakestore.net/landing", "table": "/data/delta/orders"},
):
    # [START adls_gen1_sensor]
    wait = AdlsGen1FileSensor(
        task_id="wait_for_orders",
        source_roots="{{ params.landing }}",
        newer_than_checkpoint="{{ params.table }}",
        stable_for_seconds=60,
        deferrable=True,
    )
    wait >> DeltaIncrementalIngestOperator(
        task_id="load_orders",
        delta_location="{{ params.table }}",
        source=FileSource(roots="{{ params.landing }}"),
        table=TableSpec(columns={"order_id": "bigint", "placed_at": "timestamp"}),
        engine=ScopeEngine(),
    )
    # [END adls_gen1_sensor]
