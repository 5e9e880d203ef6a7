"""Run a command of ``airflow scope`` from Airflow's own page, where nobody has a shell on a worker.

What: trigger the Dag with a command, such as the one that the error of a failed task says to run. Its log
shows what the command would do. Trigger it again with ``yes`` to do it.
When: Airflow is managed by somebody else.
Needs: that only those may trigger it who may repair tables.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param

from airflow_provider_scope.operators.pipeline_command import PipelineCommandOperator

# [START pipeline_command]
with DAG(
    "example_pipeline_command",
    schedule=None,
    params={
        "command": Param("status /data/delta/flights", type="string"),
        "yes": Param(default=False, type="boolean", description="Do it, if the command writes"),
    },
) as dag:
    PipelineCommandOperator(task_id="run", command="{{ params.command }}", yes="{{ params.yes }}")
# [END pipeline_command]
