"""How long the same files take into Delta: this package, Structured Streaming, and no Spark at all.

    python benchmarks/ingest_vs_structured_streaming.py [--files 4000] [--rows 1000] [--repeats 3]

Five ways, in turn, each a process of its own with the same files in each batch: this package;
``readStream`` with ``AvailableNow`` at Spark's and Delta's defaults; the same with this package's session
settings; with these, too, ``spark.read`` and ``write``, the least that Spark can do, which check nothing and
forget what they loaded; and, as the limit of this machine, pyarrow and deltalake in one process, likewise.
Times are from the start of spark-submit, or of our run, to its end, JVM start included. Importing Airflow
(seconds) is not counted: a task has it behind it before any of them begins. Runs with one file, before all
else, show what starting costs. The rows of the tables are compared. The last lines give the ratios of the
medians, theirs / ours: of wall times, and of CPU times, which say more on a machine that others use; and how
many times the limit this package takes once Spark has started, and Spark alone.
"""

from __future__ import annotations

import argparse
import os
import resource
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
import resource, sys, time
from pathlib import Path
from airflow_provider_scope.engines.assembly import RunContext, assemble
from airflow_provider_scope.specs import FileSource
from airflow_provider_scope.specs.ingest import ARGUMENTS, SELECT_ALL, ingest_from

landing, table, per_batch, log = sys.argv[1:]
began, cpu = time.monotonic(), time.process_time()
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
spark = resource.getrusage(resource.RUSAGE_CHILDREN)
cpu = time.process_time() - cpu + spark.ru_utime + spark.ru_stime
print("seconds", time.monotonic() - began, cpu)
"""

Times = tuple[float, float]
"""Wall time and CPU time, in seconds."""
WAYS = ("ours", "default", "tuned", "alone", "limit")
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

ALONE = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession

landing, table, per_batch, _ = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
files = sorted(str(path) for path in Path(landing).iterdir())
for start in range(0, len(files), int(per_batch)):
    batch = files[start : start + int(per_batch)]
    rows = spark.read.schema("id bigint, value double, name string").parquet(*batch)
    rows.write.format("delta").mode("append").save(table)
spark.stop()
"""


LIMIT = """
import sys, time
from pathlib import Path
import pyarrow.dataset as ds
from deltalake import CommitProperties, Transaction, write_deltalake

landing, table, per_batch = sys.argv[1:]
began, cpu = time.monotonic(), time.process_time()
files = sorted(str(path) for path in Path(landing).iterdir())
for seq, start in enumerate(range(0, len(files), int(per_batch))):
    rows = ds.dataset(files[start : start + int(per_batch)], format="parquet").scanner().to_reader()
    mark = CommitProperties(app_transactions=[Transaction("benchmark", seq)])
    write_deltalake(table, rows, mode="append", commit_properties=mark)
print("seconds", time.monotonic() - began, time.process_time() - cpu)
"""


def land(folder: Path, files: int, rows: int) -> None:
    """Write the files; no two rows are alike."""
    folder.mkdir()
    for number in range(files):
        ids = range(number * rows, (number + 1) * rows)
        table = pa.table({"id": ids, "value": [i / 7 for i in ids], "name": [f"name {i}" for i in ids]})
        pq.write_table(table, folder / f"{number:06}.parquet")


def submit(script: Path, conf: dict[str, str], arguments: list[str]) -> list[str]:
    """Return the command that runs a script with Delta."""
    command = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[*]"]
    command += ["--packages", application.delta_package()]
    command += ["--exclude-packages", ",".join(application.EXCLUDED_PACKAGES)]
    for key, value in conf.items():
        command += ["--conf", f"{key}={value}"]
    return [*command, str(script), *arguments]


def timed(command: list[str], log: Path) -> Times:
    """Run a command to its end and give its wall time and its CPU time, or those that it says itself."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    with log.open("a") as file:
        file.write(done.stdout + done.stderr)
    own = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("seconds ")]
    if own:
        return float(own[-1][0]), float(own[-1][1])
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def same_rows(table: Path, files: int, rows: int) -> bool:
    """Return whether a table holds each row exactly once."""
    ids = DeltaTable(str(table)).to_pyarrow_table(columns=["id"])["id"]
    return bool(len(ids) == files * rows and pc.count_distinct(ids).as_py() == files * rows)


def print_ratios(times: dict[str, list[Times]], starts: dict[str, Times]) -> None:
    """Print what was measured against each other, by CPU time and by wall time."""
    for part, unit in ((1, " of CPU time"), (0, "")):
        medians = {way: statistics.median(run[part] for run in runs) for way, runs in times.items()}
        if "limit" in medians:
            for way, start in starts.items():
                ratio = (medians[way] - start[part]) / medians["limit"]
                print(f"{way}, once Spark has started: {ratio:.1f} times the limit{unit}")
        for way in {"default", "tuned"} & medians.keys():
            print(f"ratio {way} {medians[way] / medians['ours']:.2f}{unit}")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--files", type=int, default=4000)
    parser.add_argument("--rows", type=int, default=1000, help="rows in each file")
    parser.add_argument("--files-per-batch", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="those to measure; ours always")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ingest-benchmark-"))
    landing, log = folder / "landing", folder / "spark.log"
    land(landing, args.files, args.rows)
    land(folder / "one", 1, min(args.rows, 1000))
    for name, text in (
        ("ours.py", OURS),
        ("streaming.py", STREAMING),
        ("alone.py", ALONE),
        ("limit.py", LIMIT),
    ):
        (folder / name).write_text(text)
    delta = {
        k: v for k, v in application.REQUIRED_CONF.items() if k.endswith(("extensions", "spark_catalog"))
    }
    tuned = {**application.REQUIRED_CONF, **application.LOCAL_CONF}
    per_batch = str(args.files_per_batch)
    times: dict[str, list[Times]] = {way: [] for way in WAYS if way in {"ours", *args.ways}}

    def command(way: str, files: Path, table: Path) -> list[str]:
        arguments = [str(files), str(table), per_batch]
        if way == "ours":
            return [sys.executable, str(folder / "ours.py"), *arguments, str(log)]
        if way == "limit":
            return [sys.executable, str(folder / "limit.py"), *arguments]
        script = folder / ("alone.py" if way == "alone" else "streaming.py")
        return submit(script, delta if way == "default" else tuned, [*arguments, f"{table}-checkpoint"])

    starts: dict[str, Times] = {}
    for way in ("ours", "alone")[: 2 if "alone" in times else 1]:
        starts[way] = timed(command(way, folder / "one", folder / f"{way}-one"), log)
        print(f"{way}, one file {starts[way][0]:.1f} s {starts[way][1]:.1f} s of CPU", flush=True)
    print(f"{args.files:,} files of {args.rows:,} rows, {per_batch} in a batch, {os.cpu_count()} cores")
    correct = True
    for repeat in range(args.repeats):
        for way, runs in times.items():
            table = folder / f"{way}-{repeat}"
            seconds, cpu = timed(command(way, landing, table), log)
            right = same_rows(table, args.files, args.rows)
            correct &= right
            runs.append((seconds, cpu))
            print(
                f"  {way:8} {seconds:7.1f} s {cpu:7.1f} s of CPU   rows {'exact' if right else 'WRONG'}",
                flush=True,
            )
    if correct:
        shutil.rmtree(folder)
    else:
        print(f"kept for a look: {folder}")
    print_ratios(times, starts)
    return 0 if correct else 1


if __name__ == "__main__":
    sys.exit(main())
