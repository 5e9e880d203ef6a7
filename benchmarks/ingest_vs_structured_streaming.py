"""How long the same small files take into Delta: this package, and Structured Streaming.

    python benchmarks/ingest_vs_structured_streaming.py [--files 4000] [--rows 1000] [--repeats 3]

Three ways, in turn, each a process of its own with the same files in each batch: this package;
``readStream`` with ``AvailableNow`` at Spark's and Delta's defaults; the same with this package's session
settings. Times are from the start of spark-submit, or of our run, to its end, JVM start included. Importing
Airflow (seconds) is not counted: a task has it behind it before either of the two begins. The rows of the
three tables are compared. The last line gives the ratios of the medians: their wall time / ours.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from airflow_provider_scope.engines import application

OURS = """
import sys, time
from pathlib import Path
from airflow_provider_scope.engines.assembly import RunContext, assemble
from airflow_provider_scope.specs import FileSource
from airflow_provider_scope.specs.ingest import ARGUMENTS, SELECT_ALL, ingest_from

landing, table, per_batch, log = sys.argv[1:]
began = time.monotonic()
raw = dict.fromkeys(ARGUMENTS) | {
    "delta_location": table, "sql": SELECT_ALL, "write": "append", "full_refresh": False,
    "source": FileSource(
        roots=landing, patterns=r"[.]parquet$", format="parquet", safety_buffer_seconds=0,
        columns={"id": "bigint", "value": "double", "name": "string"},
        max_files_per_trigger=int(per_batch),
    ),
}
context = RunContext(task="benchmark", log_file=Path(log), report=lambda line: None)
execution, request, _ = assemble(ingest_from(raw), context)
execution.run(request)
print("seconds", time.monotonic() - began)
"""

STREAMING = """
import sys
from pyspark.sql import SparkSession

landing, table, per_batch, checkpoint = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
rows = (
    spark.readStream.schema("id bigint, value double, name string")
    .option("maxFilesPerTrigger", per_batch).option("pathGlobFilter", "*.parquet").parquet(landing)
)
query = (
    rows.writeStream.format("delta").option("checkpointLocation", checkpoint)
    .trigger(availableNow=True).start(table)
)
query.awaitTermination()
spark.stop()
"""


def land(folder: Path, files: int, rows: int) -> None:
    """Write the files; no two rows are alike."""
    folder.mkdir()
    for number in range(files):
        ids = range(number * rows, (number + 1) * rows)
        table = pa.table({"id": ids, "value": [i / 7 for i in ids], "name": [f"name {i}" for i in ids]})
        pq.write_table(table, folder / f"{number:06}.parquet")


def submit(script: Path, conf: dict[str, str], arguments: list[str]) -> list[str]:
    """Give the command that runs a script with Delta."""
    command = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[*]"]
    command += ["--packages", application.delta_package()]
    command += ["--exclude-packages", ",".join(application.EXCLUDED_PACKAGES)]
    for key, value in conf.items():
        command += ["--conf", f"{key}={value}"]
    return [*command, str(script), *arguments]


def timed(command: list[str], log: Path) -> float:
    """Run a command to its end and give its wall time, or the time that it says itself."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    began = time.monotonic()
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    seconds = time.monotonic() - began
    with log.open("a") as file:
        file.write(done.stdout + done.stderr)
    own = [line for line in done.stdout.splitlines() if line.startswith("seconds ")]
    return float(own[-1].split()[1]) if own else seconds


def same_rows(table: Path, files: int, rows: int) -> bool:
    """Tell whether a table holds each row exactly once."""
    ids = DeltaTable(str(table)).to_pyarrow_table(columns=["id"])["id"]
    return bool(len(ids) == files * rows and pc.count_distinct(ids).as_py() == files * rows)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--files", type=int, default=4000)
    parser.add_argument("--rows", type=int, default=1000, help="rows in each file")
    parser.add_argument("--files-per-batch", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ingest-benchmark-"))
    landing, log = folder / "landing", folder / "spark.log"
    land(landing, args.files, args.rows)
    for name, text in (("ours.py", OURS), ("streaming.py", STREAMING)):
        (folder / name).write_text(text)
    delta = {
        k: v for k, v in application.REQUIRED_CONF.items() if k.endswith(("extensions", "spark_catalog"))
    }
    tuned = {**application.REQUIRED_CONF, **application.LOCAL_CONF}
    per_batch = str(args.files_per_batch)
    times: dict[str, list[float]] = {"ours": [], "default": [], "tuned": []}
    print(f"{args.files:,} files of {args.rows:,} rows, {per_batch} in a batch, {os.cpu_count()} cores")
    correct = True
    for repeat in range(args.repeats):
        for way, seen in times.items():
            table = folder / f"{way}-{repeat}"
            if way == "ours":
                command = [
                    sys.executable,
                    str(folder / "ours.py"),
                    str(landing),
                    str(table),
                    per_batch,
                    str(log),
                ]
            else:
                arguments = [str(landing), str(table), per_batch, str(folder / f"{way}-{repeat}-checkpoint")]
                command = submit(folder / "streaming.py", delta if way == "default" else tuned, arguments)
            seconds = timed(command, log)
            right = same_rows(table, args.files, args.rows)
            correct &= right
            seen.append(seconds)
            print(f"  {way:8} {seconds:7.1f} s   rows {'exact' if right else 'WRONG'}", flush=True)
    medians = {way: statistics.median(values) for way, values in times.items()}
    if correct:
        shutil.rmtree(folder)
    else:
        print(f"kept for a look: {folder}")
    default, tuned_ratio = medians["default"] / medians["ours"], medians["tuned"] / medians["ours"]
    print(f"ratio default {default:.2f}, ratio tuned {tuned_ratio:.2f}")
    return 0 if correct else 1


if __name__ == "__main__":
    sys.exit(main())
