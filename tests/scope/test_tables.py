"""Tables and checkpoints that are not what the log says: gone, older copies, or with rows of others."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from airflow_provider_scope.emulator import Fault
from airflow_provider_scope.exceptions import (
    BatchOutcomeUnknownError,
    ScopeJobFailedError,
    ScopeScriptError,
    TableAheadOfLogError,
    TableBehindLogError,
    TableGoneError,
)
from airflow_provider_scope.protocol import acceptance
from airflow_provider_scope.waiting import outcome
from tests.support.delta_engine import numbered

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


def test_rows_of_others_between_two_attempts_are_not_taken_for_the_first_ones(world):
    world.open(faults=(Fault(kind="fail_job", op="batch0", skip=1, times=1),))
    world.land(1)
    with pytest.raises(ScopeScriptError):  # it marks the table and adds nothing
        world.run(sql="SELECT id, source_file_uri.Split(',')[1] AS source_file_uri FROM @data")
    execution, request, runner = world.assemble()
    submit = runner.jobs.submit_job

    def interfere_and_submit(*args):
        if world.table.exists():
            rows = pa.table({"id": [7], "source_file_uri": ["other"]})
            write_deltalake(world.table, rows, mode="append")
        return submit(*args)

    runner.jobs.submit_job = interfere_and_submit
    with pytest.raises(ScopeJobFailedError):
        execution.run(request)

    world.run()

    assert [outcome(job) for job in world.jobs()] == ["failed", "failed", "succeeded"]
    assert world.rows()[1] == 1


def test_a_batch_that_spark_committed_before_the_pipeline_moved_is_not_loaded_again(world):
    world.open()
    world.land(1)
    world.run()
    world.land(2)
    execution, request, runner = world.assemble()

    def spark_commits_and_is_killed(work, entries):
        (entry,) = entries
        rows = pa.table({"id": [2, 102], "source_file_uri": ["2", "2"]})
        ours = numbered(work.pipeline, entry.seq)
        write_deltalake(world.table, rows, mode="append", commit_properties=ours)
        raise KeyboardInterrupt

    runner.run = spark_commits_and_is_killed
    with pytest.raises(KeyboardInterrupt):
        execution.run(request)

    report = world.run()

    assert [(batch.record.seq, batch.already_there) for batch in report.batches] == [(1, True)]
    assert len(world.jobs()) == 1
    assert world.rows_are_those_of(1, 2)
