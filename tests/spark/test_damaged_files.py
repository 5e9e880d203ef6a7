"""A file with one byte changed, or cut anywhere, gives its own rows, or is known to be at fault itself.

Where a format has checksums, no changed byte becomes another value.
"""

from __future__ import annotations

import bz2
import gzip
import random
import zlib
from collections import defaultdict
from typing import TYPE_CHECKING

import fastavro
import pyarrow as pa
import pytest
from pyarrow import orc
from pyarrow import parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.compiled]

ROWS = [{"i": number, "s": f"name {number % 7}"} for number in range(300)]
LINES = "".join(f"{row['i']},{row['s']}\n" for row in ROWS).encode()
COLUMNS = {"i": "bigint", "s": "string"}
PLACES = 10
"""Places in a file that are tried: it is cut there, or the byte is changed."""


def packed(pack: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(pack(LINES)) and None


def parquet(codec: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        pq.write_table(pa.Table.from_pylist(ROWS), path, compression=codec, write_page_checksum=True)

    return write


def orc_file(path: Path) -> None:
    orc.write_table(pa.Table.from_pylist(ROWS), str(path), compression="zlib")


def avro(path: Path) -> None:
    fields = [{"name": "i", "type": "long"}, {"name": "s", "type": "string"}]
    with path.open("wb") as file:
        schema = {"type": "record", "name": "row", "fields": fields}
        fastavro.writer(file, schema, ROWS, codec="xz", sync_interval=500)


CHECKED: dict[str, tuple[str, Callable[[Path], None]]] = {
    "a.csv.gz": ("csv", packed(gzip.compress)),
    "a.csv.bz2": ("csv", packed(bz2.compress)),
    "a.csv.deflate": ("csv", packed(zlib.compress)),
    "snappy": ("parquet", parquet("snappy")),
    "zstd": ("parquet", parquet("zstd")),
    "plain": ("parquet", parquet("none")),
    "a.avro": ("avro", avro),
}
"""Files with checksums: name -> format, and how it is written."""
ALL = {**CHECKED, "a.orc": ("orc", orc_file)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "parquet", "avro", "orc"])
def test_a_damaged_file_is_told_by_name(bench, kind):
    rng = random.Random(kind)
    files = defaultdict(list)
    for name in [name for name, (of, _) in ALL.items() if of == kind]:
        ALL[name][1](bench.folder / name)
        whole = (bench.folder / name).read_bytes()
        for number in range(PLACES):
            at = rng.randrange(1, len(whole))
            changed = whole[:at] + bytes([whole[at] ^ (1 << rng.randrange(8))]) + whole[at + 1 :]
            files[name].append(bench.file(f"{number}/{name}", changed if number % 2 else whole[:at]))

    good, aside = bench.sort(
        bench.batch(0, *[file for of_name in files.values() for file in of_name]),
        format=kind,
        columns=COLUMNS,
        sql="SELECT i, s, source_file_uri AS file FROM @data",
    )

    refused = {row["file"] for row in aside if row["record"] is None}
    rows = defaultdict(list)
    for row in good:
        rows[row.pop("file")].append(row)
    assert not refused & rows.keys()
    for name in files.keys() & CHECKED:
        paths = {file.path for file in files[name]}
        assert len(paths & refused) >= PLACES // 2, name
        for path in paths - refused:
            assert sorted(rows[path], key=lambda row: row["i"]) == ROWS, path
