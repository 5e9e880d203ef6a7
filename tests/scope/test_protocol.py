"""Moments between a run, its job, another run and the table in which something could go wrong."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.core.attempts import Change, evidence, fate
from airflow_provider_scope.core.records import Attempt
from airflow_provider_scope.exceptions import (
    BatchNotInTableError,
    InputError,
    JobRunningError,
    ScopeJobFailedError,
    TableDivergedError,
)
from airflow_provider_scope.table.changes import changes
from tests.crash.scope_world import Commit, ScopeWorld

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.faulty_storage import Call, Gate

PIPELINE = "4f0e4a50-93a4-4a3f-9ab4-0d9f1f0c6a11"


class DeadError(BaseException):
    pass


def die() -> None:
    raise DeadError


def at(name: str, number: int, *, before: Callable[[], Any] = int, after: Callable[[], Any] = int) -> Gate:
    """Give a gate that does something else before, or after, the n-th operation of this name."""
    passed = 0

    def gate(call: Call, effect: Callable[[], Any], torn: Callable[[], None] | None = None) -> Any:
        nonlocal passed
        is_here = call.name.startswith(name) and passed == number
        passed += call.name.startswith(name)
        if is_here:
            before()
        result = effect()
        if is_here:
            after()
        return result

    return gate


def a_world(*numbers: int, loaded: int = 0) -> ScopeWorld:
    """Make a world with files, of which the first ones are loaded."""
    world = ScopeWorld()
    for number in numbers[:loaded]:
        world.drop(f"f{number}", at=1000 - number)
    if loaded:
        world.run()
    for number in numbers[loaded:]:
        world.drop(f"f{number}", at=1000 - number)
    return world


def rows_of(*numbers: int) -> Counter[Any]:
    return Counter((f"file:///landing/f{number}", 0, 1) for number in numbers)


def leave_running(world: ScopeWorld) -> None:
    world.inline_wait = 0.0
    with pytest.raises(JobRunningError):
        world.run()
    world.inline_wait = None


def job_names(world: ScopeWorld) -> list[str]:
    return [job.name for job in world.service.jobs.values()]


def test_a_job_that_makes_the_table_while_a_run_looks_for_it_is_recorded():
    world = a_world(1)
    leave_running(world)

    world.run(at("GET", 0, before=world.service.finish))

    assert world.rows() == rows_of(1)
    assert world.log().commit(0).table_version == 2


def test_a_restore_between_the_look_at_the_table_and_the_end_of_a_job_is_noticed():
    world = a_world(1, 2, loaded=1)
    leave_running(world)

    def restore_and_finish() -> None:
        world.restore(0)
        world.service.finish()

    with pytest.raises(TableDivergedError, match="was restored"):
        world.run(at("GET", 0, before=restore_and_finish))


def test_a_job_that_another_run_submits_between_two_looks_is_not_taken_for_one_that_failed():
    world = a_world(1, 2, loaded=1)
    with pytest.raises(DeadError):
        world.run(at("PUT", 0, before=die))

    def another_run() -> None:
        leave_running(world)
        world.service.step(world.service.running()[0])  # it marks the table

    world.run(at("GET", 1, after=another_run))

    assert world.rows() == rows_of(1, 2)
    assert job_names(world) == ["load_append_batch0_1files", "load_append_batch1_1files"]


def test_a_batch_is_not_given_up_while_its_job_runs_although_whoever_gave_it_up_is_dead():
    world = a_world(1, 2, loaded=1)
    leave_running(world)
    with pytest.raises(DeadError):
        world.abandon(1, at("put attempts", 0, after=die))
    world.service.step(world.service.running()[0])

    # The run ends what the dead one began: the job is cancelled before the batch counts as given up.
    with pytest.raises(BatchNotInTableError, match="was closed by another run"):
        world.run()
    world.run()
    world.service.finish()

    assert world.rows() == rows_of(1, 2)
    assert world.log().commit(1).abandoned
    assert [job.result for job in world.service.jobs.values()] == ["succeeded", "cancelled", "succeeded"]


def test_a_job_that_lands_before_its_batch_is_given_up_stays():
    world = a_world(1, 2, loaded=1)
    leave_running(world)

    record = world.abandon(1, at("put attempts", 0, after=world.service.finish))

    assert not record.abandoned
    assert world.rows() == rows_of(1, 2)


def test_a_batch_without_a_table_cannot_be_given_up_and_a_refresh_takes_its_place():
    world = a_world(1)
    with pytest.raises(DeadError):
        world.run(at("PUT", 0, before=die))

    with pytest.raises(InputError, match="there is no table"):
        world.abandon(0)
    assert not any(attempt.void for attempt in world.log().attempts(0))
    world.run(refresh=True)

    assert world.rows() == rows_of(1)


def test_rows_that_another_writer_adds_after_a_job_failed_are_not_taken_for_the_jobs():
    world = a_world(1, 2, loaded=1)
    world.service.flaw = lambda _new: "between"
    with pytest.raises(ScopeJobFailedError):
        world.run()
    foreign = Counter([("elsewhere", 7, 1)])
    world.delta.versions.append(Commit(world.rows() + foreign, {}, mark=world.delta.mark, adds=True, added=1))
    world.service.flaw = lambda _new: ""

    world.run()

    assert world.rows() == rows_of(1, 2) + foreign


def test_a_refresh_does_not_close_again_what_an_older_refresh_closed():
    world = a_world(1, 2, loaded=1)
    leave_running(world)
    world.run(refresh=True)
    for job_id in [job.job_id for job in world.service.jobs.values() if "batch1" in job.name]:
        del world.service.jobs[job_id]  # the service forgets

    world.run(refresh=True)

    assert job_names(world) == [
        "load_append_batch0_1files",
        "load_overwrite_batch2_2files",
        "load_overwrite_batch3_2files",
    ]


def test_a_refresh_closes_what_an_older_refresh_that_never_began_did_not():
    world = a_world(1, 2, loaded=1)
    leave_running(world)
    with pytest.raises(DeadError):
        world.run(at("put offsets", 0, after=die), refresh=True)

    world.run(refresh=True)

    assert [job.result for job in world.service.jobs.values()] == ["succeeded", "cancelled", "succeeded"]
    assert world.rows() == rows_of(1, 2)


def test_a_job_that_runs_beside_a_refresh_which_ended_it_adds_nothing():
    world = a_world(1, 2, loaded=1)
    with pytest.raises(DeadError):
        world.run(at("PUT", 0, before=die))

    with pytest.raises(BatchNotInTableError):
        world.run(at("PUT", 0, before=lambda: world.run(refresh=True)))
    world.run()

    assert world.rows() == rows_of(1, 2)
    assert job_names(world) == [
        "load_append_batch0_1files",
        "airflow_provider_scope_void_batch1",
        "load_overwrite_batch2_2files",
    ]


def test_rows_that_a_restore_brings_back_are_not_a_jobs(tmp_path):
    table = str(tmp_path / "table")
    write_deltalake(table, pa.table({"id": [1]}))
    write_deltalake(table, pa.table({"id": [2]}), mode="overwrite")
    DeltaTable(table).restore(0)

    assert [change.adds for change in changes(f"file://{table}", -1, 2, "mark")] == [True, True, False]


def a_change(version: int, marker: str | None = None, *, adds: bool = False) -> Change:
    return Change(version, marker, adds, 1 if adds else None, 0)


def test_rows_beside_those_of_another_pipelines_jobs_are_not_guessed_about():
    attempt = Attempt(seq=3, number=0, table_version=4)
    marker = f"{PIPELINE}:3:0"
    log = [a_change(5, marker), a_change(6, "another:0:0"), a_change(7, adds=True)]

    found = evidence(attempt, marker, log)

    assert fate(attempt, "failed", found) == "undecidable"
    assert fate(attempt, "succeeded", found) == "landed"


def test_rows_after_the_mark_of_the_pipelines_next_job_are_not_the_attempts():
    attempt = Attempt(seq=3, number=0, table_version=4)
    marker = f"{PIPELINE}:3:0"
    log = [a_change(5, marker), a_change(6, f"{PIPELINE}:3:1"), a_change(7, adds=True)]

    assert fate(attempt, "failed", evidence(attempt, marker, log)) == "not landed"
