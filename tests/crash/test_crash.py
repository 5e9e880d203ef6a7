from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.exceptions import (
    BatchOutcomeUnknownError,
    TableDivergedError,
    TableRecreatedError,
)
from tests.crash import damage, interval_schedules
from tests.crash.exhaustive import kill_once, kill_twice, lose_answers
from tests.crash.scenarios import BY_NAME, SCENARIOS, Scenario
from tests.crash.schedules import KINDS, play_many
from tests.crash.tally import Tally
from tests.crash.world import MemoryWorld

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.faulty_storage import Call, Gate


def four(points: list[Any]) -> list[Any]:
    return sorted(random.Random(1).sample(points, 4))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_run_that_was_killed_and_run_again_ends_like_one_that_was_not(scenario: Scenario) -> None:
    assert kill_once(scenario, four) == Tally(kill_points=4)


def test_a_rerun_that_was_killed_too_and_run_again_ends_like_one_that_was_not() -> None:
    assert kill_twice(BY_NAME["full refresh"], 4, seed=2)[0] == Tally(kill_points=4)


def test_a_run_without_an_answer_and_run_again_ends_like_one_with_all_answers() -> None:
    found = lose_answers(BY_NAME["later run"])

    assert (found.lost, found.doubled, found.failures) == (0, 0, [])


@pytest.mark.parametrize("kind", KINDS)
def test_runs_that_overtake_each_other_and_die_lose_and_double_nothing(kind: str) -> None:
    found = play_many(kind, range(1000, 1020))

    assert (found.lost, found.doubled, found.failures) == (0, 0, [])
    assert found.kill_points > 0


def test_a_damaged_record_stops_the_run_before_it_writes_anything() -> None:
    found, damages = damage.damage_everything()

    assert found.failures == []
    assert damages > 40


@pytest.mark.parametrize("moment", ["list commits", "probe", "read watermark.json"])
def test_a_first_run_that_is_overtaken_by_another_first_run_is_not_told_of_damage(moment: str) -> None:
    world = MemoryWorld()
    world.drop("f1", at=9)
    overtaken = []

    def gate(call: Call, effect: Callable[[], Any], torn: Callable[[], None] | None = None) -> Any:
        if call.name == moment and not overtaken:
            overtaken.append(world.run())
        return effect()

    world.run(gate)

    assert len(overtaken) == 1
    assert world.rows() == {("file:///landing/f1", 0, 1): 1}


def test_a_run_that_was_killed_while_it_wrote_the_audit_leaves_the_rest_of_it_to_the_next() -> None:
    scenario = BY_NAME["compaction and retention"]

    assert kill_once(scenario, lambda points: points[-16:]) == Tally(kill_points=16)


def three_files() -> MemoryWorld:
    world = MemoryWorld()
    world.max_files = 1
    for number in (1, 2, 3):
        world.drop(f"f{number}", at=1000 - number)
    return world


def at(name: str, effect_of_it: Callable[[], None]) -> Gate:
    """Give a gate that does something else after the operation of this name."""

    def gate(call: Call, effect: Callable[[], Any], torn: Callable[[], None] | None = None) -> Any:
        result = effect()
        if call.name == name:
            effect_of_it()
        return result

    return gate


class DeadError(BaseException):
    pass


def die() -> None:
    raise DeadError


def test_a_run_killed_between_the_record_of_a_given_up_batch_and_the_next_finds_the_next() -> None:
    world = three_files()
    with pytest.raises(TableDivergedError):
        world.run(at("verify 1", lambda: world.restore(0)))
    world.accept()
    with pytest.raises(DeadError):
        world.run(at(f"put commits/{1:020}", die))

    world.run()
    world.run()

    assert world.rows() == {(f"file:///landing/f{number}", 0, 1): 1 for number in (1, 2, 3)}


def test_a_restore_that_undid_half_a_refresh_is_not_accepted_as_it_is() -> None:
    world = three_files()
    world.run()
    world.run(refresh=True, max_batches=1)
    world.restore(world.version() - 1)

    with pytest.raises(BatchOutcomeUnknownError, match=r"2 of them would be loaded on top of their old rows"):
        world.accept()


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
    with pytest.raises(DeadError):
        world.run(at("verify 0", die))

    def others() -> None:
        if not world.log().committed():
            world.run()
            world.recreate()

    with pytest.raises(TableRecreatedError, match=r"its id is table-1, the newest record says table-0"):
        world.run(at("list offsets", others), refresh=True)
    with pytest.raises(TableRecreatedError):
        world.run()
    world.accept()
    world.run()

    assert world.rows() == {(f"file:///landing/f{number}", 0, 1): 1 for number in (1, 2, 3)}


def test_intervals_that_are_loaded_at_once_and_die_lose_and_double_nothing() -> None:
    found = interval_schedules.play_many("intervals", range(2000, 2100))

    assert (found.lost, found.doubled, found.failures) == (0, 0, [])
    assert found.kill_points > 0


def test_batches_of_before_a_refresh_in_a_table_created_after_it_are_not_accepted() -> None:
    """A run that slept meanwhile put them there, and died."""
    world = three_files()
    with pytest.raises(DeadError):
        world.run(at("open 0", die))
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

    with pytest.raises(DeadError):
        world.run(gate)
    with pytest.raises(TableDivergedError):
        world.run()

    with pytest.raises(BatchOutcomeUnknownError, match="created again after the full refresh"):
        world.accept()
    world.accept(reload_undecidable=True)
    world.run(refresh=True)

    assert sorted(world.rows().values()) == [1, 1, 1]
