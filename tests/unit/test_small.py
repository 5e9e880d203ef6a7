"""What counts as small: one task does it."""

from __future__ import annotations

import pytest

from airflow_provider_scope.spark import settings

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("rows", "table_bytes", "expected"),
    [
        (0, 0, True),
        (10_000, 16 * MIB, True),
        (10_001, 0, False),
        (1, 16 * MIB + 1, False),
        (1, None, False),
    ],
)
def test_a_merge_is_small_if_both_sides_are_known_to_be(rows, table_bytes, expected):
    assert settings.is_small_merge(rows, table_bytes) is expected
