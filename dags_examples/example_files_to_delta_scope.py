"""Load new files into a Delta table by SCOPE jobs of Azure Data Lake Analytics, exactly once.

What: each run waits until there are files below ``landing``, and loads the structured streams that no run
before it has loaded: one job for each batch of 50.
When: the files are on ADLS Gen1, and jobs take so long that no worker should be held for them.
Needs: connections ``adla_scope_default`` and ``adls_gen1_default``. ``ENGINE=scope make demo`` runs it
on an emulator of both services, on one machine.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.sensors.adls_gen1 import AdlsGen1FileSensor
from airflow_provider_scope.specs import FileSource, ScopeEngine, TableSpec

with DAG(
    "example_files_to_delta_scope",
    schedule=None,
    params={"landing": "adl://demo.azuredatalakestore.net/landing", "table": "/data/delta/flights"},
):
    # SCOPE takes no column from the files themselves: each is named, with its type.
    columns = {
        "year": "bigint",
        "month": "bigint",
        "day": "bigint",
        "dep_time": "bigint",
        "sched_dep_time": "bigint",
        "dep_delay": "bigint",
        "arr_time": "bigint",
        "sched_arr_time": "bigint",
        "arr_delay": "bigint",
        "carrier": "string",
        "flight": "bigint",
        "tailnum": "string",
        "origin": "string",
        "dest": "string",
        "air_time": "bigint",
        "distance": "bigint",
        "hour": "bigint",
        "minute": "bigint",
        "time_hour": "timestamp",
        "source_file_uri": "string",
    }
    # [START scope_incremental_ingest]
    wait = AdlsGen1FileSensor(
        task_id="wait_for_files",
        source_roots="{{ params.landing }}",
        stable_for_seconds=0,  # a file that is too young is left to a later run by the load itself
        deferrable=True,
    )
    load = DeltaIncrementalIngestOperator(
        task_id="load_flights",
        delta_location="{{ params.table }}",
        source=FileSource(roots="{{ params.landing }}", max_files_per_trigger=50),
        table=TableSpec(columns=columns),
        sql="SELECT * FROM @data",
        engine=ScopeEngine(),
        deferrable=True,
    )
    wait >> load
    # [END scope_incremental_ingest]
