"""Python values of every kind that somebody may put into a row, and what they are equal to."""

# ruff: noqa: DTZ001, DTZ901, FBT003 - times without a zone are values, too

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
from hypothesis import strategies as st
from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

TYPES: dict[str, T.DataType] = {
    "byte": T.ByteType(),
    "short": T.ShortType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "decimal": T.DecimalType(10, 2),
    "wide_decimal": T.DecimalType(38, 38),
    "boolean": T.BooleanType(),
    "string": T.StringType(),
    "varchar": T.VarcharType(5),
    "char": T.CharType(5),
    "binary": T.BinaryType(),
    "date": T.DateType(),
    "timestamp": T.TimestampType(),
    "timestamp_ntz": T.TimestampNTZType(),
    "array": T.ArrayType(T.LongType()),
    "times": T.ArrayType(T.TimestampType()),
    "map": T.MapType(T.StringType(), T.LongType()),
    "map_of_doubles": T.MapType(T.DoubleType(), T.LongType()),
    "struct": T.StructType().add("n", T.LongType()).add("t", T.StringType()),
    "structs": T.ArrayType(T.StructType().add("n", T.LongType()).add("t", T.StringType())),
}
"""Every type that a row may have."""


class Level(enum.IntEnum):
    HIGH = 3


class Color(str, enum.Enum):  # noqa: UP042 - its text is not its `str`
    RED = "red"


ZONES = [
    UTC,
    ZoneInfo("America/New_York"),
    ZoneInfo("Asia/Kolkata"),
    timezone(timedelta(hours=-11, minutes=-59, seconds=-59, microseconds=-7)),
]
EDGES: list[Any] = [
    *(sign * (2**bits + off) for bits in (7, 15, 24, 31, 53, 63) for off in (-1, 0, 1) for sign in (1, -1)),
    *(0.0, -0.0, 0.1, 0.5, 1e300, 5e-324, 2.0**53, math.nan, math.inf, -math.inf, 3.4028234663852886e38),
    *(
        True,
        False,
        None,
        "",
        "x",
        "é\U0001f600",
        "\ud800",
        "true",
        "1",
        "a" * 6,
        "\x00",
        Color.RED,
        Level.HIGH,
    ),
    *(b"", b"\x00\xff", bytearray(b"ab"), memoryview(b"cd"), 10**40, 10**400),
    *map(Decimal, ("0", "-0.00", "1.2", "1.239", "99999999.99", "1E+7", "1E-30", "NaN", "Infinity", "1E+30")),
    *(
        date.min,
        date.max,
        date(1582, 10, 10),
        datetime.min,
        datetime.max,
        datetime(1969, 12, 31, 23, 59, 59, 1),
    ),
    *(datetime(2026, 11, 1, 1, 30, fold=fold, tzinfo=ZONES[1]) for fold in (0, 1)),
    *(datetime(2026, 3, 8, 2, 30, fold=fold, tzinfo=ZONES[1]) for fold in (0, 1)),
    *(moment.replace(tzinfo=zone) for moment in (datetime.min, datetime.max) for zone in ZONES),
    *(
        np.int8(5),
        np.int64(2**40),
        np.float32(0.1),
        np.float64(0.1),
        np.bool_(True),
        np.str_("np"),
        np.uint64(2**64 - 1),
    ),
    *(
        np.array([1, 2]),
        np.array([[1.5]]),
        np.array(["x"]),
        np.timedelta64(5, "ns"),
        np.datetime64("2026-01-01"),
    ),
    *(pd.NaT, pd.NA, pd.Timestamp("2026-01-01T10:00:00.000001Z"), pd.Timestamp("2026-01-01")),
    pd.Timestamp("2026-01-01T10:00:00.000001002Z"),
    *(
        timedelta(1),
        object(),
        {1, 2},
        1j,
        [],
        [1, None],
        {"a": 1},
        {"a": None, "b": 2},
        {1: "x"},
        (1, "a"),
        {},
    ),
    *({"n": 1, "t": "x"}, {"n": 1, "other": 2}, [{"n": 1}], [(1, "x"), None], {math.nan: 1, float("nan"): 2}),
]
"""Where types end, what Python says otherwise than Spark, and classes of others."""


def values() -> st.SearchStrategy[Any]:
    """Return edges, and whatever else there is."""
    zone = st.sampled_from(ZONES)
    plain = st.one_of(
        st.integers(),
        st.floats(),
        st.floats(width=32),
        st.decimals(),
        st.decimals(-999, 999, places=2),
        st.text(max_size=8),
        st.binary(max_size=4),
        st.dates(),
        st.datetimes(),
        st.datetimes(timezones=zone),
        st.sampled_from(EDGES),
    )
    keys = st.one_of(st.text(max_size=3), st.integers(0, 3), st.sampled_from(["n", "t"]))
    nested = st.one_of(st.lists(plain, max_size=3), st.dictionaries(keys, plain, max_size=3))
    return st.one_of(plain, plain, nested, st.lists(nested, max_size=2))


def is_same(stored: Any, value: Any, names: tuple[str, ...] = ("n", "t")) -> bool:
    """Return whether a value that a table gives back is the one that was put in.

    :param names: The names of a struct's fields, for a value without names.
    """
    value = value.tolist() if isinstance(value, (np.generic, np.ndarray)) else value
    if isinstance(stored, tuple) and isinstance(value, Mapping):
        stored = dict(zip(names, stored, strict=True))
    if isinstance(stored, Mapping):
        value = _named(value, names)
        return set(value) <= set(stored) and all(is_same(stored[n], value.get(n), names) for n in stored)
    if isinstance(stored, list) and isinstance(value, Mapping):
        # A map, which has no order.
        return len(stored) == len(value) and all(
            any(is_same(pair, item) for item in value.items()) for pair in stored
        )
    if isinstance(stored, (list, tuple)):
        return len(stored) == len(value) and all(map(is_same, stored, value))
    if isinstance(stored, float) and isinstance(value, float):
        return repr(stored) == repr(float(value))
    if isinstance(stored, bool) or isinstance(value, bool):
        return stored is value
    if isinstance(stored, datetime):
        if not isinstance(value, datetime) or bool(stored.tzinfo) != bool(value.tzinfo):
            return False
        # Python takes a time that comes twice, or never, for different from every time of another zone.
        return bool(stored == (value.astimezone(UTC) if stored.tzinfo else value))
    if isinstance(stored, date):
        return not isinstance(value, datetime) and bool(stored == value)
    return stored is None if value is None else bool(stored == value)


def _named(value: Any, names: tuple[str, ...]) -> Mapping[Any, Any]:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, (list, tuple)):
        return dict(zip(getattr(value, "_fields", names), value, strict=True))
    return value
