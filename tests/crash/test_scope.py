from __future__ import annotations

import pytest

from airflow_provider_scope.exceptions import TableRestoredError
from tests.crash.scope_world import ScopeWorld
from tests.support.faulty_storage import DiedError, before, die


def test_a_table_is_accepted_beside_a_batch_that_only_a_record_closed() -> None:
    """Whoever gave the batch up died before the commit record."""
    world = ScopeWorld()
    for number in range(3):
        world.drop(f"f{number}", at=9 - number)
        if number < 2:
            world.run()
    with pytest.raises(DiedError):
        world.run(before(f"put attempts/{2:020}.0", die))
    with pytest.raises(DiedError):
        world.abandon(2, before(f"put commits/{2:020}", die))
    world.restore(world.version())
    with pytest.raises(TableRestoredError):
        world.run()

    world.accept()
    world.run()

    assert sorted(world.rows()) == [(f"file:///landing/f{number}", 0, 1) for number in range(3)]
