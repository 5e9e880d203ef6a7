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


@pytest.mark.parametrize(
    ("files", "cores", "expected"),
    [
        (0, 2, 4 * MIB),
        (32, 2, 4 * MIB),  # as Spark has it: half a task for each core
        (64, 2, 2 * MIB),
        (1_000, 2, 134_217),
        (1_000, 64, 4 * MIB),
        (10**9, 1, 0),
    ],
)
def test_opening_all_files_counts_at_most_half_a_task_for_each_core(files, cores, expected):
    cost = settings.open_cost(files, cores)

    assert cost == expected
    assert cost * files <= 64 * MIB * cores
