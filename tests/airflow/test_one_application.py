"""A run of several batches that follow from each other starts Spark once."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from airflow.configuration import conf
from airflow.sdk import DAG
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import CdfSource, Scd2

SCHEMA = pa.schema([("name", pa.string()), ("id", pa.int64())])


def write(table: Path, *rows: tuple[int, str]) -> None:
    data = pa.Table.from_pylist([{"id": number, "name": name} for number, name in rows], SCHEMA)
    write_deltalake(str(table), data, mode="overwrite", configuration={"delta.enableChangeDataFeed": "true"})


@pytest.mark.spark
def test_a_feed_that_is_loaded_version_by_version_starts_spark_once(run_dag: Any, tmp_path: Path) -> None:
    source, table = tmp_path / "the source", tmp_path / "table"
    for name in ("b", "a", "c"):
        write(source, (1, name), (2, "same"))
    with DAG("versions", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
        DeltaIncrementalIngestOperator(
            task_id="load",
            delta_location=str(table),
            source=CdfSource(table=str(source), max_commits_per_batch=1),
            write=Scd2(merge_key="id"),
        )

    assert run_dag(dag).state == "success"

    logs = Path(conf.get("logging", "base_log_folder"), "airflow_provider_scope", "versions")
    (log,) = logs.rglob("spark.*.log")
    assert log.read_text().count(":: resolution report ::") == 1
    rows = DeltaTable(str(table)).to_pyarrow_table().sort_by("_valid_from").to_pylist()
    assert [row["name"] for row in rows if row["id"] == 1] == ["b", "a", "c"]
    assert [row["name"] for row in rows if row["_valid_to"] is None and row["id"] == 1] == ["c"]
    assert [row["name"] for row in rows if row["id"] == 2] == ["same"]
    checkpoint = table / "_checkpoint"
    assert len([*(checkpoint / "commits").iterdir()]) == 3
    assert [*(checkpoint / "plans").iterdir()] == []
