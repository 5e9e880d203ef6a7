"""Parquet and ORC, as pyarrow writes them with any of its settings."""

from __future__ import annotations

import datetime as dt
import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tests.datasets.kinds import Kind

_NANOSECONDS = (dt.datetime(1678, 1, 1), dt.datetime(2262, 1, 1))
"""What fits into 64 bits of nanoseconds."""


def table(columns: Sequence[tuple[str, Kind]], rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Return rows as a table."""
    arrays = [pa.array([row[i] for row in rows], kind.arrow) for i, (_, kind) in enumerate(columns)]
    return pa.Table.from_arrays(arrays, schema=pa.schema([(name, kind.arrow) for name, kind in columns]))


def parquet(data: pa.Table, rng: random.Random, **settings: Any) -> bytes:
    """Return a parquet file with random settings."""
    into = io.BytesIO()
    chosen = {
        "version": rng.choice(("1.0", "2.4", "2.6")),
        "compression": rng.choice(("none", "snappy", "gzip", "zstd")),
        "use_dictionary": rng.random() < 0.5,
        "row_group_size": rng.choice((1, 7, 1000)),
        "data_page_version": rng.choice(("1.0", "2.0")),
        "write_statistics": rng.random() < 0.8,
        "store_schema": rng.random() < 0.7,
        "store_decimal_as_integer": rng.random() < 0.3,
        "write_page_index": rng.random() < 0.3,
        **settings,
    }
    pq.write_table(data, into, **chosen)
    return into.getvalue()


def orc(data: pa.Table, rng: random.Random) -> bytes:
    """Return an ORC file with random settings."""
    into = io.BytesIO()
    pyarrow.orc.write_table(
        data,
        into,
        compression=rng.choice(("uncompressed", "snappy", "zlib", "zstd")),
        stripe_size=rng.choice((4_096, 1_000_000)),
        dictionary_key_size_threshold=rng.choice((0.0, 1.0)),
    )
    return into.getvalue()


def is_what_was_written(content: bytes, data: pa.Table) -> bool:
    """Return whether Arrow reads from an ORC file what it was given."""
    found = pyarrow.orc.read_table(io.BytesIO(content))
    return found.to_pylist() == data.to_pylist()


def other_shape(data: pa.Table, rng: random.Random, *, nanoseconds: bool) -> pa.Table:
    """Return the same values in other types of Arrow: what other programs write for them."""
    for index, field in enumerate(data.schema):
        column, kind = data.column(index), field.type
        if kind == pa.string() and rng.random() < 0.3:
            column = column.cast(rng.choice((pa.large_string(), pa.dictionary(pa.int32(), pa.string()))))
        elif kind == pa.binary() and rng.random() < 0.3:
            column = column.cast(pa.large_binary())
        elif pa.types.is_timestamp(kind) and nanoseconds and rng.random() < 0.5:
            zone = dt.UTC if kind.tz else None
            low, high = (moment.replace(tzinfo=zone) for moment in _NANOSECONDS)
            if all(v is None or low <= v <= high for v in column.to_pylist()):
                column = column.cast(pa.timestamp("ns", tz=kind.tz))
        data = data.set_column(index, pa.field(field.name, column.type), column)
    return data
