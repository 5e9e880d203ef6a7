"""Python rows by a schema: each value as it is, or refused with its place."""

from __future__ import annotations

import math
from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from pyspark.sql import Row
from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.python_rows import converted, to_dataframe
from tests.support.python_values import EDGES, TYPES, is_same, values

CLASSES: dict[type[T.DataType], type] = {
    **dict.fromkeys((T.ByteType, T.ShortType, T.IntegerType, T.LongType), int),
    **dict.fromkeys((T.FloatType, T.DoubleType), float),
    **dict.fromkeys((T.StringType, T.VarcharType, T.CharType), str),
    **dict.fromkeys((T.TimestampType, T.TimestampNTZType), datetime),
    T.DecimalType: Decimal,
    T.BooleanType: bool,
    T.BinaryType: bytes,
    T.DateType: date,
    T.ArrayType: list,
    T.MapType: dict,
    T.StructType: tuple,
}
"""What a value is for PySpark."""
PAIR = T.StructType().add("n", T.LongType()).add("t", T.StringType())
Pair = namedtuple("Pair", "t n")  # noqa: PYI024 - what people have


@dataclass(slots=True)
class Dataclass:
    t: str
    n: int


def one(kind: T.DataType, value: Any) -> Any:
    return converted([(value,)], T.StructType().add("c", kind))[0][0]


def check(name: str, value: Any) -> None:
    try:
        stored = one(TYPES[name], value)
    except InputError as err:
        if not err.what.startswith("data[0].c"):
            raise
        return
    assert stored is None if value is None else type(stored) is CLASSES[type(TYPES[name])]
    assert is_same(stored, value)


@pytest.mark.parametrize("name", TYPES)
@given(value=values())
def test_a_value_stays_as_it_is_or_is_refused_with_its_place(name: str, value: Any) -> None:
    check(name, value)


@pytest.mark.parametrize("name", TYPES)
def test_a_value_at_the_end_of_a_type_stays_as_it_is_or_is_refused(name: str) -> None:
    for value in EDGES:
        check(name, value)


CET = timezone(timedelta(hours=1))


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("byte", 128, "is 128"),
        ("long", 2**63, "no value of bigint"),
        ("long", True, r"is True \(bool\)"),
        ("long", 1.0, "no value of bigint"),
        ("long", "1", "no value of bigint"),
        ("long", np.timedelta64(5, "ns"), "no value of bigint"),
        ("long", np.uint64(2**63), "no value of bigint"),
        ("double", 2**53 + 1, "it would become 9007199254740992.0"),
        ("double", Decimal("0.1"), "no value of double"),
        ("double", 10**400, "no value of double"),
        ("float", 0.1, "it would become 0.10000000149"),
        ("float", 1e39, "no value of float"),
        ("decimal", Decimal("1.239"), r"no value of decimal\(10,2\)"),
        ("decimal", Decimal(10) ** 8, r"no value of decimal\(10,2\)"),
        ("decimal", Decimal("NaN"), "no value of"),
        ("decimal", 1.5, "no value of"),
        ("wide_decimal", 1, "no value of"),
        ("boolean", 1, "no value of boolean"),
        ("string", 5, "no value of string"),
        ("string", b"x", "no value of string"),
        ("string", "a\ud800", "half of a surrogate pair"),
        ("varchar", "abcdef", "it has 6 characters"),
        ("binary", "x", "no value of binary"),
        ("date", datetime(2026, 1, 1), "no value of date"),  # noqa: DTZ001
        ("timestamp", datetime(2026, 1, 1), "does not name an instant"),  # noqa: DTZ001
        ("timestamp", date(2026, 1, 1), "no value of timestamp"),
        ("timestamp", datetime(1, 1, 1, tzinfo=CET), "years 1 to 9999"),
        ("timestamp", pd.NaT, r"no value of timestamp\.\n"),  # and nothing of microseconds
        ("timestamp", pd.Timestamp(1, tz="UTC"), "have microseconds"),
        ("timestamp_ntz", datetime(2026, 1, 1, tzinfo=CET), "its time zone would be lost"),
        ("array", {1, 2}, "no value of array"),
        ("array", "ab", "no value of array"),
        ("array", [1, "x"], r"data\[0\]\.c\[1\] is 'x'"),
        ("map", {"a": "x"}, r"data\[0\]\.c\['a'\] is 'x'"),
        ("map", {None: 1}, r"data\[0\]\.c, key None is None, and NULL is not allowed"),
        ("map_of_doubles", {math.nan: 1, float("nan"): 2}, "two keys that are nan"),
        ("struct", {"n": 1, "x": 2}, r"data\[0\]\.c has the key 'x', which is not a column: n, t"),
        ("struct", (1,), "has 1 values for the columns n, t"),
        ("struct", Row(n=1, x=2), "has the key 'x'"),
        ("struct", "nt", "no value of struct<n: bigint, t: string>"),
    ],
)
def test_what_would_change_is_refused(kind: str, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        one(TYPES[kind], value)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("long", np.int32(7), 7),
        ("double", 2**60, float(2**60)),
        ("float", np.float32(0.1), float(np.float32(0.1))),
        ("decimal", 3, Decimal("3.00")),
        ("decimal", Decimal("1.500"), Decimal("1.50")),
        ("boolean", np.bool_(True), True),  # noqa: FBT003
        ("string", np.str_("x"), "x"),
        ("binary", bytearray(b"x"), b"x"),
        ("timestamp", datetime(2026, 1, 1, 1, tzinfo=CET), datetime(2026, 1, 1, tzinfo=UTC)),
        ("timestamp", pd.Timestamp("2026-01-01T01:00+01:00"), datetime(2026, 1, 1, tzinfo=UTC)),
        ("array", np.array([1, 2]), [1, 2]),
        ("array", (1, None), [1, None]),
        ("map", UserDict(a=1), {"a": 1}),
        ("struct", OrderedDict(t="x"), (None, "x")),
    ],
)
def test_what_has_a_value_of_the_type_is_that_value(kind: str, value: Any, expected: Any) -> None:
    stored = one(TYPES[kind], value)
    assert (stored, type(stored)) == (expected, type(expected))


@pytest.mark.parametrize(
    "row",
    [
        {"t": "x", "n": 1},
        UserDict(t="x", n=1),
        Row(t="x", n=1),
        Row("t", "n")("x", 1),
        Pair("x", 1),
        Dataclass("x", 1),
        (1, "x"),
        [1, "x"],
        Row(1, "x"),
    ],
    ids=str,
)
def test_a_row_with_names_is_read_by_them_and_one_without_by_position(row: Any) -> None:
    nested = T.StructType().add("m", T.MapType(T.StringType(), T.ArrayType(PAIR)))

    assert converted([row], PAIR) == [(1, "x")]
    assert converted([{"m": {"k": [row, None]}}], nested) == [({"k": [(1, "x"), None]},)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"n": 1, "N": 2}, r"data\[1\] has the key 'N', which is not a column: n, t"),
        (Row(n=1, x=2), r"data\[1\] has the key 'x'"),
        (Pair("x", "y"), r"data\[1\]\.n is 'y'"),
        (Row("n", "n")(1, 2), r"data\[1\] has the names n, n for 2 values"),
        (Row("n", "t")(1), r"data\[1\] has the names n, t for 1 values"),
        ((1, "x", 2), r"data\[1\] has 3 values for the columns n, t"),
        (5, r"data\[1\] is 5 \(int\)"),
        ("nt", r"data\[1\] is 'nt'"),
        (None, r"data\[1\] is None"),
        (Dataclass, r"data\[1\] is "),
    ],
)
def test_a_row_that_does_not_fit_is_named(row: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        converted([(1, "x"), row], PAIR)


def test_a_number_that_python_does_not_print_is_refused() -> None:
    with pytest.raises(InputError, match=r"data\[0\]\.c is a number \(int\)"):
        one(T.LongType(), 10**5000)


def test_a_column_that_is_not_null_needs_a_value() -> None:
    columns = T.StructType().add("n", T.LongType(), nullable=False)
    for row in ({}, (None,)):
        with pytest.raises(InputError, match=r"data\[0\]\.n is None, and NULL is not allowed there"):
            converted([row], columns)


@pytest.mark.parametrize(
    "kind",
    [
        T.VariantType(),
        T.NullType(),
        T.DayTimeIntervalType(),
        T.ArrayType(T.VariantType()),
        T.MapType(T.ArrayType(T.LongType()), T.LongType()),
    ],
    ids=str,
)
def test_types_that_rows_cannot_have_are_refused(kind: T.DataType) -> None:
    with pytest.raises(InputError, match="Rows cannot have"):
        converted([], T.StructType().add("c", kind))


@pytest.mark.parametrize(
    "data", [pd.DataFrame({"n": [1]}), pd.DataFrame(), pa.table({"n": [1]}), {"n": 1}, {}, "", b"", 5, None]
)
def test_what_is_no_list_of_rows_is_refused(data: Any) -> None:
    with pytest.raises(InputError, match="and not a list of rows"):
        to_dataframe(None, data, "n long")  # type: ignore[arg-type] # it is not asked
