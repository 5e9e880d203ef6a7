"""Roots that hold what a run writes, folders that VACUUM deletes, and one root by several names."""

from __future__ import annotations

import os
import shutil
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from airflow.sdk import DAG, task
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.engines import assembly, places
from airflow_provider_scope.exceptions import CheckpointCorruptError, InputError, StorageError
from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.protocol.derived import SeenFiles, rows_of
from airflow_provider_scope.sources.files.discovery import Rules, check_names
from airflow_provider_scope.specs.ingest import ingest_from
from airflow_provider_scope.values import FileEntry, Window
from tests.crash.world import NOW_MS, DeltaWorld
from tests.support import values
from tests.support.delta_engine import DeltaEngine
from tests.support.faulty_storage import open_gate

if TYPE_CHECKING:
    from pathlib import Path

PARQUET = r"\.parquet$"
CSV = r".*\.csv$"
NUMBERS = count()


def check(root: str, pattern: str, **more: Any) -> None:
    places.check_roots(
        (root,),
        Rules(patterns=(pattern,), young_after_ms=10, is_text=more.pop("is_text", False)),
        (more.get("table", "file:///data/out"), *more.get("quarantine", ())),
        more.get("checkpoint", "file:///data/out/_checkpoint"),
    )


@pytest.mark.parametrize(
    ("root", "pattern", "more"),
    [
        ("file:///data", PARQUET, {}),
        ("file:///", "", {}),
        ("file:///data", r"part-\d+", {}),
        ("file:///data", r"^0*4\.parquet$|c000", {}),
        # What lies in a hidden folder is no result, unless the root is that folder.
        ("file:///data/out/_delta_log", r"\.json$", {}),
        ("file:///data/out/_delta_log", PARQUET, {}),
        ("file:///data/out/_change_data", PARQUET, {}),
        ("file:///data/out/_checkpoint", PARQUET, {}),
        ("file:///data/out/_checkpoint/sources", "", {}),
        ("file:///data", r"\.json$", {"checkpoint": "file:///data/state"}),
        ("file:///data", r"^\d+$", {"checkpoint": "file:///data/state"}),
        ("file:///data", PARQUET, {"table": "file:///lake/t", "checkpoint": "file:///data/state"}),
        ("file:///data", PARQUET, {"table": "file:///lake/t", "quarantine": ("file:///data/q",)}),
        # VACUUM deletes what it finds in the table's own folders, whatever it is.
        ("file:///data/out", CSV, {}),
        ("file:///data/out/landing", CSV, {}),
        ("file:///data/out/day=1", PARQUET, {}),
        ("file:///data/out/_day=1", CSV, {}),
        ("abfss://lake@acme.dfs.core.windows.net", "", {"table": "abfss://lake@acme.dfs.core.windows.net/t"}),
    ],
)
def test_a_root_in_which_a_run_would_find_its_own_output_is_refused(root, pattern, more):
    with pytest.raises(InputError) as caught:
        check(root, pattern, **more)

    assert root in str(caught.value)
    assert caught.value.do


@pytest.mark.parametrize(
    ("root", "pattern", "more"),
    [
        ("file:///data", CSV, {}),
        ("file:///data", r"^flights.*\.parquet$", {}),
        ("file:///data", r"\.json$", {}),  # the table's log and the checkpoint are in hidden folders
        ("file:///data/landing", "", {}),
        ("file:///data/out2", PARQUET, {}),
        ("file:///data/o", PARQUET, {}),
        ("file:///data/out/_landing", PARQUET, {}),
        ("file:///data/out/.landing/x", PARQUET, {}),
        ("file:///data", PARQUET, {"table": "file:///data/_tables/out"}),
        ("s3a://data", "", {}),
    ],
)
def test_a_root_in_which_no_output_can_be_found_is_let_through(root, pattern, more):
    check(root, pattern, **more)


def arguments(root: Path | str, table: Path | str, **more: Any) -> dict[str, Any]:
    source = {"roots": str(root), "patterns": PARQUET, "format": "parquet", **more.pop("source", {})}
    return values.arguments(delta_location=str(table), source=source, **more)


def assembled(raw: dict[str, Any], folder: Path) -> None:
    ingest = ingest_from(raw)
    assert ingest
    context = assembly.RunContext(task="dag.task", log_file=folder / "spark.log", report=print)
    assembly.assemble(ingest, context)


@pytest.mark.parametrize("link", ["root", "table", "checkpoint"])
def test_links_do_not_hide_that_a_root_holds_the_table(tmp_path, link):
    data = tmp_path / "data"
    (data / "out").mkdir(parents=True)
    (tmp_path / "link").symlink_to(data)
    place = {"root": data, "table": data / "out", "checkpoint": data / "out" / "_checkpoint"}
    place[link] = tmp_path / "link" / place[link].relative_to(data)
    if link == "checkpoint":
        place |= {"table": tmp_path / "lake" / "t", "checkpoint": tmp_path / "link" / "state"}
    raw = arguments(place["root"], place["table"], checkpoint={"location": str(place["checkpoint"])})

    with pytest.raises(InputError, match="load its own output"):
        assembled(raw, tmp_path)

    assert list((data / "out").iterdir()) == []


@pytest.mark.parametrize("inner", ["", "day=1"])
def test_roots_that_lead_to_the_same_files_are_refused(tmp_path, inner):
    (tmp_path / "data" / "day=1").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data" / inner)
    both = {"source": {"roots": [str(tmp_path / "data"), str(tmp_path / "link")]}}

    with pytest.raises(InputError, match="lead to the same files"):
        assembled(arguments("", tmp_path / "t", **both), tmp_path)

    # Roots that overlap under one name are listed twice, and each file counts once.
    for more in ("other", "data/day=1", "data"):
        roots = [str(tmp_path / "data"), str(tmp_path / more)]
        assembled(arguments("", tmp_path / "t", source={"roots": roots}), tmp_path)


def test_what_is_put_aside_is_not_loaded_either(tmp_path):
    raw = arguments(tmp_path / "bad", tmp_path / "t")
    raw |= {"table": {"quarantine": str(tmp_path / "bad" / "q")}}
    assembled(raw, tmp_path)  # nothing is put aside

    with pytest.raises(InputError, match=r"/bad/q"):
        assembled(raw | {"source": raw["source"] | {"bad_records": "quarantine"}}, tmp_path)


def test_literal_places_are_refused_when_the_dag_is_parsed():
    with pytest.raises(InputError, match="load its own output"):
        operator(root="/data")
    operator(root="/data", delta_location="{{ params.table }}")
    operator(root="{{ params.root }}")

    @task
    def list_folders() -> list[str]:
        return ["/data"]

    with DAG("places", schedule=None):
        folders = list_folders()
        operator(root="", source={"roots": folders})
        operator(root="/data", source={"patterns": folders})
    operator(root="/data", source={"patterns": "{{ params.pattern }}"})
    with pytest.raises(InputError, match="VACUUM"):
        operator(root="/landing", checkpoint={"location": "/data/out/checkpoint"})
    operator(root="/landing", checkpoint={"location": "{{ params.checkpoint }}"})


def operator(root: str, **more: Any) -> DeltaIncrementalIngestOperator:
    source = {"roots": [root], "patterns": [PARQUET], "format": "parquet", **more.pop("source", {})}
    named = {"delta_location": "/data/out", "source": source, **more}
    return DeltaIncrementalIngestOperator(task_id=f"ingest_{next(NUMBERS)}", **named)


# ---- the checkpoint and VACUUM -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "inside",
    ["", "checkpoint", "a/_checkpoint", "_x=1/c", "_delta_log/c", "_delta_index_c", "_change_data/c"],
)
def test_a_checkpoint_that_vacuum_deletes_is_refused(inside):
    with pytest.raises(InputError) as caught:
        places.check_checkpoint(f"file:///t/{inside}".rstrip("/"), ("file:///t",))

    assert "file:///t/_checkpoint" in caught.value.do


@pytest.mark.parametrize(
    "place", ["t/_checkpoint", "t/_cp/of/orders", "t/.cp", "t_checkpoint", "state/t", "t2/checkpoint"]
)
def test_a_checkpoint_that_vacuum_spares_is_let_through(place):
    places.check_checkpoint(f"file:///{place}", ("file:///t",))


def test_vacuum_deletes_and_spares_what_these_rules_say(tmp_path):
    """The reader of the log that is not Spark follows Delta's rule for the first folder."""
    write_deltalake(str(tmp_path), pa.table({"a": [1]}))
    names = ["checkpoint", "_checkpoint", ".cp", "_cp/of", "_delta_index_c", "_change_data", "a/_checkpoint"]
    for name in names:
        file = tmp_path / name / "offsets" / f"{0:020}"
        file.parent.mkdir(parents=True)
        file.write_text("")
        os.utime(file, (0, 0))

    DeltaTable(str(tmp_path)).vacuum(0, enforce_retention_duration=False, dry_run=False, full=True)

    spared = {name for name in names if (tmp_path / name / "offsets" / f"{0:020}").exists()}
    for name in names:
        if name in spared:
            places.check_checkpoint(f"file://{tmp_path}/{name}", (f"file://{tmp_path}",))
        else:
            with pytest.raises(InputError):
                places.check_checkpoint(f"file://{tmp_path}/{name}", (f"file://{tmp_path}",))
    assert spared == {"_checkpoint", ".cp", "_cp/of"}


# ---- the same files below another root: a link, a mount, another scheme or namenode ------------------


class Elsewhere(DeltaWorld):
    """A world whose source can be listed under another name."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.roots = (self.root,)

    def files(self) -> list[str]:
        return sorted(row[0].removeprefix(f"file://{self.folder}/") for row in self.rows())


@pytest.fixture
def world(tmp_path: Path) -> Elsewhere:
    """Two loaded files, and a link to their folder as the new root."""
    loaded = Elsewhere(tmp_path)
    loaded.drop("2013/a.parquet", 60, ids=1)
    loaded.drop("b.parquet", 50, ids=1)
    loaded.run()
    (tmp_path / "mount").symlink_to(tmp_path / "landing")
    loaded.roots = (f"file://{tmp_path}/mount",)
    return loaded


def test_a_root_under_another_name_is_refused_and_the_ways_on_are_named(world):
    before = world.record_names()

    with pytest.raises(InputError) as caught:
        world.run()

    assert world.files() == ["landing/2013/a.parquet", "landing/b.parquet"]
    assert world.record_names() == before
    assert f"{world.root}/2013/a.parquet" in caught.value.what
    assert f"{world.roots[0]}/2013/a.parquet" in caught.value.what
    for way in ("`roots`", "starting_timestamp", "full_refresh=True"):
        assert way in caught.value.do
    assert isinstance(world.plan().error, InputError)


class Dead(DeltaEngine):
    def run(self, *_: Any) -> None:
        raise StorageError("the disk is away")


def test_a_full_refresh_replaces_an_open_batch_whose_root_has_another_name_now(world):
    roots, world.roots = world.roots, (world.root,)
    world.drop("c.parquet", 40, ids=1)
    with pytest.raises(StorageError):
        world.run(engine=Dead(open_gate))
    world.roots = roots
    with pytest.raises(CheckpointCorruptError, match=r"names .*/landing/c\.parquet, which is not below"):
        world.run()
    report = world.run(refresh=True)

    assert report.superseded == (1,)
    assert world.files() == ["mount/2013/a.parquet", "mount/b.parquet", "mount/c.parquet"]


def test_with_a_root_for_each_day_the_run_of_the_open_batch_is_cleared_first(tmp_path):
    made = Elsewhere(tmp_path)
    days = [f"{made.root}/{day}" for day in ("2026-01-31", "2026-02-01")]
    for day, age in zip(days, (60, 50), strict=True):
        made.drop(f"{day.rpartition('/')[2]}/a.parquet", age, ids=1)
    made.roots = days[:1]
    with pytest.raises(StorageError):
        made.run(engine=Dead(open_gate))
    made.roots = days[1:]
    with pytest.raises(CheckpointCorruptError) as caught:
        made.run()
    assert f"names {days[0]}/a.parquet" in caught.value.what
    assert "clear the task in the run that has the folder of this file: it loads" in caught.value.do

    for made.roots in (days[:1], days[1:]):
        made.run()

    assert made.files() == ["landing/2026-01-31/a.parquet", "landing/2026-02-01/a.parquet"]


def test_an_interval_is_told_the_way_on_that_it_has(tmp_path):
    """It has no starting_timestamp, and no full refresh."""
    interval = Elsewhere(tmp_path).of(Window(NOW_MS - 90_000, NOW_MS - 30_000))
    interval.drop("a.parquet", 60, ids=1)
    interval.run()
    (tmp_path / "mount").symlink_to(tmp_path / "landing")
    interval.roots = (f"file://{tmp_path}/mount",)
    with pytest.raises(InputError, match="another name") as caught:
        interval.run()

    assert "starting_timestamp" not in caught.value.do
    assert f"move the folder {interval.checkpoint} away" in caught.value.do


def test_one_of_several_roots_under_another_name_is_refused(world, tmp_path):
    (tmp_path / "other").mkdir()
    world.roots = (f"file://{tmp_path}/other", *world.roots)

    with pytest.raises(InputError):
        world.run()


def test_the_ways_on_lead_on(world):
    world.drop("c.parquet", 40, ids=1)
    world.run(starting_at_ms=NOW_MS - 45_000)
    assert world.files() == ["landing/2013/a.parquet", "landing/b.parquet", "mount/c.parquet"]

    world.run(refresh=True)
    assert world.files() == ["mount/2013/a.parquet", "mount/b.parquet", "mount/c.parquet"]
    world.run()
    assert len(world.files()) == 3


def test_a_new_source_folder_with_files_of_its_own_is_loaded(world, tmp_path):
    """As with a root for each day; names come again, sizes and times do not."""
    world.hide("b.parquet")
    shutil.move(tmp_path / "landing", tmp_path / "archive")
    world.drop("b.parquet", 30, ids=1)
    shutil.move(tmp_path / "landing", tmp_path / "day2")
    world.roots = (f"file://{tmp_path}/day2",)
    world.run()

    assert world.files() == ["day2/b.parquet", "landing/2013/a.parquet", "landing/b.parquet"]


def test_a_file_that_moves_within_its_root_is_a_new_file(world, tmp_path):
    world.roots = (world.root,)
    shutil.move(tmp_path / "landing" / "b.parquet", tmp_path / "landing" / "2013" / "b.parquet")
    world.run()

    assert "landing/2013/b.parquet" in world.files()


def test_a_limit_by_time_looks_at_the_files_of_the_newest_batch(world):
    """The file of the newest position comes again if its new name is greater."""
    with pytest.raises(InputError):
        world.run(late_files="skip")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("s3://bucket/landing/a.csv", "s3a://bucket/landing"),
        ("webhdfs://nn1:9870/landing/a.csv", "webhdfs://nn2:9870/landing"),
        ("adl://acme.azuredatalakestore.net/local/a.csv", "adl://other.azuredatalakestore.net/local"),
    ],
)
@pytest.mark.parametrize("status", [(1_000, 5), (999, None), (1_000, None)])
def test_stores_under_another_name(old, new, status):
    """dbt-scope notes no size, and can note a time that is 1 ms less."""
    files = [FileEntry(1_000, f"{new}/a.csv", 5)]

    with pytest.raises(InputError, match="another name"):
        check_names(files, [(old, (*status, None))], (new,))


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("file:///old/a.csv", (1_001, 5)),
        ("file:///old/a.csv", (1_000, 6)),
        ("file:///old/b.csv", (1_000, 5)),
        ("file:///old/a.csv", (998, None)),
        ("file:///new/x/a.csv", (1_000, 5)),
    ],
)
def test_other_files_are_let_through(path, status):
    loaded = SeenFiles([rows_of([(path, *status, None, None)])])
    roots = ("file:///new",)

    check_names([FileEntry(1_000, "file:///new/a.csv", 5)], loaded.outside(roots), roots)
