"""What the command says of a quarantine: how much is in it, how to see it all, and what may be given back."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

ALL = "SELECT * FROM delta.`file:///quarantine` WHERE pipeline = 'PIPELINE'"


@pytest.fixture
def bad(desk):
    """Give a desk where, of the files of three batches, one is aside as a whole and one in part."""
    desk.loaded("a.parquet", "b.parquet", "c.parquet")
    put(desk, 0, "a.parquet", None, "it cannot be read: it ends early", None)
    for number in (3, 5, 7):
        put(desk, 1, "b.parquet", number, "v is not int", f'{{"v":"x{number}"}}')
    put(desk, 1, "b.parquet", 2, "w is not date", '{"w":"y"}')
    desk.world.log().use_quarantine(place(desk))
    return desk


def place(desk: Any) -> str:
    return f"file://{desk.world.folder}/quarantine"


def uri(desk: Any, name: str) -> str:
    return f"file://{desk.world.folder}/landing/{name}"


def put(desk: Any, batch: int, name: str, record: int | None, *what: str | None) -> None:
    rule, raw = what
    row = {
        "pipeline": [desk.world.log().pipeline().pipeline],
        "batch": [batch],
        "file": [uri(desk, name)],
        "record": pa.array([record], pa.int64()),
        "rule": [rule],
        "raw": pa.array([raw], pa.string()),
    }
    write_deltalake(str(desk.world.folder / "quarantine"), pa.table(row), mode="append")


def test_the_listing_counts_the_records_of_each_file_and_rule_and_says_how_to_see_them_all(bad):
    said = bad.table_command("quarantine")

    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == [
        "quarantine  file:///quarantine",
        "            4 records, and 1 file as a whole",
        "batch 0: file:///landing/a.parquet",
        "  the whole file: it cannot be read: it ends early",
        "batch 1: file:///landing/b.parquet",
        "  3 records: v is not int",
        "  1 record: w is not date",
        '  the first of its 4 is record 2: {"w":"y"}',
        f"all of them, with all their records: {ALL}",
    ]
