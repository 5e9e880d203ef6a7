"""Rows of PostgreSQL that were written two thousand million transactions ago, and more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.real_airflow import postgres
from tests.spark.jdbc_world import Server, World
from tests.support import warm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.compiled, pytest.mark.jdbc]

ROWS = "CREATE TABLE {0} (n serial, name text); INSERT INTO {0} (name) VALUES ('old'), ('older');\n"
SEGMENT = 2**20
"""Transactions of one file of ``pg_xact``: from its beginning on, the server makes a new one."""


def age(data: Path) -> None:
    """Make rows, and let the database count transactions past half of its numbers, and past all of them."""
    steps = [("t", 0, 1_500), ("u", 0, 3_000), (None, 0, 4_000), (None, 1, 600)]
    for table, epoch, segment in steps:
        single = ["--single", "-D", str(data), "-c", "fsync=off"]
        postgres.run_program("postgres", *single, "postgres", tell=ROWS.format(table) if table else "")
        for name in ("postgres", "template1", "template0"):
            postgres.run_program("postgres", *single, name, tell="VACUUM FREEZE\n")
        numbers = ["-e", str(epoch), "-x", str(segment * SEGMENT)]
        postgres.run_program("pg_resetwal", "-f", *numbers, "-D", str(data))


@pytest.fixture(scope="module")
def old_server() -> Iterator[Server]:
    try:
        postgres.programs()
    except postgres.PostgresMissingError as err:
        pytest.skip(str(err))
    with postgres.postgres(age) as url:
        yield Server(url)


@pytest.fixture
def old_world(old_server: Server, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    warm.use(monkeypatch, spark)
    return World(old_server, "postgres", tmp_path, monkeypatch)


@pytest.mark.parametrize("table", ["t", "u"])
def test_rows_of_long_ago_do_not_wait_for_transactions_of_today(
    old_world: World, table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    world = old_world
    # Half of all numbers ago, a row seems to be of the future; all of them ago, of the recent past.
    assert world.ask(f"SELECT DISTINCT age(xmin) < 0 FROM {table}") == [(table == "u",)]
    pipe = world.pipe(table=table)
    late = f"INSERT INTO {table} (name) VALUES ('late')"
    with world.open(late):
        world.run(f"INSERT INTO {table} (name) VALUES ('early')")
        pipe.run()
        assert pipe.rows("name") == [("old",), ("older",)]
        assert "rows whose 'n' is 4 or more wait for a later load" in capsys.readouterr().out
    # Others are always running: each load takes what came before theirs.
    world.run("CREATE TABLE IF NOT EXISTS others (a int)")
    with world.open("INSERT INTO others VALUES (1)"):
        pipe.run()
    assert [name for (name,) in pipe.rows("name")] == ["early", "late", "old", "older"]
