"""Two Dags that load intervals into one table: one catches up, the other one is for backfills."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, CronDataIntervalTimetable

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource, SparkEngine

FOLDER = os.environ["INTERVALS_FOLDER"]

for name, first, last, catchup in (
    ("catchup", os.environ["INTERVALS_FIRST"], os.environ["INTERVALS_LAST"], True),
    ("backfilled", os.environ["INTERVALS_BACKFILL_FIRST"], os.environ["INTERVALS_LAST"], False),
):
    with DAG(
        name,
        schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
        start_date=datetime.fromisoformat(first).replace(tzinfo=UTC),
        end_date=datetime.fromisoformat(last).replace(tzinfo=UTC),
        catchup=catchup,
        max_active_runs=4,
        # A killed process costs a try; no number of them may cost a row.
        default_args={"retries": 50, "retry_delay": timedelta(seconds=2)},
    ):
        DeltaIncrementalIngestOperator(
            task_id="load",
            mode="data_interval",
            delta_location=f"{FOLDER}/table",
            source=FileSource(
                roots=f"{FOLDER}/landing",
                patterns=r"\.parquet$",
                format="parquet",
                max_files_per_trigger=2,
            ),
            sql="SELECT *, source_file_uri FROM @data",
            # Four of them at a time, on a small machine.
            engine=SparkEngine(conf={"spark.master": "local[1]", "spark.driver.memory": "640m"}),
        )
