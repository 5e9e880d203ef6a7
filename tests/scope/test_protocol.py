"""Moments between a run, its job, another run and the table in which something could go wrong."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.exceptions import (
    BatchNotInTableError,
    BatchOutcomeUnknownError,
    InputError,
    JobRunningError,
    ScopeJobFailedError,
    TableDivergedError,
)
from airflow_provider_scope.protocol.records import Attempt
from airflow_provider_scope.scope.fate import changes
from airflow_provider_scope.scope.jobs import Change, Evidence, evidence, fate
from airflow_provider_scope.stores.local import LocalStorage
from tests.crash.scope_world import ScopeWorld
from tests.support.faulty_storage import DiedError, after, before, die, open_gate

if TYPE_CHECKING:
    from airflow_provider_scope.scope.jobs import Fate
    from airflow_provider_scope.waiting import Outcome

PIPELINE = "4f0e4a50-93a4-4a3f-9ab4-0d9f1f0c6a11"


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

    world.run(before("GET", world.service.finish))

    assert world.rows() == rows_of(1)
    assert world.log().commit(0).table_version == 2


def test_a_restore_between_the_look_at_the_table_and_the_end_of_a_job_is_noticed():
    world = a_world(1, 2, loaded=1)
    leave_running(world)

    def restore_and_finish() -> None:
        world.restore(0)
        world.service.finish()

    with pytest.raises(TableDivergedError, match="was restored"):
        world.run(before("GET", restore_and_finish))


def test_a_job_that_another_run_submits_between_two_looks_is_not_taken_for_one_that_failed():
    world = a_world(1, 2, loaded=1)
    with pytest.raises(DiedError):
        world.run(before("PUT", die))

    def another_run() -> None:
        leave_running(world)
        world.service.step(world.service.running()[0])  # it marks the table

    world.run(after("GET", another_run, passing=1))

    assert world.rows() == rows_of(1, 2)
    assert job_names(world) == ["load_append_batch0_1files", "load_append_batch1_1files"]


def test_a_batch_is_not_given_up_while_its_job_runs_although_whoever_gave_it_up_is_dead():
    world = a_world(1, 2, loaded=1)
    leave_running(world)
    with pytest.raises(DiedError):
        world.abandon(1, after("put attempts", die))
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

    record = world.abandon(1, after("put attempts", world.service.finish))

    assert not record.abandoned
    assert world.rows() == rows_of(1, 2)


@pytest.mark.parametrize("refresh", [False, True])
def test_a_first_batch_is_given_up_before_there_is_a_table(refresh):
    world = a_world(1)
    with pytest.raises(DiedError):
        world.run(before("PUT", die))

    record = world.abandon(0)

    assert (record.abandoned, record.table) == (True, None)
    assert world.log().attempts(0)[-1].void
    world.run(refresh=refresh)
    assert world.rows() == rows_of(1)
    world.run()
    assert world.rows() == rows_of(1)


def test_rows_that_another_writer_adds_after_a_job_failed_are_not_taken_for_the_jobs():
    world = a_world(1, 2, loaded=1)
    world.service.flaw = lambda _new: "between"
    with pytest.raises(ScopeJobFailedError):
        world.run()
    world.delta.append_foreign()
    world.service.flaw = lambda _new: ""

    world.run()

    assert world.rows() == rows_of(1, 2)


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
    with pytest.raises(DiedError):
        world.run(after("put offsets", die), refresh=True)

    world.run(refresh=True)

    assert [job.result for job in world.service.jobs.values()] == ["succeeded", "cancelled", "succeeded"]
    assert world.rows() == rows_of(1, 2)


def test_a_job_that_runs_beside_a_refresh_which_ended_it_adds_nothing():
    world = a_world(1, 2, loaded=1)
    with pytest.raises(DiedError):
        world.run(before("PUT", die))

    with pytest.raises(BatchNotInTableError):
        world.run(before("PUT", lambda: world.run(refresh=True)))
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

    commits = changes(f"file://{table}", -1, 2, LocalStorage())
    assert [change.adds for change in commits] == [True, True, False]


@pytest.mark.parametrize("stats", [None, "{}"])
def test_of_files_without_statistics_the_rows_are_not_known(tmp_path, stats):
    table = tmp_path / "table"
    write_deltalake(str(table), pa.table({"id": [1]}))
    commit = table / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["stats"] = stats
    commit.write_text("\n".join(map(json.dumps, actions)))

    (change,) = changes(f"file://{table}", -1, 0, LocalStorage())
    assert (change.adds, change.rows) == (True, None)


MARK = f"{PIPELINE}:3:0"
NOBODY = "unnamed operation by an unnamed writer"
ATTEMPT = Attempt(seq=3, number=0, table_version=4)


def a_change(version: int, marker: str | None = None, *, adds: bool = False) -> Change:
    return Change(version, marker, adds, 1 if adds else None, 0)


def fate_after(*log: Change, outcome: Outcome | None = "failed") -> Fate:
    return fate(outcome, evidence(PIPELINE, ATTEMPT, log))


MARKED = a_change(5, MARK)
ROWS = a_change(6, adds=True)
CLOSED = a_change(7, f"{MARK}:done")


@pytest.mark.parametrize("outcome", ["failed", "cancelled", None])
@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ([MARKED], "not committed"),
        ([MARKED, a_change(6), a_change(7)], "not committed"),
        ([MARKED, ROWS], "undecidable"),
        ([MARKED, ROWS, a_change(7, adds=True)], "undecidable"),
        ([MARKED, ROWS, CLOSED], "committed"),
        ([MARKED, ROWS, a_change(7, adds=True), a_change(8, f"{MARK}:done")], "committed"),
        ([MARKED, a_change(6), CLOSED], "committed"),
        ([MARKED, ROWS, CLOSED, a_change(8, adds=True)], "committed"),
        ([MARKED, a_change(6, "another:0:0"), a_change(7, adds=True)], "undecidable"),
        (
            [MARKED, a_change(6, "another:0:0"), a_change(7, adds=True), a_change(8, f"{MARK}:done")],
            "committed",
        ),
        ([MARKED, a_change(6, f"{PIPELINE}:3:1"), a_change(7, adds=True)], "not committed"),
        ([a_change(5, f"{PIPELINE}:2:0:done"), MARKED, a_change(7, adds=True)], "undecidable"),
    ],
)
def test_a_job_that_did_not_succeed_is_in_the_table_if_it_closed_its_mark(log, expected, outcome):
    assert fate_after(*log, outcome=outcome) == expected


@pytest.mark.parametrize(
    ("outcome", "expected"), [("failed", "not committed"), (None, "unknown to the service")]
)
def test_rows_without_the_mark_before_them_are_not_the_jobs(outcome, expected):
    assert fate_after(a_change(5, adds=True), outcome=outcome) == expected
    assert fate_after(a_change(4, MARK), a_change(5, adds=True), outcome=outcome) == expected


@pytest.mark.parametrize("log", [[], [MARKED], [MARKED, ROWS], [MARKED, ROWS, CLOSED]])
def test_a_job_that_succeeded_is_in_the_table_that_has_its_closing_mark(log):
    """Without it, the job changed the table that was there before an older copy took its place."""
    assert fate_after(*log, outcome="succeeded") == ("committed" if CLOSED in log else "undecidable")


def test_the_rows_of_a_job_are_those_between_its_marks():
    log = [MARKED, ROWS, CLOSED, a_change(8, adds=True)]

    assert evidence(PIPELINE, ATTEMPT, log) == Evidence(marked=True, added=(ROWS,), closed=True)


def unclosed(world: ScopeWorld) -> None:
    """Let the next job fail after its rows, and before its closing mark."""
    world.service.flaw = lambda _new: "unclosed"
    with pytest.raises(BatchOutcomeUnknownError):
        world.run()
    world.service.flaw = lambda _new: ""


def test_a_job_that_failed_before_it_closed_its_mark_is_settled_by_a_person_who_is_told_what_to_look_at():
    world = a_world(1, 2, loaded=1)
    unclosed(world)
    world.delta.append_foreign()

    with pytest.raises(BatchOutcomeUnknownError) as refused:
        world.run()
    assert world.settle()
    world.run()

    (job,) = [job.job_id for job in world.service.jobs.values() if "batch1" in job.name]
    assert refused.value.what == (
        f"The job {job} of batch 1 did not succeed, and it did not close its mark on file:///table. After "
        f"the mark, rows were added in version 5 ({NOBODY}), 6 (WRITE by elsewhere), and nothing shows "
        "whether they are the job's."
    )
    assert refused.value.do == (
        "check who made these versions, or whether rows of the batch's files, such as "
        "file:///landing/f2, are in the table. If they are, run `airflow scope settle 1 --committed`, "
        "otherwise `airflow scope settle 1 --not-committed`"
    )
    assert world.rows() == rows_of(1, 2)


def test_another_writers_rows_after_the_mark_of_a_job_that_failed_are_not_taken_for_the_jobs():
    world = a_world(1, 2, loaded=1)
    leave_running(world)
    job = world.service.running()[0]
    job.flaw = "between"
    world.service.step(job)
    world.delta.append_foreign()
    world.service.finish()

    with pytest.raises(BatchOutcomeUnknownError, match=r"version 5 \(WRITE by elsewhere\)"):
        world.run()
    assert world.settle()
    with pytest.raises(ScopeJobFailedError):
        world.run(before("PUT", lambda: setattr(world.service, "flaw", lambda _new: "before")))
    world.service.flaw = lambda _new: ""
    world.run()

    assert world.rows() == rows_of(1, 2)


# ---- RESTORE while a job changes the table ---------------------------------------------------------


def refresh_under_which_the_table_is_restored(world: ScopeWorld, *, when: str) -> None:
    """Let a refresh's job run, and RESTORE the first rows before the job's step of this name."""
    world.inline_wait = 0.0
    with pytest.raises(JobRunningError):
        world.run(refresh=True)
    world.inline_wait = None
    job = world.service.running()[0]
    while world.service.next_step(job) != when:
        world.service.step(job)
    world.restore(3)
    world.service.finish()
    with pytest.raises(TableDivergedError):
        world.run()


def test_a_restore_between_the_deletion_of_a_refresh_and_its_rows_is_put_right_by_another_refresh():
    world = a_world(1, loaded=1)
    refresh_under_which_the_table_is_restored(world, when="insert")
    assert world.rows() == rows_of(1) + rows_of(1)

    with pytest.raises(BatchOutcomeUnknownError) as refused:
        world.accept()
    world.accept(reload_undecidable=True)
    world.run(refresh=True)

    assert refused.value.what == (
        "A RESTORE of file:///table (version 6) happened while the job of batch 1 was replacing the rows. "
        "The table may hold both the rows that the RESTORE brought back and those of the batch."
    )
    assert "full_refresh=True" in refused.value.do
    assert world.rows() == rows_of(1)


def test_a_restore_after_the_rows_of_a_refresh_is_accepted_and_the_refresh_is_done_again():
    world = a_world(1, loaded=1)
    refresh_under_which_the_table_is_restored(world, when="succeeded")
    assert world.rows() == rows_of(1)

    with pytest.raises(BatchOutcomeUnknownError, match="undid the full refresh"):
        world.accept()
    world.accept(reload_undecidable=True)
    world.run(refresh=True)

    assert world.rows() == rows_of(1)


@pytest.mark.parametrize("when", ["insert", "close", "succeeded"])
def test_a_restore_while_a_job_appends_is_accepted_and_the_batch_done_again_if_its_rows_are_gone(when):
    world = a_world(1, 2, loaded=1)
    leave_running(world)
    job = world.service.running()[0]
    while world.service.next_step(job) != when:
        world.service.step(job)
    world.restore(3)
    world.service.finish()
    with pytest.raises(TableDivergedError):
        world.run()

    world.accept()
    world.run()
    world.run()

    assert world.rows() == rows_of(1, 2)


def test_a_table_is_not_accepted_while_a_job_may_still_change_it():
    world = a_world(1, 2, loaded=1)
    leave_running(world)
    job = world.service.running()[0]
    while world.service.next_step(job) != "close":
        world.service.step(job)
    world.restore(3)

    with pytest.raises(BatchOutcomeUnknownError, match="A job of batch 1 is still running"):
        world.accept()
    world.service.finish()
    world.accept()
    world.run()

    assert world.rows() == rows_of(1, 2)


def test_a_job_that_succeeded_is_in_doubt_once_the_tables_log_does_not_go_back_to_it():
    world = a_world(1, 2, loaded=1)
    leave_running(world)
    world.service.finish()
    world.delta.cleaned = 5
    world.restore(5)

    with pytest.raises(BatchOutcomeUnknownError):
        world.run()
    with pytest.raises(BatchOutcomeUnknownError, match="no longer holds version"):
        world.accept()
    assert world.settle()
    world.accept()
    world.run()

    assert world.rows() == rows_of(1, 2)


def test_a_batch_behind_one_that_is_settled_comes_again_if_a_restore_took_its_rows_too():
    world = a_world(1, 2)
    world.max_files = 1
    with pytest.raises(DiedError):
        world.run(before("put commits", die))
    world.delta.cleaned = 1
    world.restore(1)
    with pytest.raises(BatchOutcomeUnknownError):
        world.run()
    assert world.settle()  # the older batch is not in the table, as anybody can see

    world.accept()
    for _ in range(3):
        with suppress(BatchNotInTableError):
            world.run()

    assert world.rows() == rows_of(1, 2)


def test_a_refresh_is_not_done_again_under_batches_that_came_after_it():
    world = a_world(1)
    world.max_files = 1
    world.drop("f2", at=2)

    def clean_and_restore() -> None:
        world.delta.cleaned = 1
        world.restore(1)

    with pytest.raises(BatchOutcomeUnknownError):
        world.run(before("PUT", clean_and_restore, passing=1), refresh=True)
    engine = world.engine(open_gate)

    with world.patched(), pytest.raises(InputError, match="would delete the rows of batch 1"):
        engine.settle(world.table, 0, committed=False)
    assert world.settle()
    with pytest.raises(BatchOutcomeUnknownError, match="full_refresh=True"):
        world.accept()
    world.accept(reload_undecidable=True)
    world.run(refresh=True)

    assert world.rows() == rows_of(1, 2)


# ---- giving up -------------------------------------------------------------------------------------


def test_a_batch_that_another_run_records_while_it_is_given_up_stays_as_that_run_recorded_it():
    world = a_world(1, 2, loaded=1)
    leave_running(world)

    def another_run() -> None:
        world.service.finish()
        world.run()

    record = world.abandon(1, before("put attempts", another_run))

    assert not record.abandoned
    assert record == world.log().commit(1)
    assert world.rows() == rows_of(1, 2)
