"""Typed files that drift: each value is in its column or rescued, comes back from there, and only there."""

from __future__ import annotations

import base64
import datetime as dt
import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.datasets import arrow_files, avro_files, kinds
from tests.datasets.kinds import Kind
from tests.spark.reading_cases import DECIMAL, raw

pytestmark = pytest.mark.spark

FORMATS = ("parquet", "avro")
OTHERS = {"parquet": ("zz", "a b", "ü", "x.y", "_rescued"), "avro": ("zz", "A_b", "_9", "_rescued")}
FAMILIES = {
    "number": ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal"),
    "time": ("date", "timestamp", "timestamp_ntz"),
}


def family(kind: Kind) -> str:
    return next((name for name, members in FAMILIES.items() if kind.name in members), kind.name)


def varied(kind: Kind, rng: random.Random) -> Kind:
    """Give a type like this one, which it may hold or not."""
    match kind.name:
        case "array":
            return Kind("array", (varied(kind.parts[0], rng),))
        case "map":
            return Kind("map", (kind.parts[0], varied(kind.parts[1], rng)))
        case "struct" if len(kind.parts) > 1 and rng.random() < 0.4:
            return Kind("struct", kind.parts[1:], kind.names[1:])
        case "struct" if rng.random() < 0.5:
            return Kind("struct", (*kind.parts, kinds.scalar(rng)), (*kind.names, "new"))
        case "struct":
            return Kind("struct", (varied(kind.parts[0], rng), *kind.parts[1:]), kind.names)
    if family(kind) not in FAMILIES:
        return kinds.scalar(rng)
    name = rng.choice(FAMILIES[family(kind)])
    return Kind(name, digits=rng.choice(((12, 2), (38, 4)))) if name == "decimal" else Kind(name)


def shape_of(declared: dict[str, Kind], others: tuple[str, ...], rng: random.Random) -> dict[str, Kind]:
    """Give the columns of one file: some as declared, of another type or case, missing, or unknown."""
    shape = {}
    for name, kind in declared.items():
        pick = rng.random()
        spelled = name.upper() if rng.random() < 0.2 else name
        if pick < 0.9:
            is_other = kinds.nested(rng, binary=True) if pick < 0.2 else varied(kind, rng)
            shape[spelled] = kind if pick > 0.45 else is_other
    shape |= {name: kinds.nested(rng, binary=True) for name in rng.sample(others, rng.randint(0, 2))}
    return dict(rng.sample([*shape.items()], len(shape)))


def leaf(text: str, kind: Kind) -> Any:
    """Read a value back from its text."""
    match kind.name:
        case "string":
            return text
        case "boolean":
            return {"true": True, "false": False}[text]
        case "binary":
            return base64.b64decode(text, validate=True)
        case "float":
            return kinds.float32(float(text))
        case "double":
            return float(text)
        case "decimal":
            return Decimal(text)
        case "date":
            return dt.date.fromisoformat(text)
        case "timestamp":
            return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)
        case "timestamp_ntz":
            return dt.datetime.fromisoformat(text)
    return int(text)


def inside(item: Any, kind: Kind) -> Any:
    match kind.name:
        case _ if item is None:
            return None
        case "array":
            return [inside(one, kind.parts[0]) for one in item]
        case "map":
            return [(key, inside(one, kind.parts[1])) for key, one in item.items()]
        case "struct":
            assert sorted(item) == sorted(kind.names)
            return {n: inside(item[n], p) for n, p in zip(kind.names, kind.parts, strict=True)}
    return leaf(json.dumps(item) if isinstance(item, bool) else item, kind)


def from_text(text: str, kind: Kind) -> Any:
    return inside(json.loads(text, parse_int=str, parse_float=str) if kind.is_nested else text, kind)


def plain(value: Any) -> Any:
    """Leave out what a column of another type has besides: fields that are NULL, orders, and midnight."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return sorted(((key, plain(item)) for key, item in value), key=lambda pair: pair[0])
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return dt.datetime.combine(value, dt.time.min)
    return [plain(item) for item in value] if isinstance(value, list) else value


def batch_of(bench: Any, form: str, rng: random.Random, files: int) -> tuple[dict[str, Kind], list[Any]]:
    """Write the files of a batch, and tell what each has: path, columns with types, and rows."""
    of_format = avro_files.of_avro if form == "avro" else lambda kind: kind
    declared = {f"c{number}": of_format(kinds.nested(rng, binary=True)) for number in range(5)}
    written, numbers = [], iter(range(1_000))
    for number in range(files):
        shape = {name: of_format(kind) for name, kind in shape_of(declared, OTHERS[form], rng).items()}
        columns = [("key", Kind("bigint")), *shape.items()]
        rows = [
            [next(numbers), *(kinds.value(kind, rng, breaks=True) for kind in shape.values())]
            for _ in range(rng.randint(1, 6))
        ]
        if form == "avro":
            content = avro_files.file(columns, rows, rng)
        else:
            content = arrow_files.parquet(arrow_files.table(columns, rows), rng)
        written.append((bench.file(f"{number} ü.{form}", content), shape, rows))
    return declared, written


def assert_once(record: dict[str, tuple[Kind, Any]], row: dict[str, Any], declared: dict[str, Kind]) -> None:
    """Check that each value of a record is in one place, and that nothing else is in any."""
    rescued = json.loads(row["_rescued"] or "{}")
    rescued.pop("_file_path", None)
    for name, (kind, value) in record.items():
        column, text = row.get(name.lower()), rescued.pop(name, None)
        wanted = declared.get(name.lower())
        if name == "_rescued":
            column = None
        assert value is None or (column is None) != (text is None), (name, kind, value, column, text)
        if value is None:
            assert (column, text) == (None, None)
        elif text is not None:
            assert wanted != kind, (name, kind)
            assert plain(from_text(text, kind)) == plain(value)
        else:
            assert wanted is not None
            assert family(wanted) == family(kind), (name, kind, wanted)
            assert plain(column) == plain(value)
    names = {name.lower() for name in record}
    assert not rescued
    assert {row[name] for name in declared if name not in names} <= {None}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "seed"),
    [
        *((form, 1) for form in FORMATS),
        *(pytest.param(form, seed, marks=pytest.mark.loads) for form in FORMATS for seed in range(2, 22)),
    ],
)
def test_each_value_of_random_typed_files_is_in_its_column_or_rescued(bench, form, seed):
    rng = random.Random(seed)
    declared, written = batch_of(bench, form, rng, files=7)
    columns = {"key": "bigint", **{name: kind.ddl for name, kind in declared.items()}}
    how = {"format": form, "columns": columns, "missing_columns": "null", "rescued_data_column": "_rescued"}

    good, bad = bench.sort(bench.batch(0, *(file for file, _, _ in written)), **how)

    assert not bad
    by_key = {row["key"]: row for row in good}
    assert len(by_key) == len(good) == sum(len(rows) for _, _, rows in written)
    for file, shape, rows in written:
        for key, *values in rows:
            record = {n: (kind, v) for (n, kind), v in zip(shape.items(), values, strict=True)}
            assert_once(record, by_key[key], declared)
            path = json.loads(by_key[key]["_rescued"] or "{}").get("_file_path", file.path)
            assert path == file.path


def test_a_single_value_that_its_type_cannot_hold_is_rescued_and_bytes_without_a_text_are_not(bench):
    """A decimal with more digits than its type has, a nanosecond, no UTF-8, and a key that JSON lacks."""
    large, nanos = 2**64 * 5 + 123, {"type": "long", "logicalType": "timestamp-nanos"}
    content = raw(
        {"v": DECIMAL, "t": nanos, "zz": "string"},
        b"\x18" + large.to_bytes(12) + b"\x02" + b"\x02x",
        b"\x02\x01" + b"\xd0\x0f" + b"\x00",
        b"\x02\x02" + b"\x00" + b"\x04\xff\xfe",
    )
    columns = {"v": "decimal(10,2)", "t": "timestamp"}
    avro = {"format": "avro", "columns": columns, "rescued_data_column": "_rescued"}
    keys = pa.array([[(b"\x00", 1)]], pa.map_(pa.binary(), pa.int32()))
    named = bench.parquet("keys.parquet", t=pa.array([1], pa.timestamp("ns", "UTC")), m=keys)
    fits = bench.parquet("fits.parquet", t=pa.array([1, 1000, None], pa.timestamp("ns", "UTC")))

    good, bad = bench.sort(bench.batch(0, bench.file("a.avro", content)), **avro)
    of_parquet, no_files = bench.sort(
        bench.batch(0, named, fits),
        **{**avro, "format": "parquet", "columns": {"t": "timestamp"}},
    )

    micro = dt.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC)

    def rows_of(rows: list[dict[str, Any]]) -> list[Any]:
        rescued = [json.loads(row["_rescued"] or "{}") for row in rows]
        texts = [{key: text for key, text in found.items() if key != "_file_path"} for found in rescued]
        return [(row.get("v"), row["t"], text) for row, text in zip(rows, texts, strict=True)]

    assert rows_of(good) == [
        (None, None, {"v": str(Decimal(large).scaleb(-2)), "t": "1", "zz": "x"}),
        (Decimal("0.01"), micro, {"zz": ""}),
    ]
    assert [(row["record"], row["rule"]) for row in bad] == [
        (3, "zz has bytes that are not UTF-8, which rescued data cannot hold")
    ]
    assert rows_of(of_parquet) == [(None, None, {"t": "1"}), (None, micro, {}), (None, None, {})]
    assert [(Path(row["file"]).name, row["rule"]) for row in no_files] == [
        ("keys.parquet", "m is map<binary,int>, which rescued data cannot hold")
    ]
