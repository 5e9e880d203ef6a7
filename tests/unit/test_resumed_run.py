"""A run that goes on after a wait reports all of its batches as if it had not waited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.crash.world import DeltaWorld

if TYPE_CHECKING:
    from pathlib import Path


def test_batches_of_before_the_wait_are_reported_as_they_were(tmp_path: Path) -> None:
    """A batch that replaced a range was an overwrite afterwards."""
    world = DeltaWorld(tmp_path)
    world.drop("a", 100)
    before = world.run().batches
    world.drop("b", 90)
    before += world.run(where="day = 1").batches
    world.drop("c", 80)

    after = world.run(first_batch=0).batches

    assert [batch.mode for batch in before] == ["append", "replace"]
    assert after[:2] == before
    assert [batch.record.seq for batch in after] == [0, 1, 2]
