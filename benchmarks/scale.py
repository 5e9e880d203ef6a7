"""Many tables on one machine, and many tasks that wait for applications of one cluster.

    python benchmarks/scale.py [--tables 1 4 16] [--runs 3] [--tasks 1000] [--seconds 60]

Tables: as many runs at the same time, each with one new file of a row for a table of its own, all on one
Spark that stays. The first round of each number is left out: it makes the tables. Every table is compared
with its files.

Tasks: as many triggers in one process, as in a triggerer, wait for applications that a ResourceManager says
are running. It is an HTTP server of this process that counts the requests.

The last line gives how long the runs of the most tables take, of the time that they take one after the
other; and the requests in each interval.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from airflow_provider_scope.engines import assembly, server
from airflow_provider_scope.engines.yarn import ADDRESS
from airflow_provider_scope.specs.ingest import ARGUMENTS, SELECT_ALL, ingest_from
from airflow_provider_scope.triggers.job import JobTrigger

INTERVAL_SECONDS = 10.0


def load(folder: Path, number: int) -> None:
    """Load one new file into the table of a folder."""
    landing = folder / "landing"
    landing.mkdir(parents=True, exist_ok=True)
    file = landing / f"{number}.parquet"
    pq.write_table(pa.table({"id": [number]}), file)
    os.utime(file, (time.time() - 3600,) * 2)
    ingest = ingest_from(
        dict.fromkeys(ARGUMENTS)
        | {
            "delta_location": str(folder / "table"),
            "source": {"roots": str(landing), "format": "parquet"},
            "sql": SELECT_ALL,
            "write": "append",
            "engine": {"server": "auto"},
            "full_refresh": False,
        }
    )
    assert ingest is not None
    context = assembly.RunContext(task="benchmark", log_file=folder / "spark.log", report=lambda _: None)
    execution, request, _ = assembly.assemble(ingest, context)
    execution.run(request)


def rounds(home: Path, tables: int, runs: int) -> float:
    """Return the median of the seconds in which each of the tables gets a file."""
    folders = [home / f"{tables}-{number}" for number in range(tables)]
    seconds = []
    with ThreadPoolExecutor(tables) as pool:
        for number in range(runs + 1):
            began = time.monotonic()
            for run in [pool.submit(load, folder, number) for folder in folders]:
                run.result()
            seconds.append(time.monotonic() - began)
    for folder in folders:
        ids = DeltaTable(str(folder / "table")).to_pyarrow_table()["id"].to_pylist()
        if sorted(ids) != [*range(runs + 1)]:
            raise SystemExit(f"the table in {folder} does not hold what its files hold")
    return statistics.median(seconds[1:])


class ResourceManager(BaseHTTPRequestHandler):
    """Says of every application that it runs."""

    requests = 0

    def do_GET(self) -> None:
        """Answer as YARN does, and count."""
        type(self).requests += 1
        url = urlsplit(self.path)
        tags = parse_qs(url.query).get("applicationTags", [""])[0].split(",")
        apps = [
            {
                "id": tag,
                "applicationTags": tag,
                "startedTime": 1,
                "state": "RUNNING",
                "finalStatus": "UNDEFINED",
            }
            for tag in tags
        ]
        body = json.dumps({"apps": {"app": apps}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def requests_per_interval(tasks: int, seconds: float) -> float:
    """Let triggers wait; return the requests of them all in each interval."""
    with ThreadingHTTPServer(("127.0.0.1", 0), ResourceManager) as manager:
        threading.Thread(target=manager.serve_forever, daemon=True).start()
        extra = {"deploy-mode": "cluster", ADDRESS: f"http://127.0.0.1:{manager.server_port}"}
        connection = {"conn_type": "spark", "host": "yarn", "extra": extra}
        os.environ["AIRFLOW_CONN_BENCHMARK"] = json.dumps(connection)

        async def wait() -> None:
            triggers = [
                JobTrigger(
                    conn_id="benchmark", job_id=f"application-{number}", poll_interval=INTERVAL_SECONDS
                )
                for number in range(tasks)
            ]
            waiting = [asyncio.ensure_future(anext(aiter(trigger.run()))) for trigger in triggers]
            await asyncio.sleep(seconds)
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

        asyncio.run(wait())
        manager.shutdown()
    return ResourceManager.requests / (seconds / INTERVAL_SECONDS)


def main() -> int:
    """Measure, and print a line for each number of tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    server.IDLE_SECONDS = 30
    home = Path(tempfile.mkdtemp(prefix="scope-"))
    os.environ["TMPDIR"] = str(home)
    tempfile.tempdir = None  # it is read again
    seconds: dict[int, float] = {}
    try:
        for tables in arguments.tables:
            seconds[tables] = rounds(home, tables, arguments.runs)
            each = seconds[tables] / tables
            print(f"{tables:4} tables {seconds[tables]:6.2f} s, {each:5.2f} s for each of them", flush=True)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    least, most = min(seconds), max(seconds)
    ratio = seconds[most] / (most / least * seconds[least])
    requests = requests_per_interval(arguments.tasks, arguments.seconds)
    tasks = f"{arguments.tasks:,} tasks that wait: {requests:.1f} requests in an interval"
    print(f"ratio {ratio:.2f} with {most} tables at once; {tasks}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
