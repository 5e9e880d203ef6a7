"""Cursors of each type, and how many random histories of loads are tried."""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

HISTORIES = int(os.environ.get("CURSOR_HISTORIES", "6"))
FEW = HISTORIES if "CURSOR_HISTORIES" in os.environ else 3
SEEDS = [seed if seed < FEW else pytest.param(seed, marks=pytest.mark.loads) for seed in range(HISTORIES)]
EPOCH = datetime(2024, 10, 27, tzinfo=UTC)
KINDS: dict[str, tuple[pa.DataType, Any, Any]] = {
    "int": (pa.int32(), lambda n: n - 7, 3),
    "bigint": (pa.int64(), lambda n: 2**62 + n, 3),
    "decimal": (pa.decimal128(20, 6), lambda n: Decimal(n).scaleb(-6), Decimal("0.000003")),
    "double": (pa.float64(), lambda n: n / 8, 0.25),
    "date": (pa.date32(), lambda n: date(1969, 12, 28) + timedelta(days=n), timedelta(days=2)),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        lambda n: EPOCH + timedelta(microseconds=n),
        timedelta(microseconds=3),
    ),
    "ntz": (
        pa.timestamp("us"),
        lambda n: EPOCH.replace(tzinfo=None) + timedelta(minutes=n),
        timedelta(minutes=2),
    ),
    "text": (pa.string(), lambda n: ["Z", "a", "é", "é", "😀", "10", "9", "", "a b", "ﬀ"][n % 10], None),
}


def lag_of(shift: Any) -> float:
    if isinstance(shift, timedelta):
        return float(shift.days or shift.total_seconds())
    return float(shift)


def counted(rows: list[dict[str, Any]]) -> Counter[Any]:
    return Counter(tuple(sorted(row.items())) for row in rows)
