"""A dbt-scope model and its table go on as an operator with SCOPE jobs, and go back."""

from __future__ import annotations

import runpy
from pathlib import Path

from airflow.sdk import DAG

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import from_dbt_scope
from airflow_provider_scope.stores.local import LocalStorage
from tests.scope.conftest import ROOT
from tests.support.dbt_scope import DbtScope

MODEL = {
    "materialized": "incremental",
    "source_roots": ["/landing"],
    "max_files_per_trigger": 2,
    "extract_columns": [{"name": "id", "type": "long"}, {"name": "source_file_uri", "type": "string"}],
    "delta_table_columns": [{"name": "id", "type": "long"}, {"name": "source_file_uri", "type": "string"}],
    "scope_settings": {"delta.checkpointInterval": 5},
    "job_tag": "flights",
}


def loaded_by_dbt_scope(world, *numbers: int) -> DbtScope:
    """Return a table with the rows of these files, two in a batch, and the checkpoint beside it."""
    theirs = DbtScope(LocalStorage(), f"file://{world.table}/_checkpoint")
    world.land(*numbers)
    world.run(checkpoint={"location": str(world.account / "a job of dbt-scope")})
    for first in range(0, len(numbers), 2):
        batch = numbers[first : first + 2]
        theirs.loaded([(f"/landing/f{number}.ss", (1_000_000_000 + number) * 1_000) for number in batch])
    return theirs


def test_a_model_of_dbt_scope_goes_on_as_a_dag(run_dag, world):
    world.open()
    theirs = loaded_by_dbt_scope(world, 1, 2)
    world.land(31, 32, 33)
    arguments = from_dbt_scope(
        {**MODEL, "delta_location": str(world.table)},
        "SELECT id, source_file_uri FROM @data;",
        {"adla_account": "acme", "adls_gen1_account": "acme"},
    )
    with DAG("from_dbt_scope", schedule=None) as dag:
        DeltaIncrementalIngestOperator(task_id="load", **arguments)

    runs = [run_dag(dag), run_dag(dag)]

    assert [run.state for run in runs] == ["success", "success"]
    assert [job.name for job in world.jobs()][-2:] == [
        "flights_append_batch0_2files",
        "flights_append_batch1_1files",
    ]
    assert world.rows_are_those_of(1, 2, 31, 32, 33)
    assert theirs.watermark() == (2, "2001-09-09T01:47:13.000000+00:00", 2)
    assert [row["path"] for row in theirs.batch(2)] == ["/landing/f33.ss"]
    assert (world.table / f"_checkpoint/taken_over/{0:020}").exists()


def test_the_example_goes_on_with_a_table_of_dbt_scope(run_dag, world):
    path = Path(__file__).parents[2] / "dags_examples" / "example_moving_from_dbt_scope.py"
    (dag,) = (value for value in runpy.run_path(str(path)).values() if isinstance(value, DAG))
    world.open()
    theirs = loaded_by_dbt_scope(world, 1, 2)
    world.land(3)

    run = run_dag(dag, run_conf={"landing": ROOT, "table": str(world.table)})

    assert run.state == "success"
    assert world.rows_are_those_of(1, 2, 3)
    assert theirs.watermark() == (1, "2001-09-09T01:46:43.000000+00:00", 1)
