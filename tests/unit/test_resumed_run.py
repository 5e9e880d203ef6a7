"""A run that goes on after a wait reports all of its batches as if it had not waited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

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


@pytest.mark.parametrize(
    "how", [{"refresh": True}, {"where": "day = 1"}, {"refresh": True, "is_snapshot": True}]
)
def test_a_run_that_has_waited_does_not_begin_its_refresh_again(tmp_path: Path, how: dict[str, Any]) -> None:
    world = DeltaWorld(tmp_path)
    world.drop("a", 100)
    world.run()
    before = world.run(**how).batches
    world.drop("late", 90)

    after = world.run(**how, first_batch=1).batches

    assert after[0] == before[0]
    assert [world.log().offset(batch.record.seq).mode for batch in after] == ["overwrite", "append"]
    assert set(world.rows().values()) == {1}


def test_a_refresh_of_an_earlier_run_is_not_taken_for_that_of_the_run_that_has_waited(tmp_path: Path) -> None:
    world = DeltaWorld(tmp_path)
    world.drop("a", 100)
    world.run(refresh=True)
    world.drop("b", 90)
    world.run()

    after = world.run(refresh=True, first_batch=1).batches

    assert [(batch.record.seq, batch.mode) for batch in after] == [(1, "append"), (2, "overwrite")]


def test_a_limit_of_batches_holds_for_a_run_that_waits_after_each_of_them(tmp_path: Path) -> None:
    world = DeltaWorld(tmp_path)
    world.max_files = 1
    for number in range(5):
        world.drop(f"f{number}", 100 - number)
    world.run(max_batches=2)

    report = world.run(max_batches=2, first_batch=0)

    assert [batch.record.seq for batch in report.batches] == [0, 1]
    assert report.pending_files == 3
