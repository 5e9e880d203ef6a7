"""What a run with one small new file costs: Spark for each run, and a Spark that stays.

    python benchmarks/latency.py [--runs 5]

Both load one parquet file of a row each time, into a table of their own, in turn: from the operator's engine
to the commit record, as a task does it in its process. The first run of each is left out: it starts what
stays, and fills the caches of the disk. The tables are compared with the files.

The last line gives the ratio of the medians, staying / for each run.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from airflow_provider_scope.engines import assembly, server
from airflow_provider_scope.specs.ingest import ARGUMENTS, SELECT_ALL, ingest_from

ENDS_AFTER_SECONDS = 30


def load(folder: Path, how: str, number: int) -> float:
    """Load one new file; return the seconds on the clock."""
    landing = folder / "landing"
    landing.mkdir(parents=True, exist_ok=True)
    file = landing / f"{number}.parquet"
    pq.write_table(pa.table({"id": [number]}), file)
    os.utime(file, (time.time() - 3600,) * 2)
    arguments = dict.fromkeys(ARGUMENTS) | {
        "delta_location": str(folder / "table"),
        "source": {"roots": str(landing), "format": "parquet"},
        "sql": SELECT_ALL,
        "write": "append",
        "engine": {"server": how},
        "full_refresh": False,
        "max_batches_per_run": 1,
    }
    context = assembly.RunContext(task="benchmark", log_file=folder / "spark.log", report=lambda _: None)
    began = time.monotonic()
    ingest = ingest_from(arguments)
    assert ingest is not None
    execution, request, _ = assembly.assemble(ingest, context)
    execution.run(request)
    return time.monotonic() - began


def main() -> int:
    """Measure, and print one line for each turn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    logging.disable(logging.WARNING)
    server.IDLE_SECONDS = ENDS_AFTER_SECONDS
    home = Path(tempfile.mkdtemp(prefix="scope-"))
    os.environ["TMPDIR"] = str(home)
    tempfile.tempdir = None  # it is read again
    seconds: dict[str, list[float]] = {"never": [], "auto": []}
    try:
        for number in range(runs + 1):
            for how, taken in seconds.items():
                taken.append(load(home / how, how, number))
            print("  ".join(f"{how} {taken[-1]:.2f} s" for how, taken in seconds.items()), flush=True)
        tables = [DeltaTable(str(home / how / "table")).to_pyarrow_table() for how in seconds]
        if any(sorted(table["id"].to_pylist()) != [*range(runs + 1)] for table in tables):
            print("the tables do not hold what the files hold")
            return 1
    finally:
        shutil.rmtree(home, ignore_errors=True)
    never, auto = (statistics.median(taken[1:]) for taken in seconds.values())
    print(f"medians: never {never:.2f} s, auto {auto:.2f} s; ratio {auto / never:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
