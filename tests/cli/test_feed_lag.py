"""What `airflow scope status` says of a table that is loaded from a change data feed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_provider_scope.engines import clock
from airflow_provider_scope.exceptions import ChangeFeedError, SparkJobFailedError
from airflow_provider_scope.sources.feed.source import SourceLog
from tests.support.change_world import ChangeWorld
from tests.support.delta_engine import local

HOUR_MS, DAY_MS = 3_600_000, 86_400_000


@pytest.fixture
def desk(desk: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    desk.world = ChangeWorld(desk.world.folder)
    monkeypatch.setattr(clock, "now_ms", lambda: desk.world.now_ms)
    return desk


def behind(said: Any) -> list[str]:
    """Return the lines of the output that begin with ``behind``, or belong to it."""
    lines = said.out.splitlines()
    begin = next(n for n, line in enumerate(lines) if line.startswith("behind"))
    end = next(n for n, line in enumerate(lines) if n > begin and not line.startswith(" "))
    return [line.strip() for line in lines[begin:end]]


def test_status_tells_how_far_a_table_is_behind_and_warns_before_its_changes_are_gone(desk: Any) -> None:
    world = desk.world
    for number in range(3):
        world.order(number)
    world.now_ms = world.committed_ms(2) + HOUR_MS
    first = world.run(max_batches=1)
    newest = world.committed_ms(2)
    size = SourceLog.of(world.orders, world.storage).needed(2).size_bytes

    said = desk.table_command("status")

    assert (said.code, said.err, first.warnings) == (0, "", {})
    assert "left for the next run: 1 commit of file://" in first.text()
    assert behind(said)[0] == f"behind      1 commit of file:///orders, {size:,} bytes"
    assert behind(said)[1].startswith("the oldest is version 2: ")
    assert behind(said)[1].endswith("(1 h ago)")
    assert len(behind(said)) == 2

    world.now_ms = newest + 4 * DAY_MS
    said = desk.table_command("status")
    assert behind(said)[2].startswith(
        "warning: version 2 of file:///orders is 4 d old and not loaded. At 7 d"
    )

    report = world.run()
    assert "warning: version 2 of file://" in report.text()
    assert "is 4 d old and loaded only now. At 7 d" in report.text()
    assert report.lag == ""
    assert behind(desk.table_command("status")) == [
        "behind      nothing: version 2 of file:///orders is loaded"
    ]
    assert {id_ for _, id_, _ in world.rows()} == {0, 1, 2}


def test_a_run_that_leaves_old_commits_warns_of_them_and_of_those_it_read(
    desk: Any, caplog: pytest.LogCaptureFixture
) -> None:
    world = desk.world
    world.order(
        0, **{"delta.logRetentionDuration": "interval 2 days", "delta.deletedFileRetentionDuration": "?"}
    )
    for number in range(1, 6):
        world.order(number)
    world.now_ms = world.committed_ms(5) + 3 * DAY_MS

    report = world.run(max_batches=1)

    read, left = report.warnings["what is read"], report.warnings["what is left"]
    assert "version 0 of file://" in read
    assert "loaded only now, which is beyond delta.logRetentionDuration (2 d)" in read
    assert "version 2 of file://" in left
    assert "not loaded, which is beyond delta.logRetentionDuration (2 d)" in left
    assert "delta.deletedFileRetentionDuration of file://" in left
    assert "is '?', which is not an interval" in left
    assert report.to_xcom()["warnings"] == [read[:500], left[:500]]
    # What is left is known when the run is over; what is read, before a run that may fail.
    assert [one.getMessage() for one in caplog.records if one.levelname == "WARNING"] == [read]
    last = world.run()
    assert len(last.batches) == 2
    assert [*last.warnings] == ["what is read"]


@pytest.mark.parametrize(
    ("has_checkpoint", "message", "next_run"),
    [
        (
            True,
            "no longer has version 1, whose changes are still to be read: it was cleaned up (delta.logReten",
            "the next run will refuse the source",
        ),
        (False, "version 1", "the source could not be read, and the next run fails if that stays so"),
    ],
    ids=["cleaned up", "unreadable"],
)
def test_status_says_that_the_next_run_cannot_read_the_source(
    desk: Any, has_checkpoint: bool, message: str, next_run: str
) -> None:
    world = desk.world
    world.order(0)
    world.now_ms = world.committed_ms(0)
    world.run()
    for number in range(1, 3):
        world.order(number)
    if has_checkpoint:
        DeltaTable(local(world.orders)).create_checkpoint()
    Path(local(world.orders), "_delta_log", f"{1:020}.json").rename(world.folder / "aside")

    said = desk.table_command("status")

    assert said.code == 0
    assert behind(said)[0].startswith("behind      not known: ")
    assert message in behind(said)[0]
    assert said.out.splitlines()[-1] == f"what next   {next_run}: see `behind`"


def test_status_warns_of_columns_that_were_renamed_or_dropped(desk: Any) -> None:
    """By hand: delta-rs cannot rename a column."""
    world = loaded(desk)
    assert behind(desk.table_command("status"))[2:] == []

    mapped(world, 2, ident=1, day=2)
    said = desk.table_command("status")

    assert said.code == 0
    (warning,) = behind(said)[2:]
    assert warning.startswith(
        "warning: Version 2 of file:///orders renames the column 'id' to 'ident': rows that are already "
    )
    assert "A run that loads all columns will refuse that: keep the old name, with a `sql`" in warning

    mapped(world, 2, id=1)
    (warning,) = behind(desk.table_command("status"))[2:]
    assert warning.startswith("warning: Version 2 of file:///orders drops the column 'day': rows that are")

    mapped(world, 2, day=1, id=2)
    (warning,) = behind(desk.table_command("status"))[2:]
    assert warning.startswith(
        "warning: The name 'id' now stands for another column of file:///orders than when"
    )

    mapped(world, 2, mode="none", id=1)
    said = desk.table_command("status")
    assert behind(said)[0].startswith(
        "behind      not known: Version 2 of file:///orders drops or renames the column 'day'"
    )
    assert "what next   the next run will refuse the source: see `behind`" in said.out


def test_a_run_warns_of_columns_that_the_batch_behind_it_will_not_take(desk: Any) -> None:
    world = loaded(desk)
    mapped(world, 2, id=1, day=2)
    mapped(world, 3, ident=1, day=2)
    rows = world.source(world.log(), None)
    rows.goes_by_names, rows.goes_by_keys = True, True
    rows.read_source_log()
    report = rows.begin_report(world.now_ms)
    state = world.log().commit(0).state

    found = rows.slice_after(state, report)

    assert found is not None
    assert (found.first, found.last, found.before) == (1, 2, state)
    assert f"Version 3 of {world.orders} renames the column 'id' to 'ident'" in report.text()
    assert "The batch of that version will be refused: keep the old name" in report.warnings["other columns"]


def loaded(desk: Any) -> Any:
    """Load a source, and let its columns be mapped behind that."""
    world = desk.world
    world.order(0)
    world.now_ms = world.committed_ms(0)
    world.run()
    mapped(world, 1, id=1, day=2)
    return world


def mapped(world: Any, version: int, mode: str = "name", **columns: int) -> None:
    """Commit columns and their numbers to the source."""
    there = DeltaTable(local(world.orders)).metadata()
    fields = [
        {
            "name": name,
            "type": "long",
            "nullable": True,
            "metadata": {"delta.columnMapping.id": n, "delta.columnMapping.physicalName": f"c{n}"},
        }
        for name, n in columns.items()
    ]
    settings = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "2"}
    metadata = {
        "id": there.id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {"delta.enableChangeDataFeed": "true", **settings},
    }
    actions = [
        {"commitInfo": {"timestamp": world.now_ms, "operation": "ALTER"}},
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        {"metaData": metadata},
    ]
    name = Path(local(world.orders), "_delta_log", f"{version:020}.json")
    name.write_text("\n".join(json.dumps(action) for action in actions))


def anew(world: Any) -> str:
    """Put another table in the place of the source, and give the id of the first."""
    table = local(world.orders)
    first = DeltaTable(table).metadata().id
    shutil.rmtree(table)
    world.order(7)
    return str(first)


def test_status_and_plan_say_that_an_open_batch_is_of_another_source(desk: Any) -> None:
    world = desk.world
    world.order(0)
    world.now_ms, world.fails_at = world.committed_ms(0), 0
    with pytest.raises(SparkJobFailedError):
        world.run()
    assert behind(desk.table_command("status"))[0].startswith("behind      everything: nothing of file://")
    first = anew(world)
    world.fails_at = -1
    there = DeltaTable(local(world.orders)).metadata().id
    what = (
        "Batch 0 belongs to another table. The table file:///orders is not the one that was read before: its "
        f"id is {there}, and was {first}."
    )

    said = desk.table_command("status")
    assert behind(said)[0] == f"behind      not known: {what}"
    assert "full_refresh=True" in behind(said)[1]
    assert said.out.splitlines()[-1] == "what next   the next run will refuse the source: see `behind`"
    with pytest.raises(ChangeFeedError, match=f"Batch 0 belongs to another.*{there}, and was {first}") as ran:
        world.run()
    assert repr(world.plan().error) == repr(ran.value)
    # What it says to do helps.
    world.run(refresh=True)
    assert {id_ for _, id_, _ in world.rows()} == {7}


def test_a_batch_that_is_in_the_table_needs_its_source_no_more(desk: Any) -> None:
    world = desk.world
    world.order(0)
    world.now_ms = world.committed_ms(0)
    world.run()
    record = Path(local(world.checkpoint), "commits", f"{0:020}")
    record.unlink()
    anew(world)

    with pytest.raises(ChangeFeedError, match=r"^The table"):
        world.run()

    assert record.exists()
    assert "not the one that was read" in behind(desk.table_command("status"))[0]


def test_a_record_leads_status_to_no_other_store(desk: Any) -> None:
    world = desk.world
    world.order(0)
    world.now_ms = world.committed_ms(0)
    world.run()
    entry = Path(local(world.checkpoint), "offsets", f"{0:020}")
    entry.write_text(
        entry.read_text().replace(world.orders, "abfss://lake@other.dfs.core.windows.net/orders")
    )

    said = desk.table_command("status")

    assert said.code == 0
    (line,) = behind(said)
    assert line == (
        "behind      not checked: abfss://lake@other.dfs.core.windows.net/orders is on another store; "
        "`airflow scope list` checks it"
    )
