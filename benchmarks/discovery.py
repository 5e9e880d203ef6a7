"""What it costs to find the new files among a million, beside a bare listing of the same tree by fsspec.

    python benchmarks/discovery.py [--files 1000000] [--store azure] [--store local]

Each line is a step of a process of its own: seconds of CPU (its own, not the server's), seconds by the
clock, and the most memory the process has had until then. Ours lists, reads a history of as many files, of
which half are still there, takes out what is loaded, and plans batches of 1,000 files.

* azure: a loopback server gives pages of List Blobs in the service's shape, 5,000 blobs each, to both
  sides: adlfs's ``find(detail=True)``, and ours. Azurite takes four minutes to be filled with a million.
* local: files without content in folders of 1,000, in memory (``/dev/shm``) where there is such a disk.

The last lines give our CPU / the bare listing's, which is to stay below 1.5, and our peak, below 1 GiB.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from adlfs import AzureBlobFileSystem  # type: ignore[import-untyped]
from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]

from airflow_provider_scope.protocol.derived import SeenFiles, Segments, rows_of
from airflow_provider_scope.protocol.log import CheckpointLog
from airflow_provider_scope.protocol.takeover import Epoch
from airflow_provider_scope.sources.files.discovery import Rules, new_candidates, next_batch, unseen
from airflow_provider_scope.stores.azure import AzureStorage
from airflow_provider_scope.stores.local import LocalStorage

TARGET_RATIO = 1.5
TARGET_BYTES = 2**30
PAGE = 5000
EPOCH = Epoch()
HOST = "benchmark.dfs.core.windows.net"
NOW_MS = 1_800_000_000_000

_BLOB = (
    "<Blob><Name>{name}</Name><Properties><Creation-Time>{time}</Creation-Time><Last-Modified>{time}"
    "</Last-Modified><Etag>0x8DE28C1B3F5A{number:06X}</Etag><Content-Length>1000</Content-Length><Content-Type>"
    "application/octet-stream</Content-Type><Content-Encoding /><Content-Language /><Content-CRC64 />"
    "<Content-MD5>wgrU12/pd1mqJ6DJm/9nEA==</Content-MD5><Cache-Control /><Content-Disposition />"
    "<BlobType>BlockBlob</BlobType><AccessTier>Hot</AccessTier><AccessTierInferred>true</AccessTierInferred>"
    "<LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState><ServerEncrypted>true"
    "</ServerEncrypted></Properties><Metadata /><OrMetadata /></Blob>"
)


def name_of(number: int) -> str:
    """Return a name as long as they are in practice."""
    return f"region=emea/year=2026/batch={number // 1000:04}/part-{number:08}-c000.snappy.parquet"


# ---- the service ------------------------------------------------------------------------------------


def page_of(first: int, count: int) -> bytes:
    """Return one page of List Blobs."""
    last = min(first + PAGE, count)
    blobs = "".join(
        _BLOB.format(
            name="in/" + name_of(number),
            time=time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(1_700_000_000 + number // 10)),
            number=number,
        )
        for number in range(first, last)
    )
    marker = f"<NextMarker>{last}</NextMarker>" if last < count else "<NextMarker />"
    return (
        '<?xml version="1.0" encoding="utf-8"?><EnumerationResults ContainerName="landing">'
        f"<Prefix>in/</Prefix><MaxResults>{PAGE}</MaxResults><Blobs>{blobs}</Blobs>{marker}</EnumerationResults>"
    ).encode()


def serve(count: int) -> None:
    """Answer List Blobs until the input ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            listing = query.get("comp") == ["list"]
            body = page_of(int(query.get("marker", ["0"])[0]), count) if listing else b""
            self.send_response(200 if listing else 404)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(body)))
            if not listing:
                self.send_header("x-ms-error-code", "BlobNotFound")
            self.end_headers()
            self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 - the library's name

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


# ---- the steps --------------------------------------------------------------------------------------


class Steps:
    """Measures one step after the other."""

    def __init__(self) -> None:
        self.cpu = time.process_time()
        self.wall = time.perf_counter()

    def done(self, step: str, files: int) -> None:
        """Print what a step took."""
        cpu, wall = time.process_time(), time.perf_counter()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        measured = {
            "step": step,
            "files": files,
            "cpu": cpu - self.cpu,
            "wall": wall - self.wall,
            "peak": peak,
        }
        print(json.dumps(measured), flush=True)
        self.cpu, self.wall = time.process_time(), time.perf_counter()


def filesystem(place: str) -> Any:
    """Connect adlfs to the server, as a connection string does."""
    key = "a2V5" * 22
    account = f"AccountName=benchmark;AccountKey={key};BlobEndpoint={place}/benchmark"
    text = f"DefaultEndpointsProtocol=http;{account};"
    return AzureBlobFileSystem(connection_string=text)


def find(store: str, place: str) -> None:
    """List by fsspec alone."""
    if store == "azure":
        fs, root = filesystem(place), "landing/in"
    else:
        fs, root = LocalFileSystem(), place
    steps = Steps()
    files = fs.find(root, detail=True)
    steps.done("bare find", len(files))


def discover(store: str, place: str, history: str) -> None:
    """List, filter and plan as a run does."""
    if store == "azure":
        storage: Any = AzureStorage(filesystem(place), HOST)
        root = f"abfss://landing@{HOST}/in"
    else:
        storage, root = LocalStorage(), f"file://{place}"
    rules = Rules(patterns=(r"\.parquet$",), young_after_ms=NOW_MS)

    steps = Steps()
    segments, _ = Segments(CheckpointLog(LocalStorage(), f"file://{history}"), 10).read(EPOCH)
    seen = SeenFiles(segments.values())
    steps.done("read the history", sum(segment.rows for segment in segments))
    candidates = new_candidates(storage.walk(root), rules, (root,), seen)
    assert candidates
    steps.done("list, match, leave out, sort", len(candidates.files))
    loaded = seen.find([file.path for file in candidates.files])
    new = unseen(candidates.files, loaded, rules, None, candidates.left_out)
    steps.done("filter", len(new))
    batches = start = 0
    while start < len(new):
        start = next_batch(new, start, max_files=1000, max_bytes=10**13)
        batches += 1
    steps.done("plan", batches)


def walk(store: str, place: str) -> None:
    """List by our storage alone."""
    steps = Steps()
    if store == "azure":
        listing = AzureStorage(filesystem(place), HOST).walk(f"abfss://landing@{HOST}/in")
    else:
        listing = LocalStorage().walk(f"file://{place}")
    steps.done("our listing", sum(1 for _ in listing))


def remember(store: str, place: str, history: str, count: int) -> None:
    """Write the segments of a pipeline that loaded as many files, of which every second is still there."""
    root = f"abfss://landing@{HOST}/in" if store == "azure" else f"file://{place}"
    rows = rows_of(
        (
            f"{root}/{name_of(number if number % 2 else number + 10**8)}",
            1_700_000_000_000 + number // 10 * 1000,
            1000,
            None,
            number // 1000,
        )
        for number in range(count)
    )
    log = CheckpointLog(LocalStorage(), f"file://{history}")
    Segments(log, 10).extend(EPOCH, count // 1000, lambda _: rows)


# ---- the whole --------------------------------------------------------------------------------------


def child(*arguments: object) -> list[dict[str, Any]]:
    """Run one of the above in a process of its own, and give what it measured."""
    done = subprocess.run(
        [sys.executable, __file__, "child", *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def show(measured: dict[str, Any]) -> None:
    """Print one line of the table."""
    print(
        f"  {measured['step']:<20}{measured['files']:>12,}{measured['cpu']:>10.1f}{measured['wall']:>10.1f}"
        f"{measured['peak'] / 2**20:>10,.0f}",
        flush=True,
    )


def compare(store: str, place: str, count: int, folder: Path) -> bool:
    """Measure one store, and tell whether the targets were met."""
    print(f"{store}, {count:,} files")
    print(f"  {'step':<20}{'files':>12}{'CPU s':>10}{'clock s':>10}{'peak MiB':>10}")
    bare = child("find", store, place)[0]
    show(bare)
    alone = child("walk", store, place)[0]
    show(alone)
    history = folder / f"{store}.parquet"
    child("remember", store, place, history, count)
    steps = child("discover", store, place, history)
    for step in steps:
        show(step)
    cpu, peak = sum(step["cpu"] for step in steps), max(step["peak"] for step in steps)
    assert bare["files"] == alone["files"] == count
    print(
        f"  CPU / the bare find's: listing {alone['cpu'] / bare['cpu']:.2f}, all {cpu / bare['cpu']:.2f} "
        f"(target {TARGET_RATIO}); peak {peak / 2**20:,.0f} MiB (target {TARGET_BYTES / 2**20:,.0f})"
    )
    return bool(cpu / bare["cpu"] <= TARGET_RATIO and peak < TARGET_BYTES)


def in_memory(count: int, folder: Path) -> None:
    """Make files of 1,000 bytes that take no room."""
    for number in range(count):
        path = folder / name_of(number)
        if number % 1000 == 0:
            path.parent.mkdir(parents=True)
        handle = os.open(path, os.O_CREAT | os.O_WRONLY)
        os.truncate(handle, 1000)
        identity = 1_700_000_000 + number // 10
        os.utime(handle, (identity, identity))
        os.close(handle)


def main() -> int:
    """Measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--store", choices=("azure", "local"), action="append")
    options = parser.parse_args()
    stores = options.store or ["azure", "local"]
    good = True
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        if "azure" in stores:
            command = [sys.executable, __file__, "child", "serve", str(options.files)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
                try:
                    assert server.stdout
                    port = re.fullmatch(r"(\d+)\n", server.stdout.readline())
                    assert port
                    good = compare("azure", f"http://127.0.0.1:{port[1]}", options.files, folder)
                finally:
                    server.kill()
        if "local" in stores:
            tree = Path(tempfile.mkdtemp(dir=memory, prefix="discovery-"))
            try:
                in_memory(options.files, tree)
                good = compare("local", str(tree), options.files, folder) and good
            finally:
                shutil.rmtree(tree)
    return 0 if good else 1


if __name__ == "__main__":
    if sys.argv[1:2] != ["child"]:
        sys.exit(main())
    step, *rest = sys.argv[2:]
    if step == "serve":
        serve(int(rest[0]))
    elif step == "remember":
        remember(rest[0], rest[1], rest[2], int(rest[3]))
    elif step == "discover":
        discover(*rest)
    else:
        {"find": find, "walk": walk}[step](*rest)
