"""One run of a Dag that merges the files of its data interval, in a process of its own."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Any


def dag(landing: str, table: str) -> Any:
    from airflow.sdk import DAG, CronDataIntervalTimetable

    from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
    from airflow_provider_scope.specs import FileSource, Merge

    with DAG(
        "one_interval",
        schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
        start_date=datetime.fromisoformat("2014-01-01T00:00:00+00:00"),
        catchup=False,
    ) as made:
        DeltaIncrementalIngestOperator(
            task_id="merge",
            mode="data_interval",
            delta_location=table,
            source=FileSource(roots=landing, format="parquet", max_files_per_trigger=1),
            write=Merge(strategy="upsert", primary_key="id"),
        )
    return made


def run(landing: str, table: str, end: str) -> str:
    """Run the interval that ends at an instant, and give the state of the run."""
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db

    made = dag(landing, table)
    bag = DagBag(dag_folder=os.devnull, collect_dags=False, bundle_name="dags-folder")
    bag.bag_dag(made)
    sync_bag_to_db(bag, "dags-folder", None)
    return str(made.test(logical_date=datetime.fromisoformat(end)).state)


def main(landing: str, table: str, end: str, report: str) -> None:
    print("ready", flush=True)  # noqa: T201 - the parent waits for it
    sys.stdin.readline()
    Path(report).write_text(run(landing, table, end))


if __name__ == "__main__":
    main(*sys.argv[1:])
