"""The state of a source rides in the commit of the rows that it is the state after."""

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
