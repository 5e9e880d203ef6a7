"""Source, table and checkpoint on a real HDFS, with Spark started as in production."""

from __future__ import annotations

import io
import json
import os
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from deltalake import DeltaTable

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource
from tests.support import hdfs

pytestmark = [pytest.mark.spark, pytest.mark.hdfs]

NAMES = ["a b.parquet", "50%.parquet", "a%20b.parquet", "c+d.parquet", "é😀.parquet", "x=1/f#1&2.parquet"]
LANDED_MS = 1_760_000_000_000


@pytest.fixture
def base() -> str:
    return f"/{uuid.uuid4().hex}"


def parquet(*values: int) -> bytes:
    made = io.BytesIO()
    pq.write_table(pa.table({"a": list(values)}), made)
    return made.getvalue()


def land_here(folder: Path, name: str, data: bytes, modified_ms: int) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))


def dag_of(name: str, base: str, **more: Any) -> DAG:
    with DAG(name, schedule=None) as dag:
        DeltaIncrementalIngestOperator(
            task_id="ingest",
            delta_location=f"{base}/table",
            source=FileSource(roots=f"{base}/landing", patterns=r"\.parquet$", format="parquet"),
            sql="SELECT a, source_file_uri AS uri, source_file_length AS size, "
            "source_file_modified AS at FROM @data",
            **more,
        )
    return dag


def result(run: Any) -> Any:
    (ti,) = run.get_task_instances()
    return ti.xcom_pull(task_ids="ingest")


def rows(table: Path, base: str) -> list[tuple[Any, ...]]:
    found = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    return sorted((r["a"], r["uri"].removeprefix(base), r["size"], r["at"]) for r in found)


def test_a_run_on_hdfs_loads_the_rows_that_a_run_on_a_disk_loads(run_dag, base, tmp_path):
    cluster, here = hdfs.start(), tmp_path / "here"
    for number, name in enumerate(NAMES):
        cluster.put(f"{base}/landing/{name}", parquet(number), LANDED_MS + number)
        land_here(here / "landing", name, parquet(number), LANDED_MS + number)
    # WebHDFS itself cannot create such a name.
    cluster.put(f"{base}/landing/other.parquet", parquet(99), LANDED_MS)
    cluster.call(
        "PUT", f"{base}/landing/other.parquet", "RENAME", destination=f"{base}/landing/cafe\u0301.parquet"
    )
    uri = f"webhdfs://{cluster.authority}{base}"
    dag = dag_of("on_hdfs", uri)

    first = run_dag(dag)
    assert first.state == "success"
    assert (result(first)["files"], result(first)["rows"]) == (6, 6)
    assert result(first)["left_out"] == {"unreadable name": 1}
    run_dag(dag_of("on_a_disk", str(here)))
    found = rows(cluster.copy(f"{base}/table", tmp_path / "first"), uri)
    assert found == rows(here / "table", f"file://{here}")
    assert [row[1] for row in found] == [f"/landing/{name}" for name in NAMES]

    second = run_dag(dag)
    assert second.state == "success"
    assert result(second)["files"] == 0
    assert "6 were loaded before" in result(second)["why"]

    cluster.put(f"{base}/landing/later.parquet", parquet(10, 11), LANDED_MS)
    third = run_dag(dag)
    assert (third.state, result(third)["files"], result(third)["rows"]) == ("success", 1, 2)
    copy = cluster.copy(f"{base}/table", tmp_path / "third")
    assert [row[0] for row in rows(copy, uri)] == [0, 1, 2, 3, 4, 5, 10, 11]
    assert DeltaTable(str(copy)).version() == 1
    assert not [path for path in copy.rglob("*") if path.name.startswith(".") and path.suffix == ".tmp"]


def test_the_example_runs(run_dag, base, tmp_path, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_HDFS", json.dumps({"conn_type": "webhdfs", "login": hdfs.USER}))
    path = Path(__file__).parents[2] / "dags_examples" / "example_files_to_delta_hdfs.py"
    (dag,) = DagBag(dag_folder=str(path), bundle_name="dags-folder").dags.values()
    cluster = hdfs.start()
    cluster.put(f"{base}/landing/a.parquet", parquet(1, 2), LANDED_MS)

    run = run_dag(dag, run_conf={"lake": f"webhdfs://{cluster.authority}{base}"})

    assert run.state == "success"
    found = DeltaTable(str(cluster.copy(f"{base}/delta/flights", tmp_path / "copy"))).to_pyarrow_table()
    assert sorted(found["a"].to_pylist()) == [1, 2]
