"""What a row-level write costs: this package, and the best statement by hand for the same work.

    python benchmarks/merge.py [--rows 4000000] [--changed 200000] [--repeats 3] [--with-dlt]

All in one Spark session, in turn, each on a copy of its own of one Delta table. The changes are parquet: 19
of 20 are new values of a stored key, the others are new keys; keys are spread over the whole table. By hand
is what somebody writes who knows that no key comes twice and none is NULL: this package looks. The two tables
are compared row by row after each turn. ``--with-dlt`` runs dlt's upsert into a Delta table beside it, if dlt
is installed, for information: it is another engine (deltalake), so it is no part of a ratio.

The last line gives medians, ours / by hand.
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
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from delta.tables import DeltaTable as SparkTable
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.engines import application
from airflow_provider_scope.spark import load
from airflow_provider_scope.spark.session import make_exact
from airflow_provider_scope.specs import Merge, Scd2

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = "2026-01-02T00:00:00+00:00"
COLUMNS = ("id", "region", "value", "name", "changed_at")


def session() -> SparkSession:
    """Return a local session with what an application of ours has."""
    conf = {**application.REQUIRED_CONF, **application.LOCAL_CONF}
    builder = SparkSession.builder.master("local[*]").config(
        "spark.jars.packages", application.delta_package()
    )
    builder = builder.config("spark.jars.excludes", ",".join(application.EXCLUDED_PACKAGES))
    for name, value in {**conf, "spark.driver.memory": "4g", "spark.ui.enabled": "false"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    make_exact(spark)
    return spark


def random_rows(ids: Any, seed: int) -> Any:
    """Return rows for a column of ids."""
    return ids.select(
        "id",
        (F.col("id") % 50).cast("int").alias("region"),
        F.rand(seed).alias("value"),
        F.concat(F.lit(f"name-{seed}-"), F.col("id")).alias("name"),
        F.timestamp_seconds(F.lit(1_767_225_600) + F.col("id") % 86_400).alias("changed_at"),
    )


def changed(table: str, changes: str, write: Any) -> Callable[[SparkSession], None]:
    """Return our way to write the changes."""

    def run(spark: SparkSession) -> None:
        load(spark, spark.read.parquet(changes), table, write)

    return run


def upsert(table: str, changes: str) -> Callable[[SparkSession], None]:
    """Return the plain statement."""

    def run(spark: SparkSession) -> None:
        stored = SparkTable.forPath(spark, table).alias("t")
        merge = stored.merge(spark.read.parquet(changes).alias("s"), "t.id = s.id")
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    return run


def delete_insert(table: str, changes: str) -> Callable[[SparkSession], None]:
    """Return one statement that deletes by key and inserts."""

    def run(spark: SparkSession) -> None:
        new = spark.read.parquet(changes)
        source = new.select(F.col("id").alias("old")).unionByName(new, allowMissingColumns=True)
        merge = SparkTable.forPath(spark, table).alias("t").merge(source.alias("s"), "t.id = s.old")
        values: Any = {name: f"s.{name}" for name in COLUMNS}
        merge.whenMatchedDelete().whenNotMatchedInsert("s.old IS NULL", values=values).execute()

    return run


def scd2(table: str, changes: str) -> Callable[[SparkSession], None]:
    """Return the usual statement: rows of a changed key come twice, to end a version and to begin one."""

    def run(spark: SparkSession) -> None:
        content = F.sha2(F.to_json(F.struct(*COLUMNS)), 256)
        new = spark.read.parquet(changes).withColumn("version", content)
        stored = SparkTable.forPath(spark, table)
        active = (
            stored.toDF().where("_valid_to IS NULL").select("id", F.col("_row_hash").alias("stored_hash"))
        )
        changes_ = new.join(active, "id", "left").where("stored_hash IS NULL OR stored_hash <> version")
        ends = changes_.where("stored_hash IS NOT NULL").select(F.col("id").alias("old"))
        source = ends.unionByName(changes_.drop("stored_hash"), allowMissingColumns=True)
        merge = stored.alias("t").merge(source.alias("s"), "t.id = s.old AND t._valid_to IS NULL")
        values: Any = {name: f"s.{name}" for name in COLUMNS}
        values |= {"_valid_from": f"TIMESTAMP '{NOW}'", "_row_hash": "s.version"}
        merge = merge.whenMatchedUpdate(set={"_valid_to": f"TIMESTAMP '{NOW}'"})
        merge.whenNotMatchedInsert("s.old IS NULL", values=values).execute()

    return run


WAYS: dict[str, tuple[Any, Any]] = {
    "upsert": (Merge(strategy="upsert", primary_key=["id"]), upsert),
    "delete-insert": (Merge(primary_key=["id"]), delete_insert),
    "scd2": (Scd2(merge_key=["id"], boundary_timestamp=NOW), scd2),
}


def content(table: str) -> pa.Table:
    """Return the rows of a table in an order, without what identifies a version for us."""
    rows = DeltaTable(table).to_pyarrow_table()
    rows = rows.select([name for name in rows.column_names if name != "_row_hash"])
    order = [(name, "ascending") for name in ("id", "_valid_from") if name in rows.column_names]
    return rows.sort_by(order)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def jvm_of(spark: SparkSession) -> int:
    """Return the process of a session's JVM."""
    return int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]


def measure(spark: SparkSession, run: Callable[[SparkSession], None]) -> tuple[float, float]:
    """Return seconds on the clock and of CPU."""
    jvm = jvm_of(spark)
    cpu, began = cpu_seconds(jvm) + time.process_time(), time.monotonic()
    run(spark)
    return time.monotonic() - began, cpu_seconds(jvm) + time.process_time() - cpu


def with_dlt(folder: Path, table: Path, changes: Path) -> None:
    """Let dlt upsert the same changes into a Delta table of its own that holds the same rows."""
    try:
        import dlt  # noqa: PLC0415 - it need not be there
        from dlt.destinations import filesystem  # noqa: PLC0415
    except ImportError:
        print("dlt is not installed")
        return
    logging.disable(logging.WARNING)
    pipeline = dlt.pipeline(
        "benchmark", destination=filesystem(str(folder / "dlt")), dataset_name="d", pipelines_dir=str(folder)
    )

    def loaded(rows: pa.Table) -> float:
        resource = dlt.resource(
            [rows],
            name="t",
            primary_key="id",
            table_format="delta",
            write_disposition={"disposition": "merge", "strategy": "upsert"},
        )
        began = time.monotonic()
        pipeline.run(resource)
        return time.monotonic() - began

    loaded(DeltaTable(str(table)).to_pyarrow_table())
    print(f"dlt, upsert with deltalake: {loaded(pa.parquet.read_table(changes)):.1f} s")


def main() -> int:
    """Measure, and print one line for each turn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--changed", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--with-dlt", action="store_true")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="airflow-provider-scope-merge-"))
    spark = session()
    try:
        ratios = _ratios(spark, folder, args)
        if args.with_dlt:
            with_dlt(folder, folder / "upsert", folder / "changes")
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print("ratio " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()))
    return 0


def _ratios(spark: SparkSession, folder: Path, args: argparse.Namespace) -> dict[str, float]:
    every = args.rows // (args.changed * 19 // 20)
    stored = random_rows(spark.range(args.rows), 1)
    changes = spark.range(args.changed * 19 // 20).select((F.col("id") * every).alias("id"))
    changes = changes.union(spark.range(args.rows, args.rows + args.changed // 20))
    random_rows(changes, 2).write.parquet(str(folder / "changes"))
    ratios = {}
    for name, (write, by_hand) in WAYS.items():
        first = folder / name
        before = Scd2(boundary_timestamp="2026-01-01") if name == "scd2" else write
        load(spark, stored, str(first), before)
        took: dict[str, list[tuple[float, float]]] = {"ours": [], "by hand": []}
        for turn in range(args.repeats + 1):
            for who in ("ours", "by hand") if turn % 2 else ("by hand", "ours"):
                copy = folder / f"{name} {who}"
                shutil.copytree(first, copy)
                way = changed if who == "ours" else None
                place = (str(copy), str(folder / "changes"))
                run = way(*place, write) if way else by_hand(*place)
                took[who].append(measure(spark, run))
            mine, theirs = (content(str(folder / f"{name} {who}")) for who in took)
            if not mine.equals(theirs):
                print(f"{name}: the two tables differ")
                raise SystemExit(1)
            for who in took:
                shutil.rmtree(folder / f"{name} {who}")
        # The first turn warms the session up.
        clock, cpu = (
            {who: statistics.median(turn[which] for turn in turns[1:]) for who, turns in took.items()}
            for which in (0, 1)
        )
        ratios[name] = clock["ours"] / clock["by hand"]
        print(
            f"{name}: ours {clock['ours']:.2f} s ({cpu['ours']:.2f} s of CPU), by hand "
            f"{clock['by hand']:.2f} s ({cpu['by hand']:.2f}); in CPU {cpu['ours'] / cpu['by hand']:.2f}",
            flush=True,
        )
        shutil.rmtree(first) if name != "upsert" else None
    return ratios


if __name__ == "__main__":
    sys.exit(main())
