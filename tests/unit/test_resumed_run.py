"""What a run reports and records: all of its batches after a wait, and the state of a source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.exceptions import ScopeProviderError, StorageError
from airflow_provider_scope.protocol.records import CommitRecord, decode
from tests.crash.world import DeltaWorld
from tests.support.delta_engine import DeltaEngine
from tests.support.faulty_storage import fails_at, no_space_for

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_provider_scope.protocol.records import OffsetEntry


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


# ---- the state of a source rides in the commit of the rows that it is the state after ----------------


class Reading(DeltaEngine):
    """Says how many files a batch has, in place of a cursor's last value."""

    def notes(self, entry: OffsetEntry, rows: Any) -> dict[str, Any]:
        return {"state": f'{{"files": {len(entry.files)}, "text": "é \\"q\\""}}'}


class World(DeltaWorld):
    def engine(self, gate: Any) -> Reading:
        return Reading(gate)

    def recorded(self, seq: int) -> str | None:
        return decode(CommitRecord, "commit", self.read(f"commits/{seq:020}"), seq=seq).state


def of(files: int) -> str:
    return f'{{"files": {files}, "text": "é \\"q\\""}}'


def test_the_record_of_a_batch_has_the_state_of_its_commit(tmp_path: Path) -> None:
    world = World(tmp_path)
    for name in "abc":
        world.drop(name, 100)

    world.run()

    assert [world.recorded(seq) for seq in range(2)] == [of(2), of(1)]


def test_the_state_of_a_batch_that_is_in_the_table_and_not_recorded_is_not_lost(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.drop("a", 100)

    with pytest.raises(ScopeProviderError):
        world.run(no_space_for(f"put commits/{0:020}"))
    world.drop("b", 90)
    world.run()

    assert [world.recorded(seq) for seq in range(2)] == [of(1), of(1)]


def test_a_batch_that_was_given_up_has_no_state(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.drop("a", 100)
    world.run()
    world.drop("b", 90)

    with pytest.raises(ScopeProviderError):
        world.run(fails_at("files 1", StorageError("No space left on device")))
    assert world.abandon(1).abandoned

    assert [world.recorded(seq) for seq in range(2)] == [of(1), None]
    assert b'"state"' not in world.read(f"commits/{1:020}")
