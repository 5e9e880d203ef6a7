"""Very many files are planned in bounded memory; each step in a process of its own, to measure it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.processes import start_module

if TYPE_CHECKING:
    from pathlib import Path

MIB = 2**20

# A million in a gibibyte; and a fifth of them in what is left then of the memory that no file takes.
SIZES = [(200_000, 300 * MIB), pytest.param(1_000_000, 1024 * MIB, marks=pytest.mark.loads)]


def in_a_process(command: str, count: int, folder: Path) -> dict[str, Any]:
    process = start_module("tests.support.million_files", command, str(count), f"file://{folder}")
    output, _ = process.communicate()
    assert process.returncode == 0
    return dict(json.loads(output))


@pytest.mark.slow
@pytest.mark.parametrize(("count", "most_bytes"), SIZES)
def test_the_memory_that_a_plan_of_new_files_takes_is_bounded(
    count: int, most_bytes: int, tmp_path: Path
) -> None:
    answer = in_a_process("plan", count, tmp_path)

    assert (answer["listed"], answer["already_loaded"], answer["left"]) == (count, 0, 0)
    assert (answer["batches"], answer["planned"], answer["in_order"]) == (count // 50, count, True)
    assert answer["peak_bytes"] < most_bytes


@pytest.mark.slow
@pytest.mark.parametrize(("count", "most_bytes"), SIZES)
def test_the_memory_that_loaded_files_take_is_bounded(count: int, most_bytes: int, tmp_path: Path) -> None:
    in_a_process("load before", count, tmp_path)

    answer = in_a_process("plan", count, tmp_path)

    assert (answer["listed"], answer["already_loaded"], answer["left"]) == (count, count, 0)
    assert (answer["batches"], answer["planned"]) == (0, 0)
    assert answer["peak_bytes"] < most_bytes
