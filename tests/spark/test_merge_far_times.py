"""Keys that are times long ago or far ahead: which files a MERGE reads follows from their ranges as text.

Compared with a dict. pyarrow reads the keys back as numbers: Python has no year before 1 or after 9999.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.spark.conftest import changed

if TYPE_CHECKING:
    from tests.spark.conftest import Bench

pytestmark = [pytest.mark.spark, pytest.mark.compiled, pytest.mark.loads]

DAYS = {
    "-0044-03-15": -735_525,
    "0000-05-05": -719_403,
    "0001-01-01": -719_162,
    "1582-10-10": -141_432,
    "1582-10-15": -141_427,
    "1969-12-31": -1,
    "9999-12-31": 2_932_896,
    "+10000-01-01": 2_932_897,
    "+12345-01-01": 3_789_391,
}
"""Days since 1970, as the calendar counts them that has no gap in 1582."""
LATE_US = 86_399_999_999
"""The last microsecond of a day."""
LOADS = [
    # Each of these makes a file of its own, and none is all there is to read.
    ["-0044-03-15", "0001-01-01"],
    ["1582-10-10", "1969-12-31", "9999-12-31"],
    ["+10000-01-01", "+12345-01-01"],
    # From here on some are stored, and some are new.
    ["1582-10-10"],
    ["-0044-03-15"],
    ["9999-12-31", "+12345-01-01"],
    ["0000-05-05", "0001-01-01", "1582-10-15"],
    [*DAYS],
]


def keys(kind: str, names: list[str]) -> tuple[list[int], pa.Array]:
    """Return keys as numbers, and as a column."""
    if kind == "date":
        days = [DAYS[name] for name in names]
        return days, pa.array(days, pa.int32()).cast(pa.date32())
    instants = [DAYS[name] * 86_400_000_000 + LATE_US for name in names]
    return instants, pa.array(instants, pa.int64()).cast(pa.timestamp("us", tz="UTC"))


def stored(bench: Bench, kind: str) -> list[tuple[int, str]]:
    """Read the table's files one by one: of a whole table, delta-rs makes Python's dates of partitions."""
    found = []
    for uri in DeltaTable(str(bench.table)).file_uris():
        rows = pq.ParquetFile(uri).read()
        if "at" in rows.column_names:
            at = rows["at"].combine_chunks()
            numbers = at.cast(pa.int32() if kind == "date" else pa.int64()).to_pylist()
        else:
            numbers = [partition_of(uri, kind)] * len(rows)
        found += zip(numbers, rows["text"].to_pylist(), strict=True)
    return sorted(found)


def partition_of(uri: str, kind: str) -> int:
    """Return the key that the folder of a file is named by."""
    named = re.search(r"/at=([-+\d]+)([^/]*)/", unquote(unquote(uri)))
    assert named
    assert bool(named[2]) == (kind == "timestamp")
    assert not named[2] or "23:59:59.999999" in named[2]
    return keys(kind, [named[1]])[0][0]


@pytest.mark.parametrize(
    ("kind", "partition_by"), [("date", ()), ("date", ("at",)), ("timestamp", ()), ("timestamp", ("at",))]
)
def test_a_stored_key_is_found_whatever_its_year(
    bench: Bench, kind: str, partition_by: tuple[str, ...]
) -> None:
    write: dict[str, Any] = {"kind": "merge", "strategy": "upsert", "primary_key": ["at"]}
    bench.plan = changed(
        bench.plan, write=write, partition_by=partition_by, options={"datetimeRebaseMode": "CORRECTED"}
    )
    expected: dict[int, str] = {}
    # Delta has no partitions of times before the year 1: test_partitions.py.
    least = DAYS["0001-01-01"] if kind == "timestamp" and partition_by else min(DAYS.values())
    loads = [found for names in LOADS if (found := [name for name in names if DAYS[name] >= least])]

    for seq, names in enumerate(loads):
        numbers, column = keys(kind, names)
        texts = [f"{name} of {seq}" for name in names]
        bench.run(bench.batch(seq, bench.parquet(f"{seq}.parquet", at=column, text=texts)))
        expected.update(zip(numbers, texts, strict=True))

        assert stored(bench, kind) == sorted(expected.items()), f"after load {seq}"
