"""A loosened bound lies beyond whatever a float makes of the values that it bounds."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_scope.core.decimals import loosened


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
    told = as_in_statistics(value, scale)
    most = Decimal(f"{'9' * digits}e-{scale}")
    least = most.copy_negate()

    assert low <= value <= high
    assert least <= low
    assert high <= most
    # What is beyond the type's range is NULL to Spark, which leaves out nothing then.
    assert low <= max(told, least)
    assert high >= min(told, most)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(("kind", "value"), [("bigint", "9007199254740993"), ("string", "7"), ("date", "x")])
def test_other_types_are_as_they_are(kind: str, value: str, sign: Any) -> None:
    assert loosened(kind, value, sign) == value
