"""Values of SQLite, which holds no column to its type: each arrives as it is."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.exceptions import CursorError, InputError
from tests.support import warm

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.compiled, pytest.mark.jdbc]


@pytest.fixture
def shop(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., warm.Pipe]:
    """Return pipes that load the table ``t``, once some statements were run."""
    warm.use(monkeypatch, spark)
    file = tmp_path / "shop.db"
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "sqlite", "host": str(file)}))

    def pipe(
        *statements: str, column: str = "n", cursor: dict[str, Any] | None = None, **more: Any
    ) -> warm.Pipe:
        with closing(sqlite3.connect(file)) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()
        source = {"conn_id": "shop", "table": "t", "cursor": {"column": column, **(cursor or {})}, **more}
        mapped = {"properties": {"delta.columnMapping.mode": "name"}}
        return warm.Pipe(tmp_path, {"source": source, "table": mapped})

    return pipe


def test_texts_have_any_length_and_numbers_all_of_their_digits(shop: Callable[..., warm.Pipe]) -> None:
    large = 2**40
    pipe = shop(
        "CREATE TABLE t (n INTEGER, t TEXT, v VARCHAR(2), c CHAR(5), c2 CLOB, i INT, f FLOAT)",
        f"INSERT INTO t VALUES (1, 'any', 'longer', 'ab', 'text', {large}, 0.1)",
        "INSERT INTO t VALUES (2, '', NULL, 'abcdefg', NULL, -1, 1e300)",
    )
    pipe.run()

    assert pipe.rows("n", "t", "v", "c", "c2", "i", "f") == [
        (1, "any", "longer", "ab", "text", large, 0.1),
        (2, "", None, "abcdefg", None, -1, 1e300),
    ]


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        ("INTEGER", "'late text'", "'late text'"),
        ("INT", "7.5", "7.5"),
        ("REAL", "'x\ny'", "'x y'"),
        ("VARCHAR(9)", "x'00ff'", "X'00FF'"),
        ("DATE", "x'00'", "X'00'"),
        ("DECIMAL(10,2)", "'nothing'", "'nothing'"),
        ("DECIMAL(10,2)", "1.555", "1.555"),
        ("DECIMAL(10,2)", "123456789", "123456789"),
        ("NUMERIC", "1e-20", "1.0e-20"),
        ("", "1e20", "1.0e+20"),
        ("BOOLEAN", "2", "2"),
        ("JSON", """'{"a": 1}'""", """'{"a": 1}'"""),
    ],
)
def test_a_value_of_another_type_is_refused(
    shop: Callable[..., warm.Pipe], kind: str, value: str, told: str
) -> None:
    name = "x" if kind == "INT" else "it's a `name`"
    pipe = shop(
        f'CREATE TABLE t (n INTEGER, "{name}" {kind})', f"INSERT INTO t VALUES (1, NULL), (2, {value})"
    )
    with pytest.raises(CursorError, match=re.escape(f"column {name} has the value {told},")) as caught:
        pipe.run()
    query = caught.value.do.partition("This finds them: ")[2]
    with closing(sqlite3.connect(pipe.folder / "shop.db")) as connection:
        assert [row[0] for row in connection.execute(query)] == [2]
    pipe.arguments["source"]["options"] = {"customSchema": f"`{name.replace('`', '``')}` STRING"}
    pipe.run()
    if not value.startswith("x") and "e-" not in told and "e+" not in told:
        assert pipe.rows("n", name) == [(1, None), (2, value.strip("'"))]


def test_a_row_at_the_end_of_time_is_named(shop: Callable[..., warm.Pipe]) -> None:
    pipe = shop(
        "CREATE TABLE t (n INTEGER, d DATE)",
        "INSERT INTO t VALUES (1, '2026-01-01'), (2, '9999-12-31')",
        column="d",
        pre_filter_sql="SELECT n, CAST(d AS date) AS d FROM @data",
    )
    words = """1 row has 9999-12-31 in 'd' (no row could ever be newer), such as {"n":2,"d":"9999-12-31"}."""
    with pytest.raises(CursorError, match=re.escape(words)):
        pipe.run()


def test_values_of_the_declared_types_are_taken(shop: Callable[..., warm.Pipe]) -> None:
    pipe = shop(
        "CREATE TABLE t (n INT, d DECIMAL(10,2), b BOOLEAN, r REAL, a DATE, m DATETIME, z BLOB)",
        "INSERT INTO t VALUES (1, 0.1 + 0.2, 1, 3, '2026-01-01', 20260101, x'00')",
        "INSERT INTO t VALUES (2, -12345678.9, 0, -0.5, 1.5, '2026-01-01 00:00:00', NULL)",
        "INSERT INTO t VALUES (3, 7, 1, 0, 1, 2, x'')",
    )
    pipe.run()
    assert pipe.rows("n", "d", "b", "r", "a", "m", "z") == [
        (1, Decimal("0.30"), True, 3.0, "2026-01-01", "20260101", b"\0"),
        (2, Decimal("-12345678.90"), False, -0.5, "1.5", "2026-01-01 00:00:00", None),
        (3, Decimal("7.00"), True, 0.0, "1", "2", b""),
    ]
    assert [type(flag) for (flag,) in pipe.rows("b")] == [bool] * 3  # a decimal 1 would be equal to True


def test_a_text_in_a_cursor_of_numbers_is_not_taken_for_one(shop: Callable[..., warm.Pipe]) -> None:
    pipe = shop("CREATE TABLE t (n INT, v TEXT)", "INSERT INTO t VALUES (5, 'a'), (6, 'b')")
    pipe.run()
    shop("INSERT INTO t VALUES ('late text', 'c'), (7, 'd')")
    for _ in range(2):
        with pytest.raises(CursorError, match="column n has the value 'late text'"):
            pipe.run()
    assert pipe.rows("n", "v") == [(5, "a"), (6, "b")]


@pytest.mark.parametrize(
    ("cursor", "new"), [({}, [4, 5]), ({"lag": 2}, [3, 4, 5]), ({"last_value_func": "min"}, [3])]
)
def test_a_column_of_numbers_may_become_one_of_whole_numbers(
    shop: Callable[..., warm.Pipe], cursor: dict[str, Any], new: list[int]
) -> None:
    pipe = shop(
        "CREATE TABLE t (id INTEGER, n REAL)", "INSERT INTO t VALUES (1, 3.0), (2, 4.0)", cursor=cursor
    )
    pipe.run(sql="SELECT id FROM @data")
    whole = ("CREATE TABLE u (id INTEGER, n INTEGER)", "INSERT INTO u SELECT id, CAST(n AS INTEGER) FROM t")
    shop(*whole, "INSERT INTO u VALUES (3, 3), (4, 4), (5, 5)", "DROP TABLE t", "ALTER TABLE u RENAME TO t")
    pipe.run(sql="SELECT id FROM @data")

    assert [id_ for (id_,) in pipe.rows("id")] == [1, 2, *new]


def test_decimals_are_found_by_their_values_and_not_by_the_floats_that_are_stored(
    shop: Callable[..., warm.Pipe],
) -> None:
    pipe = shop("CREATE TABLE t (id INT, n DECIMAL(10,2))", "INSERT INTO t VALUES (1, 0.5), (2, 0.8)")
    pipe.run()
    shop("INSERT INTO t VALUES (3, 0.1 + 0.7)")  # 0.7999999999999999
    pipe.run()

    assert pipe.rows("id", "n") == [(1, Decimal("0.50")), (2, Decimal("0.80")), (3, Decimal("0.80"))]


def test_a_file_that_is_not_there_and_a_driver_that_is_not_are_told(
    shop: Callable[..., warm.Pipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = shop("CREATE TABLE t (n INT)")
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "sqlite", "host": "/no/such/shop.db"}))
    with pytest.raises(InputError, match=r"(?s)database file cannot be opened to read .*absolute path"):
        pipe.run()
    other = {"conn_type": "jdbc", "host": "jdbc:none:x", "extra": {"driver_class": "no.such.Driver"}}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(other))
    with pytest.raises(InputError, match="driver for reading t is missing: java") as caught:
        pipe.run()
    assert str(caught.value).count("What to do") == 1
