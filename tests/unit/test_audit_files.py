"""``sources/`` after refreshes, whose batches have the numbers of earlier ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.checkpoint.audit import AuditFiles
from airflow_provider_scope.checkpoint.log import CheckpointLog
from airflow_provider_scope.storage.local import LocalStorage
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


def test_retention_keeps_the_diffs_of_a_refresh_whatever_snapshots_an_earlier_one_left(tmp_path: Path):
    log = CheckpointLog(LocalStorage(), f"file://{tmp_path}")
    before = [an_entry(0, a_file("a")), an_entry(1, a_file("b", 2_000))]
    in_refresh = {"refresh_start": 2, "overwrite_start": 2}
    after = [
        a_refresh(2, a_file("a")),
        an_entry(3, a_file("b", 2_000), **in_refresh),
        an_entry(4, a_file("c", 3_000), **in_refresh),
    ]
    for entry in (*before, *after):
        log.put_offset(entry)
        log.put_commit(a_commit(entry.seq))
    AuditFiles(log, compaction_interval=2, retention_files=2).bring_up_to_date(before[-1])
    assert (tmp_path / "sources/1.parquet").exists()

    AuditFiles(log, compaction_interval=10, retention_files=2).bring_up_to_date(after[-1])

    assert sorted(path.name for path in (tmp_path / "sources").iterdir()) == ["0", "1", "2"]


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


def test_a_snapshot_that_another_run_of_this_refresh_has_just_written_stays():
    """This run read the watermark before the other one wrote it; without the snapshot a gap would stay."""
    world = MemoryWorld(interval=2)
    world.max_files = 1
    for name in ("a", "b"):
        world.drop(name, 10)
    world.run()
    assert "1.parquet" in world.audit()
    del world.memory.control[f"{world.checkpoint}/watermark.json"]
    late = Counting()

    world.run(late)

    assert "replace watermark.json" in late.writes
    assert not [name for name in late.writes if name.startswith("delete")]
    assert "1.parquet" in world.audit()
