# ruff: noqa: D102 - the methods of Storage and Engine say what they do
"""What a run pays for the age of its pipeline, and for the number of files that were loaded.

    python benchmarks/history.py [--batches 100000] [--files 10000000]

Each line is a run in a process of its own: with nothing new, and with one new file. Requests are calls of
the checkpoint's and the table's storage; a list counts one for each 5,000 names, as Azure and S3 give them.
The listing of the source is not counted. The table is read as one on a remote store is; its log holds the
commits of 30 days at one batch in five minutes. Nothing runs Spark: a new file is planned and logged, as
``airflow scope plan`` plans it, and then audited.

* batches: a thousandth, a tenth, and all of ``--batches``, with one file each; the newest files, 100 at the
  most, are still there.
* files: a hundredth, a tenth, and all of ``--files``, in batches of a thousandth; all are still listed.

``cpu_seconds`` is the CPU of the run itself, and ``process_seconds`` that of its process, with its imports.
``list_seconds`` is the part of the run that lists the table's log. Delta keeps the commits of 30 days, and a
list is what shows them all: so it grows for 30 days, and then no more. The line before the last one gives the
ratio without it.

The last line gives requests and CPU of an idle run at the most batches / at the fewest, the requests of an
idle run, and the peak memory at a tenth of the files and at all.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from airflow_provider_scope.delta.log import newest_version
from airflow_provider_scope.protocol import dry_run, records, takeover
from airflow_provider_scope.protocol.derived import AuditFiles, Segments, rows_of
from airflow_provider_scope.protocol.engine import Engine
from airflow_provider_scope.protocol.log import CheckpointLog
from airflow_provider_scope.protocol.probe import probe
from airflow_provider_scope.protocol.records import CommitRecord, OffsetEntry, Pipeline, TableIdentity
from airflow_provider_scope.protocol.retention import Segment, to_merge
from airflow_provider_scope.protocol.run import MicroBatchExecution
from airflow_provider_scope.protocol.source import Request
from airflow_provider_scope.protocol.takeover import Epoch
from airflow_provider_scope.sources.files.source import Files
from airflow_provider_scope.sources.files.spec import FileSource
from airflow_provider_scope.stores.local import LocalStorage
from airflow_provider_scope.values import FileEntry, slice_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from airflow_provider_scope.protocol.engine import More, Work
    from airflow_provider_scope.protocol.recovery import TableState

PIPELINE = "11111111-1111-1111-1111-111111111111"
TABLE_ID = "22222222-2222-2222-2222-222222222222"
ROOT = "file:///data/landing/sales"
NOW_MS = 1_800_000_000_000
PAGE = 5_000
"""Names that one request for a list gives."""
KEPT_COMMITS = 8_640
"""Commits in 30 days, at one in five minutes."""
STEP_MS = 300_000
FAN_OUT = 10


def a_file(number: int) -> FileEntry:
    """Return a file with a path as long as they are in practice."""
    path = f"{ROOT}/region=emea/day={number // 1_000:06}/part-{number:09}-c000.snappy.parquet"
    return FileEntry(NOW_MS - 10**12 + number * 1_000, path, 1_000 + number % 7)


class Counted(LocalStorage):
    """Counts requests. A table at ``remote://`` is on this disk, and is read as one that is not."""

    def __init__(self) -> None:
        self.requests = 0
        self.written = 0

    def names(self, folder: str) -> list[str]:
        names = super().names(_here(folder))
        self.requests += max(1, -(-len(names) // PAGE))
        return names

    def read(self, path: str, at_most: int = 2**28) -> bytes | None:
        self.requests += 1
        return super().read(_here(path), at_most)

    def put_if_absent(self, path: str, data: bytes) -> bytes:
        self.requests += 1
        self.written += len(data)
        return super().put_if_absent(path, data)

    def replace(self, path: str, data: bytes) -> None:
        self.requests += 1
        self.written += len(data)
        super().replace(path, data)

    def delete(self, path: str) -> None:
        self.requests += 1
        super().delete(path)


def _here(location: str) -> str:
    return location.replace("remote://", "file://", 1)


class Listing(LocalStorage):
    """A source that is made up while it is listed."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self.numbers = numbers

    def walk(self, _root: str) -> Iterator[FileEntry]:
        return map(a_file, self.numbers)


class Table(Engine):
    """Looks at the table; nothing is run here."""

    def __init__(self, storage: Counted) -> None:
        self.storage = storage

    def probe(self, location: str, pipeline: str | None, baseline: Any) -> TableState:
        return probe(location, pipeline, baseline, self.storage)

    def run(self, work: Work, entries: Sequence[OffsetEntry], more: More | None = None) -> None:
        raise NotImplementedError

    def fence(self, work: Work, entry: OffsetEntry) -> None:
        raise NotImplementedError


# ---- what a pipeline leaves ---------------------------------------------------------------------------


def entry_of(seq: int, size: int) -> OffsetEntry:
    """Return the entry of a batch of ``size`` files."""
    files = tuple(map(a_file, range(seq * size, (seq + 1) * size)))
    return OffsetEntry(
        seq=seq, mode="append", slice=slice_of(files, None), refresh_start=None, overwrite_start=None
    )


def _same(rows: Any, _: int) -> Any:
    return rows


def make(folder: str, batches: int, size: int) -> None:
    """Write the checkpoint and the table's log of a pipeline."""
    log = CheckpointLog(LocalStorage(), f"file://{folder}/checkpoint")
    identity = TableIdentity(TABLE_ID, None)
    log.put_pipeline(Pipeline(pipeline=PIPELINE, table=None))
    # Entries of batches in the segments are not read: with many files a few of them are enough.
    first = 0 if size == 1 else max(0, batches - 20)
    for seq in range(first, batches):
        entry = entry_of(seq, size)
        _write(folder, "offsets", seq, records.encode_offset(entry))
        record = CommitRecord(
            seq=seq, table=identity, table_version=seq, files=size, size_bytes=entry.slice.size_bytes,
            committed_at_ms=NOW_MS - (batches - seq) * STEP_MS,
        )  # fmt: skip
        _write(folder, "commits", seq, records.encode(record))
    _write_segments(log, batches, size)
    watermark = takeover.watermark(entry_of(batches - 1, size), batches - 1)
    log.storage.replace(f"{log.location}/watermark.json", watermark)
    _write_table(Path(folder, "table"), batches)


def _write(folder: str, kind: str, seq: int, data: bytes) -> None:
    """Write a record without the fsync that a real one gets: there are 200,000."""
    path = Path(folder, "checkpoint", kind, f"{seq:020}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _write_segments(log: CheckpointLog, batches: int, size: int) -> None:
    """Write the segments that as many runs would have left: the rule that merges them says which."""
    chain: list[Segment] = []
    for seq in range(batches):
        merged = to_merge(chain, size, FAN_OUT)
        gone = chain[len(chain) - merged :]
        chain = chain[: len(chain) - merged]
        first = gone[0].first if gone else seq
        chain.append(Segment(first, seq, sum(segment.rows for segment in gone) + size))
    segments = Segments(log, 1)
    for segment in chain:
        numbers = range(segment.first * size, (segment.last + 1) * size)
        rows = rows_of((f.path, f.modified_ms, f.size_bytes, None, 0) for f in map(a_file, numbers))
        segments.extend(Epoch(), segment.last, partial(_same, rows))


def _write_table(table: Path, commits: int) -> None:
    """Write the log of 30 days, as Spark does: a checkpoint every ten commits, and a checksum file."""
    log = table / "_delta_log"
    log.mkdir(parents=True)
    newest = commits - 1
    for version in range(commits):
        ours = {"abandoned": False, "pipeline": PIPELINE, "seq": version}
        actions: list[dict[str, Any]] = [
            {"commitInfo": {"operation": "WRITE", "userMetadata": json.dumps(ours), "txnId": str(version)}},
            {"txn": {"appId": PIPELINE, "version": version, "lastUpdated": 0}},
            {"add": {"path": f"part-{version}.parquet", "partitionValues": {}, "size": 1_000,
                     "modificationTime": 0, "dataChange": True, "stats": '{"numRecords":1}'}},
        ]  # fmt: skip
        if version == 0:
            kept = {"id": TABLE_ID, "format": {"provider": "parquet", "options": {}}, "partitionColumns": []}
            field = {"name": "a", "type": "long", "nullable": True, "metadata": {}}
            schema = json.dumps({"type": "struct", "fields": [field]})
            actions.append({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
            actions.append({"metaData": {**kept, "schemaString": schema, "configuration": {}}})
        text = "".join(f"{json.dumps(action)}\n" for action in actions)
        (log / f"{version:020}.json").write_text(text)
    checksum = {"txnId": str(newest), "metadata": {"id": TABLE_ID},
                "setTransactions": [{"appId": PIPELINE, "version": newest}]}  # fmt: skip
    (log / f"{newest:020}.crc").write_text(json.dumps(checksum))
    at = DeltaTable(str(table), version=newest // 10 * 10)
    at.create_checkpoint()
    for version in range(min(newest // 10 * 10, commits - KEPT_COMMITS)):
        (log / f"{version:020}.json").unlink()


# ---- a run ------------------------------------------------------------------------------------------------


def records_of(folder: str, storage: Counted) -> tuple[CheckpointLog, AuditFiles]:
    """Open the log of a pipeline, and its derived files."""
    log = CheckpointLog(storage, f"file://{folder}/checkpoint")
    return log, AuditFiles(log, compaction_interval=FAN_OUT, retention_files=100)


def run(folder: str, loaded: int, listed: int, new: int) -> None:
    """Do what a run does but for Spark, and print what it took."""
    storage = Counted()
    log, audit_files = records_of(folder, storage)
    execution = MicroBatchExecution(
        log,
        audit_files,
        Files(
            spec=FileSource(
                roots=ROOT, format="parquet", safety_buffer_seconds=0, max_files_per_trigger=10_000
            ),
            log=log,
            listing=Listing(range(loaded - listed, loaded + new)),
            now_ms=NOW_MS,
        ),
        Table(storage),
        now_ms=lambda: NOW_MS,
        new_id=lambda: PIPELINE,
    )
    began = time.process_time()
    request = Request(table=f"remote://{folder}/table")
    if new:
        preview = dry_run.preview(execution, request)
        if preview.error:
            raise preview.error
        report, (entry,) = preview.report, preview.new
        assert [file.path for file in entry.files] == [a_file(loaded).path]
        log, audit_files = records_of(folder, storage)  # the plan's own stay in memory
        log.put_offset(entry)
        identity = TableIdentity(TABLE_ID, None)
        record = CommitRecord(
            seq=entry.seq, table=identity, table_version=entry.seq, files=1,
            size_bytes=entry.slice.size_bytes, committed_at_ms=NOW_MS,
        )  # fmt: skip
        log.put_commit(record)
        audit_files.bring_up_to_date(entry)
    else:
        report = execution.run(request)
        assert report.batches == []
    ended = time.process_time()
    assert report.already_loaded == listed, report
    peak = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert peak
    measured = {
        "requests": storage.requests,
        "cpu_seconds": round(ended - began, 4),
        "process_seconds": round(ended, 2),
        "list_seconds": round(_seconds_of_list(request.table), 4),
        "peak_mib": int(peak[1]) // 1024,
        "written_bytes": storage.written,
    }
    print(json.dumps(measured))


def _seconds_of_list(table: str) -> float:
    began = time.process_time()
    newest_version(table, Counted())
    return time.process_time() - began


def child(*arguments: object) -> dict[str, Any]:
    """Run one of the above in a process of its own: the memory it takes can only be measured so."""
    done = subprocess.run(
        [sys.executable, __file__, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    return json.loads(done.stdout) if done.stdout.strip() else {}


def measure(batches: int, size: int, listed: int) -> dict[str, dict[str, Any]]:
    """Make a pipeline, and measure a run with nothing new and one with one new file."""
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    folder = tempfile.mkdtemp(prefix="airflow-provider-scope-history-", dir=place)
    try:
        child("make", folder, batches, size)
        measured = {}
        for name, new in (("idle", 0), ("one file", 1)):
            runs = [child("run", folder, batches * size, listed, new) for _ in range(1 if new else 3)]
            measured[name] = min(runs, key=lambda run: run["cpu_seconds"])
            print(
                f"{batches:>9,} batches, {batches * size:>11,} files, {name:>8}: {measured[name]}", flush=True
            )
        return measured
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Measure all of it."""
    if sys.argv[1:2] == ["make"]:
        make(sys.argv[2], *map(int, sys.argv[3:]))
        return
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2], *map(int, sys.argv[3:]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--batches", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=10_000_000)
    asked = parser.parse_args()
    by_batches = [
        measure(asked.batches // part, 1, min(100, asked.batches // part)) for part in (1000, 10, 1)
    ]
    size = asked.files // 1000
    by_files = [measure(asked.files // part // size, size, asked.files // part) for part in (100, 10, 1)]
    young, old = by_batches[0]["idle"], by_batches[-1]["idle"]
    requests, cpu = old["requests"] / young["requests"], old["cpu_seconds"] / young["cpu_seconds"]
    others = [run["cpu_seconds"] - run["list_seconds"] for run in (young, old)]
    print(
        f"cpu ratio without the list of the table's log {others[1] / others[0]:.2f}, "
        f"with imports {old['process_seconds'] / young['process_seconds']:.2f}"
    )
    print(
        f"requests ratio {requests:.2f}, cpu ratio {cpu:.2f}, idle requests {old['requests']}, "
        f"peak at {asked.files // 10:,} files {by_files[1]['idle']['peak_mib']} MiB, "
        f"at {asked.files:,} {by_files[-1]['idle']['peak_mib']} MiB"
    )


if __name__ == "__main__":
    main()
