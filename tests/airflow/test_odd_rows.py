"""Rows that are odd in two ways at once, merged by the operator and compared with a model, value by value.

Each table is read by delta-rs.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import struct
from collections import Counter
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.sdk import DAG
from deltalake import DeltaTable, QueryBuilder

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource, Merge, Scd2, TableSpec
from tests.support import merge_model

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.merge_model import Row

pytestmark = [pytest.mark.spark, pytest.mark.loads]

MAPPED = {"delta.columnMapping.mode": "name"}
NAMES = ("f'2\"[a]", "{b,c}", "d%20e*")
"""Of the files, each of which is a batch of its own."""
FOLDER = "in [x]{1}/d=2 *?"


def land(folder: Path, number: int, content: bytes | str, suffix: str) -> None:
    path = folder / FOLDER / f"{NAMES[number]}.{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    os.utime(path, (1_388_534_400 + number,) * 2)


def read(table: Path) -> list[Row]:
    """Read a table with delta-rs, which knows column mapping here; years below 1 come as microseconds."""
    reader = QueryBuilder().register("stored", DeltaTable(str(table)))
    found = pa.table(reader.execute("SELECT * FROM stored").read_all())
    for number, field in enumerate(found.schema):
        if pa.types.is_timestamp(field.type) and field.name == "at":
            found = found.set_column(number, field.name, found.column(number).cast(pa.int64()))
    return found.to_pylist()


def exact(value: Any) -> Any:
    """Return a value as something that differs for different ones, also for the two zeros."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack(">d", value)
    if isinstance(value, dict):
        return tuple((name, exact(part)) for name, part in sorted(value.items()))
    if isinstance(value, list):
        return tuple(map(exact, value))
    return (type(value).__name__, str(value)) if isinstance(value, Decimal) else value


def check(found: list[Row], expected: list[Row]) -> None:
    differs = Counter(map(exact, found))
    differs.subtract(map(exact, expected))
    more = [row for row, count in differs.items() if count > 0]
    less = [row for row, count in differs.items() if count < 0]
    assert (more, less) == ([], []), "in the table alone, in the model alone"


def model(loads: list[list[Row]], **how: Any) -> list[Row]:
    """Return the table after loads; no two rows of a load may count."""
    usual = {"strategy": "delete-insert", "primary_key": [], "merge_key": [], "dedup_sort": None}
    stored: list[Row] | None = None
    for rows in loads:
        stored = merge_model.merge(
            stored, rows, {**usual, "hard_delete": None, **how}, lambda options: options[0]
        )
    return stored or []


# ---- texts, dates, numbers --------------------------------------------------------------------------------

COLUMNS = {
    "zz.amt": "decimal(12,3)",
    "Kéy": "string",
    "weg": "string",
    "n": "bigint",
    "p/r": "string",
    "Day": "date",
    "mid dle": "string",
    "dbl": "double",
}
KEYS = (
    "\u00e9",
    "e\u0301",
    "A",
    "a",
    "a ",
    "",
    "\U0001f600\U0001f468\u200d\U0001f469",
    "x" * 120 + "1",
    "x" * 120 + "2",
    "${env:PATH}",
    "null",
    'it\'s "q", \\ and\nmore',
)
DAYS = (date(1, 1, 1), date(1582, 10, 10), date(9999, 12, 31))
DOUBLES = (-0.0, 1e300, 5e-324, 0.1, 0.0)
PARTS = ("a/b=c", "50%", None, "x y", "é:?*")


def row(load: int, number: int) -> Row:
    """Return a row of a load; loads meet the same keys with other values."""
    at = load * 3 + number
    return {
        "zz.amt": Decimal(at * 1_000_003 - 7).scaleb(-3),
        "Kéy": KEYS[number % len(KEYS)],
        "weg": "yes" if at % 7 == 3 else "",
        "n": at * (-1) ** load,
        "p/r": PARTS[at % len(PARTS)],
        "Day": DAYS[(number // len(KEYS)) % len(DAYS)],
        "mid dle": f"{PARTS[(at // 5) % 2]}\r\n{load}" if at % 2 else "same",
        "dbl": DOUBLES[at % len(DOUBLES)],
    }


def texts(load: int) -> list[Row]:
    """Return the rows of a load: most of the keys, some of them twice."""
    there = [number for number in range(len(KEYS) * len(DAYS)) if (number + load) % 5]
    rows = [row(load, number) for number in there]
    return rows + [{**one, "n": one["n"] + 1000 * (-1) ** at, "weg": ""} for at, one in enumerate(rows[::4])]


def as_csv(rows: list[Row]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in rows:
        writer.writerow(["" if value is None else value for value in one.values()])
    return buffer.getvalue()


def selected(rows: list[Row]) -> list[Row]:
    """Return what the SELECT makes of rows."""
    return [{**one, "flag": one["weg"] or None} for one in rows]


SQL = "SELECT * EXCEPT (`p/r`), nullif(`p/r`, '') AS `p/r`, nullif(weg, '') AS flag FROM @data"
BY_KEY = {"primary_key": ["kéy", "DAY"], "dedup_sort": ("N", "desc"), "hard_delete": "flag"}
WRITES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "upsert": ({"strategy": "upsert", **BY_KEY}, []),
    "both_keys": ({**BY_KEY, "merge_key": "mid dle"}, ["P/R"]),
}


def test_texts_are_merged_value_by_value(run_dag: Any, tmp_path: Path) -> None:
    loads = [texts(number) for number in range(len(NAMES))]
    for number, rows in enumerate(loads):
        land(tmp_path, number, as_csv(rows), "csv")
    with DAG("odd_rows", schedule=None) as dag:
        for name, (how, partitions) in WRITES.items():
            DeltaIncrementalIngestOperator(
                task_id=name,
                delta_location=str(tmp_path / "out {x}" / name),
                source=FileSource(
                    roots=str(tmp_path / "in [x]{1}"),
                    format="csv",
                    columns=COLUMNS,
                    options={"header": "true", "multiLine": "true"},
                    max_files_per_trigger=1,
                ),
                sql=SQL,
                table=TableSpec(properties=MAPPED, partition_by=partitions),
                write=Merge(**how),
            )

    assert run_dag(dag).state == "success"

    rows = [selected(one) for one in loads]
    named = {"primary_key": ["Kéy", "Day"], "dedup_sort": ("n", "desc"), "hard_delete": "flag"}
    check(read(tmp_path / "out {x}" / "upsert"), model(rows, strategy="upsert", **named))
    check(read(tmp_path / "out {x}" / "both_keys"), model(rows, merge_key=["mid dle"], **named))


# ---- nested values, bytes, years before the first ---------------------------------------------------------

JSON = {
    "deep": "struct<X: array<struct<y: bigint, `z z`: string>>, m: struct<a: double>>",
    "ID": "bigint",
    "list": "array<array<string>>",
    "Grp": "string",
    "num": "double",
    "dec": "decimal(20,4)",
}
EXTRACTS = (
    """\
{"Grp": "é", "ID": 1, "num": 1, "dec": 1.0, "deep": {"X": [{"y": 1, "z z": "a"}, null], "m": {"a": 1.0}}}
{"ID": 1, "Grp": "e\\u0301", "num": -0.0, "list": [["a", null], [], null]}
{"dec": 0.1, "num": 5e-324, "Grp": "a ", "ID": 9223372036854775807, "deep": {}, "list": []}
{"Grp": "A", "ID": 3, "deep": null, "num": null}
{"Grp": "A", "ID": 4, "num": 2}
""",
    """\
{"deep": {"m": {"a": 1}, "X": [{"z z": "a", "y": 1}, null]}, "num": 1.0, "dec": 1, "ID": 1, "Grp": "é"}
{"ID": 1, "Grp": "e\\u0301", "num": -0.0, "list": [["a", null], [], null], "dec": null}
{"ID": 1, "Grp": "e\\u0301", "num": -0.0, "list": [["a", null], [], null]}
{"dec": 0.1, "num": 5e-324, "Grp": "a ", "ID": 9223372036854775807, "deep": null, "list": []}
{"Grp": "A", "ID": 3}
{"Grp": "A", "ID": 3, "list": null, "deep": null}
{"Grp": "A", "ID": 4, "num": 2.0000000000000004}
{"Grp": "a", "ID": 4, "num": 2}
""",
    """\
{"Grp": "A", "ID": 4, "num": 2}
{"Grp": "é", "ID": 1, "num": 1, "dec": 1, "deep": {"X": [null, {"y": 1, "z z": "a"}], "m": {"a": 1}}}
{"Grp": "e\\u0301", "ID": 1, "list": [["a"], [null], null]}
""",
)


def nested(line: str) -> Row:
    """Return the row of a line, with all declared fields."""
    one = {name: json.loads(line).get(name) for name in JSON}
    if one["deep"] is not None:
        deep = one["deep"]
        inner = deep.get("X")
        one["deep"] = {
            "X": inner and [part and {"y": part["y"], "z z": part["z z"]} for part in inner],
            "m": {"a": float(deep["m"]["a"])} if "m" in deep else None,
        }
    one["num"] = None if one["num"] is None else float(one["num"])
    one["dec"] = None if one["dec"] is None else Decimal(str(one["dec"])).quantize(Decimal("0.0001"))
    return one


DAY_US = 86_400_000_000
MICROS = (-735_164 * DAY_US + 1, -719_529 * DAY_US, -719_162 * DAY_US, -141_432 * DAY_US - 1, 20_454 * DAY_US)
"""Instants of 44 BC, 2 BC, the years 1, 1582 and 2026, in microseconds since 1970."""
BYTES = (b"", b"\x00", b"\xff\xfe", b"a", b"A")


def instants(load: int) -> list[Row]:
    keys = [(key, micros) for key in BYTES for micros in MICROS]
    return [
        {"at": micros, "Key b": key, "n": load * 100 + number}
        for number, (key, micros) in enumerate(keys)
        if (number + load) % 3
    ]


def as_parquet(rows: list[Row]) -> bytes:
    kinds = [("at", pa.timestamp("us", tz="UTC")), ("Key b", pa.binary()), ("n", pa.int64())]
    arrays = [pa.array([one[name] for one in rows], kind) for name, kind in kinds]
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(kinds)), buffer)
    return buffer.getvalue()


BOTH: dict[str, Any] = {"primary_key": ["KEY B", "at"], "merge_key": "AT"}


def test_nested_values_bytes_and_years_before_the_first_are_told_apart(run_dag: Any, tmp_path: Path) -> None:
    for number, extract in enumerate(EXTRACTS):
        land(tmp_path / "json", number, extract, "json")
    loads = [instants(number) for number in range(2)]
    for number, rows in enumerate(loads):
        land(tmp_path / "parquet", number, as_parquet(rows), "parquet")
    with DAG("odd_values", schedule=None) as dag:
        DeltaIncrementalIngestOperator(
            task_id="scd2",
            delta_location=str(tmp_path / "scd2"),
            source=FileSource(
                roots=str(tmp_path / "json"), format="json", columns=JSON, max_files_per_trigger=1
            ),
            table=TableSpec(properties=MAPPED),
            write=Scd2(merge_key=["grp", "id"]),
        )
        DeltaIncrementalIngestOperator(
            task_id="both_keys",
            delta_location=str(tmp_path / "both_keys"),
            source=FileSource(
                roots=str(tmp_path / "parquet"),
                format="parquet",
                options={"datetimeRebaseMode": "CORRECTED"},
                max_files_per_trigger=1,
            ),
            table=TableSpec(properties=MAPPED),
            write=Merge(**BOTH),
        )

    assert run_dag(dag).state == "success"

    check(read(tmp_path / "both_keys"), model(loads, primary_key=["Key b", "at"], merge_key=["at"]))
    check_versions(read(tmp_path / "scd2"))


def check_versions(found: list[Row]) -> None:
    begun = sorted({one["_valid_from"] for one in found})
    assert len(begun) == len(EXTRACTS)
    how = {
        "merge_key": ["Grp", "ID"],
        "validity_column_names": ("_valid_from", "_valid_to"),
        "active_record_timestamp": None,
        "row_version_column_name": None,
        "on_empty_extract": "ignore",
    }
    stored: list[Row] | None = None
    for extract, instant in zip(EXTRACTS, begun, strict=True):
        stored = merge_model.scd2(stored, [nested(line) for line in extract.splitlines()], how, instant)
    check([{name: one[name] for name in one if name != "_row_hash"} for one in found], stored or [])
