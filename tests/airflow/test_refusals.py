"""Runs that would lose or double rows are refused before Spark starts, and say what goes on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from airflow.sdk import DAG
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from tests.crash.world import NOW_MS, DeltaWorld

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def dag_of(table: Path | str, root: Path | str, **more: Any) -> DAG:
    with DAG("refused", schedule=None, params={"root": str(root)}) as dag:
        DeltaIncrementalIngestOperator(
            task_id="ingest",
            delta_location=str(table),
            source={"roots": "{{ params.root }}", "patterns": r"\.parquet$", "format": "parquet"},
            **more,
        )
    return dag


def landed(folder: Path) -> Path:
    folder.mkdir()
    pq.write_table(pa.table({"id": [1], "day": [1]}), folder / "a.parquet")
    os.utime(folder / "a.parquet", (NOW_MS // 1000, NOW_MS // 1000))
    return folder


def refusal(run_dag: Any, dag: DAG, capsys: pytest.CaptureFixture[str]) -> str:
    assert run_dag(dag).state == "failed"
    return capsys.readouterr().out


def test_a_root_that_holds_the_table(run_dag, tmp_path, capsys):
    landed(tmp_path / "landing")

    said = refusal(run_dag, dag_of(tmp_path / "table", tmp_path), capsys)

    assert "a run would load its own output" in said
    assert not (tmp_path / "table").exists()


def test_a_checkpoint_that_vacuum_deletes(run_dag, tmp_path, capsys):
    landing = landed(tmp_path / "landing")
    (tmp_path / "link").symlink_to(tmp_path / "table")
    dag = dag_of(tmp_path / "table", landing, checkpoint={"location": f"{tmp_path}/link/checkpoint"})

    assert "in a folder that VACUUM cleans" in refusal(run_dag, dag, capsys)
    assert not (tmp_path / "table").exists()


def test_a_table_with_rows_and_without_a_checkpoint(run_dag, tmp_path, capsys):
    landing = landed(tmp_path / "landing")
    write_deltalake(str(tmp_path / "table"), pa.table({"id": [1], "day": [1]}))

    said = refusal(run_dag, dag_of(tmp_path / "table", landing), capsys)

    assert "there is no record in" in said
    assert f"airflow scope accept-table {tmp_path}/table`" in said
    assert DeltaTable(str(tmp_path / "table")).to_pyarrow_table().num_rows == 1
    assert not (tmp_path / "table" / "_checkpoint").exists()


def test_a_root_under_another_name(run_dag, tmp_path, capsys):
    world = DeltaWorld(tmp_path)
    world.drop("a.parquet", 60)
    world.run()
    (tmp_path / "mount").symlink_to(tmp_path / "landing")

    said = refusal(run_dag, dag_of(tmp_path / "table", tmp_path / "mount"), capsys)

    assert "was loaded before under another name" in said
    assert sum(world.rows().values()) == 2
