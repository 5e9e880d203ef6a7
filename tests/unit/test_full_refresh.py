"""What a full refresh says of loaded files that the source no longer has."""

from __future__ import annotations

import logging

import pytest

from airflow_provider_scope.engines.assembly import make_request
from airflow_provider_scope.exceptions import SourceFileGoneError
from airflow_provider_scope.protocol.report import READ
from airflow_provider_scope.specs.ingest import ingest_from
from tests.crash.world import MemoryWorld
from tests.support.faulty_storage import fails_at
from tests.support.values import arguments


@pytest.fixture
def world() -> MemoryWorld:
    """Four loaded files, of which two were archived since."""
    loaded = MemoryWorld()
    for number in range(1, 5):
        loaded.drop(f"f{number}", 100 - number)
    loaded.run()
    for name in ("f1", "f3"):
        loaded.hide(name)
    return loaded


def expected(version: int) -> str:
    return (
        "Loaded files that the source no longer has, or that are left out of it: 2 of 4. Their rows are not "
        f"in the new table. Version {version} of the table has them until VACUUM deletes its files: read it "
        f"with VERSION AS OF {version}, or RESTORE the table to it. The files: file:///landing/f1, "
        "file:///landing/f3"
    )


def test_the_run_warns_of_files_whose_rows_it_drops(world, caplog):
    caplog.set_level(logging.WARNING)
    version, rows = world.version(), world.rows()

    report = world.run(refresh=True)

    assert report.warnings == {READ: expected(version)}
    assert caplog.messages.count(expected(version)) == 1
    assert f"warning: {expected(version)}" in report.text()
    assert report.to_xcom()["warnings"] == [expected(version)]
    world.restore(version)
    assert world.rows() == rows


def test_a_plan_of_it_warns_as_well(world):
    assert world.plan(refresh=True).report.warnings == {READ: expected(world.version())}


@pytest.mark.parametrize("arguments", [{}, {"refresh": True, "is_snapshot": True}, {"where": "day = 1"}])
def test_no_other_run_warns(world, arguments):
    world.drop("f5", 50)

    assert world.run(**arguments).warnings == {}


def test_a_refresh_that_loads_all_files_does_not_warn(world):
    for number in (1, 3):
        world.drop(f"f{number}", 100 - number)

    assert world.run(refresh=True).warnings == {}


def test_the_second_refresh_does_not_warn_again(world):
    world.run(refresh=True)

    assert world.run(refresh=True).warnings == {}


def test_a_source_that_takes_files_by_time_warns_too(world):
    assert world.run(refresh=True, late_files="skip").warnings[READ].endswith("f1, file:///landing/f3")


def test_files_of_purged_entries_are_named(world):
    for number in range(5, 12):
        world.drop(f"f{number}", 90 - number)
        world.run()
    assert world.vacuum().record.below > 0

    assert (
        world.run(refresh=True)
        .warnings[READ]
        .startswith("Loaded files that the source no longer has, or that are left out of it: 2 of 11.")
    )


def test_a_refresh_that_died_before_it_reached_the_table_leaves_the_warning_to_the_next(world):
    version = world.version()
    with pytest.raises(SourceFileGoneError):
        world.run(fails_at("files 2", SourceFileGoneError("the disk is away")), refresh=True)

    assert world.run(refresh=True).warnings == {READ: expected(version)}


def test_files_whose_rows_a_restore_took_away_are_not_in_any_version_to_go_back_to(world):
    world.restore(0)
    world.accept()

    text = world.run(refresh=True).warnings[READ]

    assert "left out of it: 1 of 2. Their rows" in text
    assert text.endswith("The files: file:///landing/f1")


def test_a_history_that_is_lost_is_said_and_does_not_stop_the_refresh(world):
    for number in range(5, 12):
        world.drop(f"f{number}", 90 - number)
        world.run()
    assert world.vacuum().record.below > 0
    folder = f"{world.checkpoint}/seen/{0:020}"
    for name in world.storage.names(folder):
        world.storage.delete(f"{folder}/{name}")

    report = world.run(refresh=True)

    assert report.warnings[READ].startswith("It is not known which loaded files the source no longer has.")
    assert "A segment in file:///table/_checkpoint/seen/" in report.warnings[READ]
    assert len(report.batches) == 5


@pytest.mark.parametrize(
    ("changes", "warns"),
    [
        ({"full_refresh": True}, True),
        ({"full_refresh": "true", "write": {"kind": "merge", "primary_key": "id"}}, True),
        ({}, False),
        ({"write": "replace"}, False),
        ({"full_refresh": True, "write": "replace"}, False),
        ({"write": {"kind": "replace", "where": "day = 1"}}, False),
    ],
)
def test_only_a_task_that_adds_files_loads_them_again(changes, warns):
    assert make_request(ingest_from(arguments(**changes))).loads_files_again is warns
