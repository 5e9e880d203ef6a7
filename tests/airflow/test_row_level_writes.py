"""Merge and Scd2 as a user sees them: the examples run, and what is wrong is said in the task's log."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from deltalake import DeltaTable

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator

EXAMPLES = Path(__file__).parents[2] / "dags_examples"


def example(name: str) -> Any:
    (dag,) = DagBag(dag_folder=str(EXAMPLES / f"{name}.py"), bundle_name="dags-folder").dags.values()
    return dag


def land(folder: Path, name: str, text: str, second: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    os.utime(folder / name, (1_388_534_400 + second,) * 2)


def rows(table: Path) -> list[dict[str, Any]]:
    return DeltaTable(str(table)).to_pyarrow_table().to_pylist()


def order(number: int, status: str, second: int, *, deleted: bool = False) -> str:
    return (
        f'{{"order_id": {number}, "status": "{status}", "changed_at": "2026-01-01T00:00:0{second}Z", '
        f'"deleted": {str(deleted).lower()}}}\n'
    )


@pytest.mark.loads
def test_the_example_of_merge_keeps_the_newest_row_of_each_key(run_dag, tmp_path):
    landing, conf = tmp_path / "in", {"landing": str(tmp_path / "in"), "table": str(tmp_path / "table")}
    land(landing, "0.json", order(1, "new", 1) + order(2, "new", 1) + order(1, "paid", 2), 0)
    first = run_dag(example("example_files_to_delta_merge"), run_conf=conf)
    land(landing, "1.json", order(1, "sent", 3) + order(2, "new", 3, deleted=True) + order(3, "new", 3), 1)
    second = run_dag(example("example_files_to_delta_merge"), run_conf=conf)

    assert (first.state, second.state) == ("success", "success")
    assert sorted((row["order_id"], row["status"]) for row in rows(tmp_path / "table")) == [
        (1, "sent"),
        (3, "new"),
    ]
    (ti,) = second.get_task_instances()
    assert ti.xcom_pull(task_ids="merge_orders")["changes"] == {
        "inserted": 1,
        "updated": 1,
        "deleted": 1,
        "deduplicated": 0,
        "hard_deleted": 1,
    }


@pytest.mark.loads
def test_the_example_of_scd2_keeps_every_version(run_dag, tmp_path):
    landing, conf = tmp_path / "in", {"landing": str(tmp_path / "in"), "table": str(tmp_path / "table")}
    land(landing, "0.csv", "customer_id,city\n1,Wien\n2,Graz\n", 0)
    land(landing, "1.csv", "customer_id,city\n1,Linz\n", 1)

    assert run_dag(example("example_files_to_delta_scd2"), run_conf=conf).state == "success"

    found = rows(tmp_path / "table")
    (active,) = (row for row in found if row["_valid_to"] is None)
    assert (active["customer_id"], active["city"]) == (1, "Linz")
    assert sorted((row["customer_id"], row["city"]) for row in found) == [
        (1, "Linz"),
        (1, "Wien"),
        (2, "Graz"),
    ]
    assert {row["_valid_to"] for row in found} == {None, active["_valid_from"]}


@pytest.mark.spark
@pytest.mark.usefixtures("warm_spark")
def test_what_is_wrong_with_a_batch_is_the_end_of_the_log(run_dag, tmp_path, capsys):
    land(tmp_path / "in", "0.csv", "id,text\n1,a\n1,b\n", 0)
    with DAG("wrong", schedule=None) as dag:
        DeltaIncrementalIngestOperator(
            task_id="ingest",
            delta_location=str(tmp_path / "table"),
            source={"roots": str(tmp_path / "in"), "format": "csv", "options": {"header": "true"}},
            write={"kind": "merge", "strategy": "upsert", "primary_key": "id"},
        )

    assert run_dag(dag).state == "failed"

    log = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert f"Several rows for file://{tmp_path}/table have the same primary key: id '1'." in log
    assert "What to do: " in log
    assert f"airflow scope abandon {tmp_path}/table 0`: it reads what it was logged with" in log
    assert not (tmp_path / "table" / "_delta_log").exists()
