"""The first run of a pipeline on a table that holds rows of others."""

from __future__ import annotations

import shutil
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import write_deltalake

from airflow_provider_scope.exceptions import (
    InputError,
    ScopeProviderError,
    SourceFileGoneError,
    TableRestoredError,
    UnknownRowsError,
)
from airflow_provider_scope.protocol import first_run, recovery
from airflow_provider_scope.protocol.records import Pipeline
from airflow_provider_scope.sources.cursor.source import CursorRows
from airflow_provider_scope.sources.feed.source import ChangeRows
from airflow_provider_scope.sources.files.source import Files
from airflow_provider_scope.values import Window
from tests.crash.scenarios import VanishingFile
from tests.crash.world import NOW_MS, DeltaWorld, World
from tests.support.delta_engine import TABLE, local
from tests.support.faulty_storage import Call, fails_at, open_gate
from tests.support.numbers import Numbers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FOREIGN = ("elsewhere", -1, 1)


@pytest.fixture
def world(tmp_path: Path) -> DeltaWorld:
    """Files that are waiting, and a table that another writer filled."""
    waiting = DeltaWorld(tmp_path)
    waiting.drop("a.parquet", 60)
    (tmp_path / "table").mkdir()
    waiting.add_foreign_rows(1)
    return waiting


def accept(world: World) -> None:
    first_run.accept(world.log(), world.engine(open_gate), world.table, new_id=lambda: str(uuid.uuid4()))


def files_of(world: World) -> list[str]:
    return sorted(row[0].rpartition("/")[2] for row in world.rows().elements())


def test_a_table_with_rows_of_others_is_refused_and_the_ways_on_are_named(world):
    with pytest.raises(UnknownRowsError) as caught:
        world.run()

    assert world.record_names() == []
    assert world.rows() == {FOREIGN: 1}
    for way in ("starting_timestamp", "full_refresh=True", "airflow scope accept-table"):
        assert way in caught.value.do
    assert "initial_value" not in caught.value.do
    assert "start_version" not in caught.value.do
    assert isinstance(world.plan().error, UnknownRowsError)


@pytest.mark.parametrize(
    ("source", "way"),
    [
        (Files, "starting_timestamp"),
        (CursorRows, "cursor.initial_value"),
        (ChangeRows, "start_version"),
        (Numbers(None, "", 1), None),
    ],
)
def test_the_ways_on_are_those_of_the_source(source, way):
    do = recovery.rows_of_others("/t", "/c", source.begins_after, None).do

    named = [word for word in ("starting_timestamp", "cursor.initial_value", "start_version") if word in do]
    assert named == ([way] if way else [])


def test_rows_that_came_twice_is_what_that_prevents(tmp_path):
    """A checkpoint that is gone: the table's own files would come again."""
    world = DeltaWorld(tmp_path)
    world.drop("a.parquet", 60)
    world.run()
    shutil.rmtree(tmp_path / "table" / "_checkpoint")

    with pytest.raises(UnknownRowsError):
        world.run()

    assert files_of(world) == ["a.parquet"] * 2


def test_the_checkpoint_of_a_stream_of_spark_is_refused(tmp_path):
    """Its ``offsets/``, ``commits/`` and ``sources/0/`` are called as ours, and each run failed at them."""
    world = DeltaWorld(tmp_path)
    world.drop("a.parquet", 60)
    files = ("metadata", "offsets/0", "commits/0", "sources/0/0")
    for name in files:
        (tmp_path / "table/_checkpoint" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "table/_checkpoint" / name).write_text("{}")

    with pytest.raises(InputError, match="is that of a stream of Spark"):
        world.run()

    assert not world.rows()
    assert sum(path.is_file() for path in (tmp_path / "table").rglob("*")) == len(files)


def test_a_table_without_rows_is_begun(tmp_path):
    world = DeltaWorld(tmp_path)
    world.drop("a.parquet", 60)
    write_deltalake(local(world.table), TABLE.empty_table())
    world.run()

    assert files_of(world) == ["a.parquet"] * 2


def test_rows_that_were_deleted_are_none(world):
    write_deltalake(local(world.table), TABLE.empty_table(), mode="overwrite")
    world.run()

    assert files_of(world) == ["a.parquet"] * 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"refresh": True}, ["a.parquet"] * 2),
        ({"where": "day = 1"}, ["a.parquet"] * 2),
        ({"starting_at_ms": NOW_MS - 100_000}, ["a.parquet"] * 2 + ["elsewhere"]),
        ({"adds_to_rows": True}, ["a.parquet"] * 2 + ["elsewhere"]),
    ],
)
def test_a_run_that_says_which_rows_stay_is_done(world, arguments, expected):
    world.run(**arguments)

    assert files_of(world) == expected


def test_a_pipeline_that_logged_nothing_is_as_good_as_none(world):
    """A full refresh that died before its first entry; the next run is asked for none."""
    with pytest.raises(KeyboardInterrupt):
        world.run(fails_at("put offsets", KeyboardInterrupt()), refresh=True)
    assert world.record_names() == ["pipeline.json"]

    with pytest.raises(UnknownRowsError):
        world.run()

    world.run(refresh=True)
    assert files_of(world) == ["a.parquet"] * 2


@pytest.mark.parametrize("began", [False, True])
def test_a_run_that_adds_to_rows_of_others_goes_on_like_any_other(world, began):
    if began:
        world.log().put_pipeline(Pipeline(pipeline="22222222-2222-2222-2222-222222222222", table=None))
    planned = world.plan(adds_to_rows=True).new
    assert [*world.record_names()] == (["pipeline.json"] if began else [])
    world.run(adds_to_rows=True)
    world.add_foreign_rows(1)
    world.drop("b.parquet", 50)

    world.run(adds_to_rows=True)
    world.run()

    assert len(planned) == 1
    assert files_of(world) == ["a.parquet"] * 2 + ["b.parquet"] * 2 + ["elsewhere"] * 2


@pytest.mark.parametrize("began", [False, True])
def test_an_accepted_table_is_appended_to(world, began):
    if began:
        log = world.log()
        log.put_pipeline(Pipeline(pipeline="22222222-2222-2222-2222-222222222222", table=None))
    accept(world)
    accept(world)  # again does no harm
    world.run()
    world.drop("b.parquet", 50)
    world.run()

    assert files_of(world) == ["a.parquet"] * 2 + ["b.parquet"] * 2 + ["elsewhere"]
    assert [name for name in world.record_names() if name.startswith("accepted")] == [f"accepted/{0:020}"]


def test_a_table_that_is_restored_after_it_was_accepted_is_refused(world):
    world.add_foreign_rows(2)
    accept(world)
    world.restore(0)

    with pytest.raises(TableRestoredError, match="restored"):
        world.run()


def test_the_batches_of_a_first_run_that_failed_are_loaded_by_the_next(tmp_path):
    """Its first batch is in the table, and neither it nor the next has a record."""
    world = DeltaWorld(tmp_path)
    for name in ("a.parquet", "b.parquet", "c.parquet"):
        world.drop(name, 60)
    with pytest.raises(SourceFileGoneError):
        world.run(engine=VanishingFile(world, "c.parquet"))
    world.show("c.parquet")
    world.run()

    assert files_of(world) == ["a.parquet"] * 2 + ["b.parquet"] * 2 + ["c.parquet"] * 2


def test_another_run_that_begins_the_pipeline_meanwhile_is_not_taken_for_a_stranger(tmp_path):
    world = DeltaWorld(tmp_path)
    world.drop("a.parquet", 60)
    world.log().put_pipeline(Pipeline(pipeline="22222222-2222-2222-2222-222222222222", table=None))
    probes = 0

    def other_is_faster(call: Call, effect: Callable[[], Any], torn: Any = None) -> Any:
        nonlocal probes
        probes += call.name == "probe"
        if call.name == "probe" and probes == 2:  # behind the listing of offsets/
            world.run()
        return effect()

    world.run(other_is_faster)

    assert probes > 1
    assert files_of(world) == ["a.parquet"] * 2


# ---- intervals -----------------------------------------------------------------------------------------


def test_the_first_interval_is_refused_and_those_beside_a_begun_one_are_not(world):
    world.drop("b.parquet", 2_000)
    newer = world.of(Window(NOW_MS - 1_000_000, NOW_MS))
    before = world.of(Window(NOW_MS - 3_000_000, NOW_MS - 1_000_000))
    with pytest.raises(UnknownRowsError) as caught:
        newer.run()
    assert "starting_timestamp" not in caught.value.do

    accept(newer)
    newer.run()
    before.run()

    assert files_of(world) == ["a.parquet"] * 2 + ["b.parquet"] * 2 + ["elsewhere"]


def test_an_interval_beside_a_incremental_pipeline_is_not_refused(tmp_path):
    world = DeltaWorld(tmp_path)
    world.drop("b.parquet", 2_000)
    world.run()
    world.drop("a.parquet", 60)
    world.of(Window(NOW_MS - 1_000_000, NOW_MS)).run()

    assert files_of(world) == ["a.parquet"] * 2 + ["b.parquet"] * 2


def test_nothing_is_accepted_where_there_is_nothing_to_accept(tmp_path):
    world = DeltaWorld(tmp_path)
    with pytest.raises(ScopeProviderError):
        accept(world)
    assert world.record_names() == []
