"""A run that finds nothing new in a database starts no Spark and writes nothing; any other run reads it."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from airflow_provider_scope.sources.cursor import newer
from airflow_provider_scope.sources.cursor.spec import Cursor
from airflow_provider_scope.spark.structs import row_hash
from tests.support import warm

if TYPE_CHECKING:
    from pathlib import Path

    from tests.spark.jdbc_world import World

pytestmark = [pytest.mark.spark, pytest.mark.compiled]

RULE = Cursor(column="n")
TYPES = {
    "i": "int",
    "l": "bigint",
    "t": "string",
    "b": "boolean",
    "z": "binary",
    "d": "decimal(20,4)",
    "f": "double",
    "day": "date",
    "at": "timestamp",
    "wall": "timestamp_ntz",
    "many": "array<string>",
}
ROWS: list[dict[str, Any]] = [
    {
        "i": -1,
        "l": 2**60,
        "t": 'é "\\/\n\x7f😀',
        "b": True,
        "z": b"\x00\xff",
        "d": Decimal("1.5000"),
        "f": 0.1,
    },
    {"f": -0.0, "d": Decimal("-100.0000"), "t": "", "b": False, "z": b"", "many": ["x", None, ""]},
    {"f": 123456.789, "d": Decimal("0.0001"), "day": date(1, 2, 3), "at": datetime(2026, 1, 1, tzinfo=UTC)},
    {"f": 1e14, "at": datetime(1600, 1, 1, 0, 0, 0, 1, UTC), "wall": datetime(2026, 1, 1, 0, 0, 0, 120)},  # noqa: DTZ001
    {"day": date(9999, 12, 31), "wall": datetime(999, 1, 1, 12), "many": []},  # noqa: DTZ001
]


def test_the_hash_of_a_row_is_the_one_that_spark_makes(spark: Any) -> None:
    schema = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
    data = spark.createDataFrame([tuple(row.get(name) for name in TYPES) for row in ROWS], schema)
    theirs = [row[0] for row in data.select(row_hash(data.schema.fields)).collect()]
    assert theirs == [newer.row_hash({name: row.get(name) for name in TYPES}, RULE) for row in ROWS]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count how often Spark was started."""
    return warm.count_plans(monkeypatch)


@pytest.mark.jdbc
def test_sqlite_is_asked_first(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[int]
) -> None:
    warm.use(monkeypatch, spark)
    file = tmp_path / "shop é.db"
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "sqlite", "host": str(file)}))
    pipe = warm.Pipe(tmp_path, {"source": {"conn_id": "shop", "table": "t", "cursor": {"column": "N"}}})

    def after(statement: str) -> tuple[int, Any]:
        with closing(sqlite3.connect(file)) as connection:
            connection.execute(statement)
            connection.commit()
        before = len(started)
        report = pipe.run()
        return len(started) - before, report.rows

    after("CREATE TABLE t (n INTEGER, t TEXT)")
    assert after("INSERT INTO t VALUES (1, 'a'), (2, 'b')") == (1, 2)
    version = DeltaTable(str(pipe.table)).version()
    assert after("SELECT 1") == (0, 0)
    assert after("INSERT INTO t VALUES (1, 'below the last value')") == (0, 0)
    assert DeltaTable(str(pipe.table)).version() == version
    assert "nothing new in t" in pipe.run().why_nothing()
    assert after("UPDATE t SET t = 'changed' WHERE n = 2") == (1, 1)
    assert after("SELECT 1") == (0, 0)
    assert after("INSERT INTO t VALUES (3, 'c')") == (1, 1)


@pytest.mark.jdbc
@pytest.mark.parametrize(
    ("kind", "value", "cursor"),
    [
        ("int", "{}", {}),
        ("timestamptz", "timestamptz '2026-01-01' + interval '1 ms' * {}", {"last_value_func": "min"}),
        ("numeric(9,2)", "{}", {"lag": 2, "on_cursor_value_missing": "exclude"}),
        ("varchar", "chr(96 + {})", {"dedup_key": ["id"]}),
    ],
)
def test_it_never_finds_nothing_where_spark_would_load_a_row(
    world: World, started: list[int], kind: str, value: str, cursor: dict[str, Any]
) -> None:
    """Beside each pipeline runs one that lets Spark look each time: what it is told first could matter."""
    some, is_left_out = random.Random(kind), cursor.get("on_cursor_value_missing") == "exclude"
    world.run(f"CREATE TABLE t (id serial, n {kind}, name text, at timestamptz DEFAULT now())")
    asks = world.pipe(**cursor)
    looks = world.pipe(**cursor, options={"sessionInitStatement": "SELECT 1"})
    looks.table = looks.folder / "other"
    asks.table = asks.folder / "asks"
    edge, asked = 10, 0
    changes = [
        lambda n: f"INSERT INTO t (n, name) VALUES ({value.format(n)}, 'new')",
        lambda n: f"UPDATE t SET name = name || '!' WHERE n = {value.format(n)}",
        lambda n: f"DELETE FROM t WHERE n = {value.format(n)}",
        lambda n: "SELECT 1",
    ]
    world.run(changes[0](edge), changes[0](edge))
    for _ in range(8):
        asks.run()
        before = len(started)
        asks.run()
        asked += len(started) == before
        looks.run()
        assert asks.rows("id", "name") == looks.rows("id", "name")
        world.run(some.choice(changes)(edge + some.choice([-3, -1, 0, 0, 1])))
        if is_left_out:
            world.run("INSERT INTO t (name) VALUES ('without a value')")
    assert asked >= 6
