"""A vacuum that dies, and runs that are overtaken by one: nothing is lost, doubled, or taken for damage."""

from __future__ import annotations

import copy
import functools
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.exceptions import (
    CheckpointGapError,
    RecordsVacuumedError,
    ScopeProviderError,
    StorageError,
)
from tests.crash.judging import judge
from tests.crash.world import MemoryWorld
from tests.support.faulty_storage import Counting, DiedError, before, dies_after

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_scope.protocol.vacuum import Purge
    from tests.support.faulty_storage import Call


def loaded(*, refreshed: bool = False) -> MemoryWorld:
    """Return a pipeline with a few batches of one file each."""
    return copy.deepcopy(_load(refreshed))


@functools.cache
def _load(refreshed: bool) -> MemoryWorld:
    world = MemoryWorld(interval=2)
    world.max_files = 1
    for number in range(4):
        world.drop(f"f{number}", at=1000 - number)
        world.run()
    if refreshed:
        world.run(refresh=True)
    return world


def more(world: MemoryWorld) -> None:
    for number in range(4, 9):
        world.drop(f"f{number}", at=1000 - number)


def once(world: MemoryWorld) -> bool:
    """Return whether the table has the rows of each file once."""
    return world.rows() == {(path, 0, 1): 1 for path in world.memory.source}


def others(world: MemoryWorld, *, refresh: bool = False) -> Purge:
    """Load what is there in one batch, then a few files one by one, and purge all but the newest batch."""
    world.max_files = 100
    world.run(refresh=refresh)
    for name in ("x", "y", "z"):
        world.drop(name, at=900 - ord(name))
        world.run()
    return world.vacuum()


def oldest_segment(world: MemoryWorld) -> str:
    """Return the segment of the files of the batches 0 to 2."""
    return min(path for path in world.memory.control if "/seen/" in path)


@pytest.mark.parametrize("refreshed", [False, True])
def test_a_vacuum_that_dies_anywhere_and_is_done_again_ends_like_one_that_did_not(refreshed):
    undisturbed = loaded(refreshed=refreshed)
    count = Counting()
    assert undisturbed.vacuum(count).record.below == (7 if refreshed else 3)
    assert len(count.writes) > 6

    for number in range(len(count.calls)):
        world = loaded(refreshed=refreshed)
        with pytest.raises(DiedError):
            world.vacuum(dies_after(number))
        assert once(world)
        world.vacuum()
        assert {*world.memory.control} == {*undisturbed.memory.control}, number
        assert judge(world).problems == [], number


@pytest.mark.parametrize("refreshed", [False, True])
def test_a_run_after_a_vacuum_that_died_anywhere_goes_on(refreshed):
    count = Counting()
    loaded(refreshed=refreshed).vacuum(count)

    for number in range(len(count.calls)):
        world = loaded(refreshed=refreshed)
        with pytest.raises(DiedError):
            world.vacuum(dies_after(number))
        more(world)
        world.run(max_batches=2)
        world.run()
        assert once(world), number
        assert judge(world).problems == [], number


def is_overtaken(world: MemoryWorld, moment: int, *, refresh: bool, others_refresh: bool) -> bool:
    """Run, and let others load and purge before an operation; False if the run has fewer operations.

    :raises ScopeProviderError: An error that a retry does not mend.
    """
    purges: list[Purge] = []
    gate = before("", lambda: purges.append(others(world, refresh=others_refresh)), passing=moment)
    try:
        world.run(gate, refresh=refresh)
    except ScopeProviderError as err:
        if not err.is_retryable:
            raise
    return bool(purges)


@pytest.mark.slow
@pytest.mark.parametrize(("refresh", "others_refresh"), [(False, True), (True, False)])
def test_runs_and_a_vacuum_at_any_moment_of_a_run_double_nothing(refresh, others_refresh):
    for moment in itertools.count():
        world = loaded()
        more(world)
        if not is_overtaken(world, moment, refresh=refresh, others_refresh=others_refresh):
            break
        assert world.log().vacuumed_below() > 0
        assert set(world.rows().values()) == {1}, moment
        world.run()
        assert once(world), moment
        assert judge(world, lists=False).problems == [], moment
    assert moment > 40


def test_a_run_that_finds_the_number_of_a_purged_entry_free_does_not_go_on_from_it():
    world = loaded()
    more(world)
    gate = before(f"put offsets/{4:020}", lambda: others(world))

    world.run(gate)

    assert world.log().vacuumed_below() == 7
    assert once(world)


def test_an_entry_that_such_a_run_left_is_not_taken_for_the_purged_one_by_another():
    world = loaded()
    more(world)

    def first() -> None:
        second = before(f"put offsets/{4:020}", lambda: others(world))
        world.max_files = 1
        with pytest.raises(DiedError):
            # It dies just after it has won the number.
            world.run(lambda call, effect, torn=None: dying(call, lambda: second(call, effect, torn)))

    def dying(call: Call, effect: Callable[[], Any]) -> Any:
        result = effect()
        if call.name == f"put offsets/{4:020}":
            raise DiedError
        return result

    world.run(before(f"put offsets/{4:020}", first))

    assert world.log().find_offset(4) is not None  # of the one that died
    assert once(world)


def test_a_position_and_records_that_runs_of_long_ago_wrote_again_are_not_believed():
    world = loaded()
    old = dict(world.memory.control)
    more(world)
    others(world)
    world.memory.control.update(
        {path: old[path] for path in old if path.endswith(("watermark.json", f"{3:020}"))}
    )
    world.drop("new", at=3)

    world.run()

    assert once(world)
    assert world.log().logged() == [7, 8]
    assert judge(world).problems == []


@pytest.mark.parametrize("late_files", ["ingest", "skip"])
def test_a_record_that_is_missing_above_the_purged_ones_is_damage(late_files):
    world = loaded()
    world.vacuum(retain=2)
    del world.memory.control[f"{world.checkpoint}/watermark.json"]
    del world.memory.control[f"{world.checkpoint}/offsets/{2:020}"]

    with pytest.raises(CheckpointGapError, match="from 2 up to 3, but 2 is missing"):
        world.run(late_files=late_files)


def test_without_the_note_of_the_vacuum_the_missing_records_are_damage():
    world = loaded()
    world.vacuum()
    del world.memory.control[f"{world.checkpoint}/vacuumed/{3:020}"]

    with pytest.raises(CheckpointGapError, match="0, 1, 2 are missing"):
        world.log().logged()


@pytest.mark.parametrize("damage", ["gone", "cut short"])
def test_a_segment_that_is_lost_after_a_vacuum_stops_runs_until_a_refresh(damage):
    world = loaded()
    world.vacuum()
    segment = oldest_segment(world)
    if damage == "gone":
        del world.memory.control[segment]
    else:
        world.memory.control[segment] = world.memory.control[segment][:-10]
    before = world.rows()
    world.drop("new", at=3)

    with pytest.raises(CheckpointGapError, match=r"batches 0 to 2 loaded, because `airflow scope vac"):
        world.run()
    assert world.rows() == before
    world.run(refresh=True)

    assert once(world)
    assert world.run().batches == []


def test_a_segment_that_cannot_be_read_for_a_moment_is_not_called_damaged():
    world = loaded()
    world.vacuum()
    segment = oldest_segment(world)

    def no_answer() -> None:
        raise StorageError("no answer")

    with pytest.raises(StorageError, match=r"^no answer") as error:
        world.run(before(f"read {segment.removeprefix(f'{world.checkpoint}/')}", no_answer))

    assert error.value.is_retryable
    world.drop("new", at=3)
    world.run()
    assert once(world)


def test_a_refresh_does_not_call_a_segment_damaged_that_cannot_be_read_for_a_moment():
    world = loaded()
    world.vacuum()
    segment = oldest_segment(world)

    def no_answer() -> None:
        raise StorageError("no answer")

    report = world.run(
        before(f"read {segment.removeprefix(f'{world.checkpoint}/')}", no_answer), refresh=True
    )

    (warning,) = report.warnings.values()
    assert warning.endswith("Their rows are not in the new table. no answer")
    assert once(world)


def test_a_damaged_segment_is_not_relied_on_by_a_vacuum():
    world = loaded()
    segment = oldest_segment(world)
    world.memory.control[segment] = world.memory.control[segment][:-10]

    plan = world.vacuum()

    assert plan.record.below == 0
    assert plan.why == "no segment in seen/ and no state says what these batches loaded"
    assert world.log().logged() == [0, 1, 2, 3]


def test_entries_of_files_that_a_segment_leaves_out_stay():
    """Somebody exchanged the segment for one of the same batches of another pipeline."""
    world, other = loaded(), MemoryWorld(interval=2)
    del world.memory.control[oldest_segment(world)]
    other.max_files = 1
    for number in (0, 1, 7, 8):
        other.drop(f"f{number}", at=1000 - number)
        other.run()
    segment = oldest_segment(other)
    world.memory.control[segment] = other.memory.control[segment]

    assert world.vacuum().record.below == 2


def test_a_vacuum_that_another_two_overtake_is_told_to_run_again():
    world = loaded()
    name = f"put vacuumed/{3:020}"

    def gate(call: Call, effect: Callable[[], Any], torn: Callable[[], None] | None = None) -> Any:
        if call.name != name:
            return effect()
        world.vacuum()
        more(world)
        world.run()
        world.vacuum()
        raise StorageError("the name was taken, and nothing has it now")

    with pytest.raises(RecordsVacuumedError, match=r"with all below 8") as error:
        world.vacuum(gate)

    assert error.value.is_retryable
    assert judge(world).problems == []


def test_a_pipeline_whose_refresh_is_open_keeps_all_records():
    world = loaded()
    more(world)
    with pytest.raises(DiedError):
        world.run(lambda call, effect, torn=None: die(call, effect), refresh=True)

    plan = world.vacuum()

    assert (plan.record.below, plan.groups) == (0, ())
    world.run()
    assert once(world)


def die(call: Call, effect: Callable[[], Any]) -> Any:
    if call.by_application:
        raise DiedError
    return effect()
