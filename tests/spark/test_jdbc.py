"""Rows of a real PostgreSQL by a cursor column: what is new, exactly once, whatever commits late."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.exceptions import CursorError, ScopeProviderError
from airflow_provider_scope.spark import cursor_slice
from tests.real_airflow import postgres
from tests.spark.jdbc_world import Server, World
from tests.support import warm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    try:
        postgres.programs()
    except postgres.PostgresMissingError as err:
        pytest.skip(str(err))
    with postgres.postgres() as url:
        yield Server(url)


@pytest.fixture
def world(server: Server, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    warm.use(monkeypatch, spark)
    return server.new(tmp_path, monkeypatch)


def test_each_load_takes_what_is_new(world: World) -> None:
    world.run("CREATE TABLE t (n bigint NOT NULL, t text)", "INSERT INTO t VALUES (3,'c'), (1,'a'), (2,'b')")
    pipe = world.pipe()

    first = pipe.run()
    again = pipe.run()
    world.run("INSERT INTO t VALUES (5,'e'), (4,'d'), (3,'late')")
    second = pipe.run()

    assert pipe.rows("n", "t") == [(1, "a"), (2, "b"), (3, "c"), (3, "late"), (4, "d"), (5, "e")]
    assert [first.rows, again.rows, second.rows] == [3, 0, 3]
    assert pipe.state()["last"] == "5"


def test_the_database_is_asked_for_the_new_rows_alone(world: World) -> None:
    world.run(
        "CREATE TABLE t (n int NOT NULL)",
        "INSERT INTO t SELECT generate_series(1, 9)",
        f"ALTER DATABASE {world.name} SET log_statement = 'all'",
    )
    pipe = world.pipe()
    pipe.run()
    world.run("INSERT INTO t VALUES (10)")
    before = len(world.server.log())
    pipe.run()

    reads = [line for line in world.server.log()[before:].splitlines() if line.startswith("WHERE")]
    assert sorted(pipe.rows("n")) == [(n,) for n in range(1, 11)]
    assert 'WHERE ("n" >= 9 AND "n" <= 10)' in " ".join(reads)


def test_the_plan_holds_the_condition(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[str] = []

    def tell(plan: Any, entry: Any, data: Any) -> Any:
        plans.append(data._jdf.queryExecution().toString())
        return once(plan, entry, data)

    once = cursor_slice.read_once
    monkeypatch.setattr(cursor_slice, "read_once", tell)
    world.run("CREATE TABLE t (n int)", "INSERT INTO t VALUES (1), (2)")
    pipe = world.pipe()
    pipe.run()
    pipe.run()

    assert 'WHERE ("n" >= 2 AND "n" <= 2) OR "n" IS NULL' in plans[-1]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("timestamptz", "now()"),
        ("timestamp", "now() AT TIME ZONE 'UTC'"),
        ("date", "(now() AT TIME ZONE 'UTC')::date"),
        ("bigint", "nextval('s')"),
    ],
)
def test_what_is_committed_late_is_loaded(world: World, kind: str, values: str) -> None:
    world.run("CREATE SEQUENCE s", f"CREATE TABLE t (c {kind}, name text)")
    world.run(f"INSERT INTO t VALUES ({values}, 'first')")
    pipe = world.pipe("c")
    with world.open(f"INSERT INTO t VALUES ({values}, 'late')"):
        world.run(f"INSERT INTO t VALUES ({values}, 'early')")
        pipe.run()
        between = pipe.rows("name")
    pipe.run()
    pipe.run()

    assert ("late",) not in between
    assert ("first",) in between
    assert pipe.rows("name") == [("early",), ("first",), ("late",)]


def test_a_transaction_that_has_not_written_yet_holds_back_what_is_later(world: World) -> None:
    world.run("CREATE TABLE t (c timestamptz DEFAULT now(), name text)")
    pipe = world.pipe("c")
    with world.open("SELECT now()") as connection:
        world.run("INSERT INTO t (name) VALUES ('early')")
        pipe.run()
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO t (name) VALUES ('late')")
    pipe.run()

    assert pipe.rows("name") == [("early",), ("late",)]


def test_a_user_who_may_not_see_transactions_is_told_to_give_a_lag(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(
        "CREATE TABLE t (c timestamptz)",
        "INSERT INTO t VALUES (now())",
        "DROP ROLE IF EXISTS reader",
        "CREATE ROLE reader LOGIN",
        "GRANT SELECT ON t TO reader",
    )
    world.connect(monkeypatch, login="reader")
    with world.open("SELECT 1"):
        world.pipe("c").run()

    assert "GRANT pg_read_all_stats" in capsys.readouterr().out


def test_every_value_arrives_as_it_is(world: World) -> None:
    columns = {
        "n": ("int", ["1", "2", "3"]),
        "i2": ("smallint", ["-32768", "32767", "NULL"]),
        "i8": ("bigint", ["-9223372036854775808", "9223372036854775807", "NULL"]),
        "d": ("numeric(38,10)", ["1234567890123456789012345678.0123456789", "-0.0000000001", "NULL"]),
        "f4": ("real", ["0.5", "'-Infinity'", "NULL"]),
        "f8": ("double precision", ["0.1", "'Infinity'", "NULL"]),
        "b": ("boolean", ["true", "false", "NULL"]),
        "t": ("text", ["'ä😀'' \\'", "''", "NULL"]),
        "v": ("varchar(5)", ["'ab'", "'ab   '", "NULL"]),
        "c": ("char(5)", ["'ab'", "'abcde'", "NULL"]),
        "by": ("bytea", [r"'\x00ff'", "''", "NULL"]),
        "dt": ("date", ["'0001-01-01'", "'1582-10-10'", "'9999-12-31'"]),
        "ts": ("timestamp", ["'1500-02-28 23:59:59.999999'", "'2026-03-29 02:30:00.000001'", "NULL"]),
        "tz": ("timestamptz", ["'1883-11-18 12:00:00+00'", "'2026-10-25 02:30:00.123456+02'", "NULL"]),
        "ai": ("int[]", ["'{1,NULL,-3}'", "'{}'", "NULL"]),
        "at": ("text[]", ["ARRAY['a,b','\"']", "'{}'", "NULL"]),
    }
    texts = {
        "u": ("uuid", ["'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "NULL", "NULL"]),
        "j": ("json", ["'{\"a\":  1.10}'", "'null'", "NULL"]),
        "jb": ("jsonb", ['\'{"b":1, "a":2}\'', "'[]'", "NULL"]),
        "ti": ("time", ["'24:00:00'", "'01:02:03.000004'", "NULL"]),
        "tt": ("timetz", ["'01:02:03+02'", "'00:00:00-12'", "NULL"]),
        "iv": ("interval", ["'1 year 2 days 03:04:05.6'", "'-1 s'", "NULL"]),
        "m": ("money", ["'1000.5'", "'-2'", "NULL"]),
        "e": ("inet", ["'10.0.0.1/24'", "'::1'", "NULL"]),
        "bi": ("bit(3)", ["B'101'", "B'000'", "NULL"]),
        "ad": ("date[]", ["'{2026-01-01,infinity}'", "'{}'", "NULL"]),
        "an": ("numeric[]", ["'{1.10,NaN}'", "'{}'", "NULL"]),
    }
    there = columns | texts
    world.run("CREATE TABLE t (" + ", ".join(f"{name} {kind}" for name, (kind, _) in there.items()) + ")")
    for at in range(3):
        world.run("INSERT INTO t VALUES (" + ", ".join(values[at] for _, values in there.values()) + ")")
    pipe = world.pipe()
    pipe.run()

    as_text = [f"{name}::text{'[]' if kind.endswith('[]') else ''}" for name, (kind, _) in texts.items()]
    wanted = world.ask(f"SELECT {', '.join([*columns, *as_text])} FROM t")
    found = pipe.rows(*there)
    for row, other in zip(sorted(wanted), found, strict=True):
        assert dict(zip(there, map(plain, row), strict=True)) == dict(
            zip(there, map(plain, other), strict=True)
        )


def plain(value: Any) -> Any:
    """Give a value as both readers give it: bytes, and an instant in UTC."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, datetime) and value.tzinfo:
        return value.astimezone(UTC).replace(tzinfo=UTC)
    return value


def test_not_a_number_arrives(world: World) -> None:
    world.run("CREATE TABLE t (n int, f real, d float8)", "INSERT INTO t VALUES (1, 'NaN', 'NaN')")
    pipe = world.pipe()
    pipe.run()

    assert repr(pipe.rows("f", "d")) == "[(nan, nan)]"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("timestamp", "infinity"),
        ("timestamptz", "-infinity"),
        ("date", "infinity"),
        ("date", "0044-03-15 BC"),
        ("timestamp", "0044-03-15 12:00 BC"),
        ("timestamptz", "10000-01-01 00:00+00"),
        ("numeric(5,2)", "NaN"),
    ],
)
@pytest.mark.parametrize("is_cursor", [False, True])
def test_a_value_that_the_table_cannot_hold_is_refused(
    world: World, kind: str, value: str, is_cursor: bool
) -> None:
    world.run(f"CREATE TABLE t (n int, x {kind})", f"INSERT INTO t VALUES (1, '{value}')")
    pipe = world.pipe("x" if is_cursor else "n")
    # As a cursor of times, what lies behind now is held back, and looked at when its time has come.
    is_later = is_cursor and (value.startswith("10000") or value == "infinity")
    if is_later:
        pipe.run()
        assert pipe.rows() == []
        return
    with pytest.raises(CursorError, match="column x has the value"):
        pipe.run()


@pytest.mark.parametrize("value", ["infinity", "9999-12-31"])
def test_the_end_of_time_does_not_become_the_last_value(world: World, value: str) -> None:
    world.run("CREATE TABLE t (c date)", f"INSERT INTO t VALUES ('{value}')")
    with pytest.raises(CursorError, match=r"has the value infinity|behind which no row"):
        world.pipe("c", query="SELECT c FROM t", lag=1, last_value_func="min").run()


def test_a_number_without_precision_is_refused_or_read_as_the_user_says(world: World) -> None:
    world.run("CREATE TABLE t (n int, x numeric)", "INSERT INTO t VALUES (1, 1.5), (2, -3)")
    with pytest.raises(CursorError, match="'x' is numeric of no precision"):
        world.pipe().run()
    pipe = world.pipe(options={"customSchema": "x DECIMAL(38,2)"})
    pipe.run()
    assert pipe.rows("x") == [(Decimal("-3.00"),), (Decimal("1.50"),)]

    world.run("INSERT INTO t VALUES (3, 1.555)")
    with pytest.raises(CursorError, match=r"column x has the value 1\.555"):
        pipe.run()
    world.run("UPDATE t SET x = 1e37 WHERE n = 3")
    with pytest.raises(CursorError, match="column x has the value 1000"):
        pipe.run()


def test_a_number_is_read_as_text_if_the_user_says_so(world: World) -> None:
    world.run("CREATE TABLE t (n int, x numeric)", "INSERT INTO t VALUES (1, 1e-30), (2, 'NaN'), (3, 1e40)")
    pipe = world.pipe(options={"customSchema": "x STRING"})
    pipe.run()
    assert pipe.rows("x") == [("0." + "0" * 29 + "1",), ("1" + "0" * 40,), ("NaN",)]


def test_text_is_compared_by_code_point(world: World) -> None:
    world.run(
        "CREATE COLLATION other (provider = icu, locale = 'en-US')",
        'CREATE TABLE t (c text COLLATE "other")',
        "INSERT INTO t VALUES ('B'), ('C')",
    )
    pipe = world.pipe("c")
    pipe.run()
    # To the database's own rules 'a' comes before 'B'.
    world.run("INSERT INTO t VALUES ('a'), ('Ä'), ('it''s \\ here'), ('😀')")
    pipe.run()
    pipe.run()

    assert {*pipe.rows("c")} == {("B",), ("C",), ("a",), ("it's \\ here",), ("Ä",), ("😀",)}
    assert len(pipe.rows("c")) == 6
    assert pipe.state()["last"] == "😀"


@pytest.mark.parametrize("func", ["max", "min"])
def test_a_large_load_is_cut_by_the_cursor(world: World, func: str) -> None:
    world.run("CREATE TABLE t (n int)", "INSERT INTO t SELECT i / 2 FROM generate_series(0, 19) i")
    pipe = world.pipe(max_rows_per_batch=5, last_value_func=func)
    report = pipe.run(max_batches_per_run=9)

    assert len(report.batches) > 2
    assert pipe.rows("n") == [(i // 2,) for i in range(20)]


def test_a_query_is_a_source(world: World) -> None:
    world.run("CREATE TABLE t (n int, keep boolean)", "INSERT INTO t VALUES (1, true), (2, false), (3, true)")
    pipe = world.pipe(query="SELECT n * 10 AS m FROM t WHERE keep -- only these", column="m")
    pipe.run()
    world.run("INSERT INTO t VALUES (4, true)")
    pipe.run()
    assert pipe.rows("m") == [(10,), (30,), (40,)]


def test_pre_filter_sql_comes_before_the_cursor(world: World) -> None:
    world.run("CREATE TABLE t (n int)", "INSERT INTO t VALUES (1), (2), (3)")
    pipe = world.pipe("m", pre_filter_sql="SELECT n, -n AS m FROM @data WHERE n <> 2", last_value_func="min")
    pipe.run()
    world.run("INSERT INTO t VALUES (0), (4)")
    pipe.run()
    assert pipe.rows("n") == [(1,), (3,), (4,)]


def test_rows_without_a_value_are_refused(world: World) -> None:
    world.run("CREATE TABLE t (n float8)", "INSERT INTO t VALUES (1)")
    pipe = world.pipe()
    pipe.run()
    for value in ("NULL", "'NaN'", "'Infinity'"):
        world.run(f"INSERT INTO t VALUES ({value})")
        with pytest.raises(CursorError, match="no value of 'n'"):
            pipe.run()
        world.run(f"DELETE FROM t WHERE n IS NULL OR n = {value}")
    world.run("INSERT INTO t VALUES (2)")
    pipe.run()
    assert pipe.rows("n") == [(1.0,), (2.0,)]


def test_a_range_is_loaded_without_a_state(world: World) -> None:
    world.run("CREATE TABLE t (n int)", "INSERT INTO t SELECT generate_series(1, 9)")
    pipe = world.pipe(initial_value=3, end_value=6)
    pipe.run()
    pipe.run()
    assert pipe.rows("n") == [(3,), (4,), (5,)]


def test_a_failed_load_is_repeated_with_what_is_there_then(world: World) -> None:
    """The state goes with the rows: a second try may read other ones."""
    world.run("CREATE TABLE t (n int, x int)", "INSERT INTO t VALUES (1, 1), (2, 0)")
    pipe = world.pipe(sql="SELECT n, 1 div x AS y FROM @data")
    with pytest.raises(ScopeProviderError):
        pipe.run()
    world.run("UPDATE t SET x = 1", "INSERT INTO t VALUES (3, 1)")
    pipe.run()
    pipe.run()
    assert pipe.rows("n") == [(1,), (2,), (3,)]


def test_a_row_that_moves_while_it_is_read_comes_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """New rows and those at the last value are two parts of one read: a row may not slip between them."""
    world.run("CREATE TABLE t (n int, name text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    pipe = world.pipe()
    pipe.run()
    world.run("INSERT INTO t VALUES (2, 'moves'), (3, 'c'), (4, 'd')")
    held = cursor_slice.Reading.held

    def after_a_change(self: Any) -> Any:
        world.run("UPDATE t SET n = 4 WHERE name = 'moves'", "UPDATE t SET n = 1 WHERE name = 'd'")
        return held(self)

    monkeypatch.setattr(cursor_slice.Reading, "held", after_a_change)
    pipe.run()
    assert [row for row in pipe.rows("name", "n") if row[0] in ("moves", "d")] == [("d", 4), ("moves", 2)]


def test_a_view_is_loaded_while_others_write_with_a_warning(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.run("CREATE TABLE b (n int)", "CREATE VIEW t AS SELECT n FROM b", "INSERT INTO b VALUES (1)")
    pipe = world.pipe()
    with world.open("INSERT INTO b VALUES (2)"):
        pipe.run()
    assert "of a query or a view it is not known" in capsys.readouterr().out
    assert pipe.rows("n") == [(1,)]


def test_a_cursor_that_becomes_text_is_refused(world: World) -> None:
    world.run("CREATE TABLE t (n int)", "INSERT INTO t VALUES (9), (10)")
    with pytest.raises(CursorError, match="customSchema makes text of int4"):
        world.pipe(options={"customSchema": "n STRING"}).run()


def test_rows_without_a_value_do_not_count_as_a_batch(world: World) -> None:
    world.run("CREATE TABLE t (n int)", "INSERT INTO t SELECT nullif(i, 0) FROM generate_series(0, 3) i")
    pipe = world.pipe(max_rows_per_batch=2, last_value_func="min", on_cursor_value_missing="exclude")
    pipe.run(max_batches_per_run=9)
    assert pipe.rows("n") == [(1,), (2,), (3,)]
