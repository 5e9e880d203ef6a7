"""Whether enough files have arrived, and what a wait for them does next."""

from __future__ import annotations

import json

import pytest

from airflow_provider_scope.protocol.seen import History
from airflow_provider_scope.sources.files.discovery import Requirements, absent, arrived
from tests.support.values import a_file, below_in

NOW = 100_000
ROOTS = ("file:///in",)


def look(*files, loaded=None, **requirements):
    return arrived(
        files, Requirements(**{"patterns": (r"\.ss$",), **requirements}), ROOTS, now_ms=NOW, loaded=loaded
    )


# ---- what counts ------------------------------------------------------------------------------------


def test_files_that_match_count_oldest_first():
    arrival = look(a_file("b.ss", 2_000), a_file("a.ss", 3_000), a_file("c.txt", 1_000))

    assert below_in(arrival.files) == ["b.ss", "a.ss"]
    assert arrival.is_complete


@pytest.mark.parametrize(
    "file",
    [
        a_file("a.txt"),
        a_file("_a.ss"),
        a_file("_temporary/0/a.ss"),
        a_file("a.ss", size_bytes=0),
        a_file("a.ss", modified_ms=0),
        a_file("a:b.ss"),
    ],
)
def test_what_the_ingest_operator_would_not_load_does_not_count(file):
    arrival = look(file)

    assert (arrival.files, arrival.is_complete) == ((), False)


def test_a_structured_stream_counts_once_with_the_bytes_of_its_folder():
    arrival = look(a_file("a.ss", size_bytes=1), a_file("a/part-0.ss", size_bytes=50), min_bytes=51)

    assert [(file.path, file.size_bytes) for file in arrival.files] == [("file:///in/a.ss", 51)]
    assert arrival.is_complete


@pytest.mark.parametrize(("count", "complete"), [(1, False), (2, True), (3, True)])
def test_there_must_be_min_files(count, complete):
    assert look(*(a_file(f"{n}.ss") for n in range(count)), min_files=2).is_complete is complete


@pytest.mark.parametrize(("size", "complete"), [(19, False), (20, True)])
def test_there_must_be_min_bytes_together(size, complete):
    files = (a_file("a.ss", size_bytes=9), a_file("b.ss", size_bytes=size - 9))

    assert look(*files, min_bytes=20).is_complete is complete


def test_only_files_modified_after_the_time_count():
    arrival = look(
        a_file("before.ss", 4_999), a_file("at.ss", 5_000), a_file("after.ss", 5_001), modified_after_ms=5_000
    )

    assert below_in(arrival.files) == ["after.ss"]


@pytest.mark.parametrize(("modified", "complete"), [(70_000, True), (70_001, False), (150_000, False)])
def test_the_newest_file_must_be_old_enough(modified, complete):
    arrival = look(a_file("old.ss", 1_000), a_file("new.ss", modified), stable_for_ms=30_000)

    assert len(arrival.files) == 2
    assert arrival.is_complete is complete


def test_a_young_file_that_does_not_count_holds_nothing_up():
    assert look(a_file("a.ss"), a_file("b.txt", NOW), a_file("_c.ss", NOW)).is_complete


def test_files_that_the_pipeline_has_loaded_do_not_count_changed_or_not():
    loaded = History()
    loaded.update([a_file("a.ss"), a_file("b.ss")])

    arrival = look(a_file("a.ss"), a_file("b.ss", 2_000), a_file("c.ss"), loaded=loaded)

    assert below_in(arrival.files) == ["c.ss"]


def test_no_file_is_not_complete_even_for_no_bytes():
    assert not look().is_complete


# ---- what is told -----------------------------------------------------------------------------------


def test_the_result_has_names_count_bytes_and_the_newest_time():
    arrival = look(a_file("a.ss", 1_000, 7), a_file("b.ss", 61_500, 8))

    assert arrival.to_xcom() == {
        "names": ["file:///in/a.ss", "file:///in/b.ss"],
        "count": 2,
        "bytes": 15,
        "newest": "1970-01-01T00:01:01.500000+00:00",
    }


def test_the_result_of_nothing_has_no_newest_time():
    assert absent("x").to_xcom() == {"names": [], "count": 0, "bytes": 0, "newest": None}


@pytest.mark.parametrize(("name", "named"), [("{:03}.ss", 20), ("é" * 120 + "{:03}.ss", 4), ("x" * 4000, 0)])
def test_the_result_stays_under_4_kib_however_many_and_long_the_names_are(name, named):
    result = look(*(a_file(f"{n}/" + name.format(n) + ".ss") for n in range(500))).to_xcom()

    assert len(json.dumps(result)) < 4096
    assert (len(result["names"]), result["count"]) == (named, 500)


def test_the_text_says_what_is_there_what_was_left_out_and_what_is_missing():
    loaded = History()
    loaded.update([a_file("b.ss")])
    arrival = look(
        a_file("a.ss", 98_000),
        a_file("b.ss"),
        a_file("_c.ss"),
        loaded=loaded,
        min_files=3,
        min_bytes=2_000,
    )

    assert arrival.text == (
        "1 file of 10 bytes in file:///in (1 loaded before, 1 left out: hidden name); waiting for 3 files, "
        "2,000 bytes, 30 s without a change, the last was 2 s ago"
    )


def test_a_folder_that_is_not_there_yet_is_not_complete():
    arrival = absent("The source folder file:///in does not exist.")

    assert not arrival.is_complete
    assert arrival.text == "The source folder file:///in does not exist. Waiting for it"


@pytest.mark.parametrize(
    "files",
    [
        [a_file("a.ss"), a_file("b.ss")],
        [a_file("b.ss")],
        [a_file("a.ss", 1_001)],
        [a_file("a.ss", size_bytes=11)],
        [],
    ],
)
def test_the_fingerprint_differs_with_a_file_its_time_or_its_size(files):
    fingerprint = look(a_file("a.ss")).fingerprint()

    assert fingerprint == look(a_file("a.ss")).fingerprint()
    assert fingerprint != look(*files).fingerprint()
