"""A cursor as a user sees it: the example runs, and what is wrong is said in the task's log."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from airflow.dag_processing.dagbag import DagBag
from deltalake import DeltaTable, write_deltalake

EXAMPLES = Path(__file__).parents[2] / "dags_examples"
SCHEMA = pa.schema(
    [("status", pa.string()), ("changed_at", pa.timestamp("us", "UTC")), ("order_id", pa.int64())]
)


def change(source: Path, *rows: tuple[int, str, int | None]) -> None:
    data = [
        {"order_id": number, "status": status, "changed_at": day and datetime(2026, 1, day, tzinfo=UTC)}
        for number, status, day in rows
    ]
    write_deltalake(str(source), pa.Table.from_pylist(data, SCHEMA), mode="append")


def found(table: Path) -> list[tuple[Any, ...]]:
    rows = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    return sorted((row["order_id"], row["status"]) for row in rows)


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["warm_spark", pytest.param("spark-submit", marks=pytest.mark.loads)])
def test_the_example_of_a_cursor_loads_what_changed_and_says_which_row_has_no_value(
    run_dag: Any, tmp_path: Path, capfd: Any, engine: str, request: pytest.FixtureRequest
) -> None:
    if engine == "warm_spark":
        request.getfixturevalue(engine)
    (dag,) = DagBag(
        dag_folder=str(EXAMPLES / "example_table_to_delta.py"), bundle_name="dags-folder"
    ).dags.values()
    source, table = tmp_path / "orders raw é", tmp_path / "table"
    conf = {"source": str(source), "table": str(table), "since": "2026-01-02"}
    change(source, (1, "old", 1), (2, "new", 2), (3, "new", 3))
    first = run_dag(dag, run_conf=conf)
    change(source, (2, "paid", 3), (4, "new", 3))
    second = run_dag(dag, run_conf=conf)
    third = run_dag(dag, run_conf=conf)

    assert [run.state for run in (first, second, third)] == ["success"] * 3
    assert found(table) == [(2, "paid"), (3, "new"), (4, "new")]
    (ti,) = second.get_task_instances()
    assert ti.xcom_pull(task_ids="load_orders")["changes"]["inserted"] == 1
    (ti,) = third.get_task_instances()
    assert "0 rows: version 1 of" in ti.xcom_pull(task_ids="load_orders")["why"]

    change(source, (5, "broken", None))
    capfd.readouterr()
    failed = run_dag(dag, run_conf=conf)
    told = "".join(capfd.readouterr())

    assert failed.state == "failed"
    assert "1 row has no value in 'changed_at'" in told
    assert '"order_id":5' in told
    assert found(table) == [(2, "paid"), (3, "new"), (4, "new")]
