"""What a run with one small new file costs: Spark for each run, and a Spark that stays.

    python benchmarks/latency.py [--runs 5] [--tables 20]

Both load one parquet file of a row each time, into a table of their own, in turn: from the operator's engine
to the commit record, as a task does it in its process. The first run of each is left out: it starts what
stays, and fills the caches of the disk. Then the Spark that stays loads one file into each of some new
tables, one after the other. For scale, Airflow runs a task that does nothing (``dag.test()``, the second run
of a process). The tables are compared with the files.

The last line gives the ratio of the medians, staying / for each run.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import statistics
import subprocess
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
NOTHING = """
import time
from airflow.sdk import DAG, task

with DAG("nothing", schedule=None) as dag:
    task(lambda: None, task_id="nothing")()

if __name__ == "__main__":
    from airflow.utils.db import initdb

    initdb()
    dag.test()
    began = time.monotonic()
    assert dag.test().state == "success"
    print(time.monotonic() - began)
"""


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


def nothing(home: Path) -> float:
    """Return the seconds that Airflow takes for a task that does nothing."""
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(home),
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
    }
    dag = home / "nothing.py"
    home.mkdir()
    dag.write_text(NOTHING)
    done = subprocess.run(
        [sys.executable, str(dag)], env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout.splitlines()[-1])


def holds(table: Path, *numbers: int) -> bool:
    """Return whether a table holds these numbers, each once."""
    return sorted(DeltaTable(str(table)).to_pyarrow_table()["id"].to_pylist()) == [*numbers]


def main() -> int:
    """Measure, and print one line for each turn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tables", type=int, default=20)
    arguments = parser.parse_args()
    runs, tables = arguments.runs, [f"table{number}" for number in range(arguments.tables)]
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
        began = time.monotonic()
        for name in tables:
            load(home / name, "auto", 0)
        in_a_row = time.monotonic() - began
        is_right = all(holds(home / how / "table", *range(runs + 1)) for how in seconds)
        if not (is_right and all(holds(home / name / "table", 0) for name in tables)):
            print("the tables do not hold what the files hold")
            return 1
        print(f"{len(tables)} new tables in a row {in_a_row:.1f} s, {in_a_row / len(tables):.2f} s for each")
        print(f"a task of Airflow that does nothing {nothing(home / 'airflow'):.2f} s")
    finally:
        shutil.rmtree(home, ignore_errors=True)
    never, auto = (statistics.median(taken[1:]) for taken in seconds.values())
    print(f"medians: never {never:.2f} s, auto {auto:.2f} s; ratio {auto / never:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
