"""What a load of changes costs: this package, a statement by hand, and cloe-nessy, in one Spark session.

    python benchmarks/cdf.py [--rows 1000000] [--changes 10000 1000000] [--repeats 5] [--cloe-nessy FOLDER]

Before each turn one MERGE changes so many rows of a source with a change data feed: of 20, 18 are updated,
one is deleted and one is new. Then each loads the changes into a table of its own, in turn; the one that is
first changes. Ours is a run of the operator's loop with its log and its checks of the source, but for the
start of Spark. By hand is the feed of the versions, the last change of each key, and one MERGE with deletes.
It leaves the images before an update out, as most statements do that are found in the wild, and so keeps the
old row of a key that was changed; "by hand, keys too" is the same with these images, as ours. No key is
changed here. The tables are compared row by row after each turn.

``--cloe-nessy`` names a folder with cloe-nessy 1.0.14 and what it needs (``pip install --target``). It is
called as its documentation says, with its merge writer. It does not delete rows: how many are left in its
table is told.

The last line: ``ratio hand-written 1M A, ratio cloe-nessy 10k B`` (ours / by hand, theirs / ours).
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import pytest
from delta.tables import DeltaTable as SparkTable
from deltalake import DeltaTable
from merge import measure, session
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.specs import CdfSource, Merge
from tests.support import warm

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("id", "region", "value", "name")
METADATA = """BK STRING, delta_load_identifier STRING, source_table_identifier STRING, is_processed BOOLEAN,
is_stale BOOLEAN, last_read_timestamp TIMESTAMP, rows BIGINT, start_commit_version INT,
end_commit_version INT, start_commit_timestamp_utc TIMESTAMP, end_commit_timestamp_utc TIMESTAMP,
__DCR TIMESTAMP, __DMR TIMESTAMP"""
"""The columns of cloe-nessy's metadata table."""


def random_rows(ids: DataFrame, seed: int) -> DataFrame:
    """Return rows for a column of ids."""
    return ids.select(
        "id",
        (F.col("id") % 50).cast("int").alias("region"),
        F.rand(seed).alias("value"),
        F.concat(F.lit(f"name-{seed}-"), F.col("id")).alias("name"),
    )


class Source:
    """A table in Spark's catalog, which cloe-nessy needs, and in a folder."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int) -> None:
        self.spark, self.rows, self.turn = spark, rows, 0
        self.place, self.name = f"{folder}/source", "spark_catalog.bench.source"
        spark.sql("CREATE DATABASE IF NOT EXISTS bench")
        made = "(id BIGINT, region INT, value DOUBLE, name STRING) USING delta"
        feed = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        spark.sql(f"CREATE TABLE bench.source {made} LOCATION '{self.place}' {feed}")
        random_rows(spark.range(rows), 0).write.format("delta").mode("append").save(self.place)

    def change(self, count: int) -> None:
        """Update, delete and insert rows in one commit; the table keeps its size."""
        self.turn += 1
        old = count * 19 // 20
        stored = self.spark.read.format("delta").load(self.place).select("id")
        order = F.xxhash64(F.lit(self.turn), "id")
        old_rows = stored.orderBy(order).limit(old)
        new = self.spark.range(self.rows * (self.turn + 1), self.rows * (self.turn + 1) + count // 20)
        change = random_rows(old_rows.union(new), self.turn)
        change = change.withColumn("gone", F.rand(self.turn + 1000) < 1 / 19).localCheckpoint()
        merge = SparkTable.forPath(self.spark, self.place).alias("t").merge(change.alias("s"), "t.id = s.id")
        values: Any = {name: f"s.{name}" for name in COLUMNS}
        merge = merge.whenMatchedDelete("s.gone").whenMatchedUpdate(set=values)
        merge.whenNotMatchedInsert(values=values).execute()


def by_hand(source: Source, target: str, *, keys_too: bool) -> Callable[[SparkSession], None]:
    """Return what somebody writes: all that is new, the last change of each key, one MERGE.

    :param keys_too: Delete the row of the old key if an update changes a key.
    """
    at = [DeltaTable(source.place).version()]
    gone = "_change_type IN ('delete', 'update_preimage')"

    def run(spark: SparkSession) -> None:
        newest = DeltaTable(source.place).version()
        feed = spark.read.format("delta").option("readChangeFeed", "true")
        feed = feed.option("startingVersion", at[0] + 1).option("endingVersion", newest)
        changes = feed.load(source.place)
        if not keys_too:
            changes = changes.where("_change_type <> 'update_preimage'")
        last = Window.partitionBy("id").orderBy(F.desc("_commit_version"), F.expr(gone))
        changes = changes.withColumn("n", F.row_number().over(last)).where("n = 1")
        merge = SparkTable.forPath(spark, target).alias("t").merge(changes.alias("s"), "t.id = s.id")
        values: Any = {name: f"s.{name}" for name in COLUMNS}
        merge = merge.whenMatchedDelete(f"s.{gone}").whenMatchedUpdate(set=values)
        merge.whenNotMatchedInsert(f"NOT s.{gone}", values=values).execute()
        at[0] = newest

    return run


def cloe_nessy(spark: SparkSession, source: Source, target: str) -> Callable[[SparkSession], None]:
    """Return its loader and its merge writer; what is in the source now is loaded."""
    os.environ["NESSY_SPARK_CONFIG"] = "{}"
    logging.disable(logging.WARNING)
    from cloe_nessy.integration.delta_loader.strategies.delta_cdf_loader import (  # noqa: PLC0415
        DeltaCDFConfig,
        DeltaCDFLoader,
    )
    from cloe_nessy.integration.writer.delta_writer.delta_merge_writer import DeltaMergeWriter  # noqa: PLC0415

    spark.conf.set("spark.sql.sources.default", "delta")  # as on Databricks
    # It looks its metadata table up where Databricks lists tables; Spark has no such schema.
    spark.sql("CREATE DATABASE information_schema")
    listed = "'spark_catalog' table_catalog, 'bench' table_schema, 'metadata' table_name"
    spark.sql(f"CREATE TABLE information_schema.tables USING delta AS SELECT {listed}")
    spark.sql(f"CREATE TABLE bench.metadata ({METADATA}) USING delta")
    config = DeltaCDFConfig(deduplication_columns=["id"], enable_full_load=True)

    def loader() -> Any:
        return DeltaCDFLoader(config, source.name, "benchmark", "spark_catalog.bench.metadata")

    def run(_: SparkSession) -> None:
        loader_run = loader()
        rows = loader_run.read_data()
        write = partial(
            DeltaMergeWriter().write,
            data_frame=rows,
            table_identifier="spark_catalog.bench.nessy",
            storage_path=target,
            key_columns=["id"],
            use_partition_pruning=False,
        )
        loader_run.write_data(write)

    first = loader()
    rows = first.read_data()
    first.write_data(partial(rows.write.format("delta").save, target))
    spark.sql(f"CREATE TABLE bench.nessy USING delta LOCATION '{target}'")
    return run


def content(table: str) -> pa.Table:
    """Return the rows of a table in an order."""
    return DeltaTable(table).to_pyarrow_table(columns=list(COLUMNS)).sort_by("id")


def compare(spark: SparkSession, folder: Path, args: argparse.Namespace) -> dict[int, dict[str, float]]:
    """Return the median seconds of each way for each number of changes."""
    source = Source(spark, folder, args.rows)
    warm.use(pytest.MonkeyPatch(), spark)
    (folder / "ours").mkdir()
    write = Merge(strategy="upsert", primary_key="id")
    arguments = {"source": CdfSource(table=source.place, full_load=True), "write": write}
    pipe = warm.Pipe(folder / "ours", arguments)
    pipe.run()
    ways: dict[str, Callable[[SparkSession], Any]] = {"ours": lambda _: pipe.run()}
    hands = {"by hand": f"{folder}/hand", "by hand, keys too": f"{folder}/keys"}
    for name, hand in hands.items():
        spark.read.format("delta").load(source.place).write.format("delta").save(hand)
        ways[name] = by_hand(source, hand, keys_too=name != "by hand")
    if args.cloe_nessy:
        sys.path.append(args.cloe_nessy)
        ways["cloe-nessy"] = cloe_nessy(spark, source, f"{folder}/nessy")
    medians: dict[int, dict[str, float]] = {}
    for count in args.changes:
        took: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for turn in range(args.repeats + 1):
            source.change(count)
            names = list(ways)
            for name in [*names[turn % len(names) :], *names[: turn % len(names)]]:
                took[name].append(measure(spark, ways[name]))
                spark.catalog.clearCache()  # cloe-nessy leaves what it has cached
            for name, hand in hands.items():
                if not content(str(pipe.table)).equals(content(hand)):
                    print(f"{count} changes: the tables of ours and of {name!r} differ")
                    raise SystemExit(1)
        # The first turn warms the session up.
        clock, cpu = (
            {who: statistics.median(turn[which] for turn in turns[1:]) for who, turns in took.items()}
            for which in (0, 1)
        )
        text = ", ".join(f"{who} {clock[who]:.2f} s ({cpu[who]:.2f} s of CPU)" for who in ways)
        print(f"{count:,} changes of {args.rows:,} rows: {text}", flush=True)
        medians[count] = clock
    if args.cloe_nessy:
        left = DeltaTable(f"{folder}/nessy").count() - DeltaTable(source.place).count()
        print(f"cloe-nessy's table has {left:,} rows more than the source")
    return medians


def main() -> int:
    """Measure, and print one line for each number of changes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, nargs=2, default=[10_000, 1_000_000], metavar=("FEW", "MANY"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cloe-nessy", metavar="FOLDER")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="airflow-provider-scope-cdf-"))
    os.chdir(folder)  # Spark's catalog is a folder where it starts
    spark = session()
    try:
        medians = compare(spark, folder, args)
    finally:
        spark.stop()
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)
    few, many = (medians[count] for count in args.changes)
    print(f"ratio hand-written 1M, keys too {many['ours'] / many['by hand, keys too']:.2f}")
    line = f"ratio hand-written 1M {many['ours'] / many['by hand']:.2f}"
    if "cloe-nessy" in few:
        line += f", ratio cloe-nessy 10k {few['cloe-nessy'] / few['ours']:.2f}"
    print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
