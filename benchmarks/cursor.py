"""What a load by a cursor costs: beside a filter and an append by hand, and beside dlt from PostgreSQL.

    python benchmarks/cursor.py [--rows 10000000] [--loads 200] [--new 1000]
        [--database-rows 10000000] [--repeats 3] [--dlt-python /opt/dlt/bin/python]

**By hand.** A Delta table of so many rows gets new ones before each load; both load them into a table of
their own, in turn in one Spark session, and the one that is first changes. By hand is what somebody writes
who trusts the column: take the largest value of the target, read what is above it, append it. That loses a
row that comes later with the largest value, and after a crash it may load rows twice.

**dlt.** A table of a PostgreSQL that is started for it (its server has to be installed) is loaded for the
first time into a Delta table on this disk: by this package as its operator does, with a Spark application of
its own, in parts and over one connection; and by dlt's ``sql_database`` with ``incremental``, the backend
``pyarrow``, and the destination ``filesystem`` with ``table_format="delta"``. Each is a process of its own,
in turn. Times begin when packages are imported and end with the run; starting Java is in ours. dlt may have a
Python of its own, so that its packages and ours do not meet:

    python3 -m venv /opt/dlt
    /opt/dlt/bin/pip install "dlt[filesystem,deltalake]" sqlalchemy psycopg2-binary pandas

Without ``--dlt-python`` this part is left out; ``--loads 0`` leaves the other one out.

All tables are compared with their source. The last line gives ratios of the medians, ours / theirs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg2
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from merge import measure, session
from pyarrow import csv
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.spark import load
from airflow_provider_scope.specs import Cursor

sys.path.append(str(Path(__file__).parents[1]))  # for the server that the tests start
from tests.real_airflow.postgres import postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 20
COLUMNS = {
    "id": pa.int64(),
    "customer": pa.string(),
    "price": pa.decimal128(12, 2),
    "items": pa.int32(),
    "weight": pa.float64(),
    "day": pa.date32(),
    "changed_at": pa.timestamp("us", "UTC"),
}
ROWS = """
CREATE TABLE orders AS SELECT
  n::bigint AS id, 'customer ' || n % 10007 AS customer, (n % 100000 / 100.0)::numeric(12, 2) AS price,
  n % 7 AS items, n / 7.0::float8 AS weight, DATE '2020-01-01' + (n % 2000)::int AS day,
  TIMESTAMPTZ '2026-01-01 00:00+00' + n * INTERVAL '1 second' AS changed_at
FROM generate_series(1, {rows}) n;
ALTER TABLE orders ADD PRIMARY KEY (id);
VACUUM ANALYZE orders
"""
OURS = """
import resource, sys, time
from pathlib import Path
from airflow_provider_scope.engines.assembly import RunContext, assemble
from airflow_provider_scope.specs import Cursor, JdbcSource
from airflow_provider_scope.specs.ingest import ARGUMENTS, SELECT_ALL, ingest_from

table, parts = sys.argv[1:]
began, cpu = time.monotonic(), time.process_time()
raw = dict.fromkeys(ARGUMENTS) | {
    "delta_location": table, "sql": SELECT_ALL, "write": "append", "full_refresh": False,
    "source": JdbcSource(
        conn_id="shop", table="orders", cursor=Cursor(column="id"), num_partitions=int(parts or 0) or None
    ),
}
context = RunContext(task="benchmark", log_file=Path(table + ".log"), report=lambda line: None)
execution, request, _ = assemble(ingest_from(raw), context)
execution.run(request)
spark = resource.getrusage(resource.RUSAGE_CHILDREN)
cpu = time.process_time() - cpu + spark.ru_utime + spark.ru_stime
print("seconds", time.monotonic() - began, cpu)
"""
DLT = """
import resource, sys, time
import deltalake, dlt, pandas, pyarrow, sqlalchemy
from dlt.destinations import filesystem
from dlt.sources.sql_database import sql_table

folder, url = sys.argv[1:]
began, cpu = time.monotonic(), time.process_time()
pipeline = dlt.pipeline(
    "benchmark", destination=filesystem(folder), dataset_name="d", pipelines_dir=folder + "/state"
)
rows = sql_table(url, table="orders", backend="pyarrow", incremental=dlt.sources.incremental("id"))
pipeline.run(rows, table_format="delta", write_disposition="append").raise_on_failed_jobs()
spent = resource.getrusage(resource.RUSAGE_CHILDREN)
print("seconds", time.monotonic() - began, time.process_time() - cpu + spent.ru_utime + spent.ru_stime)
"""


def numbered_rows(start: int, count: int) -> pa.Table:
    """Return rows with ids from ``start`` on."""
    ids = range(start, start + count)
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"name-{n % 1000}" for n in ids]})


def ours(spark: SparkSession, source: str, target: str) -> None:
    """Load by a cursor."""
    load(spark, spark.read.format("delta").load(source), target, cursor=Cursor(column="id"))


def by_hand(spark: SparkSession, source: str, target: str) -> None:
    """Load what is above the largest value that is there."""
    rows = spark.read.format("delta").load(source)
    if Path(target).exists():
        last = spark.read.format("delta").load(target).agg(F.max("id")).first()[0]  # type: ignore[index]
        rows = rows.where(F.col("id") > last)
    rows.write.format("delta").mode("append").save(target)


def beside_hand(spark: SparkSession, folder: str, arguments: argparse.Namespace) -> float:
    """Load in turn, see that both tables have the rows of the source, and give the ratio."""
    source = f"{folder}/source"
    part = arguments.rows // FILES
    for number in range(FILES):
        write_deltalake(source, numbered_rows(number * part, part), mode="append")
    ways = {"ours": ours, "by hand": by_hand}
    for way in ways.values():
        way(spark, source, f"{folder}/warm-{way.__name__}")
    tables = {name: f"{folder}/{name}" for name in ways}

    def turn(name: str) -> tuple[float, float]:
        return measure(spark, lambda spark: ways[name](spark, source, tables[name]))

    first = {name: turn(name) for name in ways}
    times_text = ", ".join(
        f"{name} {seconds:.1f} s (CPU {cpu:.1f})" for name, (seconds, cpu) in first.items()
    )
    print(f"first load of {part * FILES:,} rows: {times_text}", flush=True)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for number in range(arguments.loads):
        write_deltalake(
            source, numbered_rows(part * FILES + number * arguments.new, arguments.new), mode="append"
        )
        for name in sorted(ways, reverse=number % 2 == 0):
            times[name].append(turn(name))
    expected = DeltaTable(source).to_pyarrow_table().sort_by("id")
    for name, table in tables.items():
        if not DeltaTable(table).to_pyarrow_table().sort_by("id").equals(expected):
            raise SystemExit(f"the rows of {name} are not those of the source")
    median = print_medians(f"loads of {arguments.new:,} rows", times)
    return median["ours"] / median["by hand"]


def beside_dlt(folder: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Load a table of a database in turn, compare the rows, and give the ratios."""
    for name, text in (("ours.py", OURS), ("dlt.py", DLT)):
        Path(f"{folder}/script-{name}").write_text(text)
    with postgres() as url:
        port = url.rpartition(":")[2].partition("/")[0]
        address = {"host": "127.0.0.1", "port": int(port)}
        with closing(psycopg2.connect(**address, user="airflow", dbname="postgres")) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                for statement in ROWS.format(rows=arguments.database_rows).split(";"):
                    cursor.execute(statement)
            expected = stored_rows(connection, folder)
        shop = {"conn_type": "postgres", **address, "schema": "postgres", "login": "airflow"}
        os.environ["AIRFLOW_CONN_SHOP"] = json.dumps({**shop, "password": "not looked at"})
        names = {"ours": "", "dlt": "", "ours over one connection": "1"}
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
        # The first turn fetches the driver.
        for number in range(arguments.repeats + 1):
            for name, parts in names.items():
                table = f"{folder}/{name.replace(' ', '-')}-{number}"
                if name == "dlt":
                    command = [arguments.dlt_python, f"{folder}/script-dlt.py", table, url]
                else:
                    command = [sys.executable, f"{folder}/script-ours.py", table, parts]
                took = run_timed(command, Path(f"{folder}/log"))
                compare(name, f"{table}/d/orders" if name == "dlt" else table, expected)
                shutil.rmtree(table)
                if number:
                    times[name].append(took)
    median = print_medians(f"first load of {arguments.database_rows:,} rows of PostgreSQL", times)
    return {name: median[name] / median["dlt"] for name in names if name != "dlt"}


def run_timed(command: list[str], log: Path) -> tuple[float, float]:
    """Run a command, and give the seconds on the clock and of CPU that it says."""
    environment = {**os.environ, "RUNTIME__DLTHUB_TELEMETRY": "false"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    with log.open("a") as file:
        file.write(done.stdout + done.stderr)
    said = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("seconds ")]
    if done.returncode or not said:
        raise SystemExit(f"{command[1]} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return float(said[-1][0]), float(said[-1][1])


def stored_rows(connection: Any, folder: str) -> pa.Table:
    """Return the rows of the database by another way than the two that are measured."""
    with connection.cursor() as cursor, Path(f"{folder}/orders.csv").open("wb") as file:
        cursor.copy_expert("COPY orders TO STDOUT (FORMAT csv)", file)
    options = csv.ConvertOptions(column_types=COLUMNS)
    names = csv.ReadOptions(column_names=list(COLUMNS))
    return csv.read_csv(f"{folder}/orders.csv", names, convert_options=options).sort_by("id")


def compare(name: str, table: str, expected: pa.Table) -> None:
    """End the benchmark where a table has other rows than the database."""
    rows = DeltaTable(table).to_pyarrow_table(columns=expected.column_names).cast(expected.schema)
    if not rows.sort_by("id").equals(expected):
        raise SystemExit(f"the rows of {name} are not those of the database")


def print_medians(title: str, times: dict[str, list[tuple[float, float]]]) -> dict[str, float]:
    """Print the medians, and give those of the seconds on the clock."""
    medians = {}
    for name, turns in times.items():
        medians[name], cpu = (statistics.median(turn[at] for turn in turns) for at in (0, 1))
        print(f"{title}: {name}, median {medians[name]:.2f} s, CPU {cpu:.2f} s, of {len(turns)}", flush=True)
    return medians


def main() -> None:
    """Measure, and print the last line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the Delta table")
    parser.add_argument("--loads", type=int, default=200)
    parser.add_argument("--new", type=int, default=1_000, help="rows before each load")
    parser.add_argument("--database-rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3, help="first loads of the database, each way")
    parser.add_argument("--dlt-python", help="the Python in which dlt is installed")
    arguments = parser.parse_args()
    folder, ratios = tempfile.mkdtemp(prefix="cursor-"), []
    try:
        if arguments.dlt_python:
            for name, ratio in beside_dlt(folder, arguments).items():
                ratios.append(f"dlt{name.removeprefix('ours')} {ratio:.2f}")
        if arguments.loads:
            ratios.insert(0, f"hand-written {beside_hand(session(), folder, arguments):.2f}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(", ".join(f"ratio {ratio}" for ratio in ratios))


if __name__ == "__main__":
    main()
