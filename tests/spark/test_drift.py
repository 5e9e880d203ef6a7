"""Columns that come and go: with ``columns="infer"`` and ``schema_evolution="add"`` the load goes on."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import vega_datasets
from deltalake import DeltaTable

from airflow_provider_scope.exceptions import BadFileError, BadRecordError
from tests.spark.conftest import Bench
from tests.spark.inferred import CSV, JSON, columns_said
from tests.spark.merge_loads import merge

pytestmark = pytest.mark.spark

ADD = {"schema_evolution": "add"}


@pytest.mark.slow
def test_a_key_becomes_a_column_of_text_in_the_batch_that_has_it(bench, capfd):
    first = bench.batch(0, bench.text("a.json", '{"b":1,"a":{"x":[1.50]}}\n{"b":"1"}\n'))
    second = bench.batch(1, bench.text("b.json", '[{"z":{}},{"c":null,"b":12345678901234567890.10}]\n'))

    bench.run_plan(first, second, **JSON, **ADD)

    assert columns_said(bench) == {
        0: "b string, a string",
        1: "b string, a string, z string, c string",
    }
    nothing = dict.fromkeys("abcz")
    assert bench.rows() == sorted(
        [
            nothing | {"b": "1", "a": '{"x":[1.50]}'},
            nothing | {"b": "1"},
            nothing | {"z": "{}"},
            nothing | {"b": "12345678901234567890.10"},
        ],
        key=repr,
    )
    messages = [
        json.loads(line.partition(" ")[2])
        for line in capfd.readouterr().out.splitlines()
        if '"columns"' in line
    ]
    assert messages[-2]["message"] == "inferred columns: + z string, + c string"


def test_csv_files_of_a_batch_have_headers_of_their_own(bench):
    texts = ["id,name\n1,a\n", "name,id,n\nb,2,007\n", "", "id\n3\n", "id,name\n"]
    files = [bench.text(f"{i}.csv", text) for i, text in enumerate(texts)]

    bench.run_plan(bench.batch(0, *files), **CSV, **ADD)

    assert columns_said(bench) == {0: "id string, name string, n string"}
    assert bench.rows() == [
        {"id": "1", "name": "a", "n": None},
        {"id": "2", "name": "b", "n": "007"},
        {"id": "3", "name": None, "n": None},
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_name_in_another_case_is_no_new_column(bench, kind):
    texts = {"csv": ("id\n1\n", "ID,n\n2,3\n"), "json": ('{"id":1}\n', '{"ID":2,"n":3}\n')}[kind]
    plan = {"csv": CSV, "json": JSON}[kind]
    files = [bench.text(f"{i}.{kind}", text) for i, text in enumerate(texts)]

    error = bench.failure(bench.batch(0, *files), **plan, **ADD)
    bench.run_plan(bench.batch(0, *files), **plan, **ADD, bad_records="quarantine")

    assert isinstance(error, BadFileError)
    assert "ID" in error.what
    assert [row["id"] for row in bench.rows()] == ["1"]
    aside = DeltaTable(f"{bench.table}_quarantine").to_pyarrow_table().to_pylist()
    assert {row["file"] for row in aside} == {files[1].path}


@pytest.mark.slow
def test_hints_say_the_types_of_single_columns_from_the_first_batch_on(bench):
    hints = {"amount": "decimal(12,2)", "later": "struct<x: int>", "n": "int"}
    first = bench.batch(0, bench.text("a.json", '{"id":1,"amount":1.10,"n":7}\n'))
    second = bench.batch(1, bench.text("b.json", '{"later":{"x":1}}\n'))
    third = bench.batch(2, bench.text("c.json", '{"later":{"x":1,"y":2}}\n'))
    fourth = bench.batch(2, bench.text("d.json", '{"amount":1.111}\n'))
    plan = {**JSON, **ADD, "schema_hints": hints, "sql": "SELECT id, amount, later.x AS x FROM @data"}

    bench.run_plan(first, second, **plan)

    expected = "id string, amount decimal(12,2), later struct<x: int>, n int"
    assert columns_said(bench) == dict.fromkeys((0, 1), expected)
    assert [row["x"] for row in bench.rows()] == [None, 1]
    pinned = {"columns": dict.fromkeys(["id"], "string")}
    with pytest.raises(BadFileError, match="keys that are not declared: y"):
        bench.run_plan(third, **plan, **pinned)
    with pytest.raises(BadRecordError, match=r"amount is not decimal\(12,2\)"):
        bench.run_plan(fourth, **plan, **pinned)


# ---- random files, cut into batches at random, and what Python's own json says of them ----

HINTS = {"amount": "decimal(12,2)", "late": "string"}
Rows = Counter[str]


def _value(chance: random.Random, depth: int = 0) -> Any:
    leaves = [None, True, 7, -0.5, 1e300, 12345678901234567890, "7", "", 'a\\u0000"{}é', "2026-01-01"]
    kind = chance.choice(["leaf"] * 4 + ["object", "array"] * (depth < 2))
    if kind == "object":
        return {chance.choice("xyXY"): _value(chance, depth + 1) for _ in range(chance.randint(0, 2))}
    if kind == "array":
        return [_value(chance, depth + 1) for _ in range(chance.randint(0, 2))]
    return chance.choice(leaves)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _json_file(chance: random.Random, keys: list[str]) -> str:
    lines = []
    for _ in range(chance.randint(1, 4)):
        record = {key: _value(chance) for key in chance.sample(keys, chance.randint(1, len(keys)))}
        if chance.random() < 0.3:
            record["amount"] = chance.choice([1.5, 2, None, "3.10", 1.234, "x", [1]])
        text = _text(record)
        lines.append(chance.choices([text, text[:-1]], [9, 1])[0])
    return "".join(f"{line}\n" for line in lines)


def _is_amount(value: Any) -> bool:
    return value in (None, 1.5, 2, "3.10") and not isinstance(value, bool)


def _expected_json(texts: list[str], *, rescues: bool) -> tuple[Rows, Rows]:
    """Say which rows the table has, and which lines the quarantine: of all files, whatever the batches."""
    spelling = {name: name for name in HINTS}
    lines = []
    for text in texts:
        records = []
        for line in text.splitlines():
            try:
                records.append((line, json.loads(line)))
            except ValueError:
                records.append((line, None))
        # In a file, the place of a key in its record counts, and then its name.
        places = [(place, key) for _, record in records for place, key in enumerate(record or ())]
        for _, key in sorted(places):
            spelling.setdefault(key.lower(), key)
        lines += records
    rows, bad = Counter[str](), Counter[str]()
    for line, record in lines:
        unfit = {key: value for key, value in (record or {}).items() if spelling[key.lower()] != key}
        if record is not None and not _is_amount(record.get("amount")):
            unfit["amount"] = record["amount"]
        if record is None or (unfit and not rescues):
            bad[_values_text(line)] += 1
        else:
            row = {key: value for key, value in record.items() if key not in unfit}
            if row.get("amount") is not None:
                row["amount"] = f"{float(row['amount']):.2f}"
            rescued = {key: value for key, value in unfit.items() if value is not None}
            row |= {"_rescued": _values_text(_text(rescued))} if rescued else {}
            rows[_values_text(_text(row))] += 1
    return rows, bad


def _values_text(line: str) -> str:
    """Write the values that are not null, each as its text; a line that is no JSON stays as it is."""
    try:
        record = json.loads(line)
    except ValueError:
        return line
    return repr(
        sorted((k, v if isinstance(v, str) else _text(v)) for k, v in record.items() if v is not None)
    )


def _loaded(bench: Bench) -> tuple[Rows, Rows]:
    table = DeltaTable(str(bench.table)).to_pyarrow_table().to_pylist()
    for row in table:
        rescued = json.loads(row.pop("_rescued", None) or "{}")
        if rescued.pop("_file_path", None):
            row["_rescued"] = _values_text(_text(rescued))
    rows = [json.dumps({name: value and str(value) for name, value in row.items()}) for row in table]
    quarantine = Path(f"{bench.table}_quarantine")
    aside = DeltaTable(str(quarantine)).to_pyarrow_table().to_pylist() if quarantine.exists() else []
    bad = [row["raw"] for row in aside if row["record"] is not None]
    return Counter(map(_values_text, rows)), Counter(map(_values_text, bad))


def _cut(chance: random.Random, files: list[Any], parts: int) -> list[list[Any]]:
    places = sorted(chance.sample(range(1, len(files)), parts - 1))
    return [files[i:j] for i, j in zip([0, *places], [*places, len(files)], strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "rescues"),
    [
        (0, True),
        *(pytest.param(seed, True, marks=pytest.mark.loads) for seed in range(1, 9)),
        *(pytest.param(seed, False, marks=pytest.mark.loads) for seed in range(9)),
    ],
)
def test_however_json_files_fall_into_batches_each_value_is_in_a_column_or_rescued_or_in_the_quarantine(
    spark, tmp_path, seed, rescues
):
    chance = random.Random(seed)
    pool = ["a", "b", "B", "ab", "ä", "late", "c.d", "E"]
    texts = [_json_file(chance, chance.sample(pool, 4)) for _ in range(6)]
    texts[0] = '{"a":1}\n' + texts[0]
    plan = {**JSON, **ADD, "schema_hints": HINTS, "bad_records": "quarantine"}
    plan |= {"rescued_data_column": "_rescued"} if rescues else {}
    types = []
    for parts in (1, 2 + seed % 3):
        bench = Bench(spark, tmp_path / str(parts))
        files = [bench.text(f"{i}.json", text) for i, text in enumerate(texts)]
        batches = _cut(chance, files, parts)

        bench.run_plan(*[bench.batch(seq, *batch) for seq, batch in enumerate(batches)], **plan)

        assert _loaded(bench) == _expected_json(texts, rescues=rescues)
        types.append({f.name: f.type for f in DeltaTable(str(bench.table)).schema().fields})
    assert types[0] == types[1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.loads) for seed in range(1, 9))])
def test_however_csv_files_fall_into_batches_each_value_is_in_its_column(spark, tmp_path, seed):
    chance = random.Random(seed)
    expected, texts = Counter[str](), []
    for _ in range(6):
        names = chance.sample(["id", "name", "n", "größe", "a.b"], chance.randint(1, 4))
        texts.append(",".join(names) + "\n")
        for _ in range(chance.randint(0, 3)):
            values = [chance.choice(["1", "007", "1.50", "x y", "2026-01-01"]) for _ in names]
            texts[-1] += ",".join(values) + "\n"
            expected[repr(sorted(zip(names, values, strict=True)))] += 1
    types = []
    for parts in (1, 2 + seed % 3):
        bench = Bench(spark, tmp_path / str(parts))
        files = [bench.text(f"{i}.csv", text) for i, text in enumerate(texts)]
        batches = _cut(chance, files, parts)

        bench.run_plan(*[bench.batch(seq, *batch) for seq, batch in enumerate(batches)], **CSV, **ADD)

        assert _loaded(bench) == (expected, Counter())
        types.append({f.name: f.type for f in DeltaTable(str(bench.table)).schema().fields})
    assert types[0] == types[1]


@pytest.mark.loads
def test_real_records_whose_numbers_drift_are_loaded_for_twenty_batches(bench):
    """Of cars: miles are whole, with a fraction, or null."""
    text = (Path(vega_datasets.__file__).parent / "_data" / "cars.json").read_text()
    cars = json.loads(text, parse_float=str)
    chance = random.Random(0)
    for car in cars[200:]:
        car["Wheels"] = chance.choice([4, "four", [2, 2], {"front": 2}])
    lines = [_text(car) for car in cars]
    files = [bench.text(f"{i:02}.json", "\n".join(lines[i::20])) for i in range(20)]

    bench.run_plan(*[bench.batch(seq, file) for seq, file in enumerate(files)], **JSON, **ADD)

    expected = Counter(_values_text(_text(car)) for car in cars)
    assert _loaded(bench) == (expected, Counter())


@pytest.mark.slow
def test_records_that_drift_and_come_late_are_merged_in_the_order_of_the_source(bench):
    """Columns that come later, columns of the path, deletes and a sequence, all in one table."""
    chance = random.Random(1)
    events, newest = [], {}
    for at in range(120):
        keys = chance.sample(["v", "w", "x-y", "é"], chance.randint(0, 3))
        more = {key: chance.choice(["t", 1, 1.50, {"a": [1, 2]}, True]) for key in keys}
        record = {"id": chance.randint(1, 15), "at": at, **more}
        day = chance.choice(["2026-11-25", "2026-11-26"])
        gone = chance.random() < 0.2
        events.append((day, {**record, "gone": True} if gone else record))
        newest[record["id"]] = None if gone else {"d": day, **record}
    chance.shuffle(events)
    hints = {"id": "bigint", "at": "bigint", "gone": "boolean"}
    write = merge("upsert", primary_key=["id"], sequence_by="at", hard_delete="gone")

    for number in range(2):
        lines: dict[str, str] = {"2026-11-25": "", "2026-11-26": ""}
        for day, record in events[number::2]:
            lines[day] += json.dumps(record) + "\n"
        files = [bench.text(f"d={day}/{number}.json", text) for day, text in lines.items()]
        batch = bench.batch(number, *files)
        bench.run_plan(
            batch, **JSON, **ADD, schema_hints=hints, partition_columns={"d": "string"}, write=write
        )

    def text(name: str, value: Any) -> Any:
        return value if name in ("id", "at") or isinstance(value, str) else json.dumps(value)

    rows = [{name: value for name, value in row.items() if value is not None} for row in bench.rows()]
    expected = [{name: text(name, value) for name, value in row.items()} for row in newest.values() if row]
    assert sorted(rows, key=lambda row: row["id"]) == sorted(expected, key=lambda row: row["id"])
