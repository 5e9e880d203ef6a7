"""What ``airflow scope status`` tells in each state, word by word."""

from __future__ import annotations

import pytest

from airflow_provider_scope.cli.inspection import _time_text
from airflow_provider_scope.engines import clock
from airflow_provider_scope.exceptions import InputError, SourceFileGoneError, StorageError
from tests.crash.world import NOW_MS
from tests.support.faulty_storage import before

TOP = """\
table       file:///table
            version {version}, id TABLE-ID
            newest batch {txn}
checkpoint  file:///table/_checkpoint
pipeline    PIPELINE
"""


def top(version: int, txn: int | str) -> str:
    return TOP.format(version=version, txn=txn)


def test_a_place_without_a_pipeline_is_an_error_that_says_where_it_looked(desk):
    said = desk.table_command("status")

    assert (said.code, said.out) == (1, "")
    assert said.err == (
        "InputError: There is no pipeline in file:///table/_checkpoint: no batch has been logged there.\n"
        "Kept: everything; nothing was written\n"
        "What to do: check the location; if the checkpoint is outside the table, add --checkpoint\n"
    )


def test_a_pipeline_whose_first_batch_has_not_been_loaded(desk):
    desk.vanished("a.parquet", 0)
    desk.world.show("a.parquet")

    said = desk.table_command("status")

    assert (said.code, said.err) == (0, "")
    assert said.out == (
        "table       file:///table\n"
        "            does not exist\n"
        "checkpoint  file:///table/_checkpoint\n"
        "pipeline    PIPELINE\n"
        "logged      batch 0\n"
        "committed   nothing\n"
        "watermark   none\n"
        "open        1 batch\n"
        f"            0: append, 1 file, {desk.size('a.parquet')}: file:///landing/a.parquet\n"
        "what next   the table and the log fit together; the next run begins with the open batches\n"
        "            (the task's log says why the last run left them open)\n"
    )


def test_a_healthy_pipeline_with_its_lag(desk):
    desk.loaded("a.parquet", "b.parquet")

    said = desk.table_command("status")

    assert (said.code, said.err) == (0, "")
    assert said.out == top(1, 1) + (
        "logged      batches 0 to 1\n"
        "committed   batch 1: 1 file, version 1; 2023-11-14T22:13:20Z (1 h ago)\n"
        "watermark   2023-11-14T21:13:21Z (1 h 59 min ago)\n"
        "open        nothing\n"
        "what next   the table and the log fit together; the next run looks for new files\n"
        "            (the source was not looked at: `airflow scope plan DAG TASK` does that)\n"
    )


def test_a_table_is_named_by_its_path_as_well_and_by_its_checkpoint_elsewhere(desk):
    desk.loaded("a.parquet")
    (desk.world.folder / "table" / "_checkpoint").rename(desk.world.folder / "elsewhere")
    desk.world.checkpoint = f"file://{desk.world.folder}/elsewhere"

    said = desk.scope(
        "status", f"{desk.world.folder}/table/", "--checkpoint", f"{desk.world.folder}/elsewhere"
    )

    assert said.code == 0
    assert said.out.splitlines()[3] == "checkpoint  file:///elsewhere"


def test_open_batches_are_listed_with_what_became_of_them(desk):
    desk.loaded("a.parquet")
    desk.unrecorded("b.parquet", 1)
    desk.world.drop("c.parquet", 60)
    desk.world.drop("d.parquet", 60)
    desk.world.max_files = 2
    # The batch that is in the table is not recorded either: the disk is still full.
    desk.fails("put commits/00000000000000000001", _full)
    desk.world.hide("d.parquet")

    said = desk.table_reads("status")

    desk.world.show("d.parquet")
    assert said.out == top(1, 1) + (
        "logged      batches 0 to 2\n"
        "committed   batch 0: 1 file, version 0; 2023-11-14T22:13:20Z (1 h ago)\n"
        "watermark   2023-11-14T21:13:20Z (2 h ago)\n"
        "open        2 batches\n"
        f"            1: append, 1 file, {desk.size('b.parquet')}: file:///landing/b.parquet\n"
        "               in the table as version 1; the next run records that\n"
        f"            2: append, 2 files, {desk.size('c.parquet', 'd.parquet')}: file:///landing/c.parquet "
        "… file:///landing/d.parquet\n"
        "               blocked: file:///landing/d.parquet is missing\n"
        "what next   the next run fails: a file of an open batch is not as it was logged\n"
        "            (restore it as it was; or let the task run, which loads the batches before it, and then "
        "abandon the batch: `airflow scope abandon file:///table 2`)\n"
    )


def _full() -> None:
    raise StorageError("No space left on device")


def test_ten_open_batches_are_listed_and_the_others_counted(desk):
    desk.loaded("a.parquet")
    for number in range(12):
        desk.world.drop(f"b{number:02}.parquet", 60)
    desk.fails("files 1", lambda: desk.world.hide("b00.parquet"))

    lines = desk.table_command("status").out.splitlines()

    assert lines[8] == "open        12 batches"
    assert lines[10] == "               blocked: file:///landing/b00.parquet is missing"
    assert lines[-3] == "            and 2 more"
    assert len(lines) == 23


def test_the_files_that_block_a_batch_are_named(desk):
    desk.world.max_files = 20
    names = [f"b{number:02}.parquet" for number in range(13)]
    for name in names:
        desk.world.drop(name, 60)
    desk.fails("files 0", lambda: desk.world.hide("b00.parquet"))
    desk.world.drop("b01.parquet", 50)
    desk.world.drop("b02.parquet", 60, ids=3)

    lines = desk.table_command("status").out.splitlines()

    assert lines[9:12] == [
        "               blocked: file:///landing/b00.parquet is missing",
        "               blocked: file:///landing/b01.parquet has changed since it was logged",
        "               blocked: file:///landing/b02.parquet has changed since it was logged",
    ]
    for name in names[3:]:
        desk.world.hide(name)
    lines = desk.table_command("status").out.splitlines()
    assert len([line for line in lines if "blocked" in line]) == 10
    assert "               and 3 more" in lines


def test_a_full_refresh_is_told(desk):
    desk.loaded("a.parquet", "b.parquet")
    desk.world.run(refresh=True)

    lines = desk.table_command("status").out.splitlines()

    assert lines[5:9] == [
        "logged      batches 0 to 3",
        "committed   batch 3: 1 file, version 3; 2023-11-14T22:13:20Z (1 h ago)",
        "refresh     all files counted as new at batch 2",
        "watermark   2023-11-14T21:13:21Z (1 h 59 min ago)",
    ]


def test_a_watermark_that_is_behind_the_log_is_told_with_the_command_that_mends_it(desk):
    desk.loaded("a.parquet")
    (desk.world.folder / "table/_checkpoint/watermark.json").write_text("{}")

    said = desk.table_command("status")

    assert said.code == 0
    assert (
        "watermark.json is not up to date; the next run or `airflow scope rebuild file:///table` writes it"
        in said.out
    )


def test_a_restored_table_is_an_error_after_the_facts(desk):
    desk.loaded("a.parquet", "b.parquet")
    desk.world.restore(0)

    said = desk.table_command("status")

    assert said.code == 1
    assert said.out == top(2, 1) + (
        "logged      batches 0 to 1\n"
        "committed   batch 1: 1 file, version 1; 2023-11-14T22:13:20Z (1 h ago)\n"
        "watermark   2023-11-14T21:13:21Z (1 h 59 min ago)\n"
        "open        nothing\n"
    )
    assert said.err == (
        "TableRestoredError: The table file:///table was restored (RESTORE at version 2; the newest record "
        "says none).\n"
        "Kept: the table, the log and all files; nothing was written\n"
        "What to do: look at the table, then run `airflow scope accept-table file:///table`: it shows what "
        "accepting the table as it is would mean, and accepts it with --yes\n"
    )


def test_a_relative_location_is_an_error_that_shows_the_absolute_one(desk, monkeypatch):
    monkeypatch.chdir(desk.world.folder)

    said = desk.scope("status", "table")

    assert said.code == 1
    assert said.err == (
        "InputError: The location 'table' is relative, and workers do not run in your folder.\n"
        "Kept: everything; nothing was read or written\n"
        "What to do: write an absolute path, such as '/table'\n"
    )


def test_verbose_gives_the_stack(desk):
    with pytest.raises(InputError):
        desk.table_command("status", "--verbose")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s ago"),
        (59, "59 s ago"),
        (60, "1 min ago"),
        (3_599, "59 min 59 s ago"),
        (90_000, "1 d 1 h ago"),
        (86_400 * 1_234 + 59, "1,234 d ago"),
    ],
)
def test_how_long_ago_something_was_is_told_in_its_two_largest_units(monkeypatch, seconds, words):
    monkeypatch.setattr(clock, "now_ms", lambda: NOW_MS + seconds * 1_000)

    assert _time_text(NOW_MS) == f"2023-11-14T22:13:20Z ({words})"


def test_a_name_with_a_line_break_stays_in_its_line(desk):
    desk.vanished("a\nopen        nothing", 0)

    lines = desk.table_command("status").out.splitlines()

    assert [line for line in lines if line.startswith("open ")] == ["open        1 batch"]
    assert r"               blocked: file:///landing/a\nopen        nothing is missing" in lines


def test_the_batch_that_is_to_be_abandoned_is_the_one_that_is_blocked(desk):
    desk.loaded("a.parquet")
    desk.world.drop("b.parquet", 1_800)
    desk.world.drop("c.parquet", 1_700)
    desk.fails("files 1", lambda: desk.world.hide("b.parquet"))

    assert what_helps(desk) == (
        "(restore it as it was, or abandon the batch: `airflow scope abandon file:///table 1`)"
    )
    desk.world.show("b.parquet")
    desk.world.hide("c.parquet")
    assert what_helps(desk) == (
        "(restore it as it was; or let the task run, which loads the batches before it, and then abandon "
        "the batch: `airflow scope abandon file:///table 2`)"
    )
    with pytest.raises(SourceFileGoneError):
        desk.world.run()
    assert desk.table_command("abandon", "2", "--yes").code == 0
    desk.world.run()
    assert desk.rows_are_those_of("a.parquet", "b.parquet")


def test_the_batch_that_begins_a_full_refresh_is_not_to_be_abandoned(desk):
    desk.loaded("a.parquet", "b.parquet")
    with pytest.raises(SourceFileGoneError):
        desk.world.run(before("files 2", lambda: desk.world.hide("a.parquet")), refresh=True)

    assert what_helps(desk) == (
        "(restore it as it was; or run the task with full_refresh=True, which loads the files that are "
        "there then)"
    )
    desk.world.run(refresh=True)
    assert desk.rows_are_those_of("b.parquet")


def what_helps(desk):
    *_, what_next, help_line = desk.table_command("status").out.splitlines()
    assert what_next == "what next   the next run fails: a file of an open batch is not as it was logged"
    return help_line.strip()
