"""``watermark.json`` and ``sources/``, as dbt-scope writes and reads them, and after refreshes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.exceptions import InputError, StorageError
from airflow_provider_scope.protocol import derived as stored_segments
from airflow_provider_scope.protocol import log as log_module
from airflow_provider_scope.protocol.derived import AuditFiles
from airflow_provider_scope.protocol.log import CheckpointLog
from airflow_provider_scope.protocol.takeover import (
    Epoch,
    audit_lines,
    audit_rows,
    expired,
    is_snapshot,
    uri_path,
    watermark,
)
from airflow_provider_scope.stores.local import LocalStorage
from airflow_provider_scope.stores.protocol import CONTROL_FILE_LIMIT_BYTES
from airflow_provider_scope.values import FileEntry, Position, iso_time
from tests.crash.world import MemoryWorld
from tests.support.faulty_storage import Counting
from tests.support.values import a_commit, a_file, a_refresh, an_entry

if TYPE_CHECKING:
    from pathlib import Path

# 2026-04-01 12:34:56.789 UTC
TIME_MS = 1_775_046_896_789
FILES = (
    FileEntry(TIME_MS - 1, "file:///landing/a b%20.csv", 10),
    FileEntry(TIME_MS, "file:///landing/é\u2028.csv", 2_000),
)


def read_watermark(data: bytes) -> tuple[int, datetime | None, int]:
    """Read the three keys and their defaults, as dbt-scope does."""
    value = json.loads(data.decode("utf-8"))
    time = value.get("modifiedTime", "")
    return value.get("version", 0), datetime.fromisoformat(time) if time else None, value.get("batchId", 0)


def read_sources(data: bytes) -> list[dict[str, Any]]:
    """Read a diff line by line, as dbt-scope does."""
    return [json.loads(line) for line in data.decode("utf-8").strip().split("\n") if line.strip()]


def test_the_watermark_is_these_bytes() -> None:
    data = watermark(an_entry(3, *FILES), 3)

    assert (
        data
        == (
            "{\n"
            '  "version": 3,\n'
            '  "modifiedTime": "2026-04-01T12:34:56.789000+00:00",\n'
            '  "batchId": 3,\n'
            '  "path": "/landing/é\u2028.csv",\n'
            '  "refreshStart": null,\n'
            '  "seq": 3\n'
            "}"
        ).encode()
    )
    assert read_watermark(data) == (3, datetime(2026, 4, 1, 12, 34, 56, 789_000, tzinfo=UTC), 3)


def test_the_watermark_starts_again_with_a_refresh() -> None:
    data = watermark(an_entry(9, *FILES, refresh_start=7), 2)

    assert read_watermark(data)[::2] == (2, 2)
    assert json.loads(data)["refreshStart"] == 7
    assert json.loads(data)["seq"] == 9


def test_the_watermark_is_the_highest_position_and_not_the_batchs_own() -> None:
    late = an_entry(4, a_file("late", 5), highest=Position(TIME_MS, "file:///landing/z.csv"))

    value = json.loads(watermark(late, 4))

    assert (value["modifiedTime"], value["path"]) == ("2026-04-01T12:34:56.789000+00:00", "/landing/z.csv")


def test_the_watermark_of_no_file_has_an_empty_time() -> None:
    assert read_watermark(watermark(an_entry(0), 0)) == (0, None, 0)


def test_a_diff_is_these_bytes() -> None:
    rows = audit_rows(an_entry(3, *FILES), a_commit(3, committed_at_ms=1_775_509_200_000), 3)

    data = audit_lines(rows)

    assert (
        data
        == (
            '{"path":"/landing/a b%20.csv","modificationTime":1775046896788,"batchId":3,'
            '"batchProcessingTime":"2026-04-06T21:00:00.000000+00:00","size":10,"seq":3,'
            '"uri":"file:///landing/a b%20.csv"}\n'
            '{"path":"/landing/é\u2028.csv","modificationTime":1775046896789,"batchId":3,'
            '"batchProcessingTime":"2026-04-06T21:00:00.000000+00:00","size":2000,"seq":3,'
            '"uri":"file:///landing/é\u2028.csv"}'
        ).encode()
    )
    assert [
        (row["path"], row["modificationTime"], row["batchId"], row["batchProcessingTime"])
        for row in read_sources(data)
    ] == [
        ("/landing/a b%20.csv", 1_775_046_896_788, 3, "2026-04-06T21:00:00.000000+00:00"),
        ("/landing/é\u2028.csv", 1_775_046_896_789, 3, "2026-04-06T21:00:00.000000+00:00"),
    ]


def test_a_name_with_line_ends_stays_on_its_line() -> None:
    rows = audit_rows(an_entry(0, FileEntry(1, "file:///in/a\nb\r\u2028.csv", 1)), a_commit(0), 0)

    assert [r["path"] for r in read_sources(audit_lines(rows * 2))] == ["/in/a\nb\r\u2028.csv"] * 2


def test_an_abandoned_batch_has_no_rows() -> None:
    assert audit_rows(an_entry(3, *FILES), a_commit(3, abandoned=True), 3) == []


@pytest.mark.parametrize(
    ("seq", "refresh_start", "expected"), [(0, None, 0), (5, None, 5), (5, 5, 0), (9, 5, 4), (5, 0, 5)]
)
def test_batch_ids_restart_with_every_refresh(seq: int, refresh_start: int | None, expected: int) -> None:
    assert Epoch(refresh_start).batch_id(seq) == expected


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [
        (0, "1970-01-01T00:00:00.000000+00:00"),
        (1, "1970-01-01T00:00:00.001000+00:00"),
        (TIME_MS, "2026-04-01T12:34:56.789000+00:00"),
        (1_077_467_621_080, "2004-02-22T16:33:41.080000+00:00"),
        (4_102_444_799_999, "2099-12-31T23:59:59.999000+00:00"),
    ],
)
def test_times_keep_their_millisecond(milliseconds: int, expected: str) -> None:
    assert iso_time(milliseconds) == expected


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("file:///landing/a.csv", "/landing/a.csv"),
        ("file:///a", "/a"),
        ("abfss://raw@account.dfs.core.windows.net/a/b.csv", "/a/b.csv"),
        ("file:///odd://name", "/odd://name"),
    ],
)
def test_a_path_is_its_uri_without_the_store(uri: str, expected: str) -> None:
    assert uri_path(uri) == expected


# ---- retention --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "keep", "expected"),
    [
        pytest.param([], 5, [], id="nothing there"),
        pytest.param(["0", "1", "2", "20"], 100, [], id="as many as may be kept"),
        pytest.param(["18", "19", "2", "20"], 2, ["2", "18"], id="by number and not by name"),
        pytest.param(["20", "21", "100"], 5, ["21", "100"], id="what an earlier refresh left"),
        pytest.param(["20", "notes.txt", ".0.tmp", "x.parquet", "²", "³.parquet"], 1, [],
            id="other files are not touched"),
        pytest.param(["20", "4.parquet", "5.parquet", "15.parquet"], 1, ["5.parquet", "15.parquet"],
            id="dbt-scope's snapshots below our batches stay"),
    ],
)  # fmt: skip
def test_retention_keeps_the_newest_and_deletes_what_is_not_of_this_refresh(
    names: list[str], keep: int, expected: list[str]
) -> None:
    assert expired(names, 20, keep, first=5) == expected


@pytest.mark.parametrize(
    ("name", "expected"), [("10.parquet", True), ("10", False), ("x.parquet", False), (".parquet", False)]
)
def test_a_snapshot_is_a_number_with_its_ending(name: str, expected: bool) -> None:
    assert is_snapshot(name) is expected


# ---- after refreshes, whose batches have the numbers of earlier ones ---------------------------------


def test_an_abandoned_batch_has_no_diff_where_an_earlier_refresh_had_one_of_its_number(tmp_path: Path):
    log = CheckpointLog(LocalStorage(), f"file://{tmp_path}")
    files = AuditFiles(log, compaction_interval=10, retention_files=100)
    before = [an_entry(0, a_file("a")), an_entry(1, a_file("b", 2_000))]
    after = [a_refresh(2, a_file("a")), an_entry(3, a_file("c", 3_000), refresh_start=2, overwrite_start=2)]
    for entry in (*before, *after):
        log.put_offset(entry)
    for commit in (a_commit(0), a_commit(1), a_commit(2), a_commit(3, abandoned=True)):
        log.put_commit(commit)
    files.bring_up_to_date(before[-1])
    assert (tmp_path / "sources/1").exists()

    files.bring_up_to_date(after[-1])

    assert sorted(path.name for path in (tmp_path / "sources").iterdir()) == ["0"]


def test_retention_keeps_the_diffs_of_a_refresh_whatever_an_earlier_one_left(tmp_path: Path):
    log = CheckpointLog(LocalStorage(), f"file://{tmp_path}")
    before = [an_entry(number, a_file(f"f{number}", 1_000 + number)) for number in range(6)]
    in_refresh = {"refresh_start": 6, "overwrite_start": 6}
    after = [a_refresh(6, a_file("a")), an_entry(7, a_file("b", 2_000), **in_refresh)]
    for entry in (*before, *after):
        log.put_offset(entry)
        log.put_commit(a_commit(entry.seq))
    AuditFiles(log, compaction_interval=2, retention_files=3).bring_up_to_date(before[-1])
    assert sorted(path.name for path in (tmp_path / "sources").iterdir()) == ["3", "4", "5"]

    AuditFiles(log, compaction_interval=2, retention_files=3).bring_up_to_date(after[-1])

    assert sorted(path.name for path in (tmp_path / "sources").iterdir()) == ["0", "1"]


def test_a_run_that_was_overtaken_leaves_what_the_newer_one_wrote(tmp_path: Path):
    log = CheckpointLog(LocalStorage(), f"file://{tmp_path}")
    files = AuditFiles(log, compaction_interval=10, retention_files=100)
    old, new = an_entry(0, a_file("a")), a_refresh(1, a_file("b"))
    for entry in (old, new):
        log.put_offset(entry)
        log.put_commit(a_commit(entry.seq))
    files.bring_up_to_date(new)
    before = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    assert files.bring_up_to_date(old) is False

    assert {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_segments_that_another_run_of_this_refresh_has_just_written_stay():
    """This run read the watermark before the other one wrote it."""
    world = MemoryWorld(interval=2)
    world.max_files = 1
    for name in ("a", "b"):
        world.drop(name, 10)
    world.run()
    del world.memory.control[f"{world.checkpoint}/watermark.json"]
    segments = [path for path in world.memory.control if "/seen/" in path]
    late = Counting()

    world.run(late)

    assert "replace watermark.json" in late.writes
    assert not [name for name in late.writes if name.startswith("delete") or "seen" in name]
    assert segments == [path for path in world.memory.control if "/seen/" in path]


def test_a_segment_that_could_not_be_read_back_is_not_written(monkeypatch: pytest.MonkeyPatch):
    world = MemoryWorld(interval=2)
    world.max_files = 1
    for name in ("a", "b", "c", "d"):
        world.drop(name, 10)
    monkeypatch.setattr(stored_segments, "CONTROL_FILE_LIMIT_BYTES", 1_000)

    world.run()
    assert world.run().already_loaded == 4  # as the log alone says

    assert not [path for path in world.memory.control if "/seen/" in path]


class WithoutSegments(LocalStorage):
    """A store that gives every file but segments."""

    def read(self, path: str, at_most: int = CONTROL_FILE_LIMIT_BYTES) -> bytes | None:
        if path.endswith(".parquet"):
            raise StorageError(f"{path} is larger than {at_most} bytes")
        return super().read(path, at_most)


def test_a_segment_that_cannot_be_read_is_no_reason_to_stop(tmp_path: Path):
    log = CheckpointLog(LocalStorage(), f"file://{tmp_path}")
    files = AuditFiles(log, compaction_interval=2, retention_files=100)
    entries = [an_entry(0, a_file("a")), an_entry(1, a_file("b", 2_000))]
    for entry in entries:
        log.put_offset(entry)
        log.put_commit(a_commit(entry.seq))
    files.bring_up_to_date(entries[-1])
    assert files.seen_files(Epoch())[1] == 2

    blind = AuditFiles(
        CheckpointLog(WithoutSegments(), log.location), compaction_interval=2, retention_files=100
    )

    assert blind.seen_files(Epoch())[1] == 0
    assert blind.bring_up_to_date(entries[-1], everything=True) is True


def test_an_entry_that_could_not_be_read_back_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    log = CheckpointLog(LocalStorage(), f"file://{tmp_path}")
    monkeypatch.setattr(log_module, "CONTROL_FILE_LIMIT_BYTES", 1_000)

    with pytest.raises(InputError, match="max_files_per_trigger"):
        log.put_offset(an_entry(0, *(a_file(f"a long name {number}") for number in range(100))))

    assert log.logged() == []
