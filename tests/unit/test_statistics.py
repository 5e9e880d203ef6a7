"""A loosened bound lies beyond whatever a float makes of the values that it bounds."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_scope.delta.commit import loosened
from airflow_provider_scope.delta.write_rules import within


@st.composite
def decimals(draw: st.DrawFn) -> tuple[str, Decimal]:
    digits = draw(st.integers(1, 38))
    scale = draw(st.integers(0, digits))
    number = draw(st.integers(-(10**digits) + 1, 10**digits - 1))
    return f"decimal({digits},{scale})", Decimal(f"{number}e-{scale}")


def as_in_statistics(value: Decimal, scale: int) -> Decimal:
    """Divide floats, as delta-rs does, and read what JSON has."""
    whole = int(value.scaleb(scale))
    return Decimal(json.dumps(float(whole) / 10.0**scale))


@given(decimals())
def test_statistics_do_not_exclude_a_value(given_value: tuple[str, Decimal]) -> None:
    kind, value = given_value
    digits, scale = (int(part) for part in kind[8:-1].split(","))
    low, high = Decimal(loosened(kind, str(value), -1)), Decimal(loosened(kind, str(value), 1))
    statistic = as_in_statistics(value, scale)
    most = Decimal(f"{'9' * digits}e-{scale}")
    least = most.copy_negate()

    assert low <= value <= high
    assert least <= low
    assert high <= most
    # What is beyond the type's range is NULL to Spark, which leaves out nothing then.
    assert low <= max(statistic, least)
    assert high >= min(statistic, most)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(
    ("kind", "value"), [("bigint", "9007199254740993"), ("string", "7"), ("date", "1900-01-01")]
)
def test_other_types_are_as_they_are(kind: str, value: str, sign: Any) -> None:
    assert loosened(kind, value, sign) == value


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("date", "1582-10-14"),
        ("date", "-0044-03-15"),
        ("date", "+10000-01-01"),
        ("timestamp", "1883-11-18 12:03:58Z"),
        ("timestamp", "1972-12-31 23:59:59.999999Z"),
        ("timestamp_ntz", "1500-01-01 00:00:00"),
    ],
)
@pytest.mark.parametrize("sign", [-1, 1])
def test_by_a_time_of_which_statistics_are_off_no_file_is_left_out(kind: str, value: str, sign: Any) -> None:
    assert loosened(kind, value, sign) is None
    assert within("c", kind, value, "2026-01-01") is None
