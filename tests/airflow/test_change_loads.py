"""The example of change data feeds runs: what is changed and deleted in the first table reaches the third."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from deltalake import DeltaTable

pytestmark = pytest.mark.loads

EXAMPLES = Path(__file__).parents[2] / "dags_examples"


def found(table: Path) -> list[dict[str, Any]]:
    return list(DeltaTable(str(table)).to_pyarrow_table().to_pylist())


def test_the_example_carries_changes_and_deletes_through_three_tables(run_dag: Any, tmp_path: Path) -> None:
    (dag,) = DagBag(
        dag_folder=str(EXAMPLES / "example_changes_to_delta.py"), bundle_name="dags-folder"
    ).dags.values()
    landing, tables = tmp_path / "landing", tmp_path / "tables"
    landing.mkdir()
    conf = {"landing": str(landing), "tables": str(tables)}

    def run(name: str, *orders: tuple[int, str, bool]) -> None:
        lines = [json.dumps({"order_id": n, "status": status, "deleted": gone}) for n, status, gone in orders]
        (landing / name).write_text("\n".join(lines))
        os.utime(landing / name, (1e9, 1e9))  # files that were just written are held back
        assert run_dag(dag, run_conf=conf).state == "success"

    run("1.json", (1, "new", False), (2, "new", False))
    run("2.json", (1, "", True), (2, "paid", False))

    rows = [{"order_id": 2, "status": "PAID"}]
    assert [{k: row[k] for k in ("order_id", "status")} for row in found(tables / "b")] == rows
    versions = sorted((r["order_id"], r["status"], r["_valid_to"] is None) for r in found(tables / "c"))
    assert versions == [(1, "NEW", False), (2, "NEW", False), (2, "PAID", True)]
