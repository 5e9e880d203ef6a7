"""The example of change data feeds runs: what is changed and deleted in the first table reaches the third."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.models import DagModel
from airflow.models.asset import AssetDagRunQueue, AssetModel
from airflow.utils.session import create_session
from deltalake import DeltaTable
from sqlalchemy import select, update

pytestmark = pytest.mark.loads

EXAMPLES = Path(__file__).parents[2] / "dags_examples"


def found(table: Path) -> list[dict[str, Any]]:
    return list(DeltaTable(str(table)).to_pyarrow_table().to_pylist())


def unpause(dag_id: str) -> None:
    """Press the button: an event does not wait for a Dag that is paused."""
    with create_session() as session:
        session.execute(update(DagModel).where(DagModel.dag_id == dag_id).values(is_paused=False))


def woken(dag_id: str) -> list[str]:
    """Return the assets whose events wait for the scheduler to start a Dag."""
    with create_session() as session:
        found = session.execute(
            select(AssetModel.name)
            .join(AssetDagRunQueue, AssetDagRunQueue.asset_id == AssetModel.id)
            .where(AssetDagRunQueue.target_dag_id == dag_id)
        )
        return [*found.scalars()]


def test_the_example_carries_changes_and_deletes_through_three_tables(run_dag: Any, tmp_path: Path) -> None:
    bag = DagBag(dag_folder=str(EXAMPLES / "example_changes_to_delta.py"), bundle_name="dags-folder")
    first, second = (bag.dags[f"example_changes_to_delta{end}"] for end in ("", "_next"))
    landing, tables = tmp_path / "landing", tmp_path / "tables"
    landing.mkdir()
    conf = {"landing": str(landing), "tables": str(tables)}

    def run(name: str, *orders: tuple[int, str, bool]) -> None:
        lines = [json.dumps({"order_id": n, "status": status, "deleted": gone}) for n, status, gone in orders]
        (landing / name).write_text("\n".join(lines))
        os.utime(landing / name, (1e9, 1e9))  # files that were just written are held back
        assert run_dag(first, run_conf=conf).state == "success"
        assert run_dag(second, run_conf={"tables": str(tables)}).state == "success"

    run("1.json", (1, "new", False), (2, "new", False))
    unpause(second.dag_id)
    run("2.json", (1, "", True), (2, "paid", False))

    # The scheduler, which is not here, takes it from there.
    assert woken(second.dag_id) == ["orders_a"]
    rows = [{"order_id": 2, "status": "PAID"}]
    assert [{k: row[k] for k in ("order_id", "status")} for row in found(tables / "b")] == rows
    versions = sorted((r["order_id"], r["status"], r["_valid_to"] is None) for r in found(tables / "c"))
    assert versions == [(1, "NEW", False), (2, "NEW", False), (2, "PAID", True)]
