"""A Dag with one task for each set of arguments that the test gives."""

from __future__ import annotations

import json
import os
from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator

for name, arguments in json.loads(os.environ["CLUSTER_DAGS"]).items():
    # A killed process costs a try; no number of them may cost a row.
    with DAG(name, schedule=None, default_args={"retries": 20, "retry_delay": timedelta(seconds=2)}):
        DeltaIncrementalIngestOperator(**arguments)
