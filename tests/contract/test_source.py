"""What every source does, as the loop drives it; each in a world of its own, without a disk."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.exceptions import (
    BatchOutcomeUnknownError,
    CheckpointCorruptError,
    EmptyRefreshError,
    InputError,
    SourceFileGoneError,
    SourceNotFoundError,
)
from airflow_provider_scope.protocol.records import decode_offset, encode_offset
from tests.crash.judging import landed_rows, names_in
from tests.crash.number_world import NumberWorld
from tests.crash.table_world import CursorWorld, FeedWorld
from tests.crash.world import MemoryWorld
from tests.support.faulty_storage import Counting, before, fails_at
from tests.support.values import a_file, an_entry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_scope.protocol.records import OffsetEntry
    from tests.support.faulty_storage import Gate

WORLDS: dict[str, type[MemoryWorld]] = {
    "files": MemoryWorld,
    "numbers": NumberWorld,
    "feed": FeedWorld,
    "cursor": CursorWorld,
}


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> MemoryWorld:
    """Five items; a batch takes two."""
    made = WORLDS[request.param]()
    for number in range(1, 6):
        add(made, number)
    return made


def add(world: MemoryWorld, number: int) -> None:
    world.drop(f"f{number}", at=1000 - number)


def entries(world: MemoryWorld) -> list[OffsetEntry]:
    log = world.log()
    return [log.offset(seq) for seq in log.logged()]


def held(some: Iterable[OffsetEntry]) -> list[list[Any]]:
    return [names_in(entry.slice) for entry in some]


def batch_1_fails() -> Gate:
    return fails_at("files 1", SourceFileGoneError("batch 1 cannot be read"))


def test_everything_is_loaded_once_in_slices_of_the_limit(world: MemoryWorld) -> None:
    report = world.run()

    assert world.rows() == landed_rows(world)
    assert [len(names) for names in held(entries(world))] == [2, 2, 1]
    assert [batch.record.seq for batch in report.batches] == [0, 1, 2]
    assert len(world.records()) == 7


def test_a_slice_comes_back_from_its_record(world: MemoryWorld) -> None:
    world.run()

    for entry in entries(world):
        assert decode_offset("r", encode_offset(entry), entry.seq) == entry
        assert entry.slice.text()
        assert entry.slice.kind == world.source(world.log(), None).kind  # type: ignore[arg-type]


def test_a_run_after_which_nothing_came_writes_nothing_and_says_why(world: MemoryWorld) -> None:
    world.run()
    gate = Counting()

    report = world.run(gate)

    assert gate.writes == []
    assert (report.batches, report.pending_files) == ([], 0)
    assert report.why_nothing().startswith(("0 new ", "0 changes: ", "0 rows: "))


def test_what_came_since_is_loaded_and_nothing_else(world: MemoryWorld) -> None:
    world.run()
    before = held(entries(world))
    add(world, 6)

    world.run()

    assert world.rows() == landed_rows(world)
    assert held(entries(world))[:-1] == before
    assert len(held(entries(world))[-1]) == 1


def test_a_limit_of_batches_leaves_the_rest_and_says_how_much(world: MemoryWorld) -> None:
    report = world.run(max_batches=1)

    assert world.left(report) == (3 if world.says_what_is_left else 0)
    assert len(entries(world)) == 1
    world.run(max_batches=1)
    world.run(max_batches=1)
    assert world.rows() == landed_rows(world)


def test_a_plan_writes_nothing_and_begins_like_the_run(world: MemoryWorld) -> None:
    plan = world.plan()

    assert (plan.opened, plan.error) == ((), None)
    assert world.record_names() == []
    world.run()
    logged = entries(world)
    assert plan.new == tuple(logged if plan.is_complete else logged[:1])


def test_a_plan_beside_an_open_batch_plans_nothing_that_it_holds(world: MemoryWorld) -> None:
    with pytest.raises(SourceFileGoneError):
        world.run(batch_1_fails())
    plan = world.plan()

    assert [entry.seq for entry in plan.opened][:1] == [1]
    assert not {*chain(*held(plan.opened))} & {*chain(*held(plan.new))}


def test_an_open_batch_is_run_as_it_was_logged(world: MemoryWorld) -> None:
    with pytest.raises(SourceFileGoneError):
        world.run(batch_1_fails())
    logged = entries(world)
    add(world, 6)

    world.run()

    assert entries(world)[: len(logged)] == logged
    assert world.rows() == landed_rows(world)


def test_what_a_batch_held_that_was_given_up_comes_again(world: MemoryWorld) -> None:
    with pytest.raises(SourceFileGoneError):
        world.run(batch_1_fails())
    given_up = names_in(entries(world)[1].slice)
    assert world.abandon(1).abandoned

    world.run()

    assert world.rows() == landed_rows(world)
    counts = Counter(chain(*held(entries(world))))
    assert {name for name, count in counts.items() if count == 2} == {*given_up}


def test_a_full_refresh_loads_everything_anew(world: MemoryWorld) -> None:
    world.run()
    add(world, 6)

    world.run(refresh=True)

    assert world.rows() == landed_rows(world)
    new = [entry for entry in entries(world) if entry.refresh_start == 3]
    assert [len(names) for names in held(new)] == [2, 2, 2]
    assert new[0].overwrites_table


def test_a_full_refresh_goes_past_an_open_batch(world: MemoryWorld) -> None:
    with pytest.raises(SourceFileGoneError):
        world.run(batch_1_fails())
    was_open = tuple(entry.seq for entry in entries(world) if entry.seq >= 1)

    report = world.run(batch_1_fails(), refresh=True)

    assert report.superseded == was_open
    assert world.rows() == landed_rows(world)


def test_a_restore_that_undid_half_a_refresh_doubles_nothing(world: MemoryWorld) -> None:
    world.run()
    world.run(refresh=True, max_batches=1)
    world.restore(world.version() - 1)

    if world.has_state:  # its state is that of the rows that came back
        world.accept()
        world.run()
        assert world.rows() == landed_rows(world)
        return
    with pytest.raises(BatchOutcomeUnknownError, match="loads them on top of their old rows"):
        world.accept()


def test_a_replaced_range_is_loaded_behind_the_open_batches(world: MemoryWorld) -> None:
    world.run(max_batches=1)

    report = world.run(where="day = 1")

    assert report.superseded == ()
    assert world.rows() == landed_rows(world)


@pytest.mark.parametrize("world", ["files", "numbers"], indirect=True)  # a table always has a version
def test_a_full_refresh_of_nothing_is_refused(world: MemoryWorld) -> None:
    world.run()
    rows, before = world.rows(), world.record_names()
    if isinstance(world, NumberWorld):
        world.storage.replace(world.path, b"")
    else:
        world.memory.source = {f"{world.root}/.x": a_file("x")._replace(path=f"{world.root}/.x")}

    with pytest.raises(EmptyRefreshError):
        world.run(refresh=True)

    assert (world.rows(), world.record_names()) == (rows, before)


def test_a_source_that_is_gone_is_not_an_empty_one(world: MemoryWorld) -> None:
    world.drop_source()

    with pytest.raises(SourceNotFoundError):
        world.run()


def test_what_another_run_loads_that_looked_later_is_left_alone(world: MemoryWorld) -> None:
    def another() -> None:
        for number in (6, 7):
            add(world, number)
        world.run()

    world.run(before(f"put offsets/{0:020}", another))
    world.run()

    assert world.rows() == landed_rows(world)


@pytest.mark.parametrize("moment", ["put offsets/", "probe", "list offsets"])
def test_a_run_that_another_one_overtakes_plans_what_is_left(world: MemoryWorld, moment: str) -> None:
    name = f"{moment}{0:020}" if moment.endswith("/") else moment

    world.run(before(name, lambda: world.run(max_batches=1)))

    assert world.rows() == landed_rows(world)
    names = [*chain(*held(entries(world)))]
    assert len(names) == len({*names}) == 5


def test_a_slice_that_the_source_cannot_have_is_refused(world: MemoryWorld) -> None:
    world.run()
    wrong = world.wrong if isinstance(world, (NumberWorld, FeedWorld)) else an_entry(3, a_file("x")).slice
    world.log().put_offset(an_entry(3, slice=wrong))
    rows = world.rows()

    with pytest.raises(CheckpointCorruptError):
        world.run()

    assert world.rows() == rows


def test_a_log_of_another_source_is_refused_before_anything_is_written(world: MemoryWorld) -> None:
    world.run()
    is_files = type(world) is MemoryWorld
    other = NumberWorld() if is_files else MemoryWorld()
    other.memory, other.storage, other.delta = world.memory, world.memory, world.delta
    world.storage.replace(f"{world.root}/numbers.txt", b"1\n")
    gate = Counting()

    with pytest.raises(InputError) as caught:
        other.run(gate)

    its, mine = entries(world)[0].slice.kind, "numbers" if is_files else "files"
    assert f"of the kind {its!r}, but the source of this task is of the kind {mine!r}" in caught.value.what
    assert gate.writes == []
