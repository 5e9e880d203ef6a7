"""What a load by a cursor costs: this package, and a filter and an append by hand, in one Spark session.

    python benchmarks/cursor.py [--rows 10000000] [--loads 200] [--new 1000]

A Delta table of so many rows gets new ones before each load; both load them into a table of their own, in
turn, and the one that is first changes. By hand is what somebody writes who trusts the column: take the
largest value of the target, read what is above it, append it. That loses a row that comes later with the
largest value, and after a crash it may load rows twice. The two tables are compared at the end.

The last line gives the ratio of the medians, ours / by hand.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from merge import cpu_seconds, session
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.spark import load
from airflow_provider_scope.specs import Cursor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 20


def some(start: int, count: int) -> pa.Table:
    """Give rows with ids from ``start`` on."""
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


def measured(act: Any, *arguments: Any) -> tuple[float, float]:
    """Give seconds and CPU seconds of a call, those of the JVM included."""
    spark = arguments[0]
    pid = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # noqa: SLF001 - there is no other way
    cpu, began = cpu_seconds(pid) + time.process_time(), time.monotonic()
    act(*arguments)
    return time.monotonic() - began, cpu_seconds(pid) + time.process_time() - cpu


def main() -> None:
    """Measure, and print the last line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--loads", type=int, default=200)
    parser.add_argument("--new", type=int, default=1_000)
    given = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="cursor-")
    try:
        compare(session(), folder, given)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def compare(spark: SparkSession, folder: str, given: argparse.Namespace) -> None:
    """Load in turn, and see that both tables have the rows of the source."""
    source = f"{folder}/source"
    part = given.rows // FILES
    for number in range(FILES):
        write_deltalake(source, some(number * part, part), mode="append")
    ways = {"ours": ours, "by hand": by_hand}
    for way in ways.values():
        way(spark, source, f"{folder}/warm-{way.__name__}")
    first = {name: measured(way, spark, source, f"{folder}/{name}") for name, way in ways.items()}
    told = ", ".join(f"{name} {seconds:.1f} s (CPU {cpu:.1f})" for name, (seconds, cpu) in first.items())
    print(f"first load of {part * FILES:,} rows: {told}")
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for number in range(given.loads):
        write_deltalake(source, some(part * FILES + number * given.new, given.new), mode="append")
        for name in sorted(ways, reverse=number % 2 == 0):
            taken[name].append(measured(ways[name], spark, source, f"{folder}/{name}"))
    for name in ways:
        found = DeltaTable(f"{folder}/{name}").to_pyarrow_table().sort_by("id")
        if not found.equals(DeltaTable(source).to_pyarrow_table().sort_by("id")):
            raise SystemExit(f"the rows of {name} are not those of the source")
    seconds, cpu = (
        {name: statistics.median(one[at] for one in turns) for name, turns in taken.items()} for at in (0, 1)
    )
    for name in ways:
        print(f"{name}: median {seconds[name]:.2f} s, CPU {cpu[name]:.2f} s, of {given.loads} loads")
    print(
        f"ratio hand-written {seconds['ours'] / seconds['by hand']:.2f} "
        f"(CPU {cpu['ours'] / cpu['by hand']:.2f})"
    )


if __name__ == "__main__":
    main()
