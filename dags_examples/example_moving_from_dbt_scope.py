"""Go on with a table that dbt-scope has loaded until now.

What: the model's config, its SELECT and the profile become one task. Its first run takes over what
dbt-scope's checkpoint beside the table says; every run loads the files that neither of the two has loaded.
When: dbt-scope has completed its last run of the model, and does not run any more.
Needs: connections ``adla_scope_default`` and ``adls_gen1_default``, for the services or for the emulator.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import from_dbt_scope

with DAG(
    "example_moving_from_dbt_scope",
    schedule=None,
    params={"landing": "adl://demo.azuredatalakestore.net/landing", "table": "/data/delta/flights"},
) as dag:
    # [START from_dbt_scope]
    columns = [{"name": "id", "type": "long"}, {"name": "source_file_uri", "type": "string"}]
    arguments = from_dbt_scope(
        config={
            "materialized": "incremental",
            "delta_location": "{{ params.table }}",
            "source_roots": ["{{ params.landing }}"],
            "max_files_per_trigger": 50,
            "extract_columns": columns,
            "delta_table_columns": columns,
        },
        sql="SELECT id, source_file_uri FROM @data",
    )
    DeltaIncrementalIngestOperator(task_id="load_flights", **arguments, deferrable=True)
    # [END from_dbt_scope]
