"""Load the tables of a database into Delta tables with one mapped task, each by its key.

What: the first run loads each table in full. Each later run asks for the rows that changed since, merges them
by the table's key, and deletes the rows that are flagged.
When: the tables have a column with the time of the last change, and rows are flagged before they are deleted.
Needs: Java 17 on the worker, which reaches a Maven repository once; a connection ``flights``. The page
``docs/tutorial_database.md`` creates a database for it.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator

KEYS = {"airlines": "carrier", "airports": "faa", "planes": "tailnum"}

with DAG("example_database_tables_to_delta", schedule=None, params={"lake": "/data/flights"}):
    # [START database_tables_delta]
    DeltaIncrementalIngestOperator.partial(task_id="load", max_active_tis_per_dag=1).expand_kwargs(
        [
            {
                "delta_location": "{{ params.lake }}/" + table,
                "source": {"conn_id": "flights", "table": table, "cursor": {"column": "changed_at"}},
                "write": {
                    "kind": "merge",
                    "strategy": "upsert",
                    "primary_key": key,
                    "hard_delete": "deleted",
                    "dedup_sort": ("changed_at", "desc"),
                },
            }
            for table, key in KEYS.items()
        ]
    )
    # [END database_tables_delta]
