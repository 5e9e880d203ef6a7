"""The commands that write: what they say first, what they change with ``--yes``, and that runs go on."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.exceptions import TableDivergedError
from airflow_provider_scope.protocol.engine import Work
from airflow_provider_scope.values import window_of
from tests.support.delta_engine import local
from tests.support.faulty_storage import open_gate

ADD_YES = "nothing was written; add --yes to do it\n"
COUNT_AS_NEW = (
    'its files count as new again; the next run loads those that still exist (with late_files="skip" only '
    "those after the newest file that was logged)\n"
)


def changed(before: dict[str, bytes], after: dict[str, bytes]) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


@pytest.mark.parametrize("words", [("rebuild",), ("abandon", "0"), ("accept-table",)])
def test_a_place_without_a_pipeline_is_refused_and_nothing_is_written(desk, words):
    desk.world.drop("a.parquet", 60)

    said = desk.table_reads(*words, "--yes")

    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("InputError: There is no pipeline in file:///table/_checkpoint: no batch has")


# ---- rebuild -----------------------------------------------------------------------------------------


def damaged(desk) -> dict[str, bytes]:
    """Load two batches, and damage and delete derived files; give what was there before."""
    desk.loaded("a.parquet", "b.parquet")
    sound = desk.tree()
    checkpoint = desk.world.folder / "table" / "_checkpoint"
    (checkpoint / "watermark.json").write_text('{"version": 7}')
    (checkpoint / "sources" / "0").unlink()
    (checkpoint / "sources" / "1").write_text("no JSON")
    (checkpoint / "sources" / "9").write_text("of a refresh that is gone")
    return sound


def test_rebuild_writes_the_derived_files_as_they_were_and_nothing_else(desk):
    sound = damaged(desk)

    first = desk.table_reads("rebuild")
    second = desk.table_command("rebuild", "--yes")

    assert first.out == (
        "watermark.json and sources/ in file:///table/_checkpoint would be written again from the log\n"
        + ADD_YES
    )
    assert (second.code, second.err) == (0, "")
    assert second.out == (
        "watermark.json and sources/ in file:///table/_checkpoint are written again, up to batch 1\n"
    )
    assert desk.tree() == sound


def test_rebuild_before_the_first_commit_has_nothing_to_write(desk):
    desk.vanished("a.parquet", 0)

    said = desk.table_reads("rebuild", "-y")

    assert (said.code, said.out) == (0, "nothing is committed yet, so there is nothing to write\n")


# ---- abandon -----------------------------------------------------------------------------------------


def test_a_batch_whose_file_vanished_is_given_up_and_the_next_runs_load_what_is_there(desk):
    desk.loaded("a.parquet")
    desk.vanished("b.parquet", 1)
    before = desk.tree()

    first = desk.table_reads("abandon", "1")
    second = desk.table_command("abandon", "1", "--yes")

    assert (first.code, first.err) == (0, "")
    size = (desk.world.folder / "b.parquet").stat().st_size
    assert (
        first.out
        == (
            f"batch 1: append, 1 file, {size:,} bytes: file:///landing/b.parquet\n"
            "it would be abandoned for good: an empty transaction takes its place in the table\n"
            + COUNT_AS_NEW
        )
        + ADD_YES
    )
    assert (second.code, second.err) == (0, "")
    assert second.out == "batch 1 is abandoned; the next run loads those of its files that still exist\n"
    assert {name for name in changed(before, desk.tree()) if not name.endswith(".parquet")} == {
        f"table/_delta_log/{1:020}.json",
        f"table/_checkpoint/commits/{1:020}",
        "table/_checkpoint/watermark.json",
    }
    desk.world.drop("c.parquet", 60)
    desk.world.run()
    assert desk.rows_are_those_of("a.parquet", "c.parquet")
    desk.world.show("b.parquet")
    desk.world.run()
    assert desk.rows_are_those_of("a.parquet", "b.parquet", "c.parquet")


def test_a_batch_that_is_in_the_table_is_recorded_instead(desk):
    desk.loaded("a.parquet")
    desk.unrecorded("b.parquet", 1)

    first = desk.table_reads("abandon", "1")
    second = desk.table_command("abandon", "1", "--yes")

    assert first.out == (
        f"batch 1: append, 1 file, {desk.size('b.parquet')}: file:///landing/b.parquet\n"
        "         in the table as version 1; the next run records that\n"
        "it would be recorded, not abandoned\n" + ADD_YES
    )
    assert second.out == "batch 1 was already in the table, as version 1; this is now recorded\n"
    desk.world.run()
    assert desk.rows_are_those_of("a.parquet", "b.parquet")


@pytest.mark.parametrize(
    ("seq", "open_names", "restored", "error"),
    [
        (2, ["b.parquet"], False, "the oldest open batch is 1."),
        (
            0,
            [],
            False,
            "InputError: Batch 0 of file:///table/_checkpoint cannot be abandoned: no batch is open.",
        ),
        (1, ["b.parquet"], True, "TableRestoredError: The table file:///table was restored "),
    ],
    ids=["not the oldest", "committed", "diverged"],
)
def test_only_the_oldest_open_batch_of_a_table_that_fits_can_be_given_up(
    desk, seq, open_names, restored, error
):
    desk.loaded("a.parquet")
    for name in open_names:
        desk.vanished(name, 1)
    if restored:
        desk.world.add_foreign_rows(1)
        desk.world.restore(0)

    said = desk.table_reads("abandon", str(seq), "--yes")

    assert (said.code, said.out) == (1, "")
    assert error in said.err
    assert f"`airflow scope {'accept-table' if restored else 'status'} file:///table`" in said.err


@pytest.mark.parametrize("interval", [None, "20231114T000000000Z_20231115T000000000Z"])
def test_a_first_batch_is_given_up_before_there_is_a_table_and_later_ones_go_on(desk, interval):
    words = ("--interval", interval) if interval else ()
    if interval:
        desk.world = desk.world.of(window_of(interval))
    desk.world.max_files = 1
    desk.world.drop("b.parquet", 60)
    desk.vanished("a.parquet", 0)

    said = desk.table_reads("abandon", "0", *words)

    assert (said.code, said.err) == (0, "")
    assert said.out.partition("\n")[2] == (
        "it would be abandoned for good: there is no table yet, so only a record says so. Make sure that "
        "no run is in progress\n"
        + COUNT_AS_NEW
        + "batch 1, which is open, is loaded before them: if rows replace each other by key, abandon the "
        "later open batches as well, and the next run loads all of these files in their order\n" + ADD_YES
    )

    said = desk.table_command("abandon", "0", *words, "--yes")

    assert (said.code, said.err) == (0, "")
    assert said.out == "batch 0 is abandoned; the next run loads those of its files that still exist\n"
    record = desk.world.records()[f"commits/{0:020}"][0]
    assert (record["abandoned"], record["table"], record["table_version"]) == (True, None, -1)
    assert desk.table_command("status", *words).code == 0
    desk.world.run()
    assert desk.rows_are_those_of("b.parquet")
    desk.world.show("a.parquet")
    desk.world.run()
    assert desk.rows_are_those_of("a.parquet", "b.parquet")
    assert sorted(name for name in desk.world.record_names() if name.startswith("commits")) == [
        f"commits/{seq:020}" for seq in range(3)
    ]


def test_several_first_batches_are_given_up_one_after_the_other(desk):
    desk.world.max_files = 1
    desk.world.drop("b.parquet", 60)
    desk.vanished("a.parquet", 0)
    desk.world.hide("b.parquet")
    for seq in (0, 1):
        assert desk.table_command("abandon", str(seq), "--yes").code == 0
    desk.world.drop("c.parquet", 50)
    desk.world.run()
    desk.world.show("b.parquet")
    desk.world.run()

    assert desk.rows_are_those_of("b.parquet", "c.parquet")


def test_an_application_that_makes_the_table_after_all_is_noticed(desk):
    """Nothing could keep it out; its batch counts as given up, so its files would be loaded again."""
    desk.vanished("a.parquet", 0)
    desk.table_command("abandon", "0", "--yes")
    desk.world.show("a.parquet")
    log = desk.world.log()
    work = Work(log.pipeline().pipeline, desk.world.table, log.location)
    desk.world.engine(open_gate).run(work, [log.offset(0)])

    for _ in range(2):
        with pytest.raises(TableDivergedError, match="batch 0, which was abandoned"):
            desk.world.run()

    assert desk.rows_are_those_of("a.parquet")
    said = desk.table_command("accept-table")
    assert "- the rows of batch 0, which was abandoned, stay" in said.out
    desk.world.run(refresh=True)
    assert desk.rows_are_those_of("a.parquet")


def test_a_run_that_goes_on_while_its_first_batch_is_given_up_stops(desk):
    """Its application is about to make the table."""
    desk.world.max_files = 1
    desk.world.drop("a.parquet", 60)
    desk.world.drop("b.parquet", 50)

    desk.fails("commit 0", lambda: desk.world.abandon(0))

    with pytest.raises(TableDivergedError, match="batch 0, which was abandoned"):
        desk.world.run()
    assert desk.rows_are_those_of("a.parquet", "b.parquet")
    desk.world.run(refresh=True)
    assert desk.rows_are_those_of("a.parquet", "b.parquet")


# ---- accept-table ------------------------------------------------------------------------------------


def test_a_table_that_fits_its_log_needs_no_acceptance(desk):
    desk.loaded("a.parquet")
    desk.unrecorded("b.parquet", 1)

    said = desk.table_reads("accept-table", "--yes")

    assert (said.code, said.err) == (0, "")
    assert said.out == "file:///table and its log fit together: there is nothing to accept\n"


RESTORED = """\
The table file:///table was restored (RESTORE at version 3; the newest record says none).
The table is at version 3. To accept it as it is means:
- the rows of batches 1 to 2 (2 files) are no longer in the table: the files count as loaded
- to get these rows back, run the task once with full_refresh=True, which loads all files again
"""
ACCEPTED = f"accepted, as file:///table/_checkpoint/accepted/{0:020}; the next run goes on from here\n"


def test_a_restored_table_is_accepted_and_runs_go_on_and_a_refresh_brings_the_rows_back(desk):
    desk.loaded("a.parquet", "b.parquet", "c.parquet")
    desk.world.restore(0)
    before = desk.tree()

    first = desk.table_reads("accept-table")
    second = desk.table_command("accept-table", "--yes")

    assert (first.code, first.err, first.out) == (0, "", RESTORED + ADD_YES)
    assert (second.code, second.err) == (0, "")
    assert second.out == RESTORED + ACCEPTED
    assert changed(before, desk.tree()) == {f"table/_checkpoint/accepted/{0:020}"}
    desk.world.drop("d.parquet", 60)
    desk.world.run()
    assert desk.rows_are_those_of("a.parquet", "d.parquet")
    desk.world.run(refresh=True)
    assert desk.rows_are_those_of("a.parquet", "b.parquet", "c.parquet", "d.parquet")


@pytest.mark.parametrize("refreshed", [False, True])
def test_a_table_that_got_another_id_by_a_merge_has_its_rows(desk, *, refreshed):
    desk.loaded("a.parquet", "b.parquet")
    if refreshed:
        (desk.world.folder / "landing" / "a.parquet").unlink()
        desk.world.run(refresh=True)
    table = DeltaTable(local(desk.world.table))
    more = table.to_pyarrow_table().slice(0, 1).append_column("more", pa.array(["new"]))
    merger = table.merge(more, "s.file = t.file", "s", "t", merge_schema=True)
    merger.when_matched_update({"more": "s.more"}).execute()

    said = desk.table_command("accept-table", "--yes")

    assert (said.code, said.err) == (0, "")
    assert said.out.endswith(f"- no batch lost its rows, and no file is loaded again\n{ACCEPTED}")


def test_deletes_of_batches_that_a_restore_undid_are_told_with_the_statement_that_removes_them(desk):
    desk.loaded("a.parquet", "b.parquet", "c.parquet")
    ours = json.loads(desk.world.storage.read(f"{desk.world.checkpoint}/pipeline.json"))["pipeline"]
    deletes = {"pipeline": [ours, ours, "another"], "batch": pa.array([0, 2, 1], pa.int64())}
    write_deltalake(f"{local(desk.world.table)}/_tombstones", pa.table(deletes))
    desk.world.restore(0)

    said = desk.table_command("accept-table", "--yes")

    assert (
        "- deletes of these batches still keep older rows away. Before the next run, remove them with Spark: "
        "DELETE FROM delta.`file:///table/_tombstones` WHERE pipeline = 'PIPELINE' AND batch IN (2)\n"
    ) in said.out


def test_a_restore_that_took_no_rows_away_is_told_so(desk):
    desk.loaded("a.parquet", "b.parquet")
    desk.world.add_foreign_rows()
    desk.world.restore(1)

    said = desk.table_command("accept-table", "--yes")

    assert said.out == (
        "The table file:///table was restored (RESTORE at version 3; the newest record says none).\n"
        "The table is at version 3. To accept it as it is means:\n"
        "- no batch lost its rows, and no file is loaded again\n" + ACCEPTED
    )
    desk.world.run()
    assert desk.rows_are_those_of("a.parquet", "b.parquet")


@pytest.mark.parametrize("words", [(), ("abandon", "1", "--yes")], ids=["recorded by a run", "abandoned"])
def test_the_files_of_an_unrecorded_batch_whose_rows_are_gone_are_loaded_again(desk, words):
    desk.loaded("a.parquet")
    desk.unrecorded("b.parquet", 1)
    desk.world.restore(0)

    said = desk.table_command("accept-table", "--yes")

    assert said.out.splitlines()[2] == "- the files of the open batch 1 count as new: the next run loads them"
    status = desk.table_command("status").out.splitlines()
    assert status[-3] == "               its rows are no longer in the table; the next run records that"
    if words:
        said = desk.table_command(*words)
        assert said.out == "batch 1 is abandoned; the next run loads those of its files that still exist\n"
    desk.world.run()
    assert desk.rows_are_those_of("a.parquet", "b.parquet")


def test_a_restore_to_a_time_leaves_open_which_rows_are_gone_and_that_is_told(desk):
    """Spark's RESTORE ... TO TIMESTAMP writes no version into the table's log."""
    desk.loaded("a.parquet", "b.parquet")
    desk.world.restore(0)
    entry = desk.world.folder / f"table/_delta_log/{2:020}.json"
    lines = [json.loads(line) for line in entry.read_text().splitlines()]
    for line in lines:
        if "commitInfo" in line:
            line["commitInfo"]["operationParameters"] = {"version": None, "timestamp": "2023-11-14"}
    entry.write_text("\n".join(json.dumps(line) for line in lines))

    said = desk.table_command("accept-table")

    assert said.out == (
        "The table file:///table was restored (RESTORE at version 2; the newest record says none).\n"
        "The table is at version 2. To accept it as it is means:\n"
        "- the RESTORE was to a time, or is a clone: it is unknown which committed batches lost their rows\n"
        + ADD_YES
    )


def test_a_recreated_table_is_told_its_newest_batch_and_runs_go_on(desk):
    desk.loaded("a.parquet", "b.parquet")
    desk.world.recreate()
    before = desk.tree()

    first = desk.table_reads("accept-table")
    second = desk.table_command("accept-table", "--yes")

    assert first.out.splitlines()[1:] == [
        "The table is at version 0. To accept it as it is means:",
        "- the rows of batches 0 to 1 (2 files) are no longer in the table: the files count as loaded",
        "- to get these rows back, run the task once with full_refresh=True, which loads all files again",
        "- an empty transaction records in the table that batch 1 is its newest",
        ADD_YES.rstrip(),
    ]
    assert second.out.endswith(ACCEPTED)
    assert {name for name in changed(before, desk.tree()) if not name.endswith(".parquet")} == {
        f"table/_delta_log/{1:020}.json",
        f"table/_checkpoint/accepted/{0:020}",
    }
    desk.world.drop("c.parquet", 60)
    desk.world.run()
    assert desk.rows_are_those_of("c.parquet")


# ---- accept-table before the first run -----------------------------------------------------------------


def filled_by_others(desk) -> None:
    (desk.world.folder / "table").mkdir()
    desk.world.add_foreign_rows(1)
    desk.world.drop("a.parquet", 60)


def test_rows_that_no_record_tells_of_are_accepted_before_the_first_run(desk):
    filled_by_others(desk)
    what = (
        "The table file:///table holds rows, and file:///table/_checkpoint has no record of where they "
        "came from.\n"
        "The table is at version 0. To accept it as it is means:\n"
        "- the rows stay, and the next run adds all of its source: all files, or all rows or changes\n"
        "- what of it is among the rows already is loaded again\n"
    )

    said = desk.table_reads("accept-table")

    assert (said.code, said.err, said.out) == (0, "", what + ADD_YES)

    said = desk.table_command("accept-table", "--yes")

    assert (said.code, said.err) == (0, "")
    assert said.out == (
        what + f"accepted, as file:///table/_checkpoint/accepted/{0:020}; the next run adds its source\n"
    )
    desk.world.run()
    assert sum(desk.world.rows().values()) == 3
    assert desk.table_command("accept-table", "--yes").out == (
        "file:///table and its log fit together: there is nothing to accept\n"
    )


def test_an_interval_of_a_table_of_others_is_accepted_by_its_name(desk):
    filled_by_others(desk)
    name = "20231114T000000000Z_20231115T000000000Z"

    said = desk.table_command("accept-table", "--interval", name, "--yes")

    assert (said.code, said.err) == (0, "")
    assert f"accepted, as file:///table/_checkpoint/intervals/{name}/accepted/{0:020}" in said.out
