"""Rows of a real PostgreSQL by a cursor column: what is new, exactly once, whatever commits late."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from airflow_provider_scope.spark.boundary import Boundary
from airflow_provider_scope.spark.databases import jdbc, postgres

if TYPE_CHECKING:
    from tests.spark.jdbc_world import World

pytestmark = [pytest.mark.spark, pytest.mark.compiled, pytest.mark.jdbc]


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


@pytest.mark.parametrize(
    ("before", "now", "values"),
    [
        ("date", "timestamp", ["2026-01-01", "2026-01-02", "2026-01-02", "2026-01-02 00:00:01"]),
        ("int", "numeric(12,2)", ["1", "2", "2", "2.5"]),
    ],
)
@pytest.mark.parametrize("more", [{}, {"lag": 1}, {"per": "g", "max_rows_per_batch": 1}])
def test_each_load_takes_what_is_new_when_the_column_gets_another_type(
    world: World, before: str, now: str, values: list[str], more: dict[str, Any]
) -> None:
    world.run(f"CREATE TABLE t (id int, g int, n {before} NOT NULL)")
    pipe = world.pipe(sql="SELECT id FROM @data", **more)
    for id_, value in enumerate(values):
        if id_ == 2:
            world.run(f"ALTER TABLE t ALTER n TYPE {now}")
        world.run(f"INSERT INTO t VALUES ({id_}, {id_ % 2}, '{value}')")
        pipe.run()

        assert pipe.rows("id") == [(n,) for n in range(id_ + 1)]


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

    reads = [line for line in world.server.log()[before:].splitlines() if "WHERE" in line]
    assert sorted(pipe.rows("n")) == [(n,) for n in range(1, 11)]
    assert 'WHERE ("n" >= 9 AND "n" <= 10)' in " ".join(reads)


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


def test_a_smaller_value_of_a_transaction_that_ends_while_the_load_looks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row is newer than that of a larger value, whose writer began to write before it."""
    world.run("CREATE SEQUENCE s", "CREATE TABLE t (n bigint DEFAULT nextval('s'), name text)")
    world.run("CREATE TABLE other (a int)", "INSERT INTO t (name) VALUES ('first')")
    pipe = world.pipe()
    ask = jdbc.Session.ask
    with world.open("INSERT INTO other VALUES (1)") as elder, world.open("SELECT 1") as younger:
        younger.cursor().execute("INSERT INTO t (name) VALUES ('smaller')")
        elder.cursor().execute("INSERT INTO t (name) VALUES ('larger')")
        elder.commit()

        def ends_then(self: Any, sql: str) -> Any:
            found = ask(self, sql)
            if "xact_start <=" in sql:
                younger.commit()
            return found

        monkeypatch.setattr(jdbc.Session, "ask", ends_then)
        pipe.run()
    pipe.run()

    assert pipe.rows("name") == [("first",), ("larger",), ("smaller",)]


def test_rows_that_come_into_an_empty_table_while_the_load_looks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run("CREATE SEQUENCE s", "CREATE TABLE t (n bigint DEFAULT nextval('s'), name text)")
    pipe = world.pipe()
    bound = postgres._CursorConditions._before_young

    def then_a_row_comes(self: Any, *arguments: Any) -> Any:
        found = bound(self, *arguments)
        world.run("INSERT INTO t (name) VALUES ('larger')")
        return found

    with world.open("INSERT INTO t (name) VALUES ('smaller')"), monkeypatch.context() as patch:
        patch.setattr(postgres._CursorConditions, "_before_young", then_a_row_comes)
        pipe.run()
    pipe.run()
    pipe.run()

    assert pipe.rows("name") == [("larger",), ("smaller",)]


def test_every_value_arrives_as_it_is(world: World) -> None:
    columns = {
        "n": ("int", ["1", "2", "3"]),
        "i2": ("smallint", ["-32768", "32767", "NULL"]),
        "i8": ("bigint", ["-9223372036854775808", "9223372036854775807", "NULL"]),
        "d": ("numeric(38,10)", ["1234567890123456789012345678.0123456789", "-0.0000000001", "NULL"]),
        "dn": ("numeric(5,-2)", ["1234567", "-100", "NULL"]),
        "ds": ("numeric(2,5)", ["0.00099", "-0.00001", "NULL"]),
        "f4": ("real", ["0.5", "'-Infinity'", "NULL"]),
        "f8": ("double precision", ["0.1", "'Infinity'", "NULL"]),
        "b": ("boolean", ["true", "false", "NULL"]),
        "t": ("text", ["'ä😀'' \\'", "''", "NULL"]),
        "v": ("varchar(5)", ["'ab'", "'ab   '", "NULL"]),
        "c": ("char(5)", ["'ab'", "'abcde'", "NULL"]),
        "by": ("bytea", [r"'\x00ff'", "''", "NULL"]),
        "dt": ("date", ["'0001-01-01'", "'1582-10-10'", "'9999-12-31'"]),
        "ts": ("timestamp", ["'1582-10-10 23:59:59.999999'", "'2026-03-29 02:30:00.000001'", "'1500-02-28'"]),
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
    stored = {field.name: field for field in DeltaTable(str(pipe.table)).schema().fields}
    assert not any(field.metadata for field in stored.values())
    assert [str(stored[name].type) for name in ("dn", "ds")] == [
        'PrimitiveType("decimal(7,0)")',
        'PrimitiveType("decimal(5,5)")',
    ]
    for row, other in zip(sorted(wanted), found, strict=True):
        assert dict(zip(there, map(plain, row), strict=True)) == dict(
            zip(there, map(plain, other), strict=True)
        )


def plain(value: Any) -> Any:
    """Return a value as both readers give it: bytes, and an instant in UTC."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, datetime) and value.tzinfo:
        return value.astimezone(UTC).replace(tzinfo=UTC)
    return value


def test_a_row_that_moves_while_it_is_read_comes_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """New rows and those at the last value are two parts of one read: a row may not slip between them."""
    world.run("CREATE TABLE t (n int, name text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    pipe = world.pipe()
    pipe.run()
    world.run("INSERT INTO t VALUES (2, 'moves'), (3, 'c'), (4, 'd')")
    noting = Boundary.noted_in_state

    def after_a_change(self: Any, *arguments: Any) -> Any:
        world.run("UPDATE t SET n = 4 WHERE name = 'moves'", "UPDATE t SET n = 1 WHERE name = 'd'")
        return noting(self, *arguments)

    monkeypatch.setattr(Boundary, "noted_in_state", after_a_change)
    pipe.run()
    assert [row for row in pipe.rows("name", "n") if row[0] in ("moves", "d")] == [("d", 4), ("moves", 2)]


def test_rows_that_wait_are_told(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    world.run("CREATE TABLE t (c timestamp, name text)")
    world.run("INSERT INTO t VALUES (now() AT TIME ZONE 'UTC' + INTERVAL '2 hours', 'local time')")
    pipe = world.pipe("c")
    pipe.run()

    assert pipe.rows("name") == []
    assert (
        "this is the current time in UTC; if the column holds the time of another zone, set time_zone"
        in capfd.readouterr().out
    )
    with world.open("SELECT now()"):
        pipe.run()
    assert "wait for a later load: a transaction has been running since" in capfd.readouterr().out


def test_numbers_that_wait_for_a_transaction_are_told(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    world.run("CREATE SEQUENCE s", "CREATE TABLE t (n bigint DEFAULT nextval('s'), name text)")
    world.run("INSERT INTO t (name) VALUES ('first')")
    pipe = world.pipe()
    with world.open("INSERT INTO t (name) VALUES ('late')"):
        world.run("INSERT INTO t (name) VALUES ('early')")
        pipe.run()
    assert "rows whose 'n' is 3 or more wait for a later load" in capfd.readouterr().out
    pipe.run()

    assert pipe.rows("n", "name") == [(1, "first"), (2, "late"), (3, "early")]


def test_a_text_with_braces_that_waits_for_a_transaction_is_told(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    world.run("CREATE TABLE t (n text)", "INSERT INTO t VALUES ('{a}')")
    pipe = world.pipe()
    with world.open("INSERT INTO t VALUES ('{b}')"):
        world.run("INSERT INTO t VALUES ('{c}')")
        pipe.run()
    assert "rows whose 'n' is {c} or more wait for a later load" in capfd.readouterr().out
    pipe.run()

    assert pipe.rows("n") == [("{a}",), ("{b}",), ("{c}",)]
