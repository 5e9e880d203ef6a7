"""What does not fit the columns stays with its record: each value is in one place, and in no other."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import random
import re
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.exceptions import BadRecordError, InputError, MergeKeyError
from tests.support.rescued_text import Number, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

pytestmark = pytest.mark.spark

RESCUE = {"rescued_data_column": "_rescued"}
COLUMNS = {
    "id": "bigint",
    "amount": "decimal(10,2)",
    "ok": "boolean",
    "at": "date",
    "s": "struct<a: int, b: string>",
    "tags": "array<int>",
    "name": "string",
}
KEYS = [*COLUMNS, *COLUMNS, "zz", "ID", "a b", "ü", "_rescued"]
VALUES = [
    *("1", "-7", "9223372036854775807", "9223372036854775808", "1e400", "12.50", "1.005", "1.0"),
    *('"12,5"', '"00012"', '"x"', '""', '"5"', '"true"', '"2026-01-31"', '"2026-02-30"', r'"a \" 5 {:,"'),
    *("true", "false", "null", "null", "[]", "[1,null,3]", '[1,"x"]', "[1.5]", "[[1]]", "{}"),
    *('{"a":1,"b":"ü"}', '{"a":"x","b":"y"}', '{"a":1,"c":0.10000000000000000000000001}', '{"a":null}'),
    *('{"b":{"deep":[1e5,-0.0]}}', '{"a":2,"b":3,"B":4}', "123456789012345678901234567890"),
]


def whole(value: Any, bits: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, Number) or not re.fullmatch(r"-?\d+", value) or abs(int(value)) >= 1 << bits - 1:
        raise ValueError
    return int(value)


def fitted(column: str, value: Any) -> Any:
    """Give the value of a column; ValueError if it does not fit."""
    match column:
        case "id":
            return whole(value, 64)
        case "amount" if isinstance(value, str) and re.fullmatch(r"-?\d{1,8}(\.\d\d?0*)?", value):
            return str(Decimal(value).quantize(Decimal("0.01")))
        case "ok" if isinstance(value, bool):
            return value
        case "at" if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value):
            return dt.date.fromisoformat(value)
        case "s" if isinstance(value, dict) and not value.keys() - {"a", "b"}:
            b = value.get("b")
            return (whole(value.get("a"), 32), None if b is None else text_of(b))
        case "tags" if isinstance(value, list):
            return tuple(whole(item, 32) for item in value)
        case "name":
            return text_of(value)
    raise ValueError


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError
    return dict(pairs)


def expected(line: str) -> tuple[Any, ...] | None:
    """Give the row of a line by Python's own parser; None if it is a bad record."""
    try:
        record = json.loads(line, parse_int=Number, parse_float=Number, object_pairs_hook=unique)
    except ValueError:
        return None
    if not isinstance(record, dict) or record.get("_file_path") is not None:
        return None
    row, rescued = dict.fromkeys(COLUMNS), {}
    for key, value in record.items():
        if value is None:
            continue
        try:
            fit = fitted(key, value)
        except ValueError:
            rescued[key] = text_of(value)
        else:
            row[key] = fit
    return (*row.values(), tuple(sorted(rescued.items())))


def a_line(rng: random.Random) -> str:
    pairs = [(key, rng.choice(VALUES)) for key in rng.sample(KEYS, rng.randint(0, 7))]
    if rng.random() < 0.8:
        pairs = [*dict(pairs).items()]
    blank = rng.choice(["", " "])
    fields = (f"{json.dumps(key, ensure_ascii=False)}{blank}:{value}" for key, value in pairs)
    line = "{" + ",".join(fields) + "}"
    return line if rng.random() < 0.95 else rng.choice([line[:-1], "7", "nul", line[1:]])


def plain(row: dict[str, Any]) -> tuple[Any, ...]:
    s, tags = row["s"], row["tags"]
    rescued = json.loads(row["_rescued"] or "{}")
    assert rescued.pop("_file_path", "").startswith("file:///" if rescued else "")
    return (
        *(row["id"], row["amount"] and str(row["amount"]), row["ok"], row["at"]),
        s and (s["a"], s["b"]),
        None if tags is None else tuple(tags),
        row["name"],
        tuple(sorted(rescued.items())),
    )


@pytest.mark.slow
def test_each_value_of_random_json_is_in_a_column_or_rescued_or_in_the_quarantine(bench):
    rng = random.Random(33)
    lines = [[a_line(rng) for _ in range(250)] for _ in range(2)]
    lines[0].append('{"_file_path": "x"}')
    files = [bench.text(f"{name} ü.json", "\n".join(part)) for name, part in zip("ab", lines, strict=True)]

    good, bad = bench.sort(bench.batch(0, *files), format="json", columns=COLUMNS, **RESCUE)

    differ = Counter(map(plain, good))
    differ.subtract(row for part in lines for row in map(expected, part) if row)
    assert not {row: count for row, count in differ.items() if count}
    paths = {json.loads(row["_rescued"])["_file_path"] for row in good if row["_rescued"]}
    assert paths == {file.path for file in files}
    for file, part in zip(files, lines, strict=True):
        raws = [row["raw"] for row in bad if row["file"] == file.path]
        assert sorted(raws) == sorted(line for line in part if not expected(line))


FLAT = {"id": "bigint", "amount": "decimal(10,2)", "ok": "boolean", "at": "date", "name": "string"}
TEXTS = [
    *(
        "1",
        "-7",
        "9223372036854775807",
        "9223372036854775808",
        "1e400",
        "12.50",
        "1.005",
        "12,5",
        "00012",
        "x",
    ),
    *("", "true", "False", "2026-01-31", "2026-02-30", 'a " b', "ü, |", "\ufffd", "NULL", " "),
]
OTHERS = ["zz", "Id", "a b", "ü", "_rescued", "AT"]


def flat(column: str, text: str, is_quoted: bool) -> Any:
    """Give the value of a field of CSV; ValueError if it does not fit."""
    match column:
        case "name":
            return text
        case "id" | "amount" | "ok" | "at" if not text and is_quoted:
            return None
        case "id" if re.fullmatch(r" *[-+]?\d+ *", text) and abs(int(text)) < 1 << 63:
            return int(text)
        case "amount" if re.fullmatch(r"-?\d{1,8}(\.\d\d?0*)?", text):
            return str(Decimal(text).quantize(Decimal("0.01")))
        case "ok" if text.lower() in ("true", "1"):
            return True
        case "ok" if text.lower() in ("false", "0"):
            return False
        case "at" if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
            return dt.date.fromisoformat(text)
    raise ValueError


def split(row: dict[str, Any], fits: Callable[[str, Any], Any]) -> tuple[Any, ...]:
    """Say what a record becomes: its columns, and the texts of what is rescued."""
    columns, rescued = dict.fromkeys(FLAT), {}
    for key, value in row.items():
        if value is None:
            continue
        try:
            columns[key] = fits(key, value)
        except (ValueError, KeyError):
            rescued[key] = value
    return (*columns.values(), tuple(sorted(rescued.items())))


def rescued_of(row: dict[str, Any]) -> dict[str, str]:
    rescued = json.loads(row["_rescued"] or "{}")
    rescued.pop("_file_path", None)
    return dict(rescued)


def of_table(row: dict[str, Any]) -> tuple[Any, ...]:
    rescued = rescued_of(row)
    values = [row[name] for name in FLAT]
    return (
        *(str(value) if isinstance(value, Decimal) else value for value in values),
        tuple(sorted(rescued.items())),
    )


def assert_same(rows: Iterable[tuple[Any, ...]], expected: Iterable[tuple[Any, ...]]) -> None:
    differ = Counter(map(repr, rows))
    differ.subtract(map(repr, expected))
    assert not {row: count for row, count in differ.items() if count}


@pytest.mark.slow
def test_each_value_of_random_csv_is_in_a_column_or_rescued_or_in_the_quarantine(bench):
    rng = random.Random(33)
    files, expected, raws = [], [], []
    for number in range(6):
        names = [
            name.upper() if rng.random() < 0.2 else name for name in rng.sample([*FLAT], rng.randint(1, 5))
        ]
        taken = {name.lower() for name in names}
        names += [name for name in rng.sample(OTHERS, 2) if name.lower() not in taken]
        rng.shuffle(names)
        lines = [",".join(names)]
        for _ in range(60):
            record, fields = {}, []
            for name in names:
                text, has_quotes = rng.choice(TEXTS), rng.random() < 0.5
                has_quotes = has_quotes or bool({*text} & {'"', ","})
                fields.append('"' + text.replace('"', '""') + '"' if has_quotes else text)
                record[name.lower() if name.lower() in FLAT else name] = (
                    (text, has_quotes) if text or has_quotes else None
                )
            line = ",".join(fields)
            if rng.random() < 0.05:
                line += ",x"
                raws.append(line)
            elif line.strip():
                row = split(record, lambda key, value: flat(key, *value))
                expected.append((*row[:-1], tuple((key, value[0]) for key, value in row[-1])))
            lines.append(line)
        files.append(bench.text(f"{number}.csv", "\n".join(lines)))

    good, bad = bench.sort(
        bench.batch(0, *files), format="csv", columns=FLAT, options={"header": "true"}, **RESCUE
    )

    assert_same(map(of_table, good), expected)
    assert sorted(row["raw"] for row in bad) == sorted(raws)


def test_columns_of_csv_that_are_unknown_or_of_another_type_are_rescued(bench):
    columns = {"nr": "int", "day": "date", "name": "string"}
    options = {"header": "true"}
    first = bench.text("a.csv", 'zz,NAME,nr\n00012,"a, ""b""",1\n,c,"12,5"\n\ufffd,d,1e400\n3,x\n')
    second = bench.text("b.csv", "nr,day,name\n1,2026-02-30,\n2,2026-01-31,e\n")
    other = bench.text("other.csv", "nr;day;name\n1;2;3\n")
    latin = bench.file("latin.csv", b"nr,day,name\n\xe9,2026-01-31,e\n")

    good, bad = bench.sort(
        bench.batch(0, first, second, other, latin), format="csv", columns=columns, options=options, **RESCUE
    )

    day = dt.date(2026, 1, 31)
    assert [
        (row["nr"], row["day"], row["name"], json.loads(row["_rescued"] or "null"))
        for row in sorted(good, key=lambda row: (row["name"] or "", row["nr"] or 0))
    ] == [
        (1, None, None, {"_file_path": second.path, "day": "2026-02-30"}),
        (1, None, 'a, "b"', {"_file_path": first.path, "zz": "00012"}),
        (None, None, "c", {"_file_path": first.path, "nr": "12,5"}),
        (None, None, "d", {"_file_path": first.path, "zz": "\ufffd", "nr": "1e400"}),
        (2, day, "e", None),
    ]
    assert {(row["file"], row["value"]) for row in bad if row["record"]} == {(first.path, "3,x")}
    assert {row["file"] for row in bad if not row["record"]} == {other.path, latin.path}


def test_columns_of_parquet_that_are_unknown_or_of_another_type_are_rescued(bench):
    columns = {"nr": "int", "price": "decimal(6,2)"}
    deep = [{"x": [1, None]}, None]
    files = [
        bench.parquet("a.parquet", nr=["7", None], price=[Decimal("1.20"), None], zz=[b"\x00", None], s=deep),
        bench.parquet("b.parquet", nr=[2**40], PRICE=[Decimal("1.2345")], at=[dt.datetime(2026, 1, 2, 3)]),  # noqa: DTZ001
        bench.parquet("c.parquet", nr=[3], price=[Decimal("4.5")]),
    ]

    good, bad = bench.sort(bench.batch(0, *files), format="parquet", columns=columns, **RESCUE)

    rows = [(row["nr"], row["price"], json.loads(row["_rescued"] or "null")) for row in good]
    assert not bad
    assert sorted(rows, key=str) == sorted(
        [
            (
                None,
                Decimal("1.20"),
                {"_file_path": files[0].path, "nr": "7", "zz": "AA==", "s": '{"x":[1,null]}'},
            ),
            (None, None, None),
            (
                None,
                None,
                {
                    "_file_path": files[1].path,
                    "nr": str(2**40),
                    "PRICE": "1.2345",
                    "at": "2026-01-02 03:00:00",
                },
            ),
            (None, Decimal("4.50"), {"_file_path": files[2].path, "nr": "3"}),
        ],
        key=str,
    )

    # What is rescued is NULL in its column: of one that is NOT NULL in the table, its record is bad.
    required = pa.schema([pa.field("nr", pa.int32(), nullable=False), pa.field("price", pa.decimal128(6, 2))])
    write_deltalake(str(bench.table), required.empty_table())
    good, bad = bench.sort(bench.batch(0, files[2]), format="parquet", columns=columns, **RESCUE)
    assert (good, [row["rule"] for row in bad]) == ([], ["nr is NULL, and is NOT NULL in the table"])


@pytest.mark.slow
def test_a_batch_with_rescued_values_is_committed_with_their_counts_and_bad_ones_stop_it(bench):
    how = {"format": "json", "columns": {"id": "int", "name": "string"}, **RESCUE}
    bench.run(bench.batch(0, bench.text("0.json", '{"id":1,"name":"a"}')), **how)
    good = bench.text("1.json", '{"id":"x","zz":1}\n{"id":2,"zz":2.50}')
    bad = bench.text("2.json", '{"id":3}\n{"id":4,')

    stopped = bench.failure(bench.batch(1, good, bad), **how)
    left_out = bench.failure(bench.batch(1, good), **how, sql="SELECT id FROM @data")
    required = bench.failure(bench.batch(1, good), **how, expect={"has id": "id IS NOT NULL"})
    bench.run(bench.batch(1, good), **how)

    assert isinstance(stopped, BadRecordError)
    assert "2.json" in stopped.what
    assert isinstance(left_out, InputError)
    assert "leaves out _rescued" in left_out.what
    assert isinstance(required, BadRecordError)
    path = f'{{"_file_path":"{good.path}"'
    assert bench.rows() == [
        {"id": 1, "name": "a", "_rescued": None},
        {"id": 2, "name": None, "_rescued": path + ',"zz":"2.50"}'},
        {"id": None, "name": None, "_rescued": path + ',"id":"x","zz":"1"}'},
    ]
    (newest,) = DeltaTable(str(bench.table)).history(1)
    assert json.loads(newest["userMetadata"])["rescued"] == {"id": 1, "zz": 2}
    assert not DeltaTable.is_deltatable(f"{bench.table}_quarantine")


@pytest.mark.slow
def test_a_merge_refuses_a_rescued_key_and_a_batch_that_is_tried_again_changes_nothing(bench):
    how = {"format": "json", "columns": {"id": "int", "day": "date", "name": "string"}, **RESCUE}
    write = {"kind": "merge", "strategy": "upsert", "primary_key": ["id"]}
    bench.run(
        bench.batch(0, bench.text("0.json", '{"id":1,"name":"a"}\n{"id":2,"zz":-0.0}')), **how, write=write
    )
    odd = '{"name":"b","\u2028":"\u2028","":1e400,"id":2,"day":"2026-02-30"}\r\n{"Name":[1, null],"id":3}\r\n'
    file = bench.file("1.json.gz", gzip.compress(odd.encode()))

    refused = bench.failure(
        bench.batch(1, bench.text("k.json", '{"id":"2","name":"c"}\n{"id":"x"}')), **how, write=write
    )
    before = bench.version()
    bench.run(bench.batch(1, file), **how, write=write)
    bench.run(bench.batch(1, file), **how, write=write)

    assert isinstance(refused, MergeKeyError)
    assert before == 0
    assert bench.version() == 1
    rows = {
        row["id"]: (row["day"], row["name"], json.loads(row["_rescued"] or "null")) for row in bench.rows()
    }
    path = {"_file_path": file.path}
    assert rows == {
        1: (None, "a", None),
        2: (None, "b", {**path, "\u2028": "\u2028", "": "1e400", "day": "2026-02-30"}),
        3: (None, None, {**path, "Name": "[1,null]"}),
    }


@pytest.mark.loads
def test_rescued_values_with_versions_required_columns_and_columns_of_the_path(bench):
    """What nobody tried together: Scd2, NOT NULL, partition_columns, a quarantine, and a table that grows."""
    bench.spark.sql(
        f"CREATE TABLE delta.`{bench.table}` (id BIGINT NOT NULL, name STRING, d DATE, _rescued STRING,"
        " _valid_from TIMESTAMP, _valid_to TIMESTAMP, _row_hash STRING) USING delta PARTITIONED BY (d)"
    )
    how: dict[str, Any] = {
        "format": "json",
        "columns": {"id": "bigint", "name": "string"},
        "partition_columns": {"d": "date"},
        "bad_records": "quarantine",
        **RESCUE,
    }

    def load(day: int, text: str, **more: Any) -> None:
        write = {"kind": "scd2", "merge_key": ["id"], "boundary_timestamp": f"2026-01-0{day}T00:00:00+00:00"}
        file = bench.text(f"d=2026-01-0{day}/{day}.json", text)
        bench.run_plan(bench.batch(day - 1, file), **{**how, **more}, write=write)

    load(1, '{"id":1,"name":"a","zz":1}\n{"id":2}\n{"id":"x","name":"no id"}\n{"id":3,"d":"2020-01-01"}\n')
    load(2, '{"id":1,"name":"a","zz":2}\n{"id":2,"ID":5}\n{"id":4\n')
    load(
        3,
        '{"id":3,"name":[1, 2],"zz":{"a":[ ]}}\n',
        columns={"id": "bigint", "name": "array<string>"},
        sql=("SELECT id, array_join(name, '+') AS name, d, _rescued FROM @data"),
    )

    rows = [
        (row["id"], row["name"], str(row["d"]), rescued_of(row), row["_valid_to"] is None)
        for row in bench.rows()
    ]
    assert sorted(rows, key=repr) == sorted(
        [
            (1, "a", "2026-01-01", {"zz": "1"}, False),
            (1, "a", "2026-01-02", {"zz": "2"}, True),
            (2, None, "2026-01-01", {}, False),
            (2, None, "2026-01-02", {"ID": "5"}, True),
            (3, None, "2026-01-01", {"d": "2020-01-01"}, False),
            (3, "1+2", "2026-01-03", {"zz": '{"a":[]}'}, True),
        ],
        key=repr,
    )
    aside = DeltaTable(f"{bench.table}_quarantine").to_pyarrow_table().to_pylist()
    raws = {row["rule"]: row["raw"] for row in aside}
    assert len(aside) == len(raws) == 2
    assert raws["it is not JSON, or no object"] == '{"id":4'
    without_id = json.loads(raws["id is NULL, and is NOT NULL in the table"])
    assert (without_id["id"], without_id["name"], rescued_of(without_id)) == (None, "no id", {"id": "x"})
