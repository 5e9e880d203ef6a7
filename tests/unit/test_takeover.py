"""Taking over tables that dbt-scope loaded, whatever state it left its checkpoint in."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_scope.exceptions import (
    BatchOutcomeUnknownError,
    CheckpointCorruptError,
    CheckpointGapError,
    CheckpointVersionError,
    InputError,
    SparkJobFailedError,
    StorageError,
    WatermarkChangedError,
)
from airflow_provider_scope.protocol import dbt_scope, derived, repair
from airflow_provider_scope.protocol.dbt_scope import store_of
from airflow_provider_scope.protocol.takeover import Decision, Epoch, digest
from airflow_provider_scope.values import FileEntry
from tests.crash.world import NOW_MS, MemoryWorld
from tests.support.dbt_scope import CrashedError, DbtScopeOnMemory, moment, snapshot
from tests.support.faulty_storage import Counting, DiedError, before, dies_after, fails_at
from tests.support.values import an_entry

START = NOW_MS - 10_000_000


def put(world: MemoryWorld, name: str, modified_ms: int) -> str:
    """Put a file of one row into the source."""
    path = f"{world.root}/{name}"
    world.memory.source[path] = FileEntry(modified_ms, path, 1)
    world.memory.content[path] = [(path, 0, 1)]
    return path


def each_once(world: MemoryWorld, *but: str) -> Counter[Any]:
    """Return the rows of a table that holds each file of the source once, aside from some."""
    names = {f"{world.root}/{name}" for name in but}
    return Counter({(path, 0, 1): 1 for path in world.memory.source if path not in names})


def a_world(batches: int, **kwargs: Any) -> tuple[MemoryWorld, DbtScopeOnMemory]:
    """Return a table that dbt-scope has loaded in so many batches of two files each."""
    world = MemoryWorld(interval=10)
    theirs = DbtScopeOnMemory(world, **kwargs)
    for number in range(batches * 2):
        put(world, f"old{number:04}", START + number * 1_000 + number % 7)
    while len(world.rows()) < batches * 2:
        with suppress(CrashedError):
            theirs.run()
    return world, theirs


def taken_over(world: MemoryWorld, number: int = 0) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(world.read(f"taken_over/{number:020}"))
    return value


def control(world: MemoryWorld, name: str) -> str:
    return f"{world.checkpoint}/{name}"


def dies_at(world: MemoryWorld, name: str, **request: Any) -> None:
    """Run until a call whose name begins so."""
    with pytest.raises(SparkJobFailedError, match="dead"):
        world.run(fails_at(name, SparkJobFailedError("dead")), **request)


# ---- the first run ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", ["text", "timestamp"])
@pytest.mark.parametrize("batches", [1, 10, 11, 21, 105])
def test_a_table_of_dbt_scope_is_taken_over_and_its_numbers_go_on(batches, times):
    world, theirs = a_world(batches, times=times)
    put(world, "new1", NOW_MS - 2_000)
    put(world, "new2", NOW_MS - 1_000)
    put(world, "new3", NOW_MS - 500)

    report = world.run()

    assert [(batch.record.seq, batch.record.files) for batch in report.batches] == [(0, 2), (1, 1)]
    assert report.already_loaded + sum(report.left_out.counts.values()) == batches * 2
    assert (report.left_out.counts == {}) == (times == "text" or batches <= 20)
    assert world.rows() == each_once(world)
    assert theirs.watermark() == (batches + 1, "2023-11-14T22:13:19.500000+00:00", batches + 1)
    assert [row["path"] for row in theirs.batch(batches)] == ["/landing/new1", "/landing/new2"]
    assert [row["path"] for row in theirs.batch(batches + 1)] == ["/landing/new3"]
    assert world.run().batches == []


def test_what_was_taken_over_is_recorded():
    world, _ = a_world(11)

    report = world.run()

    record = taken_over(world)
    assert report.batches == []
    assert {
        key: record[key] for key in ("batch_id", "floor_ms", "files", "is_recorded", "missing", "seq")
    } == {
        "batch_id": 10,
        "floor_ms": START + 21_000,
        "files": 22,
        "is_recorded": True,
        "missing": 0,
        "seq": 0,
    }
    assert record["modified_time"] == moment(START + 21_000).isoformat()
    assert record["at_floor"] == ["file:///landing/old0021"]
    assert record["store"] == "file://"


def test_the_files_are_written_down_first_and_the_record_makes_them_count():
    world, _ = a_world(3)
    put(world, "new", NOW_MS - 1_000)
    gate = Counting()

    world.run(gate)

    assert gate.writes[0] == "put pipeline.json"
    assert gate.writes[1].startswith("put taken_over/")
    assert gate.writes[2] == f"put taken_over/{0:020}"
    assert gate.writes[3] == f"put offsets/{0:020}"


@pytest.mark.parametrize("late_files", ["ingest", "skip"])
def test_a_time_that_dbt_scope_cut_by_a_millisecond_is_no_change(late_files):
    modified = 1_080_363_610_271  # in 2004; the years from 2005 to 2037 have no such time
    world = MemoryWorld()
    theirs = DbtScopeOnMemory(world)
    put(world, "a", modified)
    put(world, "b", modified)
    put(world, "c", modified + 1)
    theirs.run(max_files=1, max_batches=1)
    assert theirs.batch(0)[0]["modificationTime"] == modified - 1

    report = world.run(late_files=late_files)

    assert report.left_out.counts == {}
    assert world.rows() == each_once(world)


def test_a_watermark_in_microseconds_leaves_its_millisecond_to_the_records():
    world, _ = a_world(1)
    name = control(world, "watermark.json")
    between = {
        "version": 0,
        "modifiedTime": moment(START + 5_000).isoformat()[:-6] + ".000500+00:00",
        "batchId": 0,
    }
    world.memory.control[name] = json.dumps(between, indent=2).encode()
    put(world, "same", START + 5_000)
    put(world, "next", START + 5_001)

    world.run()

    assert world.rows() == each_once(world)


def test_a_late_file_that_dbt_scope_left_behind_is_named_in_the_report():
    world, _ = a_world(3)
    put(world, "late", START + 1)

    report = world.run()

    assert report.left_out.names == {"before the watermark taken over": ["file:///landing/late"]}
    assert world.rows() == each_once(world, "late")


def test_a_file_that_changed_after_dbt_scope_loaded_it_is_reported_and_not_loaded_twice():
    world, _ = a_world(3)
    put(world, "old0001", NOW_MS - 1_000)

    report = world.run()

    assert report.left_out.names == {"changed after it was loaded": ["file:///landing/old0001"]}
    assert world.rows() == each_once(world)


@pytest.mark.parametrize("late_files", ["ingest", "skip"])
def test_a_run_that_reads_no_history_takes_the_same_new_files(late_files):
    world, theirs = a_world(3)
    put(world, "tie1", NOW_MS - 5_000)
    put(world, "tie2", NOW_MS - 5_000)
    theirs.run(max_files=1)
    put(world, "new", NOW_MS - 1_000)

    report = world.run(late_files=late_files)
    world.run(late_files=late_files)

    assert world.rows() == each_once(world)
    assert report.left_out.counts == ({} if late_files == "ingest" else {"loaded before, or late": 6})
    assert report.already_loaded == (7 if late_files == "ingest" else 1)


@pytest.mark.parametrize("late_files", ["ingest", "skip"])
def test_a_plan_before_the_first_run_says_what_that_run_does_and_writes_nothing(late_files):
    world, _ = a_world(3)
    put(world, "new", NOW_MS - 2_000)
    put(world, "late", START - 1_000)
    before = dict(world.memory.control)

    plan = world.plan(late_files=late_files)
    assert world.memory.control == before
    run = world.run(late_files=late_files)

    assert (plan.opened, plan.error) == ((), None)
    assert [[file.path for file in entry.files] for entry in plan.new] == [["file:///landing/new"]]
    assert (plan.report.left_out, plan.report.already_loaded) == (run.left_out, run.already_loaded)
    assert [batch.record.files for batch in run.batches] == [1]
    # The record of the newest batch names the file that has exactly the watermark's time.
    why = {"ingest": {"before the watermark taken over": 1}, "skip": {"loaded before, or late": 6}}
    assert plan.report.left_out.counts == why[late_files]


def test_a_full_refresh_loads_everything_again_whatever_was_taken_over():
    world, _ = a_world(11)
    put(world, "late", START + 1)
    world.run()

    world.run(refresh=True)
    world.run()

    assert world.rows() == each_once(world)
    names = world.memory.names(control(world, "sources"))
    assert [name for name in names if name.endswith(".parquet")] == []
    assert json.loads(world.read("watermark.json"))["batchId"] == 11


@pytest.mark.parametrize("has_segments", [True, False])
def test_what_dbt_scope_loaded_counts_with_our_segments_and_without_them(has_segments):
    world, theirs = a_world(12)
    for number in range(20):
        put(world, f"new{number:02}", NOW_MS - 100_000 + number)
    world.run()
    assert Counter(row["path"] for row in theirs.history()) == Counter(
        path.removeprefix("file://") for path in world.memory.source
    )
    segments = world.memory.names(control(world, "seen/00000000000000000000-0"))
    for name in segments if not has_segments else ():
        world.memory.control[control(world, f"seen/00000000000000000000-0/{name}")] = b"PAR1"
    put(world, "old0001", NOW_MS - 500)

    report = world.run()

    assert segments
    assert report.left_out.names == {"changed after it was loaded": ["file:///landing/old0001"]}
    assert report.already_loaded == 43


def test_retention_keeps_what_is_needed_after_a_takeover():
    world, _ = a_world(12)
    world.retention = 2
    for number in range(30):
        put(world, f"new{number:02}", NOW_MS - 100_000 + number)

    world.run()

    assert world.memory.names(control(world, "sources")) == ["10.parquet", "25", "26"]
    assert world.run().already_loaded == 54


def test_rebuild_writes_the_audit_files_of_ours_again_and_leaves_those_of_dbt_scope():
    world, theirs = a_world(11)
    put(world, "new", NOW_MS - 1_000)
    world.run()
    for name in ("sources/11", "watermark.json"):
        del world.memory.control[control(world, name)]
    log = world.log()

    repair.rebuild(log, world.audit_files(log))

    names = world.memory.names(control(world, "sources"))
    assert names == sorted([*map(str, range(10)), "10.parquet", "11"])
    assert theirs.watermark() == (11, "2023-11-14T22:13:19.000000+00:00", 11)


# ---- what dbt-scope's crashes leave ------------------------------------------------------------------------


def a_lost_record(ties: int) -> tuple[MemoryWorld, DbtScopeOnMemory]:
    """Return a table whose newest batch, one file, has no record; so many files have its time."""
    world, theirs = a_world(3)
    for number in range(ties):
        put(world, f"tie{number}", NOW_MS - 5_000)
    with pytest.raises(CrashedError):
        theirs.run(max_files=1, crash="before the sources")
    return world, theirs


def test_the_one_file_with_the_watermarks_time_was_loaded_also_without_a_record():
    world, _ = a_lost_record(1)
    put(world, "new", NOW_MS - 1_000)

    report = world.run()

    assert report.left_out.names == {"at the watermark taken over": ["file:///landing/tie0"]}
    assert world.rows() == each_once(world)
    assert taken_over(world)["is_recorded"] is False
    assert taken_over(world)["missing"] == 1


def test_of_several_files_with_the_watermarks_time_and_no_record_none_is_guessed():
    world, _ = a_lost_record(2)

    with pytest.raises(BatchOutcomeUnknownError) as caught:
        world.run()

    assert "file:///landing/tie0, file:///landing/tie1" in caught.value.what
    assert "batch 3" in caught.value.what
    assert "airflow scope take-over" in caught.value.do
    assert world.log().newest_offset() is None
    assert len(world.rows()) == 7


@pytest.mark.parametrize(("loaded", "rows"), [(True, 7), (False, 9)])
def test_a_decision_says_what_became_of_them(loaded, rows):
    world, _ = a_lost_record(2)
    watermark = digest(world.read("watermark.json"))
    world.log().put(Decision(watermark=watermark, loaded=loaded))

    world.run()

    assert world.rows().total() == rows
    assert world.run().batches == []


def test_a_file_that_arrives_later_with_the_watermarks_time_is_not_guessed_either():
    world, _ = a_lost_record(1)
    world.run()
    put(world, "tie9", NOW_MS - 5_000)

    with pytest.raises(BatchOutcomeUnknownError):
        world.run()


def test_retention_that_ate_the_newest_snapshot_leaves_what_older_ones_tell():
    world, theirs = a_world(12, interval=1, retention=5)
    assert world.memory.names(control(world, "sources")) == [f"{n}.parquet" for n in (5, 6, 7, 8, 9)]
    assert theirs.batch(11) == [], "11.parquet sorts before 9.parquet"
    put(world, "new", NOW_MS - 1_000)

    report = world.run()

    assert taken_over(world)["missing"] == 2
    assert report.left_out.counts == {
        "at the watermark taken over": 1,
        "before the watermark taken over": 3,
    }
    assert world.rows() == each_once(world)


def test_a_watermark_without_a_time_is_taken_over_by_complete_records_alone():
    world, _ = a_world(11)
    world.memory.control[control(world, "watermark.json")] = b'{"batchId": 10, "modifiedTime": ""}'
    put(world, "late", START + 1)

    world.run()

    assert world.rows() == each_once(world)


def test_a_watermark_without_a_time_and_a_lost_record_is_refused():
    world, _ = a_world(11)
    world.memory.control[control(world, "watermark.json")] = b'{"batchId": 10, "modifiedTime": ""}'
    del world.memory.control[control(world, "sources/10.parquet")]

    with pytest.raises(CheckpointCorruptError, match="does not name the files of 1 of its 11 batches"):
        world.run()


def test_a_watermark_without_a_time_needs_the_history():
    world, _ = a_world(2)
    world.memory.control[control(world, "watermark.json")] = b'{"batchId": 1}'

    with pytest.raises(InputError, match="late_files='skip'"):
        world.run(late_files="skip")


def test_a_refresh_of_dbt_scope_that_is_going_on_is_refused():
    world, theirs = a_world(3)
    theirs.begin_refresh()

    with pytest.raises(CheckpointVersionError, match="3 files of another program, but there is no"):
        world.run()


def test_records_above_the_watermark_are_refused():
    world, theirs = a_world(3)
    theirs.begin_refresh()
    theirs.loaded([("/landing/old0000", START)])

    with pytest.raises(CheckpointCorruptError, match=r"goes up to batch 2, but .* ends at 0"):
        world.run()


DAMAGED_WATERMARKS = [
    b"",
    b"{",
    b"[]",
    b"\x80",
    b'{"batchId": -1}',
    b'{"batchId": true}',
    b'{"batchId": 1.0}',
    b'{"batchId": null}',
    b'{"batchId": 9223372036854775808}',
    b'{"version": "1"}',
    b'{"modifiedTime": 5}',
    b'{"modifiedTime": "yesterday"}',
    b'{"modifiedTime": "2023-11-14T22:13:19"}',
]


@pytest.mark.parametrize("data", DAMAGED_WATERMARKS)
def test_a_damaged_watermark_is_an_error_and_not_a_first_run(data):
    world, _ = a_world(1)
    world.memory.control[control(world, "watermark.json")] = data
    before = dict(world.memory.control)

    with pytest.raises(CheckpointCorruptError) as caught:
        world.run()

    assert "watermark.json" in caught.value.what
    assert "full_refresh=True" in caught.value.do
    assert world.memory.control == before


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("sources/1", b"{"),
        ("sources/1", b"\x80"),
        ("sources/1", b'{"path":"/a","modificationTime":1,"batchId":0}'),
        ("sources/1", b'{"path":"a","modificationTime":1,"batchId":1}'),
        ("sources/1", b'{"path":"/a","modificationTime":"1","batchId":1}'),
        ("sources/1", b'{"path":"/a","modificationTime":1}'),
        ("sources/1", b'{"path":"/a","modificationTime":9223372036854775808,"batchId":1}'),
        ("sources/1", b'{"path":"/\\ud800","modificationTime":1,"batchId":1}'),
        ("sources/10.parquet", b""),
        ("sources/10.parquet", b"PAR1"),
        (
            "sources/10.parquet",
            snapshot([{"path": "/a", "modificationTime": 1, "batchId": 11, "batchProcessingTime": ""}]),
        ),
    ],
)
def test_a_damaged_record_is_an_error_and_not_a_missing_one(name, data):
    world, _ = a_world(12)
    world.memory.control[control(world, name)] = data

    with pytest.raises(CheckpointCorruptError, match=name):
        world.run()


def test_an_empty_record_is_one_that_was_never_written():
    world, _ = a_world(3)
    world.memory.control[control(world, "sources/1")] = b""

    world.run()

    assert taken_over(world)["missing"] == 1


@pytest.mark.parametrize("size", ["1.0", "9223372036854775808"])
def test_a_size_of_another_type_is_as_none(size):
    world, _ = a_world(3)
    row = f'{{"path":"/landing/old0002","modificationTime":{START + 2_002},"batchId":1,"size":{size}}}'
    world.memory.control[control(world, "sources/1")] = row.encode()

    assert world.run().left_out.counts == {"before the watermark taken over": 1}


def test_a_file_that_cannot_be_read_is_an_error():
    world, _ = a_world(3)

    with pytest.raises(StorageError):
        world.run(fails_at("read sources/1", StorageError("no answer")))
    assert "pipeline.json" not in world.record_names()


def test_a_watermark_that_moves_while_it_is_read_is_refused():
    world, theirs = a_world(3)
    put(world, "new", NOW_MS - 1_000)

    with pytest.raises(StorageError, match="changed while it was read"):
        world.run(before("read sources/1", theirs.run))


@pytest.mark.parametrize("damaged", ["watermark.json", "sources/1", None])
def test_a_full_refresh_needs_nothing_of_what_dbt_scope_wrote(damaged):
    world, theirs = a_world(12)
    if damaged:
        world.memory.control[control(world, damaged)] = b"{"
    else:
        theirs.begin_refresh()

    world.run(refresh=True)

    assert world.rows() == each_once(world)
    assert world.run().batches == []
    assert json.loads(world.read("watermark.json"))["batchId"] == 11


# ---- crashes of ours ---------------------------------------------------------------------------------------


def test_a_takeover_that_dies_anywhere_is_completed_by_the_next_run():
    whole = Counting()
    world, _ = a_world(3)
    put(world, "new", NOW_MS - 1_000)
    world.run(whole)
    for number in range(len(whole.calls)):
        world, theirs = a_world(3)
        put(world, "new", NOW_MS - 1_000)
        with suppress(DiedError):
            world.run(dies_after(number))

        world.run()

        assert world.rows() == each_once(world), whole.calls[number].name
        assert theirs.watermark() == (3, "2023-11-14T22:13:19.000000+00:00", 3)


def test_dbt_scope_may_go_on_after_a_takeover_that_died_before_it_counted():
    world, theirs = a_world(3)
    put(world, "new1", NOW_MS - 2_000)

    dies_at(world, f"put taken_over/{0:020}")
    theirs.run()
    put(world, "new2", NOW_MS - 1_000)

    world.run()

    assert world.rows() == each_once(world)
    assert taken_over(world)["batch_id"] == 3


def test_two_first_runs_at_once_make_one_pipeline():
    world, _ = a_world(3)
    put(world, "new", NOW_MS - 1_000)

    world.run(before(f"put taken_over/{0:020}", world.run))

    assert world.rows() == each_once(world)
    assert world.memory.names(control(world, "taken_over"))[0] == f"{0:020}"
    assert world.run().batches == []


def test_a_record_of_the_takeover_that_is_gone_is_an_error():
    world, _ = a_world(3)
    put(world, "new", NOW_MS - 1_000)
    world.run()
    del world.memory.control[control(world, f"taken_over/{0:020}")]

    with pytest.raises(CheckpointGapError, match="taken_over"):
        world.run()


def test_a_record_of_a_later_takeover_that_is_gone_is_an_error():
    """The record before it says nothing of what dbt-scope has loaded since."""
    world, _ = advanced()
    log = world.log()
    dbt_scope.write(log, *dbt_scope.continuation(log, NOW_MS))
    world.run()
    assert world.rows() == each_once(world)
    del world.memory.control[control(world, f"taken_over/{1:020}")]

    with pytest.raises(CheckpointGapError, match=f"taken_over/{1:020}"):
        world.run()


def test_a_list_of_files_that_was_changed_is_an_error():
    world, _ = a_world(3)
    world.run()
    (name,) = [name for name in world.memory.control if "/taken_over/" in name and name.endswith(".parquet")]
    world.memory.control[name] += b"PAR1"

    with pytest.raises(CheckpointCorruptError, match="was changed"):
        world.run()


# ---- going back --------------------------------------------------------------------------------------------


def test_dbt_scope_goes_on_with_a_table_that_was_never_its_own():
    world = MemoryWorld(interval=3)
    theirs = DbtScopeOnMemory(world)
    for number in range(9):
        put(world, f"ours{number}", START + number)
    world.run()
    put(world, "theirs", NOW_MS - 1_000)

    theirs.run()

    assert world.rows() == each_once(world)


def advanced() -> tuple[MemoryWorld, DbtScopeOnMemory]:
    """Return a table that was taken over, and that dbt-scope loaded a batch into afterwards."""
    world, theirs = a_world(3)
    put(world, "ours", NOW_MS - 3_000)
    world.run()
    put(world, "theirs", NOW_MS - 2_000)
    theirs.run()
    put(world, "new", NOW_MS - 1_000)
    return world, theirs


@pytest.mark.parametrize("taken", [True, False])
def test_a_checkpoint_that_dbt_scope_advanced_is_refused(taken):
    world = advanced()[0] if taken else MemoryWorld()
    if not taken:
        put(world, "ours", START)
        world.run()
        put(world, "theirs", START + 1)
        DbtScopeOnMemory(world).run()
    before = dict(world.memory.control)

    with pytest.raises(WatermarkChangedError) as caught:
        world.run()

    assert f"watermark.json says batch {4 if taken else 1}" in caught.value.what
    assert "airflow scope take-over" in caught.value.do
    assert world.memory.control == before


def test_neither_rebuild_nor_abandon_overwrites_what_dbt_scope_wrote():
    world, _ = advanced()
    log = world.log()
    before = dict(world.memory.control)

    with pytest.raises(WatermarkChangedError):
        repair.rebuild(log, world.audit_files(log))
    with pytest.raises(WatermarkChangedError):
        world.abandon(1)
    assert world.memory.control == before


def test_dbt_scope_that_ran_before_our_first_batch_is_noticed():
    world, theirs = a_world(3)
    world.run()
    put(world, "theirs", NOW_MS - 2_000)
    theirs.run()

    with pytest.raises(WatermarkChangedError, match="says batch 3"):
        world.run()


def test_dbt_scope_that_ran_while_a_batch_was_loaded_is_noticed_before_its_watermark_is_lost():
    world, theirs = a_world(3)
    put(world, "new", NOW_MS - 2_000)

    with pytest.raises(WatermarkChangedError, match="says batch 3"):
        world.run(before("commit 0", lambda: theirs.loaded([("/landing/new", NOW_MS - 2_000)])))
    assert "seq" not in json.loads(world.read("watermark.json"))


@pytest.mark.parametrize(("watermark", "words"), [(None, "is missing"), (b"", "cannot be read")])
def test_a_watermark_that_vanished_or_is_half_written_after_a_takeover_is_refused(watermark, words):
    world, _ = a_world(3)
    put(world, "new", NOW_MS - 2_000)
    world.run()
    name = control(world, "watermark.json")
    del world.memory.control[name]
    if watermark is not None:
        world.memory.control[name] = watermark

    with pytest.raises(WatermarkChangedError, match=words) as caught:
        world.run()
    assert "airflow scope rebuild" in caught.value.do

    log = world.log()
    repair.rebuild(log, world.audit_files(log))
    assert world.run().batches == []


@pytest.mark.parametrize("watermark", [None, b""])
def test_a_watermark_that_vanished_right_after_a_takeover_comes_back_from_a_copy(watermark):
    """There is no batch of ours that it could be rebuilt from."""
    world, _ = a_world(3)
    world.run()
    name = control(world, "watermark.json")
    copy = world.memory.control.pop(name)
    if watermark is not None:
        world.memory.control[name] = watermark

    with pytest.raises(WatermarkChangedError) as caught:
        world.run()
    assert "restore it from a copy" in caught.value.do
    assert "rebuild" not in caught.value.do

    world.memory.control[name] = copy
    assert world.run().batches == []


def test_a_full_refresh_needs_no_acceptance_of_what_dbt_scope_did():
    world, theirs = advanced()

    world.run(refresh=True)

    assert world.rows() == each_once(world)
    assert world.run().batches == []
    put(world, "theirs again", NOW_MS - 500)
    theirs.run()
    with pytest.raises(WatermarkChangedError):
        world.run()


def test_a_full_refresh_that_died_after_it_was_logged_is_completed_by_any_run():
    world, theirs = advanced()

    dies_at(world, "commit 1", refresh=True)
    put(world, "newer", NOW_MS - 500)
    world.run()

    assert world.rows() == each_once(world)
    put(world, "theirs again", NOW_MS - 400)
    theirs.run()
    with pytest.raises(WatermarkChangedError):
        world.run()


def test_a_first_full_refresh_that_died_before_it_was_logged_leaves_a_table_to_take_over():
    """``pipeline.json`` is there, and dbt-scope's rows are in the table: they are not loaded again."""
    world, _ = a_world(3)
    put(world, "new", NOW_MS - 2_000)

    dies_at(world, "put offsets/", refresh=True)

    assert [batch.record.files for batch in world.run().batches] == [1]
    assert world.rows() == each_once(world)
    assert world.run().batches == []


def test_a_run_beside_a_first_full_refresh_takes_over_and_the_refresh_replaces_it():
    world, _ = a_world(3)
    put(world, "new", NOW_MS - 2_000)

    reports: list[Any] = []
    world.run(before("put offsets/", lambda: reports.append(world.run())), refresh=True)

    assert [batch.record.files for batch in reports[0].batches] == [1]
    assert world.rows() == each_once(world)
    assert world.run().batches == []


def test_what_another_first_run_has_just_written_is_not_taken_for_dbt_scopes():
    """It has logged and loaded, and its watermark is still to come."""
    world = MemoryWorld()
    put(world, "new", NOW_MS - 2_000)

    meanwhile = before("read watermark.json", lambda: dies_at(world, "replace watermark.json"))

    assert world.run(meanwhile).batches == []

    assert world.rows() == each_once(world)
    assert json.loads(world.read("watermark.json"))["seq"] == 0


@pytest.mark.parametrize(
    ("refresh_start", "start", "folder", "batch_id"),
    [
        (None, 5, f"{5:020}-2", 103),
        (4, 5, f"{5:020}-2", 103),  # a refresh of before dbt-scope went on
        (5, 5, f"{5:020}", 2),
        (7, 7, f"{7:020}", 0),
    ],
)
def test_a_takeover_counts_until_a_full_refresh_begins_at_its_entry_or_later(
    refresh_start, start, folder, batch_id
):
    world, _ = a_world(1)
    world.run()
    log = world.log()
    newest = replace(log.takeover(None), number=2, seq=5, batch_id=100)

    epoch = Epoch.of(an_entry(5, refresh_start=refresh_start), newest)

    assert (epoch.start, epoch.folder, epoch.batch_id(7)) == (start, folder, batch_id)


@pytest.mark.parametrize("is_purged", [False, True])
def test_a_later_takeover_knows_files_that_sources_no_longer_names(is_purged):
    """``sources/`` names the files of the newest batches, and the log those of all."""
    world, theirs = a_world(3)
    world.retention, world.max_files = 2, 1
    for number in range(6):
        put(world, f"ours{number}", NOW_MS - 9_000 + number)
    world.run()
    if is_purged:
        world.vacuum()
    put(world, "theirs", NOW_MS - 2_000)
    theirs.run()
    log = world.log()

    dbt_scope.write(log, *dbt_scope.continuation(log, NOW_MS))
    for name in ("old0000", "ours0"):
        put(world, name, NOW_MS - 1_000)
    report = world.run()

    assert log.vacuumed_below() == (5 if is_purged else 0)
    assert report.left_out.names == {
        "changed after it was loaded": ["file:///landing/old0000", "file:///landing/ours0"]
    }
    assert world.rows() == each_once(world)


def test_a_vacuum_right_after_a_later_takeover_says_what_it_waits_for():
    world, _ = advanced()
    log = world.log()
    dbt_scope.write(log, *dbt_scope.continuation(log, NOW_MS))

    purge = world.vacuum()

    assert (purge.record.below, purge.why) == (0, "no batch since the takeover is committed")


def test_a_file_that_dbt_scope_loaded_again_counts_as_it_was_then():
    world, theirs = a_world(3)
    put(world, "twice", NOW_MS - 9_000)
    world.run()
    put(world, "twice", NOW_MS - 2_000)
    theirs.run()
    log = world.log()

    dbt_scope.write(log, *dbt_scope.continuation(log, NOW_MS))

    assert world.run().left_out.counts == {}


# ---- what else is refused, and how much it takes ---------------------------------------------------------


def test_folders_that_dbt_scope_never_loaded_are_refused():
    world, _ = a_world(3)
    for path in list(world.memory.source):
        del world.memory.source[path]
    world.root = "file:///moved"
    put(world, "old0000", NOW_MS - 1_000)

    with pytest.raises(
        InputError, match="None of the 6 files that dbt-scope loaded, such as file:///landing/old"
    ):
        world.run()


@pytest.mark.parametrize(
    ("uri", "store"),
    [
        ("file:///landing", "file://"),
        ("adl://acme.azuredatalakestore.net", "adl://acme.azuredatalakestore.net"),
        ("adl://acme.azuredatalakestore.net/local/a b", "adl://acme.azuredatalakestore.net"),
        ("webhdfs://name:9870/landing", "webhdfs://name:9870"),
    ],
)
def test_what_stands_before_a_path_is_the_store(uri, store):
    assert store_of(uri) == store


def test_a_long_list_goes_on_in_another_one(monkeypatch):
    monkeypatch.setattr(derived, "MERGED_AT_MOST", 3)
    world, _ = a_world(5)
    world.run()

    assert len(taken_over(world)["lists"]) == 4
    put(world, "old0001", NOW_MS - 1_000)
    assert world.run().left_out.names == {"changed after it was loaded": ["file:///landing/old0001"]}


def test_the_builder_of_these_tests_writes_what_the_reference_describes():
    world = MemoryWorld()
    theirs = DbtScopeOnMemory(world)

    theirs.loaded([("/local/a.ss", 1_775_046_896_789), ("/local/b.ss", 1_775_046_000_000)])

    assert world.read("watermark.json") == (
        b'{\n  "version": 0,\n  "modifiedTime": "2026-04-01T12:34:56.789000+00:00",\n  "batchId": 0\n}'
    )
    assert world.read("sources/0") == (
        b'{"path":"/local/a.ss","modificationTime":1775046896789,"batchId":0,'
        b'"batchProcessingTime":"2023-11-01T12:01:00+00:00"}\n'
        b'{"path":"/local/b.ss","modificationTime":1775046000000,"batchId":0,'
        b'"batchProcessingTime":"2023-11-01T12:01:00+00:00"}'
    )
