"""The same files below another root: a link, a mount, another scheme or namenode."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.protocol.derived import SeenFiles, rows_of
from airflow_provider_scope.sources.files.discovery import check_names
from airflow_provider_scope.values import FileEntry
from tests.crash.world import NOW_MS, DeltaWorld

if TYPE_CHECKING:
    from pathlib import Path


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
    made = Elsewhere(tmp_path)
    made.drop("2013/a.parquet", 60, ids=1)
    made.drop("b.parquet", 50, ids=1)
    made.run()
    (tmp_path / "mount").symlink_to(tmp_path / "landing")
    made.roots = (f"file://{tmp_path}/mount",)
    return made


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
