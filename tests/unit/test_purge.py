"""What may be purged, and what is still known afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_scope.cli.quarantine import QuarantinedFile, in_effect
from airflow_provider_scope.protocol import records
from airflow_provider_scope.protocol.bad_records import Quarantined
from airflow_provider_scope.protocol.retention import LEFTOVER_MS, Segment, purge_below, purgeable
from airflow_provider_scope.values import FileEntry, FileSlice, RowSlice
from tests.crash.world import MemoryWorld


@pytest.mark.parametrize(
    ("progress", "retain", "below"),
    [
        ({}, 10, 90),
        ({}, 1, 99),
        ({}, 100, 0),
        ({}, 1000, 0),
        ({"vacuumed": 95}, 10, 95),
        ({"newest_commit": -1, "first_needed": 0, "columns_from": None}, 10, 0),
        # The segments alone will tell what the purged batches of the epoch loaded.
        ({"first_needed": 40}, 10, 40),
        ({"first_needed": 95}, 10, 90),
        ({"columns_from": 70}, 10, 70),
        ({"columns_from": None}, 10, 90),
    ],
)
def test_records_below_a_number_may_go(progress, retain, below):
    known = {"newest_commit": 99, "first_needed": 100, "columns_from": 99, "vacuumed": 0, **progress}

    assert purge_below(**known, retain=retain)[0] == below


CRC = "00c0ffee"


def kinds(names: dict[str, int], **limits: object) -> dict[str, list[str]]:
    files = [FileEntry(at, f"file:///c/{name}", 1) for name, at in names.items()]
    limits = {"below": 5, "epoch": f"{10:020}", "chain": [Segment(10, 20, 3, CRC)], **limits}
    groups, kept = purgeable(files, "file:///c", now_ms=LEFTOVER_MS + 100, **limits)
    assert sorted(file for group in (*groups, *kept) for file in group.files) == sorted(files)
    return {group.kind: [file.path.removeprefix("file:///c/") for file in group.files] for group in groups}


def test_only_what_is_named_like_a_record_below_the_number_goes():
    going = [f"offsets/{4:020}", f"commits/{0:020}", f"vacuumed/{4:020}"]
    staying = [
        *(f"{folder}/{5:020}" for folder in ("offsets", "commits", "vacuumed")),
        *(f"{folder}/{1:020}" for folder in ("accepted", "quarantines", "schemas", "taken_over", "sources")),
        f"attempts/{1:020}.0",
        f"intervals/x/offsets/{1:020}",
        "offsets/1",
        "pipeline.json",
        "watermark.json",
    ]

    purged = kinds(dict.fromkeys([*going, *staying], 0))

    assert sorted(name for names in purged.values() for name in names) == sorted(going)
    assert list(purged) == ["offsets", "commits", "vacuumed"]


def test_segments_of_earlier_epochs_and_parts_of_larger_ones_go():
    old, now, later = (f"seen/{number:020}" for number in (0, 10, 30))
    segment, part, beyond = (Segment(*fields, CRC).name for fields in ((10, 20, 3), (15, 20, 1), (15, 21, 1)))
    going = [f"{old}/{segment}", f"{old}-0/{segment}", f"{now}/{part}"]
    staying = [f"{now}/{segment}", f"{now}/{beyond}", f"{later}/{segment}", f"{now}-0/{segment}", f"{now}/x"]

    assert kinds(dict.fromkeys([*going, *staying], 0)) == {"superseded segments": sorted(going)}
    assert kinds(dict.fromkeys([*going, *staying], 0), epoch=None) == {}


def test_rows_of_a_caller_are_told_by_their_record_alone():
    assert RowSlice("load").needs_record
    assert not FileSlice((), None).needs_record


def test_what_was_put_aside_by_a_purged_batch_can_still_be_given_back():
    world = MemoryWorld(interval=2)
    world.max_files = 1
    for number in range(4):
        path = world.drop(f"f{number}", at=1000 - number)
        world.run()
        if number == 1:
            record = replace(world.log().commit(1), quarantined={"files": Quarantined(1, {"unreadable": 1})})
            world.memory.control[f"{world.checkpoint}/commits/{1:020}"] = records.encode(record)
    path = "file:///landing/f1"
    aside = QuarantinedFile(batch=1, path=path, whole="unreadable")

    world.vacuum()
    world.drop("f4", at=900)
    world.run()
    world.vacuum()

    log = world.log()
    assert log.vacuumed().below == 4
    assert in_effect(log, [aside, replace(aside, batch=2)]) == [aside]
