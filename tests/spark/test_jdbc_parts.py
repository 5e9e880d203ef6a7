"""A table of a real PostgreSQL that several connections read at once: as of one moment, every row once."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.exceptions import (
    CursorError,
    InputError,
    ScopeProviderError,
    SourceUnreadableError,
)
from airflow_provider_scope.spark.databases import postgres, postgres_parts
from tests.spark.jdbc_world import closing
from tests.spark.test_jdbc import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.spark.jdbc_world import World

pytestmark = [pytest.mark.spark, pytest.mark.compiled, pytest.mark.jdbc]

WAIT = {"sessionInitStatement": "SELECT pg_advisory_lock_shared(1)"}
"""Each connection that reads a part waits for the test, after it has got its snapshot."""
PARTS = 4


def parts(column: str = "id", count: int = PARTS) -> dict[str, Any]:
    return {"partition_column": column, "num_partitions": count}


@contextmanager
def while_the_parts_wait(world: World, *statements: str, blocked: str = "") -> Iterator[None]:
    """Run statements when connections have begun to read parts, and none has read a row.

    :param blocked: A statement that has to wait until they have.
    """
    waiting = threading.Thread(target=world.run, args=(blocked,))
    failed: list[str] = []
    locked = threading.Event()

    def change() -> None:
        with closing(world.server.port, world.name) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(1)")
            locked.set()
            try:
                _wait_for(
                    world, "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                )
                for statement in statements:
                    cursor.execute(statement)
                if blocked:
                    waiting.start()
                    _wait_for(
                        world,
                        "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'relation' AND NOT granted",
                    )
            except AssertionError as err:
                failed.append(str(err))
            # The lock ends with the connection.

    thread = threading.Thread(target=change)
    thread.start()
    locked.wait(60)
    try:
        yield
    finally:
        thread.join()
        if waiting.ident:
            waiting.join()
    assert not failed


def _wait_for(world: World, sql: str) -> None:
    end = time.monotonic() + 60
    while world.ask(sql) != [(True,)]:
        assert time.monotonic() < end, sql
        time.sleep(0.05)


def plan(world: World, value: str, rows: str, condition: str, *, before: str = "") -> str:
    """Return the database's plan for a part."""
    divided = f'SELECT n, {value} AS "scope_part" FROM {rows}'
    return repr(
        world.ask(
            f"{before} EXPLAIN SELECT n FROM ({divided}) q "
            f"WHERE ({condition}) AND pg_current_snapshot()::text = ''"
        )
    )


def wait_until_nobody_is_connected(world: World) -> None:
    _wait_for(
        world,
        "SELECT count(*) = 0 FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name = 'airflow-provider-scope'",
    )


def test_what_changes_while_the_parts_are_read_does_not_show(world: World) -> None:
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL, name text)",
        "INSERT INTO t SELECT i, i, 'old' FROM generate_series(1, 40) i",
        "INSERT INTO t VALUES (-1000, 7, 'far below'), (1000, 8, 'far above')",
    )
    wanted = sorted(world.ask("SELECT id, n, name FROM t"), key=repr)
    pipe = world.pipe(options=WAIT, **parts())
    with while_the_parts_wait(
        world,
        "UPDATE t SET name = 'new' WHERE id = 3",
        "UPDATE t SET id = 500 WHERE id = 4",  # into another part
        "DELETE FROM t WHERE id IN (5, 39)",
        "INSERT INTO t VALUES (0, 1, 'new'), (41, 2, 'new'), (5000, 40, 'new')",
    ):
        pipe.run()

    assert pipe.rows("id", "n", "name") == wanted
    wait_until_nobody_is_connected(world)


def test_later_loads_take_what_changed_meanwhile(world: World) -> None:
    world.run("CREATE TABLE t (id int, n int)", "INSERT INTO t SELECT i, i FROM generate_series(1, 20) i")
    pipe = world.pipe(options=WAIT, **parts())
    with while_the_parts_wait(world, "INSERT INTO t VALUES (1, 20), (2, 21)"):
        pipe.run()
    first = len(pipe.rows())
    pipe.run()
    pipe.run()

    assert first == 20
    assert pipe.rows("n") == sorted([(n,) for n in [*range(1, 22), 20]], key=repr)


VALUES = {
    "int": "(1), (2), (2147483647), (-2147483648), (NULL), (2)",
    "bigint": "(-9223372036854775808), (9223372036854775807), (0), (NULL), (-1)",
    "smallint": "(1), (2), (3), (NULL)",
    "numeric(38,10)": "(0.0000000001), (-9999999999999999999999999999), (1.5), (NULL)",
    "real": "('NaN'), ('Infinity'), ('-Infinity'), (0.1), (-3.4e38), (3.4e38), (NULL)",
    "double precision": "('NaN'), ('Infinity'), ('-Infinity'), (5e-324), (-1.7e308), (1.7e308), (NULL)",
    "date": "('0001-01-01'), ('1582-10-10'), ('9999-12-31'), (NULL), ('2026-01-01'), ('2026-01-02')",
    "timestamp": "('0001-01-01'), ('2026-03-29 02:30:00.000001'), ('9999-12-31 23:59:59.999999'), (NULL)",
    "timestamptz": "('1883-11-18 12:00:00+00'), ('2026-10-25 02:30:00.123456+02'), (NULL), ('2500-01-01Z')",
}


@pytest.mark.parametrize("kind", VALUES)
def test_every_row_comes_once_whatever_divides_them(world: World, kind: str) -> None:
    world.run(
        f'CREATE TABLE t ("Part""" {kind}, n serial, other timestamptz DEFAULT now())',
        f'INSERT INTO t ("Part""") VALUES {VALUES[kind]}',
        'INSERT INTO t ("Part""") SELECT "Part""" FROM t ORDER BY 1 LIMIT 2',
    )
    pipe = world.pipe(**parts('part"', 3))
    pipe.run()

    value = '"Part"""' + ("::float8" if kind == "real" else "")
    wanted = [tuple(map(plain, row)) for row in world.ask(f"SELECT {value}, n, other FROM t")]
    found = [tuple(map(plain, row)) for row in pipe.rows('Part"', "n", "other")]
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))  # NaN is not equal to itself


@pytest.mark.parametrize("values", ["", "INSERT INTO t SELECT 7, i FROM generate_series(1, 9) i"])
def test_a_table_of_no_rows_and_one_of_a_single_value(world: World, values: str) -> None:
    world.run("CREATE TABLE t (id int, n int)", *([values] if values else []))
    pipe = world.pipe(**parts())
    pipe.run()
    assert pipe.rows("n", "id") == sorted(world.ask("SELECT n, id FROM t"), key=repr)
    wait_until_nobody_is_connected(world)


def test_rows_without_a_value_are_all_there_is(world: World) -> None:
    world.run("CREATE TABLE t (id float8, n int)", "INSERT INTO t VALUES (NULL, 1), ('NaN', 2), (NULL, 3)")
    pipe = world.pipe(**parts())
    pipe.run()
    assert pipe.rows("n") == [(1,), (2,), (3,)]


def test_the_parts_are_read_by_several_connections_and_an_index_serves_each(world: World) -> None:
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, n int)",
        "INSERT INTO t SELECT i, i FROM generate_series(1, 8) i",
        f"ALTER DATABASE {world.name} SET log_statement = 'all'",
    )
    pipe = world.pipe(**parts())
    before = len(world.server.log())
    pipe.run()

    reads = [one for one in world.server.log()[before:].split("LOG:") if '"scope_part" >=' in one]
    assert len(reads) == PARTS - 1
    condition = '"scope_part" >= (3) AND "scope_part" < (5)'
    assert "Index Cond: ((id >= 3) AND (id < 5))" in plan(
        world, "id", "t", condition, before="SET enable_seqscan = off;"
    )


@pytest.mark.parametrize(
    ("kind", "values"), [("timestamptz", "now()"), ("bigint", "nextval('s')")], ids=["time", "sequence"]
)
def test_what_is_committed_late_is_loaded(world: World, kind: str, values: str) -> None:
    world.run("CREATE SEQUENCE s", f"CREATE TABLE t (id serial, c {kind}, name text)")
    world.run(f"INSERT INTO t (c, name) SELECT {values}, 'first' FROM generate_series(1, 4)")
    pipe = world.pipe("c", **parts())
    with world.open(f"INSERT INTO t (c, name) VALUES ({values}, 'late')"):
        world.run(f"INSERT INTO t (c, name) VALUES ({values}, 'early')")
        pipe.run()
        between = pipe.rows("name")
    pipe.run()
    pipe.run()

    assert between == [("first",)] * 4
    assert pipe.rows("name") == [("early",), *[("first",)] * 4, ("late",)]


def test_the_snapshot_is_taken_after_the_look_at_who_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has ended when it is asked who runs, is in the snapshot: no bound holds its rows back."""
    world.run("CREATE TABLE t (id serial, c timestamptz DEFAULT now())", "INSERT INTO t DEFAULT VALUES")
    running = postgres._CursorConditions._running
    open_ones = []

    def just_ended(self: Any) -> Any:
        open_ones.pop().commit()
        return running(self)

    pipe = world.pipe("c", **parts())
    with world.open("INSERT INTO t (c) VALUES (now())") as late:
        world.run("INSERT INTO t DEFAULT VALUES", "INSERT INTO t DEFAULT VALUES")
        open_ones.append(late)
        monkeypatch.setattr(postgres._CursorConditions, "_running", just_ended)
        pipe.run()
    assert pipe.rows("id") == [(1,), (2,), (3,), (4,)]


def test_no_transaction_stays_open_when_a_load_fails(world: World) -> None:
    world.run(
        "CREATE TABLE t (id int, n int, d date)",
        "INSERT INTO t SELECT i, i, '2026-01-01' FROM generate_series(1, 8) i",
        "UPDATE t SET d = 'infinity' WHERE id = 6",
    )
    pipe = world.pipe(**parts())
    with pytest.raises(CursorError, match="column d has the value infinity"):
        pipe.run()
    wait_until_nobody_is_connected(world)

    world.run("UPDATE t SET d = NULL WHERE id = 6")
    pipe.run()
    assert len(pipe.rows()) == 8
    wait_until_nobody_is_connected(world)


def test_a_load_whose_snapshot_is_gone_writes_nothing(world: World) -> None:
    world.run("CREATE TABLE t (id int, n int)", "INSERT INTO t SELECT i, i FROM generate_series(1, 8) i")
    # Another transaction ends in between: else the next snapshot sees the same.
    pipe = world.pipe(options={"sessionInitStatement": "COMMIT; SELECT pg_current_xact_id()"}, **parts())
    with pytest.raises(SourceUnreadableError, match="did not read this snapshot") as told:
        pipe.run()
    assert told.value.is_retryable
    assert not pipe.table.joinpath("_delta_log").exists()
    pipe.arguments["source"]["options"] = {}
    pipe.run()
    assert len(pipe.rows()) == 8


@pytest.mark.parametrize(
    ("column", "told"),
    [("name", "the column has the type text, whose values"), ("other", "there is no such column: n, name")],
)
def test_a_column_that_divides_nothing_is_refused(world: World, column: str, told: str) -> None:
    world.run("CREATE TABLE t (n int, name text)", "INSERT INTO t VALUES (1, 'a')")
    with pytest.raises(InputError, match=told):
        world.pipe(**parts(column)).run()
    wait_until_nobody_is_connected(world)


def test_a_large_load_is_cut_by_the_cursor_and_each_batch_is_read_in_parts(world: World) -> None:
    world.run("CREATE TABLE t (n int)", "INSERT INTO t SELECT i / 2 FROM generate_series(0, 19) i")
    pipe = world.pipe(max_rows_per_batch=5, **parts("n", 2))
    report = pipe.run(max_batches_per_run=9)

    assert len(report.batches) > 2
    assert pipe.rows("n") == [(i // 2,) for i in range(20)]


def test_a_query_and_pre_filter_sql_are_read_in_parts(world: World) -> None:
    world.run("CREATE TABLE t (a int, b int)", "INSERT INTO t SELECT i, i * 2 FROM generate_series(1, 9) i")
    pipe = world.pipe(
        "m",
        query="SELECT a, b AS scope_part FROM t WHERE a <> 3",
        pre_filter_sql="SELECT a AS m, scope_part FROM @data WHERE a <> 5",
        **parts("scope_part", 3),
    )
    pipe.run()
    assert pipe.rows("m", "scope_part") == [(n, 2 * n) for n in range(1, 10) if n not in (3, 5)]


def test_a_failing_task_of_a_part_fails_the_load(world: World) -> None:
    world.run("CREATE TABLE t (id int, n int)", "INSERT INTO t SELECT i, i FROM generate_series(1, 8) i")
    pipe = world.pipe(query="SELECT id, n, 1 / (id - 7) AS x FROM t", **parts())
    with pytest.raises(ScopeProviderError, match="division by zero"):
        pipe.run()
    wait_until_nobody_is_connected(world)


# ---- by pages: no column says where a part begins ------------------------------------------------


def reads(world: World, before: int) -> list[str]:
    """Return the statements that read parts of a table by its pages."""
    return [
        one for one in world.server.log()[before:].split("LOG:") if "::tid" in one and "SELECT 1" not in one
    ]


@pytest.fixture
def in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a table of a few pages be divided as one of gigabytes is."""
    monkeypatch.setattr(postgres_parts, "_PART_BYTES", 8192)
    monkeypatch.setattr(postgres_parts, "_cores", lambda session: 3)


def test_pages_hold_every_row_once_whatever_changes_meanwhile(world: World) -> None:
    world.run(
        "CREATE TABLE t (n float8, id int, name text) WITH (fillfactor = 60)",
        "INSERT INTO t SELECT i, i, repeat('x', 900) FROM generate_series(1, 200) i",
        "INSERT INTO t VALUES ('NaN', 201, 'no number'), (NULL, 202, NULL), ('-Infinity', 203, '')",
        "UPDATE t SET name = 'moved' WHERE id % 7 = 0",  # to other pages, or within theirs
        "DELETE FROM t WHERE id BETWEEN 20 AND 60",
    )
    wanted = sorted(world.ask("SELECT id, name, n::text FROM t"), key=repr)
    pipe = world.pipe("id", options=WAIT, num_partitions=5)
    with while_the_parts_wait(
        world,
        "UPDATE t SET name = 'new' WHERE id % 3 = 0",
        "DELETE FROM t WHERE id > 150",
        "INSERT INTO t SELECT i, i, 'new' FROM generate_series(1000, 1100) i",
        "VACUUM t",
    ):
        pipe.run()

    found = [(row[0], row[1], plain_number(row[2])) for row in pipe.rows("id", "name", "n")]
    assert sorted(found, key=repr) == wanted
    wait_until_nobody_is_connected(world)


def plain_number(value: float | None) -> str | None:
    """Return a float as PostgreSQL writes it."""
    if value is None:
        return None
    return {"nan": "NaN", "-inf": "-Infinity"}.get(str(value), f"{value:g}")


@pytest.mark.parametrize("change", ["VACUUM FULL t", "TRUNCATE t"])
@pytest.mark.parametrize("divided", [{"num_partitions": 4}, parts("n")], ids=["pages", "column"])
def test_who_wants_to_move_or_remove_the_rows_waits_and_the_load_begins_anew(
    world: World, monkeypatch: pytest.MonkeyPatch, change: str, divided: dict[str, Any]
) -> None:
    """The parts that have not begun would wait for it, and it for the snapshot: for ever."""
    monkeypatch.setattr(postgres_parts, "_WAIT", "1s")
    world.run(
        "CREATE TABLE t (n int, name text)",
        "INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 100) i",
        "DELETE FROM t WHERE n < 40",
    )
    pipe = world.pipe(options=WAIT, **divided)
    with (
        while_the_parts_wait(world, blocked=change),
        pytest.raises(SourceUnreadableError, match="waited too long for a lock on the table t") as told,
    ):
        pipe.run()
    assert told.value.is_retryable
    assert not pipe.table.joinpath("_delta_log").exists()
    wait_until_nobody_is_connected(world)

    pipe.run()
    assert sorted(pipe.rows("n")) == ([(n,) for n in range(40, 101)] if "VACUUM" in change else [])


def test_a_first_load_of_a_large_table_is_read_in_parts_and_later_ones_are_not(
    world: World, in_small_parts: None
) -> None:
    world.run(
        'CREATE TABLE "T ?\'" (n int PRIMARY KEY, name text)',
        "INSERT INTO \"T ?'\" SELECT i, repeat('x', 900) FROM generate_series(1, 100) i",
        f"ALTER DATABASE {world.name} SET log_statement = 'all'",
    )
    pipe = world.pipe(table='"T ?\'"')
    before = len(world.server.log())
    pipe.run()
    assert len(reads(world, before)) == 3
    world.run("INSERT INTO \"T ?'\" VALUES (101, 'later')")
    before = len(world.server.log())
    pipe.run()
    assert reads(world, before) == []
    assert sorted(pipe.rows("n")) == [(n,) for n in range(1, 102)]

    condition = "\"scope_part\" >= '(2,0)'::tid AND \"scope_part\" < '(5,0)'::tid"
    assert "Tid Range Scan" in plan(world, "q.ctid", '"T ?\'" AS q WHERE n <= 100', condition)


@pytest.mark.parametrize(
    "asked",
    [
        {"num_partitions": 1},
        {"max_rows_per_batch": 30},
        {"query": "SELECT * FROM t"},
        {"cursor": {"initial_value": 5}},
    ],
    ids=["one connection", "batches", "query", "a part of the rows"],
)
def test_what_is_not_read_in_parts_by_itself(
    world: World, in_small_parts: None, asked: dict[str, Any]
) -> None:
    world.run(
        "CREATE TABLE t (n int, name text)",
        "INSERT INTO t SELECT i, repeat('x', 900) FROM generate_series(5, 100) i",
        f"ALTER DATABASE {world.name} SET log_statement = 'all'",
    )
    pipe = world.pipe("n", **asked.pop("cursor", {}), **asked)
    before = len(world.server.log())
    pipe.run(max_batches_per_run=9)
    assert reads(world, before) == []
    assert sorted(pipe.rows("n")) == [(n,) for n in range(5, 101)]


def test_partitions_of_a_table_are_divided_each(world: World) -> None:
    world.run(
        "CREATE TABLE t (n int, name text) PARTITION BY RANGE (n)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (20)",
        "CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (20) TO (1000) PARTITION BY LIST (n)",
        "CREATE TABLE t3 PARTITION OF t2 DEFAULT",
        "INSERT INTO t SELECT i, repeat('x', 900) FROM generate_series(0, 99) i",
        f"ALTER DATABASE {world.name} SET log_statement = 'all'",
    )
    pipe = world.pipe(num_partitions=3)
    before = len(world.server.log())
    pipe.run()
    # t3 has 10 pages, the largest of them.
    assert ["'(3,0)'::tid" in one or "'(6,0)'::tid" in one for one in reads(world, before)] == [True] * 3
    assert sorted(pipe.rows("n")) == [(n,) for n in range(100)]


def test_children_of_a_table_are_read_too(world: World) -> None:
    world.run(
        "CREATE TABLE t (n int, name text)",
        "CREATE TABLE child (more int) INHERITS (t)",
        "INSERT INTO t SELECT i, repeat('x', 900) FROM generate_series(0, 29) i",
        "INSERT INTO child SELECT i, repeat('x', 900) FROM generate_series(30, 99) i",
    )
    pipe = world.pipe(num_partitions=3)
    pipe.run()
    assert sorted(pipe.rows("n")) == [(n,) for n in range(100)]


@pytest.mark.parametrize("table", ["v", "ONLY t", "nobody.v"])
def test_what_has_no_pages_is_refused(world: World, table: str) -> None:
    world.run("CREATE TABLE t (n int)", "CREATE VIEW v AS SELECT * FROM t", "CREATE SCHEMA nobody")
    world.run("CREATE VIEW nobody.v AS SELECT 1 AS n")
    with pytest.raises(InputError, match="num_partitions=2 is not possible without partition_column"):
        world.pipe(table=table, num_partitions=2).run()
    wait_until_nobody_is_connected(world)


def test_a_table_of_no_pages(world: World) -> None:
    world.run("CREATE TABLE t (n int)")
    pipe = world.pipe(num_partitions=4)
    pipe.run()
    world.run("INSERT INTO t VALUES (1)")
    pipe.run()
    assert pipe.rows("n") == [(1,)]
    wait_until_nobody_is_connected(world)


def test_a_server_that_shares_no_snapshot_is_read_over_one_connection_unless_parts_are_asked_for(
    world: World, in_small_parts: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    world.run(
        "CREATE TABLE t (n int, name text)",
        "INSERT INTO t SELECT i, repeat('x', 900) FROM generate_series(1, 100) i",
        f"CREATE ROLE reader_{world.name} LOGIN",
        f"GRANT SELECT ON t TO reader_{world.name}",
        "REVOKE EXECUTE ON FUNCTION pg_export_snapshot() FROM PUBLIC",
    )
    world.connect(monkeypatch, f"reader_{world.name}")
    with pytest.raises(InputError, match="permission denied for function pg_export_snapshot"):
        world.pipe(num_partitions=2).run()
    capfd.readouterr()

    pipe = world.pipe()
    pipe.run()
    assert "the table is read over one connection, because it cannot be divided: " in capfd.readouterr().out
    assert sorted(pipe.rows("n")) == [(n,) for n in range(1, 101)]
    wait_until_nobody_is_connected(world)
