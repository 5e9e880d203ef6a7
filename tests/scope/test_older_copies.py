"""A table or a checkpoint that was put back from an older copy: no row is lost or doubled without a word."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_scope.exceptions import (
    BatchOutcomeUnknownError,
    TableAheadOfLogError,
    TableBehindLogError,
)
from airflow_provider_scope.protocol import acceptance

if TYPE_CHECKING:
    from tests.scope.conftest import World


@pytest.fixture
def elsewhere(world: World) -> Path:
    """A folder for a checkpoint that is not below the table."""
    return Path(world.account) / "elsewhere"


def set_back(folder: Path, copy: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)


def test_an_older_copy_of_the_table_is_refused(world: World, elsewhere: Path, tmp_path: Path) -> None:
    place = {"checkpoint": {"location": str(elsewhere)}}
    world.open()
    world.land(1, 2, 3)
    world.run(**place)
    shutil.copytree(world.table, tmp_path / "copy")
    world.land(4)
    world.run(**place)
    set_back(world.table, tmp_path / "copy")

    with pytest.raises(TableBehindLogError, match="it is an older copy"):
        world.run(**place)


def test_an_older_copy_of_the_checkpoint_is_refused(world: World, elsewhere: Path, tmp_path: Path) -> None:
    place = {"checkpoint": {"location": str(elsewhere)}}
    world.open()
    world.land(1, 2, 3)
    world.run(**place)
    shutil.copytree(elsewhere, tmp_path / "copy")
    world.land(4)
    world.run(**place)
    set_back(elsewhere, tmp_path / "copy")
    world.land(5)

    with pytest.raises(TableAheadOfLogError, match="it is an older copy"):
        world.run(**place)


@pytest.mark.parametrize("way", ["settle", "accept"])
def test_after_an_older_copy_of_both_the_files_since_then_can_be_loaded_again(
    world: World, tmp_path: Path, way: str
) -> None:
    world.open()
    world.land(1, 2, 3)
    world.run()
    shutil.copytree(world.table, tmp_path / "copy")
    world.land(4)
    world.run()
    set_back(world.table, tmp_path / "copy")
    world.land(5)

    with pytest.raises(BatchOutcomeUnknownError, match="succeeded, but its mark is not in the log") as caught:
        world.run()
    assert "`airflow scope settle 2 --not-committed`" in caught.value.do
    with pytest.raises(BatchOutcomeUnknownError, match="Batch 2 is done, but the log of"):
        world.run()
    execution, _, engine = world.assemble()
    table = f"file://{world.table}"
    if way == "settle":
        engine.settle(table, 2, committed=False)
    else:
        acceptance.accept_table(execution.log, engine, table, reload_undecidable=True)
    world.run()

    assert world.rows_are_those_of(1, 2, 3, 4, 5)


def test_a_job_of_before_the_copy_of_the_checkpoint_is_found_by_its_mark(
    world: World, elsewhere: Path, tmp_path: Path
) -> None:
    """The copy was made between the entry of a batch and the first attempt at it."""
    place = {"checkpoint": {"location": str(elsewhere)}}
    world.open()
    world.land(1, 2, 3)
    world.run(**place)
    world.land(4)
    world.run(**place)
    newest = max(path.name for path in (elsewhere / "offsets").iterdir())
    for path in [*(elsewhere / "commits").iterdir(), *(elsewhere / "attempts").iterdir()]:
        if path.name.partition(".")[0] == newest:
            path.unlink()
    world.land(5)

    world.run(**place)

    assert world.rows_are_those_of(1, 2, 3, 4, 5)
