"""What a cursor over PostgreSQL takes, refuses and says, edge by edge."""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.exceptions import (
    CursorError,
    InputError,
    ScopeProviderError,
    SourceUnreadableError,
)
from airflow_provider_scope.spark import databases
from airflow_provider_scope.values import Window

if TYPE_CHECKING:
    from tests.spark.jdbc_world import World

pytestmark = [pytest.mark.spark, pytest.mark.compiled, pytest.mark.jdbc]


def test_the_plan_holds_the_condition(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[str] = []

    def noted(rows: Any) -> Any:
        plans.append(rows._jdf.queryExecution().toString())
        return rows

    monkeypatch.setattr(databases, "in_utc", noted)
    world.run("CREATE TABLE t (n int)", "INSERT INTO t VALUES (1), (2)")
    pipe = world.pipe()
    pipe.run()
    world.run("INSERT INTO t VALUES (3)")
    pipe.run()

    assert 'WHERE ("n" >= 2 AND "n" <= 3) OR "n" IS NULL' in plans[-1]


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
        world.pipe("c", table="public.t", lag=0).run()

    assert "is lost" not in capsys.readouterr().out


def test_of_times_that_fall_it_is_told_why_no_bound_is_known(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.run("CREATE TABLE t (c timestamptz)", "INSERT INTO t VALUES (now())")
    world.pipe("c", last_value_func="min").run()

    told = capsys.readouterr().out
    assert "with a cursor whose times fall, it is not known which rows are committed late" in told
    assert "GRANT" not in told


def test_floats_have_all_their_digits_whatever_the_role_is_set_to(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(
        "CREATE TABLE t (c float8, f real, d float8[])",
        "INSERT INTO t VALUES (0.30000000000000004, 16777216, ARRAY[1/3.0])",
        "INSERT INTO t VALUES (123456789.12345679, 3.1415927, NULL)",
        "DROP ROLE IF EXISTS rounds",
        "CREATE ROLE rounds LOGIN",
        "ALTER ROLE rounds SET extra_float_digits = 0",
        "ALTER ROLE rounds SET backslash_quote = off",
        "GRANT SELECT ON t TO rounds",
        "GRANT pg_read_all_stats TO rounds",
    )
    world.connect(monkeypatch, login="rounds")
    pipe = world.pipe("c", max_rows_per_batch=1)
    pipe.run(max_batches_per_run=None)
    pi = struct.unpack("f", struct.pack("f", 3.1415927))[0]
    assert pipe.rows("c", "f", "d") == [
        (0.30000000000000004, 16777216.0, [1 / 3.0]),
        (123456789.12345679, pi, None),
    ]
    world.run("INSERT INTO t VALUES (123456789.12345679, 1, NULL), (123456789.1234568, 2, NULL)")
    pipe.run(max_batches_per_run=None)
    assert len(pipe.rows()) == 4


@pytest.mark.parametrize(
    "more", [{"max_rows_per_batch": 2}, {"lag": "0.0000000002"}, {"initial_value": True}]
)
def test_decimals_of_38_digits_are_told_apart(world: World, more: dict[str, Any]) -> None:
    long = "1234567890123456789012345678.600000000%d"
    world.run("CREATE TABLE t (c numeric(38,10), n int)")
    world.run(*(f"INSERT INTO t VALUES ({long % n}, {n})" for n in (3, 1, 5, 2, 4)))
    wanted = {1, 2, 3, 4, 5}
    if "initial_value" in more:
        more, wanted = {"initial_value": long % 3}, {3, 4, 5}
    pipe = world.pipe("c", **more)
    pipe.run(max_batches_per_run=None)
    assert {n for (n,) in pipe.rows("n")} == wanted
    world.run(f"INSERT INTO t VALUES ({long % 5}, 6), ({long % 7}, 7)")
    pipe.run(max_batches_per_run=None)
    assert sorted(n for (n,) in pipe.rows("n")) == sorted([*wanted, 6, 7])


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


@pytest.mark.parametrize("max_rows", [None, 1])
def test_a_cursor_that_is_not_a_number_is_named_beside_those_that_are(
    world: World, max_rows: int | None
) -> None:
    world.run("CREATE TABLE t (x numeric(5,2))", "INSERT INTO t VALUES (1), (2), ('NaN')")
    with pytest.raises(CursorError, match="column x has the value NaN"):
        world.pipe("x", max_rows_per_batch=max_rows).run()
    pipe = world.pipe("x", on_cursor_value_missing="exclude")
    pipe.table = pipe.folder / "other"
    pipe.run()

    assert pipe.rows("x") == [(Decimal("1.00"),), (Decimal("2.00"),)]


@pytest.mark.parametrize("value", ["Infinity", "-Infinity", "NaN"])
def test_a_cursor_of_any_number_may_be_infinite_and_is_named(world: World, value: str) -> None:
    world.run("CREATE TABLE t (x numeric)", f"INSERT INTO t VALUES (1), (2), ('{value}')")
    any_number = {"options": {"customSchema": "x DECIMAL(20,2)"}}
    with pytest.raises(CursorError, match=f"column x has the value {value}"):
        world.pipe("x", max_rows_per_batch=1, **any_number).run()
    pipe = world.pipe("x", on_cursor_value_missing="exclude", **any_number)
    pipe.table = pipe.folder / "other"
    pipe.run()

    assert pipe.rows("x") == [(Decimal("1.00"),), (Decimal("2.00"),)]


@pytest.mark.parametrize("value", ["infinity", "9999-12-31"])
def test_the_end_of_time_does_not_become_the_last_value(world: World, value: str) -> None:
    world.run("CREATE TABLE t (c date)", f"INSERT INTO t VALUES ('{value}')")
    with pytest.raises(CursorError, match=r"has the value infinity|no row could ever be newer"):
        world.pipe("c", query="SELECT c FROM t", lag=1, last_value_func="min").run()


def test_a_number_without_precision_is_refused_or_read_as_the_user_says(world: World) -> None:
    world.run("CREATE TABLE t (n int, x numeric)", "INSERT INTO t VALUES (1, 1.5), (2, -3)")
    with pytest.raises(CursorError, match=r"no type for 'x' \(numeric without a precision\):"):
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


def test_a_type_that_the_user_gives_counts_whatever_the_case_of_its_column(world: World) -> None:
    world.run(
        'CREATE TABLE t (n int, "Price" numeric(10,2), x numeric, d date)',
        "INSERT INTO t VALUES (1, 1.25, 1e-30, '2026-01-01')",
    )
    pipe = world.pipe(options={"customSchema": "PRICE STRING, X STRING, D STRING"})
    pipe.run()
    assert pipe.rows("Price", "x", "d") == [("1.25", "0." + "0" * 29 + "1", "2026-01-01")]

    with pytest.raises(CursorError, match=r"column Price has the value 1\.25"):
        world.pipe(options={"customSchema": "price DECIMAL(10,0), X STRING"}).run()


def test_all_columns_that_cannot_be_held_are_named_at_once(world: World) -> None:
    world.run("CREATE TABLE t (n int, x numeric, y numeric(50,2), z text, d date)")
    with pytest.raises(CursorError) as caught:
        world.pipe(options={"customSchema": "d INT"}).run()
    assert caught.value.what.startswith(
        "The table has no type for 'x' (numeric without a precision), 'y' (numeric of 50 digits), 'd' "
        "(date, read as int): "
    )


def test_a_query_may_end_as_a_statement_does(world: World) -> None:
    world.run("CREATE TABLE t (n int, x text)", "INSERT INTO t VALUES (1, 'a;'), (2, ';')")
    pipe = world.pipe(query="SELECT n, x FROM t -- all; of it\n WHERE x LIKE '%;' ;\n", table=None)
    pipe.run()
    assert pipe.rows("n", "x") == [(1, "a;"), (2, ";")]


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
    """Numbers have another order than their texts: -20, -9, 2, 13 … 101."""
    world.run("CREATE TABLE t (n int)", "INSERT INTO t SELECT i / 2 * 11 - 20 FROM generate_series(0, 23) i")
    pipe = world.pipe(max_rows_per_batch=5, last_value_func=func)
    report = pipe.run(max_batches_per_run=9)

    # Two have one value; and the last load alone knows that nothing is left.
    assert [one.record.rows for one in report.batches] == [6, 6, 6, 6, 0]
    assert sorted(pipe.rows("n")) == [(i // 2 * 11 - 20,) for i in range(24)]


UNSORTED = {
    "numeric(20,5)": [
        "-999999999999999.99999",
        "-123456789012345.12347",
        "-0.00001",
        "123456789012345.12343",
        "123456789012345.12345",
        "999999999999999.99999",
        "123456789012345.12344",
    ],
    "timestamptz": [
        "2026-01-01 00:00:10+00",
        "2026-01-01 00:00:09.000001+02",
        "2026-03-29 02:30:00+01",
        "1582-10-10 00:00+00",
        "2026-01-01 00:00:09+00",
        "2026-01-01 01:00:09.1+00",
    ],
    "timestamp": [
        "2026-01-01 00:00:10",
        "2026-01-01 00:00:09.000001",
        "0001-01-01",
        "1582-10-10",
        "2026-01-01 00:00:09",
        "2026-03-29 02:30:00",
        "2026-01-01 00:00:09.1",
    ],
    "date": [
        "2026-10-01",
        "2026-09-30",
        "0001-01-01",
        "1582-10-10",
        "2026-01-09",
        "2026-02-01",
        "2026-01-10",
    ],
    "text": ["10", "9", "Ä", "a''b", "", "ab", "\\"],
    "char(5)": ["10", "9", "Ä", "a''b", "B", "ab", "\\"],
    "real": ["-3.4e38", "0.1", "1e-40", "9", "10", "100", "-0.3"],
}


@pytest.mark.parametrize("kind", UNSORTED)
def test_batches_of_every_type_are_cut_and_go_on(world: World, kind: str) -> None:
    world.run(f"CREATE TABLE t (c {kind} UNIQUE, id serial)")
    world.run(*(f"INSERT INTO t (c) VALUES ('{value}'::{kind})" for value in UNSORTED[kind]))
    pipe = world.pipe("c", max_rows_per_batch=2)
    report = pipe.run(max_batches_per_run=9)

    assert sorted(pipe.rows("id")) == sorted(world.ask("SELECT id FROM t"))
    assert [one.record.rows for one in report.batches][:3] == [2, 2, 2]
    assert len(report.batches) <= 4
    assert pipe.run().rows == 0


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
        with pytest.raises(CursorError, match="no value in 'n'"):
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
    world.pipe(initial_value=6, end_value=7, range_end="closed").run()
    pipe = world.pipe(initial_value=7, end_value=8, range_start="open", range_end="closed")
    pipe.run()
    assert pipe.rows("n") == [(n,) for n in range(3, 9)]


def test_an_interval_of_text_refuses_times_that_it_would_not_find(world: World) -> None:
    """The largest value is asked of the table: the rows within the interval may be none."""
    world.run("CREATE TABLE t (n text)", "INSERT INTO t VALUES ('2026-01-30 05:00:00')")
    end = 1_769_904_000_000  # the end of January
    with pytest.raises(CursorError, match="'n' is text, and its largest value is '2026-01-30 05:00:00'"):
        world.pipe().run(window=Window(end - 86_400_000, end), max_batches_per_run=None)


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


def test_a_view_is_loaded_while_others_write_with_a_warning(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.run("CREATE TABLE b (n int)", "CREATE VIEW t AS SELECT n FROM b", "INSERT INTO b VALUES (1)")
    pipe = world.pipe()
    with world.open("INSERT INTO b VALUES (2)"):
        pipe.run()
    assert "for a query or a view it is not known" in capsys.readouterr().out
    assert pipe.rows("n") == [(1,)]


def test_a_cursor_that_becomes_text_is_refused(world: World) -> None:
    world.run("CREATE TABLE t (n int)", "INSERT INTO t VALUES (9), (10)")
    with pytest.raises(CursorError, match="customSchema reads int4 as text"):
        world.pipe(options={"customSchema": "n STRING"}).run()


def test_rows_without_a_value_do_not_count_as_a_batch(world: World) -> None:
    world.run("CREATE TABLE t (n int)", "INSERT INTO t SELECT nullif(i, 0) FROM generate_series(0, 3) i")
    pipe = world.pipe(max_rows_per_batch=2, last_value_func="min", on_cursor_value_missing="exclude")
    pipe.run(max_batches_per_run=9)
    assert pipe.rows("n") == [(1,), (2,), (3,)]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"table": "Ünï Tbl"}, "does not accept the SQL that reads Ünï Tbl"),
        ({"table": "nowhere"}, 'does not accept the SQL that reads nowhere: .*"nowhere" does not exist'),
        ({"query": "SELECT n FROM t WHERE '{}'::jsonb ? 'a'"}, "question mark is written twice"),
    ],
)
def test_sql_that_the_database_refuses_is_not_tried_again(
    world: World, asked: dict[str, str], said: str
) -> None:
    world.run("CREATE TABLE t (n int)")

    with pytest.raises(InputError, match=said):
        world.pipe(**asked).run()


def test_a_database_that_is_not_reached_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run("CREATE TABLE t (n int)")
    world.connect(monkeypatch, port=1)

    with pytest.raises(
        SourceUnreadableError, match=r"Could not read t: the database cannot be reached.*refused"
    ):
        world.pipe().run()


def test_a_driver_that_is_missing_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run("CREATE TABLE t (n int)")
    url = f"jdbc:postgresql://127.0.0.1:{world.server.port}/{world.name}"
    extra = json.dumps({"driver_class": "com.nowhere.Driver"})
    world.connect(monkeypatch, conn_type="jdbc", host=url, extra=extra)

    with pytest.raises(InputError, match=r"driver for reading t is missing: .*com\.nowhere\.Driver"):
        world.pipe().run()


def test_an_array_of_a_type_of_another_schema_is_an_array(world: World) -> None:
    world.run(
        'CREATE SCHEMA "e n"',
        """CREATE TYPE "e n".farbe AS ENUM ('rot', 'grün ✓')""",
        """CREATE TYPE "e n"."_a.b" AS ENUM ('x')""",
        'CREATE TABLE t (n int, one "e n".farbe, many "e n".farbe[], odd "e n"."_a.b", odds "e n"."_a.b"[])',
        """INSERT INTO t VALUES (1, 'rot', '{rot,NULL,"grün ✓"}', 'x', '{x}')""",
    )
    pipe = world.pipe()
    pipe.run()

    assert pipe.rows("one", "many", "odd", "odds") == [("rot", ["rot", None, "grün ✓"], "x", ["x"])]


def test_a_role_without_the_right_to_read_is_told_which(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run("CREATE TABLE t (n int)", "DROP ROLE IF EXISTS nobody", "CREATE ROLE nobody LOGIN")
    world.connect(monkeypatch, login="nobody")
    with pytest.raises(InputError, match=r"(?s)does not let this user read t: .*GRANT SELECT"):
        world.pipe().run()


def test_an_array_of_two_dimensions_is_refused_until_it_is_text(world: World) -> None:
    world.run("CREATE TABLE t (n int, a int[])", "INSERT INTO t VALUES (1, '{{1,2},{3,4}}')")
    with pytest.raises(CursorError, match=r"number 2 of t has an array of several dimensions"):
        world.pipe().run()
    pipe = world.pipe(options={"customSchema": "a STRING"})
    pipe.run()
    assert pipe.rows("a") == [("{{1,2},{3,4}}",)]


def test_times_that_lie_in_the_future_are_told(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.run("CREATE TABLE t (c timestamptz)", "INSERT INTO t VALUES (now()), ('9999-12-30')")
    pipe = world.pipe("c")
    pipe.run()
    assert len(pipe.rows()) == 1
    assert "wait for a later load: they lie in the future" in capsys.readouterr().out


def test_who_may_not_read_is_told_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run("CREATE TABLE t (n int)")
    world.connect(monkeypatch, login="nobody of this name")

    with pytest.raises(InputError, match="does not let this user log in to read t"):
        world.pipe().run()


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("lock_timeout", "The load waited too long for a lock on the table t: another session holds one"),
        ("statement_timeout", "The database ended the statement that reads t, because it took too long"),
    ],
)
def test_a_table_that_others_lock_is_named(world: World, setting: str, words: str) -> None:
    world.run("CREATE TABLE t (n int)", "INSERT INTO t VALUES (1)")
    pipe = world.pipe()
    world.run(f"ALTER DATABASE {world.name} SET {setting} = '500ms'")
    with (
        world.open("LOCK TABLE t IN ACCESS EXCLUSIVE MODE"),
        pytest.raises(SourceUnreadableError, match=words),
    ):
        pipe.run()
    pipe.run()
    assert pipe.rows("n") == [(1,)]
