"""The commands on a table that is loaded by intervals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from airflow_provider_scope.core.interval import Window
from airflow_provider_scope.exceptions import TableDivergedError
from tests.crash.world import NOW_MS

if TYPE_CHECKING:
    from tests.cli.conftest import Desk
    from tests.crash.world import DeltaWorld

HOUR_MS = 3_600_000
FIRST = Window(NOW_MS - 3 * HOUR_MS, NOW_MS - 2 * HOUR_MS)
SECOND = Window(NOW_MS - 2 * HOUR_MS, NOW_MS - HOUR_MS)
FIRST_NAME = "20231114T191320000Z_20231114T201320000Z"
SECOND_NAME = "20231114T201320000Z_20231114T211320000Z"


@pytest.fixture
def second(desk: Desk) -> DeltaWorld:
    """Load two intervals: the second one lost the file of its second batch before Spark read it."""
    desk.world.max_files = 1
    desk.world.drop("a.parquet", 10_000)
    desk.world.of(FIRST).run()
    second = desk.world = desk.world.of(SECOND)
    desk.world.drop("b.parquet", 5_000)
    desk.world.run()
    desk.vanished("c.parquet", 1)
    return second


@pytest.fixture(autouse=True)
def files_of_the_second_interval(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what lands and vanishes later belong to the second interval."""
    drop = desk.world.drop
    monkeypatch.setattr(
        type(desk.world), "drop", lambda self, name, at: drop(name, at if at > 3_600 else at + 3_600)
    )


def test_status_counts_the_intervals_and_names_those_with_open_batches(desk, second):
    said = desk.table_command("status")

    assert (said.code, said.err) == (0, "")
    assert said.out == (
        "table       file:///table\n"
        "checkpoint  file:///table/_checkpoint\n"
        "intervals   2, from 2023-11-14T19:13:20Z to 2023-11-14T21:13:20Z\n"
        f"            {SECOND_NAME}: 1 open batch\n"
    )


def test_status_says_that_all_is_committed(desk, second):
    second.show("c.parquet")
    second.run()

    assert desk.table_command("status").out.splitlines()[-1] == "            all batches are committed"


def test_status_of_an_interval_is_that_of_any_pipeline_without_derived_files(desk, second):
    second.show("c.parquet")
    second.run()

    said = desk.table_command("status", "--interval", SECOND_NAME)

    assert (said.code, said.err) == (0, "")
    assert said.out == (
        "table       file:///table\n"
        "            version 2, id TABLE-ID\n"
        "            newest batch 1\n"
        f"checkpoint  file:///table/_checkpoint/intervals/{SECOND_NAME}\n"
        "pipeline    PIPELINE\n"
        "logged      batches 0 to 1\n"
        "committed   batch 1: 1 file, version 2; 2023-11-14T22:13:20Z (1 h ago)\n"
        "watermark   2023-11-14T20:50:00Z (2 h 23 min ago)\n"
        "open        nothing\n"
        "what next   the table and the log fit together; the next run looks for new files\n"
    )


def test_status_of_a_pipeline_beside_intervals_tells_both(desk, second):
    desk.world = desk.world.of(FIRST)
    desk.world.window = None
    desk.world.checkpoint = f"{desk.world.table}/_checkpoint"
    desk.world.drop("new.parquet", 3_700)
    desk.world.run(starting_at_ms=SECOND.start_ms)

    lines = desk.table_command("status").out.splitlines()

    assert lines[4].startswith("pipeline    ")
    assert "intervals   2, from 2023-11-14T19:13:20Z to 2023-11-14T21:13:20Z" in lines


@pytest.mark.parametrize("command", [("abandon", "1"), ("accept-table",)])
def test_a_command_for_one_pipeline_asks_which_interval_is_meant(desk, second, command):
    said = desk.scope(command[0], desk.world.table, *command[1:])

    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("InputError: file:///table/_checkpoint has 2 intervals, and no other pipeline")
    assert f"--interval {SECOND_NAME}" in said.err


def test_a_name_that_is_no_interval_is_refused(desk, second):
    said = desk.table_command("status", "--interval", "2023-11-14")

    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("InputError: --interval=2023-11-14 is not valid: expected <start>_<end>")


def test_an_open_batch_of_an_interval_is_given_up(desk, second):
    said = desk.table_command("abandon", "1", "--interval", SECOND_NAME, "--yes")

    assert (said.code, said.err) == (0, "")
    second.show("c.parquet")
    second.run()
    assert desk.rows_are_those_of("a.parquet", "b.parquet", "c.parquet")


def test_a_restored_table_is_accepted_for_one_interval(desk, second):
    second.show("c.parquet")
    second.run()
    second.restore(1)

    said = desk.table_command("accept-table", "--interval", SECOND_NAME, "--yes")

    assert (said.code, said.err) == (0, "")
    assert (
        "- the rows of batch 1 (1 file) are no longer in the table: the files count as loaded\n" in said.out
    )
    assert second.run().batches == []
    with pytest.raises(TableDivergedError, match="was restored"):
        desk.world.of(FIRST).run()


def test_the_rows_that_a_restore_took_come_again_as_accept_table_says(desk, second):
    second.show("c.parquet")
    second.run()
    second.restore(1)  # the rows of c.parquet are gone, those of b.parquet are there

    said = desk.table_command("accept-table", "--all-intervals", "--yes")

    folder = f"file:///table/_checkpoint/intervals/{SECOND_NAME}"
    assert "full_refresh" not in said.out
    assert (
        "- to get these rows back, delete what the table still holds of the interval's rows, move the folder "
        f"{folder} away while nothing runs, and clear the interval's run\n" in said.out
    )
    assert second.run().batches == []
    table = DeltaTable(f"{desk.world.folder}/table")
    table.delete(f"file = '{second.root}/b.parquet'")
    Path(second.checkpoint.removeprefix("file://")).rename(desk.world.folder / "away")
    second.run()
    assert desk.rows_are_those_of("a.parquet", "b.parquet", "c.parquet")
    assert second.of(FIRST).run().batches == []


def test_a_restored_table_is_accepted_for_all_intervals(desk, second):
    second.show("c.parquet")
    second.run()
    second.restore(1)

    said = desk.table_command("accept-table", "--all-intervals", "--yes")

    assert (said.code, said.err) == (0, "")
    assert [line for line in said.out.splitlines() if line.startswith("interval ")] == [
        f"interval {FIRST_NAME}:",
        f"interval {SECOND_NAME}:",
    ]
    assert second.run().batches == second.of(FIRST).run().batches == []


def test_one_interval_and_all_of_them_cannot_be_meant_together(desk, second):
    said = desk.table_command("accept-table", "--all-intervals", "--interval", FIRST_NAME)

    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("InputError: Only one of --interval and --all-intervals can be given.\n")
