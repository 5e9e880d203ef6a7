"""Columns that are inferred by the operator's first run, and kept for the second one."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest
from airflow.cli.cli_parser import get_parser
from airflow.sdk import DAG
from deltalake import DeltaTable

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark


def land(folder: Path, name: str, minutes_ago: int, content: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(content)
    old = time.time() - 60 * minutes_ago
    os.utime(folder / name, (old, old))


def make(root: Path) -> DAG:
    with DAG("infers", schedule=None) as dag:
        DeltaIncrementalIngestOperator(
            task_id="ingest",
            delta_location=str(root / "table"),
            source=FileSource(
                roots=str(root / "landing"),
                patterns=r"\.csv$",
                format="csv",
                options={"header": "true"},
                columns="infer",
                max_files_per_trigger=1,
            ),
        )
    return dag


@pytest.mark.loads
def test_the_second_run_has_the_columns_of_the_first_and_refuses_what_they_would_change(
    run_dag, tmp_path, capsys
):
    landing = tmp_path / "landing"
    land(landing, "a.csv", 60, "id,zip,price\n1,90210,0.5\n2,10001,\n")
    land(landing, "b.csv", 50, "id,zip,price\n3,,1\n")
    dag = make(tmp_path)

    first = run_dag(dag)
    land(landing, "c.csv", 40, "id,zip,price\n4,90211,2\n5,02134,3\n")
    second = run_dag(dag)
    why = "".join(capsys.readouterr())
    args = get_parser().parse_args(["scope", "status", str(tmp_path / "table")])
    args.func(args)
    shown = capsys.readouterr().out

    assert (first.state, second.state) == ("success", "failed")
    assert "columns     inferred: id bigint, zip bigint, price double" in shown
    assert "zip is not bigint" in why
    assert "these were inferred from an earlier batch" in why
    assert sorted(
        DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist(), key=lambda row: row["id"]
    ) == [
        {"id": 1, "zip": 90210, "price": 0.5},
        {"id": 2, "zip": 10001, "price": None},
        {"id": 3, "zip": None, "price": 1.0},
    ]
