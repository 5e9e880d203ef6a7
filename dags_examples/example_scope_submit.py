"""Run a SCOPE script of your own, exactly once.

What: submits a script to Azure Data Lake Analytics as one job, and waits for it without holding a worker.
When: a job of yours is not an incremental load, and a retry must not run it twice: the retry goes on with
the job that is there.
Needs: a connection ``adla_scope_default`` of type ``adla_scope``. Trigger it with a folder of yours.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_scope.operators.scope_submit import ScopeSubmitJobOperator

with DAG(
    "example_scope_submit",
    schedule=None,
    params={"landing": "adl://acme.azuredatalakestore.net/landing", "table": "/delta/report"},
) as dag:
    # [START scope_submit_job]
    ScopeSubmitJobOperator(
        task_id="report",
        script="""
            #DECLARE @table string = "{{ params.table }}";

            CREATE TABLE IF NOT EXISTS @report (id long?) LOCATION @table OPTIONS (LAYOUT = DELTA);

            @flights = EXTRACT id : long? FROM "{{ params.landing }}/f1.ss" USING Extractors.SStream();

            @ids = SELECT id FROM @flights;

            INSERT INTO @report SELECT id FROM @ids;
        """,
        job_tag="nightly",
        au=10,
        deferrable=True,
    )
    # [END scope_submit_job]
