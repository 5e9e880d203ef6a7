"""Avro, as fastavro writes it with any of its settings."""

from __future__ import annotations

import io
import itertools
from typing import TYPE_CHECKING, Any

import fastavro

from tests.datasets.kinds import Kind

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

_PRIMITIVES = {"bigint": "long", "binary": "bytes"}


def of_avro(kind: Kind) -> Kind:
    """Return the type in place of one that Avro lacks."""
    if kind.name in {"tinyint", "smallint"}:
        return Kind("int")
    names = tuple(f"f{number}_" for number, _ in enumerate(kind.names))
    return Kind(kind.name, tuple(map(of_avro, kind.parts)), names, kind.digits)


def file(columns: Sequence[tuple[str, Kind]], rows: Sequence[Sequence[Any]], rng: random.Random) -> bytes:
    """Return a file with random settings."""
    numbers = itertools.count()
    fields = [{"name": name, "type": _schema(kind, rng, numbers)} for name, kind in columns]
    records = [
        {name: _value(value, kind) for value, (name, kind) in zip(row, columns, strict=True)} for row in rows
    ]
    into = io.BytesIO()
    fastavro.writer(
        into,
        {"type": "record", "name": "row", "namespace": rng.choice(("", "a.b")), "fields": fields},
        records,
        codec=rng.choice(("null", "deflate", "bzip2", "xz")),
        sync_interval=rng.choice((1, 200, 16_000)),
    )
    return into.getvalue()


def _schema(kind: Kind, rng: random.Random, numbers: Iterator[int]) -> Any:
    """Return a type that may be null."""
    match kind.name:
        case "array":
            schema: Any = {"type": "array", "items": _schema(kind.parts[0], rng, numbers)}
        case "map":
            schema = {"type": "map", "values": _schema(kind.parts[1], rng, numbers)}
        case "struct":
            parts = zip(kind.names, kind.parts, strict=True)
            fields = [{"name": name, "type": _schema(part, rng, numbers)} for name, part in parts]
            schema = {"type": "record", "name": f"n{next(numbers)}", "fields": fields}
        case "decimal":
            schema = {"type": "bytes", "logicalType": "decimal"}
            schema |= {"precision": kind.digits[0], "scale": kind.digits[1]}
            if rng.random() < 0.5:
                schema |= {"type": "fixed", "name": f"n{next(numbers)}", "size": rng.choice((16, 20))}
        case "timestamp" | "timestamp_ntz":
            local = "local-" if kind.name == "timestamp_ntz" else ""
            schema = {"type": "long", "logicalType": f"{local}timestamp-micros"}
        case "date":
            schema = {"type": "int", "logicalType": "date"}
        case "string":
            schema = rng.choice(("string", {"type": "string", "avro.java.string": "String"}))
        case _:
            schema = _PRIMITIVES.get(kind.name, kind.name)
    return rng.choice((["null", schema], [schema, "null"]))


def _value(value: Any, kind: Kind) -> Any:
    if value is None:
        return None
    match kind.name:
        case "array":
            return [_value(one, kind.parts[0]) for one in value]
        case "map":
            return {key: _value(one, kind.parts[1]) for key, one in value}
        case "struct":
            return {n: _value(value[n], p) for n, p in zip(kind.names, kind.parts, strict=True)}
    return value
