"""A file with one byte changed, or cut anywhere: its own rows, or an error that names it and is not retried.

Where a format has checksums, no changed byte becomes another value.
"""

from __future__ import annotations

import bz2
import gzip
import random
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import orc
from pyarrow import parquet as pq

from airflow_provider_scope.exceptions import BadFileError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.spark

ROWS = [{"i": number, "s": f"name {number % 7}"} for number in range(300)]
LINES = "".join(f"{row['i']},{row['s']}\n" for row in ROWS).encode()
COLUMNS = {"i": "bigint", "s": "string"}
PLACES = 10
"""Places in a file that are tried."""


def packed(pack: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(pack(LINES)) and None


def parquet(codec: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        pq.write_table(pa.Table.from_pylist(ROWS), path, compression=codec, write_page_checksum=True)

    return write


def orc_file(path: Path) -> None:
    orc.write_table(pa.Table.from_pylist(ROWS), str(path), compression="zlib")


CHECKED: dict[str, tuple[str, Callable[[Path], None]]] = {
    "a.csv.gz": ("csv", packed(gzip.compress)),
    "a.csv.bz2": ("csv", packed(bz2.compress)),
    "a.csv.deflate": ("csv", packed(zlib.compress)),
    "snappy": ("parquet", parquet("snappy")),
    "zstd": ("parquet", parquet("zstd")),
    "plain": ("parquet", parquet("none")),
}
"""Files with checksums: name -> format, and how it is written."""
ALL = {**CHECKED, "a.orc": ("orc", orc_file)}


def load(bench: Any, name: str, kind: str, content: bytes) -> list[dict[str, Any]] | BadFileError:
    path = bench.folder / "landing" / name
    path.write_bytes(content)
    entry = bench.batch(0, bench.entry(path))
    try:
        bench.run(entry, format=kind, columns=COLUMNS)
    except BadFileError as err:
        return err
    return sorted(bench.rows(), key=lambda row: row["i"])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("damage", ["changed", "cut"])
def test_a_damaged_file_is_told_by_name(bench, name, damage):
    kind, write = ALL[name]
    landing = bench.folder / "landing"
    landing.mkdir()
    write(landing / name)
    whole = (landing / name).read_bytes()
    rng = random.Random(f"{name} {damage}")
    refused = 0
    for number in range(PLACES):
        at = rng.randrange(1, len(whole))
        changed = whole[:at] + bytes([whole[at] ^ (1 << rng.randrange(8))]) + whole[at + 1 :]
        bench.table = bench.folder / f"table {number}"
        bench.plan = replace(bench.plan, table=f"file://{bench.table}")

        found = load(bench, name, kind, changed if damage == "changed" else whole[:at])

        if isinstance(found, BadFileError):
            refused += 1
            assert f"/landing/{name}: " in found.what
        elif name in CHECKED:
            assert found == ROWS, (name, damage, at)
    assert refused >= PLACES // 2 or name == "a.orc"
