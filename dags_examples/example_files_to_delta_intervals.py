"""Fill a table day by day, several days at once; then go on with what is new.

What: ``example_files_to_delta_backfill`` loads the files of each day of 2013 in a run of its own.
``example_files_to_delta_incremental`` goes on where it ends: each run loads what no run before it has
loaded.
When: a table has a past that is loaded once, in parallel, and of which a day can be loaded again.
Needs: Java 17 on the worker. The days of the files are those of their modification times.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG, CronDataIntervalTimetable

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource

# [START delta_intervals]
SOURCE = {"roots": "{{ params.landing }}", "format": "parquet"}
PARAMS = {"landing": "/data/landing", "table": "/data/delta/flights"}

with DAG(
    "example_files_to_delta_backfill",
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    end_date=datetime(2013, 12, 31, tzinfo=UTC),
    catchup=True,
    max_active_runs=4,
    params=PARAMS,
) as backfill:
    DeltaIncrementalIngestOperator(
        task_id="load_day",
        mode="data_interval",
        delta_location="{{ params.table }}",
        source=SOURCE,
        sql="SELECT *, source_file_uri FROM @data",
    )

with DAG("example_files_to_delta_incremental", schedule=None, params=PARAMS) as incremental:
    DeltaIncrementalIngestOperator(
        task_id="load_new",
        delta_location="{{ params.table }}",
        source=FileSource(**SOURCE, starting_timestamp="2014-01-01T00:00:00+00:00"),
        sql="SELECT *, source_file_uri FROM @data",
    )
# [END delta_intervals]
