"""Plan a run over very many files, and print what came out and what it took, as JSON.

A module of its own, because the memory that a process has used can only be measured from its start.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.protocol.derived import AuditFiles, Segments, rows_of
from airflow_provider_scope.protocol.dry_run import preview
from airflow_provider_scope.protocol.log import CheckpointLog
from airflow_provider_scope.protocol.records import Pipeline, TableIdentity
from airflow_provider_scope.protocol.run import MicroBatchExecution
from airflow_provider_scope.protocol.source import Request
from airflow_provider_scope.protocol.takeover import Epoch
from airflow_provider_scope.sources.files.source import Files
from airflow_provider_scope.sources.files.spec import FileSource
from airflow_provider_scope.stores.local import LocalStorage
from airflow_provider_scope.values import FileEntry
from tests.support.memory_engine import MemoryEngine, MemoryStorage, MemoryTable, Version
from tests.support.values import a_commit, an_entry

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = "file:///data/landing/sales"
PIPELINE = "11111111-1111-1111-1111-111111111111"
NOW_MS = 1_800_000_000_000


def a_file(number: int) -> FileEntry:
    """Return a file with a path as long as they are in practice."""
    path = f"{ROOT}/region=emea/year=2026/day={number % 365:03}/part-{number:08}.snappy.parquet"
    return FileEntry(1_700_000_000_000 + number, path, 1_000)


class Listing(LocalStorage):
    """Real control files, and a source that is made up while it is listed."""

    def __init__(self, files: int) -> None:
        self.files = files

    def walk(self, root: str) -> Iterator[FileEntry]:
        # Newest first, so that the sort has something to do.
        return (a_file(number) for number in range(self.files - 1, -1, -1))


def load_before(files: int, checkpoint: str) -> None:
    """Write the checkpoint of a pipeline that has loaded the files: one entry, and a segment of all."""
    log = CheckpointLog(LocalStorage(), checkpoint)
    entry = an_entry(0, a_file(files - 1))
    commit = a_commit(0, table=TableIdentity("table-0"), table_version=0)
    rows = rows_of((f.path, f.modified_ms, f.size_bytes, None, 0) for f in map(a_file, range(files)))
    Segments(log, 10).extend(Epoch(), 0, lambda _: rows)
    log.put_pipeline(Pipeline(pipeline=PIPELINE, table=None))
    log.put_offset(entry)
    log.put_commit(commit)


def plan(files: int, checkpoint: str) -> dict[str, Any]:
    """Plan a run in batches of 50 files, as ``airflow scope plan`` does."""
    storage = Listing(files)
    log = CheckpointLog(storage, checkpoint)
    table = MemoryTable([Version(Counter(), {PIPELINE: 0}, PIPELINE, 0)] if log.pipeline() else [])
    execution = MicroBatchExecution(
        log,
        AuditFiles(log, compaction_interval=10, retention_files=100),
        Files(
            spec=FileSource(roots=ROOT, format="parquet", safety_buffer_seconds=0, max_files_per_trigger=50),
            log=log,
            listing=storage,
            now_ms=NOW_MS,
        ),
        MemoryEngine(table, MemoryStorage()),
        now_ms=lambda: NOW_MS,
        new_id=lambda: PIPELINE,
    )
    request = Request(table="file:///delta/sales")
    started = time.perf_counter()
    planned = preview(execution, request)
    seconds = time.perf_counter() - started
    report, batches = planned.report, planned.new
    numbers = [int(file.path[-23:-15]) for batch in batches for file in batch.files]
    return {
        "listed": report.listed,
        "already_loaded": report.already_loaded,
        "batches": len(batches),
        "planned": len(numbers),
        "in_order": numbers == list(range(len(numbers))),
        "left": report.pending_files,
        "seconds": round(seconds, 2),
    }


if __name__ == "__main__":
    what, count, location = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    answer = plan(count, location) if what == "plan" else load_before(count, location)
    answer = answer or {}
    # Not getrusage: what it says at the start is the peak of the process that started this one.
    peak = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert peak
    answer["peak_bytes"] = int(peak[1]) * 1024
    print(json.dumps(answer))  # noqa: T201
