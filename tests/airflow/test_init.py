"""Files that ``airflow scope init`` writes are run as they are, and load what is in the source."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from airflow.cli.cli_parser import get_parser
from airflow.dag_processing.dagbag import DagBag
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from tests.real_airflow import postgres
from tests.spark.jdbc_world import Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.spark.jdbc_world import World

pytestmark = pytest.mark.spark


@pytest.fixture
def load(tmp_path: Path, run_dag: Any, warm_spark: None, capsys: Any) -> Any:
    """Write a Dag file, run it, and give the rows of the table."""

    def run(name: str, *words: str) -> list[dict[str, Any]]:
        file, table = tmp_path / f"{name}.py", tmp_path / name
        args = get_parser().parse_args(["scope", "init", *words, str(table), "--output", str(file)])
        args.func(args)
        (dag,) = DagBag(dag_folder=str(file), bundle_name="dags-folder").dags.values()
        assert run_dag(dag).state == "success", "".join(capsys.readouterr())
        rows = QueryBuilder().register("t", DeltaTable(str(table))).execute("SELECT * FROM t").read_all()
        return sorted(pa.table(rows).to_pylist(), key=repr)

    return run


def test_all_rows_of_a_table_with_a_feed_are_loaded_and_then_its_changes(load, tmp_path):
    source = tmp_path / "source"
    rows = pa.table({"Id": [1, 2], "a b": [Decimal("1.10"), None]})
    write_deltalake(source, rows)
    DeltaTable(source).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})

    first = load("fed", str(source), "--key", "id")

    assert first == sorted(rows.to_pylist(), key=repr)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    try:
        postgres.programs()
    except postgres.PostgresMissingError as err:
        pytest.skip(str(err))
    with postgres.postgres() as url:
        yield Server(url).new(tmp_path, monkeypatch)


@pytest.mark.jdbc
def test_the_tables_of_databases_are_loaded_value_by_value(load, tmp_path, world, monkeypatch):
    world.run(
        'CREATE TABLE "Orders" ("No" bigint PRIMARY KEY, "unit price" numeric, wide numeric(60,2), '
        "nan numeric, changed timestamp, day date)",
        """INSERT INTO "Orders" VALUES
            (1, 12345678901234567890.123456789012345678, 1234567890123456789012345678901234567890.12, 'NaN',
             '2026-03-29 02:30:00', '2026-01-01'),
            (2, NULL, NULL, NULL, NULL, NULL), (3, 0.1, 1, 2.5, '2026-01-01', NULL)""",
    )
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute('CREATE TABLE "order" (id INTEGER PRIMARY KEY, "a b" INT, r REAL, d DATE)')
        connection.execute(
            """INSERT INTO "order" VALUES (1, 'x', 0.1, '2026-01-01'), (3000000000, 7, NULL, 1)"""
        )
        connection.commit()

    rows = load("orders", "shop:orders")
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "sqlite", "host": str(file)}))
    others = load("others", "shop:Order")

    columns = ["No", "unit price", "wide", "nan", "changed", "day"]
    expected = [
        dict(zip(columns, (no, price, wide and str(wide), nan and str(nan), changed, day), strict=True))
        for no, price, wide, nan, changed, day in world.ask('SELECT * FROM "Orders"')
    ]
    assert sorted(rows, key=lambda row: row["No"]) == expected
    assert others == [
        {"id": 1, "a b": "x", "r": 0.1, "d": "2026-01-01"},
        {"id": 3000000000, "a b": "7", "r": None, "d": "1"},
    ]
