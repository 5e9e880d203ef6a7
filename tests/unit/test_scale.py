"""A million files are planned in bounded memory; each step in a process of its own, to measure it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.support.processes import start_module

if TYPE_CHECKING:
    from pathlib import Path

MILLION = 1_000_000
GIB = 2**30


def in_a_process(what: str, folder: Path) -> dict[str, Any]:
    process = start_module("tests.support.million_files", what, str(MILLION), f"file://{folder}")
    output, _ = process.communicate()
    assert process.returncode == 0
    return dict(json.loads(output))


def test_a_million_new_files_are_planned_in_less_than_a_gibibyte(tmp_path: Path) -> None:
    answer = in_a_process("plan", tmp_path)

    assert (answer["listed"], answer["already_loaded"], answer["left"]) == (MILLION, 0, 0)
    assert (answer["batches"], answer["planned"], answer["in_order"]) == (20_000, MILLION, True)
    assert answer["peak_bytes"] < GIB


def test_a_million_loaded_files_are_told_from_new_ones_in_less_than_a_gibibyte(tmp_path: Path) -> None:
    in_a_process("load before", tmp_path)

    answer = in_a_process("plan", tmp_path)

    assert (answer["listed"], answer["already_loaded"], answer["left"]) == (MILLION, MILLION, 0)
    assert (answer["batches"], answer["planned"]) == (0, 0)
    assert answer["peak_bytes"] < GIB
