"""Files whose columns change, loaded by the operator into a table that grows."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.sdk import DAG
from deltalake import DeltaTable

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource, TableSpec

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark


def land(folder: Path, name: str, minutes_ago: int, /, **columns: Any) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), folder / name)
    old = time.time() - 60 * minutes_ago
    os.utime(folder / name, (old, old))


def make(root: Path) -> DAG:
    with DAG("grows", schedule=None, params={"mode": "fail"}) as dag:
        DeltaIncrementalIngestOperator(
            task_id="ingest",
            delta_location=str(root / "table"),
            source=FileSource(
                roots=str(root / "landing"),
                patterns=r"\.parquet$",
                format="parquet",
                max_files_per_trigger=1,
            ),
            table=TableSpec(schema_evolution="{{ params.mode }}"),
        )
    return dag


def columns_of(table: DeltaTable) -> list[tuple[str, str]]:
    return [(item["name"], item["type"]) for item in json.loads(table.schema().to_json())["fields"]]


@pytest.mark.loads
def test_a_table_grows_with_its_files_from_run_to_run(run_dag, tmp_path):
    landing = tmp_path / "landing"
    land(landing, "a.parquet", 60, zahl=pa.array([1], pa.int32()), name=["a"])
    dag = make(tmp_path)
    assert run_dag(dag).state == "success"
    land(landing, "b.parquet", 50, neu=[0.5], zahl=pa.array([2], pa.int32()), name=["b"])
    land(landing, "c.parquet", 40, Zahl=[3_000_000_000], alter=[True])

    refused = run_dag(dag)
    too_wide = run_dag(dag, run_conf={"mode": "add"})
    added = DeltaTable(str(tmp_path / "table"))
    rows = added.to_pyarrow_table().sort_by("zahl").to_pylist()
    widened = run_dag(dag, run_conf={"mode": "widen"})
    land(landing, "d.parquet", 30, zahl=pa.array([4], pa.int32()))
    after = run_dag(dag, run_conf={"mode": "add"})

    assert (refused.state, too_wide.state) == ("failed", "failed")
    assert rows == [{"zahl": 1, "name": "a", "neu": None}, {"zahl": 2, "name": "b", "neu": 0.5}]
    assert (widened.state, after.state) == ("success", "success")
    table = DeltaTable(str(tmp_path / "table"))
    assert columns_of(table) == [
        ("zahl", "long"),
        ("name", "string"),
        ("neu", "double"),
        ("alter", "boolean"),
    ]
    found = []
    for uri in table.file_uris():
        found += pq.ParquetFile(unquote(uri)).read().to_pylist()
    assert sorted(found, key=lambda row: row["zahl"]) == [
        {"zahl": 1, "name": "a"},
        {"zahl": 2, "name": "b", "neu": 0.5},
        {"zahl": 4},
        {"zahl": 3_000_000_000, "alter": True},
    ]
    (ti,) = after.get_task_instances()
    report = ti.xcom_pull(task_ids="ingest")
    assert (report["files"], report["rows"], report["batches"]) == (1, 1, 1)


def test_what_is_not_one_of_the_settings_fails_the_task_when_it_is_rendered(run_dag, tmp_path):
    land(tmp_path / "landing", "a.parquet", 60, n=[1])

    assert run_dag(make(tmp_path), run_conf={"mode": "grow"}).state == "failed"
    assert not (tmp_path / "table").exists()
