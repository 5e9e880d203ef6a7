"""What ``airflow scope take-over`` and ``status`` tell of tables that dbt-scope loaded."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from airflow_provider_scope.exceptions import WatermarkChangedError
from airflow_provider_scope.protocol.records import Pipeline
from tests.crash.world import NOW_MS
from tests.support.dbt_scope import CrashedError, DbtScope

if TYPE_CHECKING:
    from tests.cli.conftest import Desk

OLD_MS = NOW_MS - 7_200_000
GAP = "the files of 1 batch are not known"


def dbt_scope(desk: Desk) -> DbtScope:
    return DbtScope(desk.world.storage, desk.world.checkpoint)


def left(desk: Desk, batches: int, *, last_has_a_record: bool = True) -> DbtScope:
    """Return a checkpoint of so many batches of one file each; the last two files have the same time."""
    theirs = dbt_scope(desk)
    for number in range(batches):
        name = f"old{number}.parquet"
        desk.world.drop(name, 7_200 - number)
        crash = None if last_has_a_record or number + 1 < batches else "before the sources"
        with suppress(CrashedError):
            theirs.loaded([(path_of(desk, name), OLD_MS + number * 1_000)], crash)
    return theirs


def path_of(desk: Desk, name: str) -> str:
    return f"{desk.world.folder}/landing/{name}"


def test_status_tells_that_a_table_was_taken_over_when_and_from_where(desk):
    left(desk, 3)
    desk.loaded("new.parquet")

    said = desk.table_command("status")

    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[3:10] == [
        "checkpoint  file:///table/_checkpoint",
        "pipeline    PIPELINE",
        "taken over  from dbt-scope after its batch 2; 2023-11-14T22:13:20Z (1 h ago)",
        "            loaded there: all files up to 2023-11-14T20:13:22+00:00; 3 files by name",
        "logged      batch 0",
        "committed   batch 0: 1 file, version 0; 2023-11-14T22:13:20Z (1 h ago)",
        "watermark   2023-11-14T21:13:20Z (2 h ago)",
    ]
    assert said.out.splitlines()[-2].startswith("what next   the table and the log fit together")


def test_status_of_a_table_that_was_taken_over_without_a_new_file(desk):
    left(desk, 3, last_has_a_record=False)
    desk.world.run()

    lines = desk.table_command("status").out.splitlines()

    assert lines[4:9] == [
        "taken over  from dbt-scope after its batch 2; 2023-11-14T22:13:20Z (1 h ago)",
        f"            loaded there: all files up to 2023-11-14T20:13:22+00:00; 2 files by name; {GAP}",
        "logged      nothing",
        "committed   nothing",
        "watermark   2023-11-14T20:13:22Z (2 h 59 min ago)",
    ]


def test_before_the_first_run_there_is_nothing_to_do_but_to_run(desk):
    left(desk, 3)

    said = desk.table_reads("take-over", "--yes")

    assert (said.code, said.err) == (0, "")
    assert said.out == (
        "dbt-scope's newest batch is 2, its watermark 2023-11-14T20:13:22+00:00\n"
        "sources/ lists 3 files, from 3 of 3 batches\n"
        "the next run of the task takes the table over; there is nothing to do here\n"
    )


def test_a_place_without_dbt_scope_is_an_error(desk):
    said = desk.table_command("take-over")

    assert said.code == 1
    assert said.err.startswith("InputError: There is nothing of dbt-scope in file:///table/_checkpoint.\n")


def test_files_that_no_record_names_are_decided_about_once(desk):
    left(desk, 3, last_has_a_record=False)
    desk.world.drop("tie.parquet", 7_198)

    shown = desk.table_command("take-over")
    asked = desk.table_command("take-over", "--at-watermark", "new")
    done = desk.table_command("take-over", "--at-watermark", "new", "--yes")
    again = desk.table_command("take-over", "--at-watermark", "loaded", "--yes")

    assert "it says nothing about the newest batch, 2\n" in shown.out
    assert asked.out == (
        "files with exactly the time of dbt-scope's watermark that no record names count as new: the next "
        "run loads them\n"
        "A wrong decision loses rows, or duplicates them; it cannot be undone.\n"
        "nothing was written; add --yes to do it\n"
    )
    assert done.code == 0
    assert again.code == 1
    assert again.err.startswith("InputError: It was decided earlier that they count as new.\n")
    desk.world.run()
    assert desk.rows_are_those_of("old2.parquet", "tie.parquet")


def test_a_pipeline_that_logged_nothing_is_as_good_as_none(desk):
    """A full refresh died before its first entry: the next run takes over, and asks as a first run does."""
    left(desk, 3, last_has_a_record=False)
    desk.world.drop("tie.parquet", 7_198)
    desk.world.log().put_pipeline(Pipeline(pipeline="22222222-2222-2222-2222-222222222222", table=None))

    shown = desk.table_reads("take-over", "--yes")
    decided = desk.table_command("take-over", "--at-watermark", "new", "--yes")
    desk.world.run()

    assert shown.out.endswith("the next run of the task takes the table over; there is nothing to do here\n")
    assert (decided.code, decided.err) == (0, "")
    assert desk.rows_are_those_of("old2.parquet", "tie.parquet")


def test_there_is_nothing_to_decide_about_files_that_are_recorded(desk):
    left(desk, 3)
    before_the_first_run = desk.table_command("take-over", "--at-watermark", "new", "--yes")
    desk.world.run()
    after_it = desk.table_command("take-over", "--at-watermark", "new", "--yes")

    assert (before_the_first_run.code, after_it.code) == (1, 1)
    assert "There is nothing to decide in file:///table/_checkpoint" in before_the_first_run.err
    assert "There is nothing to decide in file:///table/_checkpoint" in after_it.err


def test_a_pipeline_goes_on_after_batches_that_dbt_scope_loaded(desk):
    theirs = left(desk, 3)
    desk.loaded("ours.parquet")
    desk.world.drop("theirs.parquet", 1_800)
    theirs.loaded([(path_of(desk, "theirs.parquet"), NOW_MS - 1_800_000)])

    refused = desk.table_command("status")
    asked = desk.table_command("take-over")
    tree = desk.tree()
    with pytest.raises(WatermarkChangedError):
        desk.world.run()
    assert desk.tree() == tree
    done = desk.table_command("take-over", "--yes")
    nothing = desk.table_command("take-over", "--yes")
    desk.world.run()
    assert theirs.watermark() == (4, "2023-11-14T21:43:20+00:00", 4), "nothing was loaded"
    desk.world.drop("new.parquet", 600)
    desk.world.run()

    assert refused.code == 1
    assert refused.err.startswith(
        "WatermarkChangedError: file:///table/_checkpoint/watermark.json says batch 4, and this package did "
        "not write it: dbt-scope has run since."
    )
    assert asked.out == (
        "dbt-scope's newest batch is 4, its watermark 2023-11-14T21:43:20+00:00\n"
        "sources/ lists 5 files, from 5 of 5 batches\n"
        "files up to this watermark count as loaded, as sources/ lists them\n"
        "batch 1 of this pipeline will be batch 5 in dbt-scope's count\n"
        "nothing was written; add --yes to do it\n"
    )
    assert done.out.endswith(
        f"taken over, as file:///table/_checkpoint/taken_over/{1:020}; the next run goes on from here\n"
    )
    assert nothing.out == (
        "dbt-scope has not run on file:///table/_checkpoint since it was taken over: there is nothing to do\n"
    )
    assert desk.rows_are_those_of("ours.parquet", "new.parquet"), "dbt-scope's rows are not in this table"
    assert theirs.watermark() == (5, "2023-11-14T22:03:20.000000+00:00", 5)
    assert [row["path"] for row in theirs.batch(5)] == [path_of(desk, "new.parquet")]
    assert json.loads(desk.world.read("watermark.json"))["seq"] == 1


def test_a_refresh_of_dbt_scope_cannot_be_added_to_the_log(desk):
    theirs = left(desk, 3)
    desk.loaded("ours.parquet")
    theirs.begin_refresh()
    for name in desk.world.storage.names(f"{desk.world.checkpoint}/sources"):
        desk.world.storage.delete(f"{desk.world.checkpoint}/sources/{name}")
    theirs.loaded([(path_of(desk, "old0.parquet"), OLD_MS)])

    said = desk.table_command("take-over", "--yes")

    assert said.code == 1
    assert said.err.startswith(
        "WatermarkChangedError: dbt-scope's watermark in file:///table/_checkpoint (batch 0, "
    )
    assert "does not follow from batch 3 of the log" in said.err
    assert "full_refresh=True" in said.err


@pytest.mark.parametrize(("watermark", "words"), [(None, "is missing"), (b"{", "cannot be read")])
def test_a_watermark_that_is_not_dbt_scopes_is_not_taken_for_its_refresh(desk, watermark, words):
    left(desk, 3)
    desk.loaded("ours.parquet")
    desk.world.storage.delete(f"{desk.world.checkpoint}/watermark.json")
    if watermark is not None:
        desk.world.storage.replace(f"{desk.world.checkpoint}/watermark.json", watermark)

    said = desk.table_command("take-over", "--yes")
    rebuilt = desk.table_command("rebuild", "--yes")

    assert said.code == 1
    assert said.err.startswith(f"WatermarkChangedError: file:///table/_checkpoint/watermark.json {words}")
    assert "airflow scope rebuild" in said.err
    assert rebuilt.out.endswith("are written again, up to batch 0\n")
    desk.world.run()


def test_open_batches_that_dbt_scope_may_have_loaded_are_not_passed_over(desk):
    theirs = left(desk, 3)
    desk.loaded("ours.parquet")
    desk.vanished("open.parquet", 1)
    theirs.loaded([(path_of(desk, "theirs.parquet"), NOW_MS - 1_000)])

    said = desk.table_command("take-over", "--yes")

    assert said.code == 1
    assert said.err.startswith(
        "InputError: Batch 1 of file:///table/_checkpoint is open, and dbt-scope has run"
    )
