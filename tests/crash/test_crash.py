from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.exceptions import (
    BatchOutcomeUnknownError,
    InputError,
    TableDivergedError,
    TableRecreatedError,
    TableRestoredError,
)
from tests.crash.parts import Part, do, parts_in_memory, parts_on_disk
from tests.crash.schedules import play_many
from tests.crash.share import EVERYTHING, TURNS, Share, turn_of_commit
from tests.crash.world import MemoryWorld
from tests.support.faulty_storage import DiedError, after, before, die

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.faulty_storage import Call


SHARE = Share(size=2, turn=turn_of_commit())
PARTS = [*SHARE.parts(parts_on_disk()), *parts_in_memory()]


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS, ids=lambda part: f"{part.what}: {part.name}")
def test_a_share_of_the_suite_loses_and_doubles_nothing(part: Part) -> None:
    tally = do(part, SHARE).tally

    assert (tally.lost, tally.doubled, tally.failures) == (0, 0, []), f"with CRASH_TURN={SHARE.turn}"


def test_in_time_a_share_tries_all_points_and_seeds_that_the_whole_suite_does_not() -> None:
    tried = {part: [] for part in range(7)}
    for turn in range(9 * TURNS):
        for part in Share(2, turn).parts(tried):
            tried[part].append(Share(2, turn).of(range(9)))

    for points in tried.values():
        assert [len(found) for found in points] == [2] * 9
        assert {point for found in points for point in found} == {*range(9)}
    assert [Share(2, turn).seeds(10) for turn in (0, 1)] == [range(10, 22), range(22, 34)]
    assert (EVERYTHING.of([3, 1]), EVERYTHING.seeds(10)) == ([3, 1], range(10))


def test_after_a_restore_to_before_a_refresh_whose_record_was_purged_no_old_file_is_new() -> None:
    tally = play_many("vacuum and diverge", range(796_436, 796_437))

    assert (tally.lost, tally.doubled, tally.failures) == (0, 0, [])


@pytest.mark.parametrize("moment", ["list commits", "probe", "read watermark.json"])
def test_a_first_run_that_is_overtaken_by_another_first_run_is_not_told_of_damage(moment: str) -> None:
    world = MemoryWorld()
    world.drop("f1", at=9)
    overtaken = []

    world.run(before(moment, lambda: overtaken.append(world.run())))

    assert len(overtaken) == 1
    assert world.rows() == {("file:///landing/f1", 0, 1): 1}


def three_files() -> MemoryWorld:
    world = MemoryWorld()
    world.max_files = 1
    for number in (1, 2, 3):
        world.drop(f"f{number}", at=1000 - number)
    return world


def test_a_run_killed_between_the_record_of_a_given_up_batch_and_the_next_finds_the_next() -> None:
    world = three_files()
    with pytest.raises(TableDivergedError):
        world.run(after("verify 1", lambda: world.restore(0)))
    world.accept()
    with pytest.raises(DiedError):
        world.run(after(f"put commits/{1:020}", die))

    world.run()
    world.run()

    assert world.rows() == {(f"file:///landing/f{number}", 0, 1): 1 for number in (1, 2, 3)}


def test_a_refresh_is_not_given_up_but_taken_over_by_another_one() -> None:
    """The rows of before would stay beside those of the same files, which count as not loaded."""
    world = three_files()
    world.run()
    rows = world.rows()
    with pytest.raises(DiedError):
        world.run(after("open 3", die), refresh=True)

    with pytest.raises(InputError, match="full_refresh=True"):
        world.abandon(3)
    world.run(refresh=True)

    assert world.rows() == rows
    assert world.run().batches == []


def test_an_undone_refresh_brings_back_no_rows_of_a_batch_that_was_never_in_the_table() -> None:
    world = MemoryWorld()
    world.max_files = 2
    world.drop("f1", at=9)
    world.run()
    world.drop("f2", at=8)
    world.drop("f3", at=7)
    with pytest.raises(DiedError):
        world.run(after(f"put offsets/{1:020}", die))
    with pytest.raises(TableRestoredError):
        world.run(after("verify 2", lambda: world.restore(0)), refresh=True)

    with pytest.raises(BatchOutcomeUnknownError) as raised:
        world.accept()

    # Batch 1 of f2 and f3 was logged, and the refresh was faster. f3 is in the table once: by the refresh.
    assert sorted(world.rows()) == [("file:///landing/f1", 0, 1), ("file:///landing/f3", 0, 1)]
    assert raised.value.what.endswith("The files: file:///landing/f1.")


def test_a_restore_that_undid_half_a_refresh_is_not_accepted_as_it_is() -> None:
    world = three_files()
    world.run()
    world.run(refresh=True, max_batches=1)
    world.restore(world.version() - 1)

    with pytest.raises(BatchOutcomeUnknownError, match=r"files that the refresh has not loaded \(2\)"):
        world.accept()


def test_a_refresh_that_went_on_after_a_restore_has_its_last_rows_beside_the_old_ones() -> None:
    world = three_files()
    world.max_files = 2
    world.run()
    before, rows = world.version(), world.rows()
    with pytest.raises(TableRestoredError):
        world.run(after("files 3", lambda: world.restore(before)), refresh=True)
    assert world.rows() != rows

    with pytest.raises(BatchOutcomeUnknownError, match=r"in the table twice: file:///landing/f3") as caught:
        world.accept()

    assert "full_refresh=True" in caught.value.do
    world.accept(reload_undecidable=True)
    world.run(refresh=True)
    assert world.rows() == rows


def test_a_restore_that_undid_a_whole_refresh_is_accepted_and_doubles_nothing() -> None:
    world = three_files()
    world.run()
    world.run(refresh=True)
    world.restore(2)
    world.accept()
    world.drop("f4", at=1)

    world.run()

    assert world.rows() == {(f"file:///landing/f{number}", 0, 1): 1 for number in (1, 2, 3, 4)}


def test_a_refresh_that_read_the_log_before_the_first_record_notices_that_the_table_is_another_one() -> None:
    world = three_files()
    with pytest.raises(DiedError):
        world.run(after("verify 0", die))

    def others() -> None:
        if not world.log().committed():
            world.run()
            world.recreate()

    with pytest.raises(TableRecreatedError, match=r"its id is table-1, the newest record says table-0"):
        world.run(after("list offsets", others), refresh=True)
    with pytest.raises(TableRecreatedError):
        world.run()
    world.accept()
    world.run()

    assert world.rows() == {(f"file:///landing/f{number}", 0, 1): 1 for number in (1, 2, 3)}


def test_batches_of_before_a_refresh_in_a_table_created_after_it_are_not_accepted() -> None:
    """A run that slept meanwhile put them there, and died."""
    world = three_files()
    with pytest.raises(DiedError):
        world.run(after("open 0", die))
    slept = False

    def gate(call: Call, effect: Callable[[], Any], torn: Callable[[], None] | None = None) -> Any:
        nonlocal slept
        result = effect()
        if call.name == "walk" and not slept:
            slept = True
            world.run()
            world.run(refresh=True, max_batches=1)
            world.recreate()
        if call.name == "commit 1":
            die()
        return result

    with pytest.raises(DiedError):
        world.run(gate)
    with pytest.raises(TableDivergedError):
        world.run()

    with pytest.raises(BatchOutcomeUnknownError, match="created again after the full refresh"):
        world.accept()
    world.accept(reload_undecidable=True)
    world.run(refresh=True)

    assert sorted(world.rows().values()) == [1, 1, 1]
