"""A cursor for each group of a database's rows."""

from __future__ import annotations

import json
import random
import re
import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.exceptions import CursorError
from airflow_provider_scope.sources.cursor import state as cursor_state
from airflow_provider_scope.spark import databases
from tests.spark.jdbc_groups import check
from tests.support import warm

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.spark.jdbc_world import World

pytestmark = [pytest.mark.spark, pytest.mark.compiled, pytest.mark.jdbc]

TEXTS = ["", "=", "a", "a ", "A", "é", "it's", '"\\', "null", "\U0001f600"]
SINCE = datetime(2020, 1, 1, tzinfo=UTC)
KINDS: dict[str, tuple[str, list[Any], str, Callable[[int], Any]]] = {
    "text": ("text", TEXTS, "int", lambda n: n - 20),
    "char": ("char(3)", ["a  ", "ab ", "A  ", "é  "], "text", lambda n: "Aa é9"[n % 5]),
    "bpchar": ("bpchar", ["a", "a ", "", " "], "numeric(9,2)", lambda n: n / 4),
    "bigint": ("bigint", [0, -1, 2**63 - 1], "timestamptz", lambda n: SINCE + timedelta(microseconds=n)),
    "date": ("date", [date(1582, 10, 4), date(9999, 12, 31)], "date", lambda n: date(2020, 1, 1 + n)),
    "boolean": ("boolean", [True, False], "float8", lambda n: n / 8),
    "enum": ("mood", ["sad", "ok"], "timestamp", lambda n: SINCE.replace(tzinfo=None) + timedelta(n)),
    # To their rules a and A are equal; and so is what the load asks the database, but for ours.
    "collation": ('text COLLATE "any case"', ["a", "A", "á", "b"], "smallint", lambda n: n - 32768),
    "citext": ("citext", ["a", "A", "á", "b"], "real", lambda n: n / 8 - 1),
    "custom": ("numeric", [Decimal("1.0"), Decimal(-1), Decimal(10) ** 19], "bigint", lambda n: 2**62 + n),
}


@pytest.mark.parametrize("kind", KINDS)
def test_postgres_gives_the_rows_of_each_group_beyond_its_own_last_value(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    rng = random.Random(kind)
    group_type, groups, value_type, value_of = KINDS[kind]
    world.run(
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE COLLATION \"any case\" (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
        "CREATE EXTENSION citext",
        f"CREATE TABLE t (g {group_type}, n {value_type}, id int)",
    )
    plans: list[str] = []

    def noted(rows: Any) -> Any:
        plans.append(rows._jdf.queryExecution().toString())
        return rows

    monkeypatch.setattr(databases, "in_utc", noted)
    more: dict[str, Any] = {"last_value_func": "min"} if kind in ("text", "boolean", "char") else {}
    if kind in ("text", "bpchar", "bigint", "collation"):
        more["max_rows_per_batch"] = 5
    if kind == "custom":
        more["options"] = {"customSchema": "G DECIMAL(20,0)"}
    pipe = world.pipe(per="G", on_cursor_value_missing="exclude", **more)

    def insert(group: Any, n: Any, id_: int) -> None:
        texts = ["NULL" if v is None else "'" + str(v).replace("'", "''") + "'" for v in (group, n, id_)]
        world.run(f"INSERT INTO t VALUES ({', '.join(texts)})")

    check(pipe, insert, (groups, value_of), rng)

    assert "jsonb ->>" in plans[-1]


def test_the_rows_of_one_group_do_not_wait_for_transactions_that_write_another(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    world.run("CREATE TABLE t (g text, n int)", "INSERT INTO t VALUES ('a', 90), ('b', 6), (NULL, 6)")
    pipe = world.pipe(per="g")
    pipe.run()
    world.run("INSERT INTO t VALUES ('a', 100)")
    with world.open("INSERT INTO t VALUES ('b', 7), ('new', 1)"):
        world.run("INSERT INTO t VALUES ('b', 8), ('new', 2), (NULL, 9)")
        pipe.run()
        loaded = [("a", 90), ("a", 100), ("b", 6), (None, 6)]
        assert pipe.rows("g", "n") == sorted(loaded, key=repr)
    said = "rows of 3 groups of g, such as those whose 'n' is "
    assert f"{said}9 or more in the group None, wait for a later load" in capfd.readouterr().out
    pipe.run()

    assert pipe.rows("g", "n") == sorted(
        [*loaded, ("b", 7), ("b", 8), ("new", 1), ("new", 2), (None, 9)], key=repr
    )


def test_what_tells_no_groups_is_refused_before_a_row_is_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run("CREATE TABLE t (g int, x numeric(5,1), n int)", "INSERT INTO t VALUES (1, 1, 1), (2, 1, 1)")
    monkeypatch.setattr(cursor_state, "MOST_GROUPS", 1)
    for per, words in (
        ("absent", "cursor.per is 'absent', and there is no such column: g, x, n"),
        ("x", "cursor.per='x' has the type decimal(5,1)"),
        ("g", "cursor.per='g' has more than 1 values"),
    ):
        with pytest.raises(CursorError, match=re.escape(words)):
            world.pipe(per=per).run()
    assert [*world.pipe().table.glob("_delta_log/*.json")] == []


@pytest.mark.parametrize("kind", ["TEXT", "INTEGER", "BOOLEAN"])
def test_sqlite_is_read_as_a_whole_and_each_group_from_its_own_last_value_on(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    warm.use(monkeypatch, spark)
    file, rng = tmp_path / "shop.db", random.Random(kind)
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "sqlite", "host": str(file)}))
    cursor = {"column": "n", "per": "g", "on_cursor_value_missing": "exclude", "initial_value": 2}
    source = {"conn_id": "shop", "table": "t", "cursor": cursor}
    pipe = warm.Pipe(tmp_path, {"source": source})
    groups = {"TEXT": TEXTS, "INTEGER": [0, -1, 2**63 - 1], "BOOLEAN": [True, False]}[kind]
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute(f"CREATE TABLE t (g {kind}, n INTEGER, id INTEGER)")

        def insert(group: Any, n: Any, id_: int) -> None:
            connection.execute("INSERT INTO t VALUES (?, ?, ?)", (group, n, id_))

        check(pipe, insert, (groups, lambda n: n + 2), rng)
