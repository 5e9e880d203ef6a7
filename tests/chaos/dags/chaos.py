"""Dags alike, each with files and a table of its own."""

from __future__ import annotations

import os
from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource, ScopeEngine, TableSpec

for number in range(int(os.environ["CHAOS_DAGS"])):
    with DAG(
        f"chaos_{number}",
        schedule=None,
        max_active_runs=1,
        # A killed process costs a try; no number of them may cost a row.
        default_args={"retries": 100, "retry_delay": timedelta(seconds=2)},
    ):
        DeltaIncrementalIngestOperator(
            task_id="load",
            delta_location=f"{os.environ['CHAOS_ACCOUNT']}/tables/{number}",
            source=FileSource(
                roots=f"adl://chaos.azuredatalakestore.net/landing/{number}",
                max_files_per_trigger=1,
                safety_buffer_seconds=0,
            ),
            table=TableSpec(columns={"number": "bigint", "source_file_uri": "string"}),
            sql="SELECT * FROM @data",
            engine=ScopeEngine(au=1, job_tag=str(number)),
            deferrable=True,
        )
