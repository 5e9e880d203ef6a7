"""What it costs to read strictly, beside Spark's own typed reader on the same files.

    python benchmarks/strict_reading.py [--rows 800000] [--files 1000] [--repeats 3] [--only json]

Both load the same files into a new Delta table, in one Spark session with this package's settings, so that
the start of the JVM does not count; each form of files has a process of its own. Ours is the application's
own way from a logged batch to its commit; theirs is ``spark.read.schema(...)`` with ``mode=FAILFAST``, and
``write.format("delta")``. They take turns, after one load each that is not counted, and the two tables are
compared.

The CPU time is that of the process and of all below it, user and system. It is what counts where others use
the machine, too. The last line gives the ratios of the medians: ours / theirs, CPU time, which is to stay
at 1.1 or below.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow import orc
from pyspark.sql import SparkSession

from airflow_provider_scope.engines import application
from airflow_provider_scope.protocol import records
from airflow_provider_scope.protocol.records import OffsetEntry
from airflow_provider_scope.sources.files.spec import FileFormat, FileSource
from airflow_provider_scope.spark import app
from airflow_provider_scope.spark.plan import Plan
from airflow_provider_scope.spark.session import make_exact
from airflow_provider_scope.values import FileEntry, FileSlice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TARGET_RATIO = 1.1
COLUMNS = {
    "id": "bigint",
    "quantity": "int",
    "account": "bigint",
    "ratio": "double",
    "price": "decimal(12,2)",
    "day": "date",
    "at": "timestamp",
    "name": "string",
    "city": "string",
    "note": "string",
}
ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("quantity", pa.int32()),
        ("account", pa.int64()),
        ("ratio", pa.float64()),
        ("price", pa.decimal128(12, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("name", pa.string()),
        ("city", pa.string()),
        ("note", pa.string()),
    ]
)
CITIES = (
    "Z\u00fcrich",
    "S\u00e3o Paulo",
    "\u6771\u4eac",
    "Kraków",
    "New York",
    "\u0391\u03b8\u03ae\u03bd\u03b1",
)
NOTES = ("plain, with a comma", 'the "best" of them', "", "a longer text without anything to it", "short")


# ---- the files --------------------------------------------------------------------------------------


def rows(count: int) -> Iterator[dict[str, Any]]:
    """Return the rows; every seventh note and every eleventh quantity is NULL."""
    chance = random.Random(1)
    first = datetime(2024, 1, 1, tzinfo=UTC)
    for number in range(count):
        yield {
            "id": number,
            "quantity": None if number % 11 == 0 else chance.randrange(100_000),
            "account": chance.randrange(10**12),
            "ratio": chance.random() * 1000,
            "price": Decimal(chance.randrange(10**8)).scaleb(-2),
            "day": date(2024, 1, 1) + timedelta(days=number % 700),
            "at": first + timedelta(seconds=number * 37, microseconds=chance.randrange(10**6)),
            "name": f"name {number}",
            "city": CITIES[number % len(CITIES)],
            "note": NOTES[number % len(NOTES)] or None,
        }


def spelled(value: Any) -> Any:
    """Return a value as it stands in a text file."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value.isoformat() if isinstance(value, date) else value


def write_csv(folder: Path, count: int, _: int) -> None:
    """Write one file, quoted where it has to be."""
    with (folder / "all.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([spelled(value) for value in row.values()] for row in rows(count))


def write_plain_csv(folder: Path, count: int, _: int) -> None:
    """Write one file in which no field has a quote."""
    with (folder / "all.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in rows(count):
            row["note"] = row["note"] and row["note"].replace('"', "'")
            writer.writerow([spelled(value) for value in row.values()])


def write_json(folder: Path, count: int, _: int) -> None:
    """Write one file with an object on each line; decimals are numbers."""
    with (folder / "all.json").open("w", encoding="utf-8") as file:
        for row in rows(count):
            price = row.pop("price")
            text = json.dumps(
                {k: spelled(v) for k, v in row.items()}, ensure_ascii=False, separators=(",", ":")
            )
            file.write(f'{text[:-1]},"price":{price}}}\n')


def write_parquet(folder: Path, count: int, _: int) -> None:
    """Write one large file."""
    pq.write_table(pa.Table.from_pylist([*rows(count)], ARROW), folder / "all.parquet")


def write_small_parquet(folder: Path, _: int, files: int) -> None:
    """Write many files of 100 rows."""
    table = pa.Table.from_pylist([*rows(files * 100)], ARROW)
    for number in range(files):
        pq.write_table(table.slice(number * 100, 100), folder / f"{number:06}.parquet")


def write_orc(folder: Path, count: int, _: int) -> None:
    """Write one large file, as another program than Spark."""
    orc.write_table(pa.Table.from_pylist([*rows(count)], ARROW), str(folder / "all.orc"))


@dataclass(frozen=True, slots=True)
class Kind:
    """Files of a form."""

    name: str
    format: FileFormat
    write: Callable[[Path, int, int], None]
    options: dict[str, str]


AS_RFC_4180 = {"header": "true", "escape": '"'}
KINDS = (
    Kind("csv", "csv", write_csv, AS_RFC_4180),
    Kind("csv without quotes in texts", "csv", write_plain_csv, AS_RFC_4180),
    Kind("json", "json", write_json, {}),
    Kind("parquet", "parquet", write_parquet, {}),
    Kind("small parquet files", "parquet", write_small_parquet, {}),
    Kind("orc", "orc", write_orc, {}),
)


# ---- the two ways -----------------------------------------------------------------------------------


def ours(spark: SparkSession, kind: Kind, files: list[Path], table: Path) -> None:
    """Run one logged batch, as the application does."""
    checkpoint = table.with_name(f"{table.name}-checkpoint")
    stats = [(path, path.stat()) for path in files]
    entry = OffsetEntry(
        seq=0,
        mode="append",
        slice=FileSlice(
            tuple(FileEntry(s.st_mtime_ns // 1_000_000, f"file://{path}", s.st_size) for path, s in stats),
            None,
        ),
        refresh_start=None,
        overwrite_start=None,
    )
    log = checkpoint / "offsets" / f"{0:020}"
    log.parent.mkdir(parents=True)
    log.write_bytes(records.encode_offset(entry))
    plan = Plan(
        pipeline=str(uuid.uuid4()),
        table=f"file://{table}",
        checkpoint=f"file://{checkpoint}",
        batches=(0,),
        source=FileSource(roots="/in", format=kind.format, columns=COLUMNS, options=kind.options),
        sql="SELECT * FROM @data",
        sql_params={},
    )
    with redirect_stdout(io.StringIO()):
        app.run(spark, plan)


def theirs(spark: SparkSession, kind: Kind, files: list[Path], table: Path) -> None:
    """Read with the types declared, and write."""
    schema = ", ".join(f"`{name}` {type_}" for name, type_ in COLUMNS.items())
    reader = spark.read.format(kind.format).schema(schema).options(**{"mode": "FAILFAST", **kind.options})
    data = reader.load([f"file://{path}" for path in files])
    data.write.format("delta").mode("append").save(f"file://{table}")


WAYS = {"ours": ours, "theirs": theirs}


def cpu_seconds() -> float:
    """Return the CPU time that this process and all below it have had."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return float(sum(t.user + t.system for t in times))


def content(table: Path) -> pa.Table:
    """Return the rows of a table, by a reader that is not Spark."""
    rows = DeltaTable(str(table)).to_pyarrow_table().select([*COLUMNS])
    return rows.sort_by("id").cast(ARROW)


def compare(spark: SparkSession, kind: Kind, folder: Path, args: argparse.Namespace) -> float:
    """Measure files of one form, print it, and give our CPU time / theirs."""
    landing = folder / "landing"
    landing.mkdir(parents=True)
    kind.write(landing, args.rows, args.files)
    files = sorted(landing.iterdir())
    size = sum(path.stat().st_size for path in files)
    print(f"{kind.name}: {len(files):,} files, {size / 2**20:,.0f} MiB", flush=True)
    cpu: dict[str, list[float]] = {way: [] for way in WAYS}
    wall: dict[str, list[float]] = {way: [] for way in WAYS}
    for repeat in range(args.repeats + 1):
        tables = {}
        for way, load in WAYS.items():
            table = tables[way] = folder / f"{way}-{repeat}"
            spark._jvm.System.gc()  # type: ignore[union-attr]  # what the other one left is not to be paid by this one
            clock, used = time.monotonic(), cpu_seconds()
            load(spark, kind, files, table)
            clock, used = time.monotonic() - clock, cpu_seconds() - used
            if repeat:
                cpu[way].append(used)
                wall[way].append(clock)
            note = "" if repeat else "   not counted"
            print(f"  {way:8}{used:8.2f} s of CPU{clock:8.2f} s by the clock{note}", flush=True)
        if not content(tables["ours"]).equals(content(tables["theirs"])):
            raise SystemExit(f"the tables differ: {folder}")
        for path in tables.values():
            shutil.rmtree(path)
    for way in WAYS:
        used, clock = statistics.median(cpu[way]), statistics.median(wall[way])
        print(f"  {way:8}{used:8.2f} s of CPU{clock:8.2f} s by the clock   median")
    shutil.rmtree(folder)
    return statistics.median(cpu["ours"]) / statistics.median(cpu["theirs"])


def session() -> SparkSession:
    """Start Spark as a local run of this package does."""
    builder = SparkSession.builder.master("local[*]").appName("benchmark")
    builder = builder.config("spark.jars.packages", application.delta_package())
    builder = builder.config("spark.jars.excludes", ",".join(application.EXCLUDED_PACKAGES))
    for key, value in {**application.REQUIRED_CONF, **application.LOCAL_CONF}.items():
        builder = builder.config(key, value)
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    make_exact(spark)
    return spark


def alone(name: str, args: argparse.Namespace) -> float:
    """Measure files of one form in a process of its own: its JVM has compiled nothing for the others."""
    command = [sys.executable, __file__, "--only", name, "--inside"]
    command += ["--rows", str(args.rows), "--files", str(args.files), "--repeats", str(args.repeats)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    ratio = float("nan")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as child:
        assert child.stdout
        for line in child.stdout:
            if line.startswith("ratio "):
                ratio = float(line.split()[1])
            else:
                print(line, end="", flush=True)
    if child.returncode:
        raise SystemExit(f"{name}: failed; run it with --inside to see why")
    return ratio


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=800_000, help="rows of one large file")
    parser.add_argument("--files", type=int, default=1000, help="small files, of 100 rows each")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=[kind.name for kind in KINDS], action="append")
    parser.add_argument("--inside", action="store_true", help="in this process, for one form")
    args = parser.parse_args()
    kinds = [kind for kind in KINDS if kind.name in (args.only or [kind.name])]
    if args.inside:
        spark = session()
        with tempfile.TemporaryDirectory(prefix="strict-benchmark-") as folder:
            print(f"ratio {compare(spark, kinds[0], Path(folder) / 'form', args)}")
        spark.stop()
        return 0
    print(f"{args.rows:,} rows of {len(COLUMNS)} columns, {os.cpu_count()} cores", flush=True)
    ratios = {kind.name: alone(kind.name, args) for kind in kinds}
    ratios_text = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
    print(f"CPU ours / theirs (target {TARGET_RATIO}): {ratios_text}")
    return 0 if max(ratios.values()) <= TARGET_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
