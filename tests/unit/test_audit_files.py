"""``sources/`` after refreshes, whose batches have the numbers of earlier ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_provider_scope.exceptions import InputError, StorageError
from airflow_provider_scope.protocol import derived as stored_segments
from airflow_provider_scope.protocol import log as log_module
from airflow_provider_scope.protocol.derived import AuditFiles
from airflow_provider_scope.protocol.log import CheckpointLog
from airflow_provider_scope.protocol.takeover import Epoch
from airflow_provider_scope.stores.local import LocalStorage
from airflow_provider_scope.stores.protocol import CONTROL_FILE_LIMIT_BYTES
from tests.crash.world import MemoryWorld
from tests.support.faulty_storage import Counting
from tests.support.values import a_commit, a_file, a_refresh, an_entry

if TYPE_CHECKING:
    from pathlib import Path


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
