"""A Dag that loads intervals of a table's rows by backfills, and one that goes on behind them."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, CronDataIntervalTimetable

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import Cursor, SparkEngine, TableSource

FOLDER = os.environ["INTERVALS_FOLDER"]
FIRST, LAST = (
    datetime.fromisoformat(os.environ[name]).replace(tzinfo=UTC)
    for name in ("INTERVALS_FIRST", "INTERVALS_LAST")
)
BEHIND = datetime.fromisoformat(os.environ["INTERVALS_BEHIND"])
# A killed process costs a try; no number of them may cost a row.
RETRIES = {"retries": 50, "retry_delay": timedelta(seconds=2)}
# Four of them at a time, on a small machine.
ENGINE = SparkEngine(conf={"spark.master": "local[1]", "spark.driver.memory": "640m"})

with DAG(
    "rows",
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=FIRST,
    end_date=LAST,
    catchup=False,
    max_active_runs=4,
    default_args=RETRIES,
):
    DeltaIncrementalIngestOperator(
        task_id="load",
        mode="data_interval",
        delta_location=f"{FOLDER}/table",
        source=TableSource(table=f"{FOLDER}/source", cursor=Cursor(column="at")),
        engine=ENGINE,
    )

with DAG("rows_on", schedule=None, default_args=RETRIES):
    DeltaIncrementalIngestOperator(
        task_id="load",
        delta_location=f"{FOLDER}/table",
        source=TableSource(table=f"{FOLDER}/source", cursor=Cursor(column="at", initial_value=BEHIND)),
        engine=ENGINE,
    )
