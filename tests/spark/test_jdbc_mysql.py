"""Values and rows of MariaDB, or of MySQL, read by MySQL's driver: each arrives as it is, and once."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.exceptions import CursorError
from tests.real_airflow import mariadb
from tests.spark.jdbc_groups import check
from tests.support import warm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.compiled, pytest.mark.jdbc]


@pytest.fixture(scope="module")
def server() -> Iterator[mariadb.MariaDb]:
    try:
        with mariadb.mariadb() as found:
            yield found
    except mariadb.MariaDbMissingError as err:
        pytest.skip(str(err))


@pytest.fixture
def shop(
    server: mariadb.MariaDb, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., warm.Pipe]:
    """Return pipes that load the table ``t``."""
    warm.use(monkeypatch, spark)
    fields = {"conn_type": "mysql", "host": "127.0.0.1", "port": server.port, "schema": "shop"}
    fields |= {"login": mariadb.USER, "password": mariadb.PASSWORD}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(fields))
    server.run("DROP TABLE IF EXISTS t")

    def pipe(column: str = "n", **more: Any) -> warm.Pipe:
        source = {"conn_id": "shop", "table": "t", "cursor": {"column": column}, **more}
        return warm.Pipe(tmp_path, {"source": source})

    return pipe


COLUMNS: dict[str, tuple[str, str, Any]] = {
    "ti": ("TINYINT", "-128", -128),
    "tu": ("TINYINT UNSIGNED", "255", 255),
    "bo": ("BOOLEAN", "TRUE", 1),
    "su": ("SMALLINT UNSIGNED", "65535", 65_535),
    "mi": ("MEDIUMINT", "-8388608", -8_388_608),
    "iu": ("INT UNSIGNED", "4294967295", 4_294_967_295),
    "bs": ("BIGINT", "-9223372036854775808", -(2**63)),
    "bu": ("BIGINT UNSIGNED", "18446744073709551615", Decimal(2**64 - 1)),
    "d1": (
        "DECIMAL(38,10)",
        "-1234567890123456789012345678.0123456789",
        Decimal("-1234567890123456789012345678.0123456789"),
    ),
    "f": ("FLOAT", "16777217", 16_777_216.0),
    "db": ("DOUBLE", "0.1", 0.1),
    "dt": ("DATE", "'1000-01-01'", date(1000, 1, 1)),
    "dm": (
        "DATETIME(6)",
        "'1500-02-28 23:59:59.000001'",
        datetime.fromisoformat("1500-02-28T23:59:59.000001"),
    ),
    "ts": (
        "TIMESTAMP(6) NULL",
        "'2026-03-29 02:30:00.123456'",
        datetime(2026, 3, 29, 2, 30, 0, 123_456, UTC),
    ),
    "y": ("YEAR", "1999", 1999),
    "ch": ("CHAR(5)", "'ab'", "ab"),
    "vc": ("VARCHAR(5)", "'🦊é  '", "🦊é  "),
    "tx": ("LONGTEXT", "repeat('ä', 70000)", "ä" * 70_000),
    # As MySQL writes it; MariaDB keeps the text.
    "js": ("JSON", '\'{"a": [null], "b": 1.25}\'', '{"a": [null], "b": 1.25}'),
    "en": ("ENUM('small','large')", "'large'", "large"),
    "se": ("SET('x','y')", "'x,y'", "x,y"),
    "bl": ("BLOB", "x'00ff'", b"\x00\xff"),
    "bi": ("BINARY(4)", "x'01'", b"\x01\0\0\0"),
    "tm": ("TIME(6)", "'-838:59:58.000001'", "-838:59:58.000001"),
    "b1": ("BIT(1)", "b'1'", True),
    "bt": ("BIT(8)", "b'10000001'", Decimal(129)),
    "b64": ("BIT(64)", "x'ffffffffffffffff'", Decimal(2**64 - 1)),
    "we`ird na.me": ("INT", "7", 7),
}
TIMES = ["2026-01-02 00:00:00.5", "2026-03-29 02:30", "2026-03-29 02:30", "2026-10-25 02:30"]


def test_values_arrive_as_they_are(server: mariadb.MariaDb, shop: Callable[..., warm.Pipe]) -> None:
    columns = ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, (kind, _, _) in COLUMNS.items())
    values = ", ".join(sql for _, sql, _ in COLUMNS.values())
    server.run(
        f"CREATE TABLE t (n INT, {columns})",
        f"SET time_zone='+00:00'; INSERT INTO t VALUES (1, {values}), (2{', NULL' * len(COLUMNS)})",
    )
    pipe = shop()
    pipe.arguments["table"] = {"properties": {"delta.columnMapping.mode": "name"}}
    pipe.run()

    for name, (kind, _, expected) in COLUMNS.items():
        assert [row[1] for row in pipe.rows("n", name)] == [expected, None], kind


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("DATE", ["2026-01-02", "2026-01-03", "2026-01-03", "2026-01-04"]),
        (
            "DATETIME(6)",
            ["2026-01-02 00:00:00.5", "2026-03-29 02:30", "2026-03-29 02:30", "2026-10-25 02:30"],
        ),
        (
            "TIMESTAMP(6)",
            ["2026-01-02 00:00:00.5", "2026-03-29 02:30", "2026-03-29 02:30", "2026-10-25 02:30"],
        ),
        ("DECIMAL(20,4)", ["-1.5", "2", "2", "10"]),
        ("VARCHAR(10)", ["B", "a", "a", "ä"]),
    ],
)
def test_each_load_takes_what_is_new(
    server: mariadb.MariaDb, shop: Callable[..., warm.Pipe], kind: str, values: list[str]
) -> None:
    def add(*rows: tuple[int, str]) -> None:
        server.run("SET time_zone = '+00:00'", *(f"INSERT INTO t VALUES ({n}, '{c}')" for n, c in rows))

    server.run(f"CREATE TABLE t (n INT, c {kind} NOT NULL)")
    pipe = shop("c")
    add((2, values[1]), (1, values[0]))
    first = pipe.run()
    add((3, values[2]))
    add((4, values[3]))
    second = pipe.run()
    third = pipe.run()

    assert [first.rows, second.rows, third.rows] == [2, 2, 0]
    assert pipe.rows("n") == [(1,), (2,), (3,), (4,)]


def test_a_date_that_becomes_a_time_is_loaded_from_the_last_one_on(
    server: mariadb.MariaDb, shop: Callable[..., warm.Pipe]
) -> None:
    server.run("CREATE TABLE t (n INT, c DATE NOT NULL)", "INSERT INTO t VALUES (1, '2026-01-01')")
    pipe = shop("c")
    pipe.arguments["sql"] = "SELECT n FROM @data"
    pipe.run()
    server.run(
        "ALTER TABLE t MODIFY c DATETIME(6)", "INSERT INTO t VALUES (2, '2026-01-01'), (3, '2026-01-02')"
    )
    pipe.run()
    pipe.run()

    assert pipe.rows("n") == [(1,), (2,), (3,)]


DAY = datetime(2020, 3, 29, 1, 59, 59, 999_990)  # noqa: DTZ001 - a DATETIME
GROUPS: dict[str, tuple[str, list[Any], str, Callable[[int], Any], dict[str, Any]]] = {
    # To the collation all of these but the last are equal.
    "text": ("VARCHAR(9)", ["a", "A", "a ", "á", "", "it's"], "DATETIME(6)", lambda n: DAY + _us(n), {}),
    "char": ("CHAR(9)", ["a", "A", "á", "b"], "DECIMAL(30,2)", lambda n: Decimal(n) / 4, {}),
    "unsigned": ("BIGINT UNSIGNED", [0, 2**64 - 1, 7], "DATE", lambda n: date(2020, 1, 1 + n), {}),
    "date": ("DATE", [date(1582, 10, 4), date(9999, 12, 31)], "BIGINT", lambda n: 2**62 + n, {}),
    "custom": ("DECIMAL(5,1)", [Decimal("1.0"), -1], "DOUBLE", lambda n: n / 8, {"customSchema": "G STRING"}),
}


def _us(count: int) -> timedelta:
    return timedelta(microseconds=count)


@pytest.mark.parametrize("kind", GROUPS)
def test_each_group_is_loaded_from_its_own_last_value_on(
    server: mariadb.MariaDb, shop: Callable[..., warm.Pipe], kind: str
) -> None:
    group_type, groups, value_type, value_of, options = GROUPS[kind]
    server.run(f"CREATE TABLE t (g {group_type}, n {value_type}, id INT)")
    more: dict[str, Any] = {"options": options} if options else {}
    if kind in ("text", "unsigned"):
        more["max_rows_per_batch"] = 5
    pipe = shop(**more)
    pipe.arguments["source"]["cursor"] |= {"per": "G", "on_cursor_value_missing": "exclude"}

    def insert(group: Any, n: Any, id_: int) -> None:
        texts = ["NULL" if v is None else "'" + str(v).replace("'", "''") + "'" for v in (group, n, id_)]
        server.run(f"INSERT INTO t VALUES ({', '.join(texts)})")

    check(pipe, insert, (groups, value_of), random.Random(kind))


def test_the_database_is_asked_for_times_from_the_last_one_on(
    server: mariadb.MariaDb, shop: Callable[..., warm.Pipe]
) -> None:
    server.run(
        "CREATE TABLE t (n INT, c DATETIME NOT NULL)",
        "INSERT INTO t VALUES (1, '2026-01-01'), (2, '2026-01-02')",
        "SET GLOBAL log_output = 'TABLE'",
        "SET GLOBAL general_log = 'ON'",
    )
    pipe = shop("c")
    pipe.run()
    server.run("INSERT INTO t VALUES (3, '2026-01-03')", "TRUNCATE mysql.general_log")
    pipe.run()

    log = server.run("SELECT argument FROM mysql.general_log")
    assert "WHERE `c` >= TIMESTAMP '2026-01-02 00:00:00'" in log
    assert pipe.rows("n") == [(1,), (2,), (3,)]


@pytest.mark.parametrize("kind", ["DATE", "DATETIME"])
def test_a_day_that_is_none_is_refused(
    server: mariadb.MariaDb, shop: Callable[..., warm.Pipe], kind: str
) -> None:
    server.run(
        f"CREATE TABLE t (n INT, `it's` {kind})",
        "SET sql_mode = ''",
        "INSERT INTO t VALUES (1, '2026-01-01'), (2, '0000-00-00')",
    )

    with pytest.raises(CursorError, match="The column it's has the value 0000-00-00, or another") as caught:
        shop().run()
    assert "customSchema" in str(caught.value)

    as_text = shop(options={"customSchema": "`it's` STRING"})
    as_text.run()
    assert len(as_text.rows("n")) == 2


@pytest.mark.parametrize(
    ("kind", "value"), [("DATE", "2026-02-31"), ("DATETIME", "2026-04-31 10:00"), ("DATE", "2026-02-00")]
)
def test_a_day_that_its_month_does_not_have_is_refused(
    server: mariadb.MariaDb, shop: Callable[..., warm.Pipe], kind: str, value: str
) -> None:
    server.run(f"CREATE TABLE t (n INT, x {kind})", "INSERT INTO t VALUES (1, '2028-02-29'), (2, NULL)")
    pipe = shop()
    pipe.run()
    server.run(f"SET sql_mode = 'ALLOW_INVALID_DATES'; INSERT INTO t VALUES (3, '{value}')")
    with pytest.raises(CursorError, match="no day"):
        pipe.run()
    assert [row[0] for row in pipe.rows("n")] == [1, 2]


def test_a_number_of_more_digits_than_a_decimal_has_is_not_rounded(
    server: mariadb.MariaDb, shop: Callable[..., warm.Pipe]
) -> None:
    values = "(1, 1234.99, 0.1234567891), (2, -0.49, -99999999999999999999999999999.0000000001)"
    server.run(
        "CREATE TABLE t (n INT, p DECIMAL(40,2), q DECIMAL(40,10), r DECIMAL(38,2) DEFAULT -0.01)",
        f"INSERT INTO t (n, p, q) VALUES {values}",
    )
    with pytest.raises(CursorError) as caught:
        shop().run()
    assert caught.value.what.startswith(
        "The table has no type for 'p' (DECIMAL of 40 digits, 2 of them after the decimal point), 'q' "
        "(DECIMAL of"
    )
    with pytest.raises(CursorError, match=r"'P?p' \(DECIMAL of 40 digits.*read as decimal\(38,2\)\)"):
        shop(options={"customSchema": "p DECIMAL(38,2), q STRING"}).run()

    as_text = shop(options={"customSchema": "p STRING, Q STRING"})
    as_text.run()
    assert as_text.rows("n", "p", "q", "r") == [
        (1, "1234.99", "0.1234567891", Decimal("-0.01")),
        (2, "-0.49", "-99999999999999999999999999999.0000000001", Decimal("-0.01")),
    ]


def test_a_connection_by_its_url_changes_no_value_either(
    server: mariadb.MariaDb, shop: Callable[..., warm.Pipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.run("SET GLOBAL time_zone = '+05:00'")
    try:
        server.run(
            "SET time_zone = '+00:00'",
            "CREATE TABLE t (n INT, ts TIMESTAMP(6) NULL, ti TINYINT(1), y YEAR)",
            "INSERT INTO t VALUES (1, '2026-01-02 03:04:05', 2, 1999)",
        )
        fields = {"conn_type": "jdbc", "host": f"jdbc:mysql://127.0.0.1:{server.port}/shop"}
        fields |= {"login": mariadb.USER, "password": mariadb.PASSWORD}
        pipe = shop()
        monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(fields))
        pipe.run()
    finally:
        server.run("SET GLOBAL time_zone = 'SYSTEM'")

    assert pipe.rows() == [(1, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), 2, 1999)]
