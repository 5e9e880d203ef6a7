"""One thing that is wrong in a parquet or ORC file.

A mutilation gives the bytes of the file, or None where a source has nothing to be spoilt in this way.
"""

from __future__ import annotations

import decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.datasets import arrow_files

if TYPE_CHECKING:
    import random

    from tests.datasets.generator import Case, File


class Sealed:
    """The table inside of a parquet or ORC file, to be changed and written again."""

    def __init__(self, case: Case, file: File, rng: random.Random) -> None:
        self.case, self.rng = case, rng
        self.data = arrow_files.table(case.columns, file.rows)

    def bytes(self) -> bytes:
        if self.case.format == "orc":
            return arrow_files.orc(self.data, self.rng)
        return arrow_files.parquet(self.data, self.rng, version="2.6")

    def put(self, index: int, name: str, kind: pa.DataType, value: Any) -> None:
        array = pa.array([value] * self.data.num_rows, kind)
        self.data = self.data.set_column(index, pa.field(name, kind), array)


def sealed_column_renamed(data: Sealed) -> bytes | None:
    names = data.data.column_names
    names[data.rng.randrange(len(names))] = "renamed"
    data.data = data.data.rename_columns(names)
    return data.bytes()


def sealed_column_missing(data: Sealed) -> bytes | None:
    if data.data.num_columns == 1:
        return None
    data.data = data.data.remove_column(data.rng.randrange(data.data.num_columns))
    return data.bytes()


def sealed_column_more(data: Sealed) -> bytes | None:
    data.data = data.data.append_column("more", pa.array([1] * data.data.num_rows))
    return data.bytes()


_RETYPED: dict[str, tuple[tuple[pa.DataType, Any], ...]] = {
    "string": ((pa.binary(), b"\xff\xfe"), (pa.int64(), 7), (pa.float64(), 1.5), (pa.list_(pa.int8()), [1])),
    "boolean": ((pa.int32(), 1), (pa.string(), "true")),
    "tinyint": ((pa.int16(), 300), (pa.int32(), 300), (pa.uint8(), 200), (pa.string(), "1")),
    "smallint": ((pa.int32(), 70_000), (pa.uint16(), 40_000), (pa.string(), "1"), (pa.float64(), 1.5)),
    "int": ((pa.int64(), 2**33 + 5), (pa.string(), "1"), (pa.float64(), 1.5), (pa.uint32(), 2**31 + 5)),
    "bigint": ((pa.string(), "1"), (pa.float64(), 1.5), (pa.uint64(), 2**63 + 5), (pa.bool_(), True)),
    "float": ((pa.float64(), 0.1), (pa.string(), "1")),
    "double": ((pa.string(), "1"), (pa.int64(), 2**53 + 1), (pa.binary(), b"12345678")),
    "date": ((pa.string(), "2026-01-01"), (pa.timestamp("us", tz="UTC"), 1), (pa.int64(), 1)),
    "timestamp": (
        (pa.timestamp("us"), 1), (pa.string(), "2026-01-01"), (pa.int64(), 1),
        (pa.timestamp("ns", "UTC"), 1_001),
    ),
    "timestamp_ntz": ((pa.timestamp("us", tz="UTC"), 1), (pa.int64(), 1), (pa.timestamp("ns"), 1_001)),
    "binary": ((pa.int64(), 1), (pa.list_(pa.int8()), [1])),
}  # fmt: skip


def sealed_value_of_another_type(data: Sealed) -> bytes | None:
    usable = [i for i, (_, kind) in enumerate(data.case.columns) if kind.name in {*_RETYPED, "decimal"}]
    if not usable:
        return None
    index = data.rng.choice(usable)
    name, kind = data.case.columns[index]
    if kind.name == "decimal":
        precision, scale = kind.digits
        more = data.rng.choice((pa.decimal128(38, 38), pa.string(), pa.float64(), pa.int64()))
        if more == pa.decimal128(38, 38) and (precision, scale) == (38, 38):
            more = pa.string()
        value = {"string": "1", "double": 0.3, "int64": 2**62}.get(str(more))
        if value == 2**62 and precision - scale >= 19:  # it fits
            more, value = pa.string(), "1"
        if value is None:
            value = decimal.Decimal((0, (1,) * 38, -38))
        data.put(index, name, more, value)
        return data.bytes()
    choices = [
        c
        for c in _RETYPED[kind.name]
        if data.case.format == "parquet" or not pa.types.is_unsigned_integer(c[0])
    ]
    data.put(index, name, *data.rng.choice(choices))
    return data.bytes()


def sealed_cut(data: Sealed) -> bytes | None:
    whole = data.bytes()
    return whole[: data.rng.randrange(4, len(whole))]


def sealed_without_its_footer(data: Sealed) -> bytes | None:
    whole = data.bytes()
    return whole[:-8] + bytes(8)


def sealed_text_instead(data: Sealed) -> bytes | None:
    return b"id,name\n1,x\n"
