"""Columns that are inferred by the operator's first run, and kept for the second one."""

from __future__ import annotations

import os
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from airflow.cli.cli_parser import get_parser
from airflow.sdk import DAG
from deltalake import DeltaTable

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource, TableSpec

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark


def land(folder: Path, name: str, minutes_ago: int, content: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(content)
    old = time.time() - 60 * minutes_ago
    os.utime(folder / name, (old, old))


def make(root: Path, schema_evolution: str = "fail", **of_files: Any) -> DAG:
    with DAG("infers", schedule=None) as dag:
        DeltaIncrementalIngestOperator(
            task_id="ingest",
            delta_location=str(root / "table"),
            source=FileSource(
                roots=str(root / "landing"),
                columns="infer",
                max_files_per_trigger=1,
                **{"format": "csv", "options": {"header": "true"}, **of_files},
            ),
            table=TableSpec(schema_evolution=schema_evolution),
        )
    return dag


def status(root: Path, capsys: Any) -> str:
    args = get_parser().parse_args(["scope", "status", str(root / "table")])
    capsys.readouterr()
    args.func(args)
    return capsys.readouterr().out


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
    shown = status(tmp_path, capsys)

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


@pytest.mark.loads
def test_keys_that_come_later_are_columns_and_status_shows_since_when(run_dag, tmp_path, capsys):
    landing = tmp_path / "landing"
    land(landing, "a.json", 60, '{"id":1,"amount":1.10}\n')
    land(landing, "b.json", 50, '{"id":"x","coupon":{"code":7}}\n')
    hints = {"amount": "decimal(12,2)"}
    dag = make(tmp_path, "add", format="json", options=None, schema_hints=hints)

    first = run_dag(dag)
    land(landing, "c.json", 40, '{"later":[1]}\n')
    second = run_dag(dag)
    shown = status(tmp_path, capsys)

    assert (first.state, second.state) == ("success", "success")
    assert (
        "columns     inferred: id string, amount decimal(12,2), coupon string, later string\n"
        "            since batch 1: + coupon string\n"
        "            since batch 2: + later string\n"
    ) in shown
    rows = DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist()
    nothing = dict.fromkeys(["id", "amount", "coupon", "later"])
    assert sorted(rows, key=repr) == sorted(
        [
            nothing | {"id": "1", "amount": Decimal("1.10")},
            nothing | {"id": "x", "coupon": '{"code":7}'},
            nothing | {"later": "[1]"},
        ],
        key=repr,
    )
