"""A range of a database's values is divided so that each row is in one part, whatever its value is."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_scope.core.databases import DECIMAL, FLOAT, WHOLE, edges, ranges

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    ("low", "high", "count", "kind", "wanted"),
    [
        ("0", "100", 4, WHOLE, ["25", "50", "75"]),
        ("-5", "4", 3, WHOLE, ["-2", "1"]),
        ("1", "3", 9, WHOLE, ["2"]),
        ("7", "7", 4, WHOLE, []),
        ("-9223372036854775808", "9223372036854775807", 2, WHOLE, ["-1"]),
        ("0", "1", 4, DECIMAL, ["0.25", "0.5", "0.75"]),
        ("1e40", "1e40", 3, DECIMAL, []),
        ("-1.7976931348623157e+308", "1.7976931348623157e+308", 2, FLOAT, ["0.0"]),
        ("0", "5e-324", 4, FLOAT, ["5e-324"]),
        ("0.1", "0.1", 4, FLOAT, []),
        ("1", "9", 1, WHOLE, []),
    ],
)
def test_the_parts_of_a_range(low: str, high: str, count: int, kind: str, wanted: list[str]) -> None:
    assert edges(low, high, count, kind) == wanted


@given(st.tuples(st.integers(), st.integers()).map(sorted), st.integers(1, 40))
def test_edges_of_whole_numbers_are_ascending_and_lie_in_the_range(ends: list[int], count: int) -> None:
    found = [int(one) for one in edges(str(ends[0]), str(ends[1]), count, WHOLE)]
    assert len(found) < count
    assert all(one < two for one, two in pairwise([ends[0], *found]))
    assert all(one <= ends[1] for one in found)


@given(st.tuples(FINITE, FINITE).map(sorted), st.integers(1, 40))
def test_edges_of_floats_are_ascending_and_lie_in_the_range(ends: list[float], count: int) -> None:
    found = [float(one) for one in edges(repr(ends[0]), repr(ends[1]), count, FLOAT)]
    assert len(found) < count
    assert all(one < two for one, two in pairwise([ends[0], *found]))
    assert all(one <= ends[1] for one in found)


@given(
    st.tuples(*2 * [st.decimals(allow_nan=False, allow_infinity=False, places=12)]).map(sorted),
    st.integers(1, 40),
)
def test_edges_of_decimals_are_ascending_and_lie_in_the_range(ends: list[Decimal], count: int) -> None:
    found = [Decimal(one) for one in edges(f"{ends[0]:f}", f"{ends[1]:f}", count, DECIMAL)]
    assert len(found) < count
    assert all(one < two for one, two in pairwise([ends[0], *found]))
    assert all(one <= ends[1] for one in found)


@given(
    st.lists(st.none() | st.integers(-50, 50)), st.integers(-20, 20), st.integers(0, 40), st.integers(1, 9)
)
def test_each_row_meets_one_condition(values: list[int | None], low: int, width: int, count: int) -> None:
    """Asked of a database: also what lies beyond both ends, and what has no value."""
    conditions = ranges("n", edges(str(low), str(low + width), count, WHOLE))
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t (n INTEGER)")
        connection.executemany("INSERT INTO t VALUES (?)", [(value,) for value in values])
        found = [row[0] for one in conditions for row in connection.execute(f"SELECT n FROM t WHERE {one}")]
    assert sorted(found, key=repr) == sorted(values, key=repr)
