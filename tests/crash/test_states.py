"""Commands that die, or come too late; most on sources with a state."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.exceptions import InputError, TableBehindLogError, TableRestoredError
from airflow_provider_scope.sources.cursor.state import decode
from tests.crash.state_rules import loaded
from tests.crash.world import MemoryWorld
from tests.support.faulty_storage import DiedError, before, die

if TYPE_CHECKING:
    from collections.abc import Callable


def test_an_empty_batch_that_a_dead_command_left_is_taken_by_the_next_one() -> None:
    world = loaded(2, 2)
    world.restore(0)
    with pytest.raises(DiedError):
        world.accept(before("open 2", die))
    with pytest.raises(TableRestoredError):
        world.run()

    world.accept()
    world.run()

    log = world.log()
    assert [log.offset(seq).mode for seq in log.logged()] == ["append", "append", "empty", "append"]
    assert sorted(number for _, number, _ in world.rows().elements()) == [0, 1, 2, 3]
    assert decode(log.commit(2).state, "here").last == "0"


def test_a_run_gives_an_empty_batch_up_and_goes_on_at_the_newest_state() -> None:
    world = loaded(2, 2)
    log = world.log()
    newest = log.offset(1)
    log.put_offset(
        type(newest)(
            seq=2,
            mode="empty",
            slice=newest.slice,
            refresh_start=newest.refresh_start,
            overwrite_start=newest.overwrite_start,
        )
    )
    world.drop("row", at=1)

    world.run()

    assert log.commit(2).abandoned
    assert log.commit(2).state == log.commit(1).state
    assert sorted(number for _, number, _ in world.rows().elements()) == [0, 1, 2, 3, 4]


def files() -> MemoryWorld:
    """Return a world in which two batches of files were loaded."""
    world = MemoryWorld()
    for name in ("a", "b"):
        world.drop(name, at=9)
        world.run()
    return world


WORLDS = pytest.mark.parametrize("begin", [lambda: loaded(2, 2), files], ids=["cursor", "files"])


@WORLDS
def test_a_table_that_fits_is_not_accepted_and_nothing_is_written(begin: Callable[[], Any]) -> None:
    world = begin()
    names = world.record_names()

    with pytest.raises(InputError, match="nothing to accept"):
        world.accept()

    assert world.record_names() == names


@WORLDS
def test_a_second_command_finds_the_table_accepted(begin: Callable[[], Any]) -> None:
    world = begin()
    world.restore(0)
    world.accept(before(f"put accepted/{0:020}", world.accept))

    assert world.log().newest_acceptance().number == 0


def test_an_older_copy_of_an_accepted_table_is_accepted_as_well() -> None:
    world = loaded(2, 2)
    versions = world.delta.versions
    for _ in range(2):
        world.restore(0)
        versions.append(replace(versions[-1], restored=None))  # another writer's
        world.accept()
    del versions[-1]
    with pytest.raises(TableBehindLogError):
        world.run()

    world.accept()
    world.run()

    assert sorted(number for _, number, _ in world.rows().elements()) == [0, 1, 2, 3]
