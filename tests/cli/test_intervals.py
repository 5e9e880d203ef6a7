"""The commands on a table that is loaded by intervals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from airflow_provider_scope.values import Window
from tests.crash.world import NOW_MS

if TYPE_CHECKING:
    from collections.abc import Callable

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


@pytest.fixture
def dag_file(desk: Desk, in_dags: Callable[[str, str], Path]) -> Callable[[str], None]:
    """Write a Dag file with a task that loads intervals, with the range of its rows as the page shows it."""

    def write(write: str) -> None:
        text = f"""\
from airflow.sdk import DAG
from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource, Replace

with DAG("by_interval", schedule=None) as dag:
    DeltaIncrementalIngestOperator(
        task_id="ingest",
        mode="data_interval",
        delta_location="{desk.world.folder}/table",
        source=FileSource(roots="{desk.world.folder}/landing", format="parquet"),
        write={write},
    )
"""
        in_dags("by_interval.py", text)

    write("Replace(where=\"day = '{{ data_interval_start.date() }}'\")")
    return write


def test_status_counts_the_intervals_and_names_those_with_open_batches(desk, second):
    said = desk.table_command("status")

    assert (said.code, said.err) == (0, "")
    assert said.out == (
        "table       file:///table\n"
        "checkpoint  file:///table/_checkpoint\n"
        "intervals   2, from 2023-11-14T19:13:20Z to 2023-11-14T21:13:20Z\n"
        f"            {SECOND_NAME}: 1 open batch\n"
    )


def test_status_and_list_say_that_a_restore_is_refused_as_the_runs_of_the_intervals_do(
    desk, second, dag_file
):
    second.restore(0)

    said = desk.table_command("status")

    what = "TableRestoredError: The table file:///table was restored"
    assert said.code == 1
    assert said.out.endswith(
        f"            {FIRST_NAME}: refused (TableRestoredError)\n"
        f"            {SECOND_NAME}: 1 open batch, refused (TableRestoredError)\n"
    )
    assert said.err.startswith(what)
    assert "`airflow scope accept-table file:///table --all-intervals`" in said.err
    (row,) = desk.listed()
    assert (row["state"], row["open"]) == ("refused", [f"{SECOND_NAME}/1"])
    assert row["error"].startswith(f"TableRestoredError: {FIRST_NAME}: The table file:///table was restored")

    assert desk.table_command("accept-table", "--interval", FIRST_NAME, "--yes").code == 0
    said = desk.table_command("status")
    assert (said.code, said.err.startswith(what)) == (1, True)
    assert f"`airflow scope accept-table file:///table --interval {SECOND_NAME}`" in said.err


def test_list_shows_a_task_whose_range_only_a_run_knows(desk, second, dag_file, caplog):
    said = desk.reads("list", "-o", "json")

    (row,) = json.loads(said.out)
    assert (row["table"], row["checkpoint"]) == ("file:///table", "file:///table/_checkpoint")
    assert (row["state"], row["open"], row["error"]) == ("open", [f"{SECOND_NAME}/1"], None)
    assert "rendering" not in said.out + said.err + caplog.text


def test_list_shows_where_a_task_loads_although_no_interval_is_begun(desk, dag_file):
    (row,) = desk.listed()

    assert (row["table"], row["checkpoint"]) == ("file:///table", "file:///table/_checkpoint")
    assert row["state"] == "unknown"
    assert "'data_interval_start' is undefined" in row["error"]


def test_list_says_that_intervals_which_lost_their_checkpoint_are_refused(desk, second, dag_file):
    dag_file('"append"')
    folder = desk.world.folder / "table"
    (folder / "_checkpoint").rename(desk.world.folder / "away")

    (row,) = desk.listed()

    assert row["state"] == "refused"
    assert row["error"].startswith("UnknownRowsError: The table file:///table holds rows")
    dag_file('Replace(where="day = 1")')
    assert desk.listed()[0]["state"] == "not begun"
    folder.rename(desk.world.folder / "gone")
    dag_file('"append"')
    assert desk.listed()[0]["state"] == "not begun"


def test_status_of_an_interval_is_that_of_any_pipeline_without_derived_files(desk, second):
    second.show("c.parquet")
    second.run()

    said = desk.table_command("status", "--interval", SECOND_NAME)

    assert desk.table_command("status").out.splitlines()[-1] == "            all batches are committed"
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
        "            (the source was not looked at: "
        f"`airflow scope plan DAG TASK --interval {SECOND_NAME}` does that)\n"
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


def test_the_rows_that_a_restore_took_come_again_as_accept_table_says_for_all_intervals(desk, second):
    second.show("c.parquet")
    second.run()
    second.restore(1)  # the rows of c.parquet are gone, those of b.parquet are there

    said = desk.table_command("accept-table", "--all-intervals", "--yes")

    folder = f"file:///table/_checkpoint/intervals/{SECOND_NAME}"
    assert (said.code, said.err) == (0, "")
    assert [line for line in said.out.splitlines() if line.startswith("interval ")] == [
        f"interval {FIRST_NAME}:",
        f"interval {SECOND_NAME}:",
    ]
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


def test_one_interval_and_all_of_them_cannot_be_meant_together(desk, second):
    said = desk.table_command("accept-table", "--all-intervals", "--interval", FIRST_NAME)

    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("InputError: Only one of --interval and --all-intervals can be given.\n")


def test_all_intervals_of_a_place_that_has_none_are_refused(desk):
    desk.loaded("a.parquet", "b.parquet")
    DeltaTable(f"{desk.world.folder}/table").restore(0)

    for table in (desk.world.table, f"{desk.world.folder}/misspelt"):
        said = desk.scope("accept-table", table, "--all-intervals", "--yes")

        assert (said.code, said.out) == (1, "")
        assert said.err.startswith("InputError: There is no interval in file:///")
