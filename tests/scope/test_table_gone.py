"""A table that is gone, whose batches are SCOPE jobs: told, and made again by a full refresh."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.exceptions import TableGoneError

if TYPE_CHECKING:
    from tests.scope.conftest import World


@pytest.mark.parametrize("checkpoint", [None, "elsewhere"])
def test_a_full_refresh_makes_a_table_again_that_is_gone(world: World, checkpoint: str | None) -> None:
    world.open()
    place = {} if checkpoint is None else {"checkpoint": {"location": str(world.account / checkpoint)}}
    world.land(1, 2, 3)
    world.run(**place)
    drop(world)
    world.land(4)

    with pytest.raises(TableGoneError, match=r"There is no table at .*/delta/flights any more") as caught:
        world.run(**place)
    assert "full_refresh=True" in caught.value.do
    jobs = len(world.jobs())
    world.run(**place, full_refresh=True)

    assert world.rows_are_those_of(1, 2, 3, 4)
    assert len(world.jobs()) == jobs + 2
    assert world.run(**place).loaded_nothing
    world.land(5)
    world.run(**place)
    assert world.rows_are_those_of(1, 2, 3, 4, 5)


def test_a_refresh_that_ends_amid_its_jobs_goes_on_with_the_table_that_it_made(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.open()
    world.land(1, 2, 3)
    world.run()
    drop(world)
    execution, request, engine = world.assemble(full_refresh=True)

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(engine, "run", dies)
        with pytest.raises(KeyboardInterrupt):
            execution.run(request)
    world.run()
    assert world.rows_are_those_of(1, 2, 3)

    world.land(4)
    world.run()
    assert world.rows_are_those_of(1, 2, 3, 4)


def test_a_table_that_the_jobs_see_and_the_workers_do_not_is_named(world: World) -> None:
    """To the service, a path without a scheme lies in the account; to a worker, on its own disk."""
    world.open()
    world.land(1)
    with pytest.raises(TableGoneError, match="there is no table at file:///elsewhere/flights"):
        world.run(delta_location="/elsewhere/flights")
    assert [job.result for job in world.jobs()] == ["Succeeded"]


def drop(world: World) -> None:
    """Delete the table; a checkpoint below it stays."""
    for path in world.table.iterdir():
        if path.name != "_checkpoint":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
