"""``airflow scope vacuum``: what it says, what it deletes, and what the other commands say after it."""

from __future__ import annotations

import os

import pytest
from deltalake import DeltaTable

from tests.crash.world import NOW_MS
from tests.support.delta_engine import local

ADD_YES = "nothing was written; add --yes to do it\n"
WEEK_AGO = NOW_MS // 1000 - 8 * 24 * 3600
NAMES = [f"f{number:02}.parquet" for number in range(14)]


@pytest.fixture
def aged(desk):
    """Load 14 batches of one file."""
    desk.loaded(*NAMES)
    return desk


def records(desk, folder: str) -> list[int]:
    return [int(name) for name in desk.world.storage.names(f"{desk.world.checkpoint}/{folder}")]


def test_it_says_what_it_would_delete_and_why_the_rest_stays_and_deletes_nothing(aged):
    before = aged.tree()

    said = aged.table_reads("vacuum", "--retain-batches", "10")

    def size(*names: str) -> str:
        files = [data for path, data in before.items() if any(name in path for name in names)]
        return f"{len(files)} file{'s' * (len(files) != 1)}, {sum(map(len, files)):,} bytes"

    old = [f"{number:020}" for number in range(4)]
    new = [f"{number:020}" for number in range(4, 14)]
    why = "; records of the newest 10 committed batches"
    assert (said.code, said.err) == (0, "")
    assert said.out == (
        "checkpoint  file:///table/_checkpoint\n"
        f"deletes     entries of batches 0 to 3: {size(*(f'offsets/{name}' for name in old))}\n"
        f"            commit records of batches 0 to 3: {size(*(f'commits/{name}' for name in old))}\n"
        "keeps       commit records of batches 4 to 13: "
        f"{size(*(f'commits/{name}' for name in new))}{why}\n"
        f"            entries of batches 4 to 13: {size(*(f'offsets/{name}' for name in new))}{why}\n"
        f"            seen/: {size('/seen/')}; only the segments say which files purged batches loaded\n"
        f"            sources/: {size('/sources/')}; each run keeps the newest ones, as "
        "retention_files says\n"
        "After that, a table that was restored to a version before the oldest remaining record can no "
        "longer be accepted as it is: see `airflow scope accept-table file:///table`.\n" + ADD_YES
    )


def test_with_yes_it_deletes_that_and_runs_go_on(aged):
    said = aged.table_command("vacuum", "--retain-batches", "10", "--yes")

    assert (said.code, said.err) == (0, "")
    assert said.out.endswith("8 files deleted\n")
    assert records(aged, "offsets") == records(aged, "commits") == [*range(4, 14)]
    assert records(aged, "vacuumed") == [4]
    aged.world.drop("new.parquet", 60)
    aged.world.run()
    assert aged.rows_are_those_of(*NAMES, "new.parquet")
    status = aged.table_command("status")
    assert status.code == 0
    assert "logged      batches 0 to 14\nvacuumed    the records below batch 4\n" in status.out
    again = aged.table_command("vacuum", "--retain-batches", "10", "--yes")
    assert "entries of batch 4: 1 file" in again.out
    assert "notes of earlier vacuums: 1 file" in again.out
    assert records(aged, "vacuumed") == [5]


def test_by_default_a_hundred_batches_stay(aged):
    said = aged.table_command("vacuum", "--yes")

    assert "deletes     nothing\n" in said.out
    assert "records of the newest 100 committed batches" in said.out
    assert records(aged, "vacuumed") == []


@pytest.mark.parametrize("retain", ["0", "-5", "9"])
def test_too_few_batches_are_refused(desk, retain):
    desk.loaded("a.parquet")

    said = desk.table_reads("vacuum", f"--retain-batches={retain}", "--yes")

    assert said.code == 1
    assert said.err.startswith(
        f"InputError: --retain-batches={retain} is not valid: expected 10 or more.\nKept: "
    )


def test_a_table_that_was_restored_is_to_be_accepted_first(aged):
    aged.world.restore(3)

    said = aged.table_reads("vacuum", "--retain-batches=10", "--yes")

    assert said.code == 1
    assert said.err.startswith("TableRestoredError: ")


def test_leftovers_of_runs_that_died_go_after_a_week(aged):
    folder = aged.world.folder / "table" / "_checkpoint"
    (folder / "plans").mkdir(exist_ok=True)
    for age in (WEEK_AGO, NOW_MS // 1000):
        for name in (f"offsets/.{age:032x}.tmp", f"plans/{age}", f"offsets/.note-{age}.tmp"):
            (folder / name).write_text("half")
            os.utime(folder / name, (age, age))

    said = aged.table_command("vacuum", "--yes")

    assert "temporary files of runs that died: 1 file, 4 bytes\n" in said.out
    assert "plans of runs that died: 1 file, 4 bytes\n" in said.out
    left = {path.name for path in folder.rglob("*") if path.is_file() and path.read_bytes() == b"half"}
    young = NOW_MS // 1000
    assert left == {f".{young:032x}.tmp", str(young), f".note-{WEEK_AGO}.tmp", f".note-{young}.tmp"}


def test_segments_of_before_a_refresh_go(aged):
    aged.world.run(refresh=True)

    said = aged.table_command("vacuum", "--retain-batches=14", "--yes")

    assert "superseded segments: " in said.out
    assert records(aged, "offsets") == [*range(14, 28)]
    assert {path.split("/")[-2] for path in aged.tree() if "/seen/" in path} == {f"{14:020}"}
    aged.world.run()
    assert aged.rows_are_those_of(*NAMES)


def test_a_restore_to_before_the_records_that_stay_is_not_accepted_as_it_is(aged):
    aged.table_command("vacuum", "--retain-batches=10", "--yes")
    aged.world.restore(2)

    said = aged.table_command("accept-table", "--yes")

    assert said.code == 1
    assert said.err.startswith(
        "BatchOutcomeUnknownError: file:///table was set back to before batch 4 (version 4). It is "
        "not known which older batches lost their rows too: `airflow scope vacuum` purged the records of the "
        "batches below 4.\n"
    )
    assert (
        "What to do: RESTORE the table to version 4 or a newer one. Or run `airflow scope "
        "accept-table file:///table --reload-undecidable`: the files of all these batches still count as "
        "loaded. To get lost rows back, run the task once with full_refresh=True after that\n"
    ) in said.err
    said = aged.table_command("accept-table", "--yes", "--reload-undecidable")
    assert said.code == 0
    assert "rows of the batches below 4 may be missing, too: a vacuum purged" in said.out
    assert aged.rows_are_those_of(*NAMES[:3])
    aged.world.run()
    assert aged.rows_are_those_of(*NAMES[:3])
    aged.world.run(refresh=True)
    assert aged.rows_are_those_of(*NAMES)


def test_a_restore_to_what_the_records_tell_is_accepted_as_ever(aged):
    aged.table_command("vacuum", "--retain-batches=10", "--yes")
    aged.world.restore(6)

    said = aged.table_command("accept-table", "--yes")

    assert (said.code, said.err) == (0, "")
    assert (
        "- the rows of batches 7 to 13 (7 files) are no longer in the table: the files count as loaded\n"
        in said.out
    )


def test_a_table_that_was_created_again_is_accepted_as_ever(aged):
    aged.table_command("vacuum", "--retain-batches=10", "--yes")
    aged.world.recreate()

    said = aged.table_command("accept-table", "--yes")

    assert (said.code, said.err) == (0, "")
    assert "rows of the batches below 4 may be missing, too" in said.out
    aged.world.run()
    assert DeltaTable(local(aged.world.table)).to_pyarrow_table().num_rows == 0


def test_a_refresh_that_was_undone_is_not_accepted_without_the_records_of_before(aged):
    aged.world.run(refresh=True)
    aged.table_command("vacuum", "--retain-batches=14", "--yes")
    aged.world.restore(13)

    said = aged.table_command("accept-table", "--yes")

    assert said.code == 1
    assert (
        "or an older copy, undid the full refresh that began with batch 14, or may have undone it."
        in said.err
    )
    assert "`airflow scope vacuum` purged the records" in said.err
    assert aged.table_command("accept-table", "--yes", "--reload-undecidable").code == 0
    aged.world.run(refresh=True)
    assert aged.rows_are_those_of(*NAMES)


def test_rebuild_and_abandon_work_after_it(aged):
    aged.table_command("vacuum", "--retain-batches=10", "--yes")
    (aged.world.folder / "table/_checkpoint/watermark.json").unlink()

    assert aged.table_command("rebuild", "--yes").code == 0
    aged.vanished("gone.parquet", 14)
    said = aged.table_command("abandon", "14", "--yes")

    assert said.out == "batch 14 is abandoned; the next run loads those of its files that still exist\n"
    aged.world.drop("new.parquet", 60)
    aged.world.run()
    assert aged.rows_are_those_of(*NAMES, "new.parquet")


def test_while_a_position_is_not_up_to_date_no_record_goes(aged):
    (aged.world.folder / "table/_checkpoint/watermark.json").unlink()

    said = aged.table_command("vacuum", "--retain-batches=10", "--yes")

    assert "deletes     nothing\n" in said.out
    assert (
        "; watermark.json is not up to date: the next run, or `airflow scope rebuild file:///table`, writes "
        "it\n" in said.out
    )
