"""A snapshot that an older version wrote tells which files are loaded, or it is not used."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.crash.world import MemoryWorld
from tests.support.faulty_storage import Counting
from tests.support.snapshots import snapshot_of

OTHER = pa.BufferOutputStream()
pq.write_table(pa.table({"path": ["/in/a"], "modificationTime": [1_000]}), OTHER)


def a_world_of_before(snapshot: str, **more) -> MemoryWorld:
    """Give a pipeline of 12 batches, as an older version left it."""
    world = MemoryWorld(interval=5)
    world.max_files = 1
    for number in range(12):
        world.drop(f"f{number:02}", at=1_000 - number)
    world.run()
    control = world.memory.control
    for path in [path for path in control if "/seen/" in path]:
        del control[path]
    entries = [world.log().offset(seq) for seq in range(10)]
    data = snapshot_of([entry.files[0] for entry in entries], 9, **more)
    control[f"{world.checkpoint}/sources/9.parquet"] = {
        "whole": data,
        "cut": data[: len(data) // 2],
        "empty": b"",
        "of another program": OTHER.getvalue().to_pybytes(),
    }[snapshot]
    return world


def entries_read(gate: Counting) -> set[int]:
    return {int(call.name[-20:]) for call in gate.calls if call.name.startswith("read offsets/")}


@pytest.mark.parametrize("sums", [True, False], ids=["0.2", "0.1"])
def test_a_run_goes_on_from_it_and_reads_only_what_came_after_it(sums):
    world = a_world_of_before("whole", sums=sums)
    gate = Counting()

    assert world.run(gate).already_loaded == 12
    assert entries_read(gate) <= {10, 11, 12, 13}

    world.drop("new", at=500)
    gate = Counting()
    assert world.run(gate).files == 1
    assert entries_read(gate) <= {10, 11, 12, 13, 14}
    assert all(count == 1 for count in world.rows().values())
    assert "9.parquet" not in world.audit()
    gate = Counting()
    assert world.run(gate).already_loaded == 13  # the segment has all of them now
    assert entries_read(gate) <= {12, 13, 14}


@pytest.mark.parametrize("snapshot", ["cut", "empty", "of another program"])
def test_one_that_cannot_be_used_costs_a_reading_of_the_log(snapshot):
    world = a_world_of_before(snapshot)
    gate = Counting()

    assert world.run(gate).already_loaded == 12
    assert entries_read(gate) >= set(range(12))


def test_one_of_another_refresh_is_not_used():
    world = a_world_of_before("whole", refresh_start=3)
    gate = Counting()

    assert world.run(gate).already_loaded == 12
    assert entries_read(gate) >= set(range(12))
