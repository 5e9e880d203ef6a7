"""Columns that nobody declared have the types of the table, however the files fall into batches."""

from __future__ import annotations

import datetime as dt
import json
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_provider_scope.exceptions import BadRecordError, SchemaMismatchError, ScopeProviderError

pytestmark = pytest.mark.spark

JSON: dict[str, Any] = {"format": "json", "columns": None, "options": {}}
ADD = {"schema_evolution": "add"}
INFER = {"infers_columns": True}


def in_order(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))


# Records of two batches, in their order, and the rows that they become.
TOGETHER: dict[str, tuple[list[str], list[dict[str, Any]]]] = {
    "a whole number after a fraction": (['{"a":1.5}', '{"a":2}'], [{"a": 1.5}, {"a": 2.0}]),
    "NULL after an object": (['{"b":{"x":1}}', '{"b":null}'], [{"b": {"x": 1}}, {"b": None}]),
    "an empty object after one": (['{"c":{"x":1}}', '{"c":{}}'], [{"c": {"x": 1}}, {"c": {"x": None}}]),
    "no element after objects": (['{"d":[{"x":1.5}]}', '{"d":[]}'], [{"d": [{"x": 1.5}]}, {"d": []}]),
    "a number in an array": (['{"e":[1.5]}', '{"e":[2]}'], [{"e": [1.5]}, {"e": [2.0]}]),
    "a number in an object in an array": (
        ['{"f":[{"x":1.5,"y":"a"}]}', '{"f":[{"x":2}]}'],
        [{"f": [{"x": 1.5, "y": "a"}]}, {"f": [{"x": 2.0, "y": None}]}],
    ),
    "a key less": (['{"g":1,"h":2}', '{"g":3}'], [{"g": 1, "h": 2}, {"g": 3, "h": None}]),
    "a number where the table has text": (['{"i":"x"}', '{"i":1.50}'], [{"i": "x"}, {"i": "1.50"}]),
    "an object after NULL alone": (['{"j":null}', '{"j":{"x":1}}'], [{"j": None}, {"j": '{"x":1}'}]),
    "objects after an empty list": (['{"k":[]}', '{"k":[{"x":1}]}'], [{"k": []}, {"k": ['{"x":1}']}]),
}


@pytest.mark.compiled
def test_a_later_batch_is_read_with_the_types_of_the_table(bench):
    texts = ["{" + ",".join(case[0][n][1:-1] for case in TOGETHER.values()) + "}" for n in range(2)]

    bench.run_plan(*[bench.batch(n, bench.text(f"{n}.json", text)) for n, text in enumerate(texts)], **JSON)

    rows = sorted(bench.rows(), key=lambda row: row["a"])
    for about, (_, expected) in TOGETHER.items():
        assert [{name: row[name] for name in expected[0]} for row in rows] == expected, about


LOADED: list[tuple[str, dict[str, Any], list[str], list[dict[str, Any]]]] = [
    (
        "keys that the SELECT names or gives a name, a column that it computes, and a field of an object",
        {"sql": "SELECT id, a, n AS b, 2 * id AS twice, 'k' AS k, s, s.x AS x FROM @data WHERE id > 0"},
        ['{"a":1.5,"n":1.5,"id":1,"s":{"x":1.5}}', '{"n":2,"id":2,"s":null}'],
        [
            {"a": 1.5, "b": 1.5, "id": 1, "twice": 2, "k": "k", "s": {"x": 1.5}, "x": 1.5},
            {"a": None, "b": 2.0, "id": 2, "twice": 4, "k": "k", "s": None, "x": None},
        ],
    ),
    (
        "a join with a column that the files lack",
        {"sql": "SELECT * FROM @data NATURAL JOIN (VALUES (1, 'one'), (2, 'two')) AS t (id, label)"},
        ['{"a":1.5,"id":1}', '{"a":2,"id":2}'],
        [{"a": 1.5, "id": 1, "label": "one"}, {"a": 2.0, "id": 2, "label": "two"}],
    ),
    (
        "new keys",
        ADD,
        ['{"a":1.5,"s":{"x":1.5}}', '{"a":2,"n":{"x":null},"s":{"y":1,"x":2}}', '{"n":{"x":"y"}}'],
        [
            {"a": 1.5, "s": {"x": 1.5, "y": None}, "n": None},
            {"a": 2.0, "s": {"x": 2.0, "y": 1}, "n": {"x": None}},
            {"a": None, "s": None, "n": {"x": "y"}},
        ],
    ),
    (
        "new keys of inferred columns",
        {**INFER, **ADD},
        ['{"a":1.5,"l":[{"x":1}]}', '{"a":2,"n":1,"l":[{"x":2,"y":0.1}]}', '{"n":2}'],
        [
            {"a": "1.5", "l": '[{"x":1}]', "n": None},
            {"a": "2", "l": '[{"x":2,"y":0.1}]', "n": "1"},
            {"a": None, "l": None, "n": "2"},
        ],
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "texts", "rows"), [case[1:] for case in LOADED], ids=[c[0] for c in LOADED]
)
def test_what_is_selected_of_a_later_batch_has_the_types_of_the_table(bench, changes, texts, rows):
    entries = [bench.batch(i, bench.text(f"{i}.json", text)) for i, text in enumerate(texts)]

    bench.run_plan(*entries, **{**JSON, **changes})

    assert sorted(bench.rows(), key=in_order) == sorted(rows, key=in_order)


@pytest.mark.slow
def test_what_the_table_cannot_hold_stops_the_batch_and_changes_nothing(bench):
    bench.run(bench.batch(0, bench.text("0.json", '{"a":1,"s":{"x":1}}')), **JSON)
    bad = {
        '{"a":1.5}': "a is not bigint",
        '{"a":"x"}': "a is not bigint",
        '{"s":{"x":true}}': "struct<x:bigint>",
    }

    for i, (text, rule) in enumerate(bad.items(), start=1):
        error = bench.failure(bench.batch(1, bench.text(f"{i}.json", text)), reads=True, **JSON)
        assert isinstance(error, BadRecordError)
        assert rule in error.what
    with pytest.raises(SchemaMismatchError, match="b bigint is not a column of the table"):
        bench.run(bench.batch(1, bench.text("new.json", '{"b":1}')), **JSON)

    assert bench.version() == 0


TABLE = {"n": "int", "d": "decimal(10,2)", "at": "timestamp", "f": "float", "t": "string"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "changes"), [("json", {}), ("json", INFER), ("csv", {**INFER, "options": {"header": "true"}})]
)
def test_the_types_of_a_table_that_was_there_are_those_of_the_first_batch(bench, kind, changes):
    bench.spark.createDataFrame([], ", ".join(f"{n} {k}" for n, k in TABLE.items())).write.format(
        "delta"
    ).save(str(bench.table))
    values = {"n": 7, "d": 9.5, "at": "2026-01-31T10:00:00Z", "f": 0.1, "t": 1}
    text = json.dumps(values)
    if kind == "csv":
        text = ",".join(values) + "\n" + ",".join(map(str, values.values())) + "\n"

    bench.run_plan(bench.batch(0, bench.text("a", text)), **{**JSON, "format": kind, **changes})

    (row,) = bench.rows()
    assert row.pop("f") == pytest.approx(0.1)
    at = dt.datetime(2026, 1, 31, 10, tzinfo=dt.UTC)
    assert row == {"n": 7, "d": Decimal("9.50"), "at": at, "t": "1"}


@pytest.mark.compiled
@pytest.mark.parametrize("changes", [{}, ADD])
def test_parquet_files_that_have_narrower_types_or_fewer_fields_fit_in_any_batch(bench, changes):
    wide = {"a": pa.array([1], pa.int64()), "s": pa.array([{"x": 1, "y": "a"}])}
    narrow = {"a": pa.array([2], pa.int32()), "s": pa.array([{"x": 2}])}
    files = [bench.parquet("0", **wide), bench.parquet("1", **narrow)]

    bench.run_plan(*[bench.batch(i, file) for i, file in enumerate(files)], **changes)

    assert bench.rows() == [{"a": 1, "s": {"x": 1, "y": "a"}}, {"a": 2, "s": {"x": 2, "y": None}}]


@pytest.mark.parametrize("values", [["a", "b"], [dt.date(2026, 1, 31)], [{"x": [1.5]}]], ids=str)
def test_a_column_that_is_null_in_a_whole_parquet_file_has_the_type_of_the_others(bench, values):
    nothing = bench.parquet("0", id=[0], v=pa.nulls(1))
    something = bench.parquet("1", id=[*range(1, len(values) + 1)], v=values)
    first = [nothing] if isinstance(values[0], str) else [something, nothing]

    bench.run_plan(bench.batch(0, *first), bench.batch(1, something), bench.batch(2, nothing))

    assert {row["id"]: row["v"] for row in bench.rows()} == {0: None, **dict(enumerate(values, start=1))}


def test_a_replaced_table_takes_the_types_of_the_files(bench):
    bench.run(bench.batch(0, bench.text("0.json", '{"a":1}')), **JSON)

    bench.run(bench.batch(1, bench.text("1.json", '{"a":"x"}'), mode="overwrite"), **JSON)

    assert bench.rows() == [{"a": "x"}]


ODD = """{"a":1,"s":{"x":1.50},"t":{"y":[1.50]}}
{"a":2,"zz":1,"yy":{"q":[]}}

 \t
{"a":3,"a":4}
{"a":5,"s":{"x":2,"zz":0}}
{"a":6,"s":{"x":12345678901234567.25},"t":12345678901234567.250}
{"a":"no"}
null
{"a":8,"t":"\\ud800"}
{"a":9
{"a":10,"zz":null}
{"a":11}
"""


@pytest.mark.compiled
def test_the_record_with_a_key_that_is_not_declared_goes_aside_and_no_other(bench):
    columns = {"a": "int", "s": "struct<x: decimal(30,2)>", "t": "string"}
    odd, plain = bench.text("ödd [1].json", ODD), bench.text("plain.json", '{"a":12}')

    rows, aside = bench.sort(bench.batch(0, odd, plain), format="json", columns=columns)

    assert sorted(rows, key=repr) == sorted(
        [
            {"a": 1, "s": {"x": Decimal("1.50")}, "t": '{"y":[1.50]}'},
            {"a": 6, "s": {"x": Decimal("12345678901234567.25")}, "t": "12345678901234567.250"},
            {"a": 11, "s": None, "t": None},
            {"a": 12, "s": None, "t": None},
        ],
        key=repr,
    )
    lines = [line for line in ODD.splitlines() if line.strip()]
    undeclared, twice = "it has keys that are not declared", "it has a key twice"
    aside.sort(key=lambda row: row["record"])
    assert [(row["record"], row["raw"]) for row in aside] == [
        (number, lines[number - 1]) for number in (2, 3, 4, 6, 7, 8, 9, 10)
    ]
    assert [(row["rule"], row["value"]) for row in aside[:3]] == [
        (undeclared, "zz, yy"),
        (twice, "a, a"),
        (undeclared, "zz"),
    ]
    assert [row["rule"] for row in aside[3:]] == [
        "a is not int",
        "it is not JSON, or no object",
        "it has an escape for half of a character",
        "it is not JSON, or no object",
        undeclared,
    ]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('[{"a":1},{"zz":2}]', {}),
        ('{"a":1,"zz":2}', {"multiLine": "true"}),
        ('{"a":1}\n{"zz":2}{"a":3}', {}),
        ('{"a":1}\n/* */\n{"zz":2}', {"allowComments": "true"}),
    ],
)
def test_a_file_whose_lines_are_no_records_goes_aside_as_a_whole(bench, text, options):
    files = [bench.text("odd.json", text), bench.text("plain.json", '{"a":10}')]

    rows, (aside,) = bench.sort(bench.batch(0, *files), format="json", columns={"a": "int"}, options=options)

    assert rows == [{"a": 10}]
    assert aside["record"] is None


@pytest.mark.slow
def test_a_key_that_inferred_columns_lack_takes_its_record_aside_if_the_table_does_not_change(bench):
    first = bench.batch(0, bench.text("0.json", '{"a":1}'))
    second = bench.batch(1, bench.text("1.json", '{"a":2}\n{"a":3,"b":4}'))

    bench.run_plan(first, second, **JSON, **INFER, bad_records="quarantine")

    assert bench.rows() == [{"a": 1}, {"a": 2}]
    (aside,) = DeltaTable(f"{bench.table}_quarantine").to_pyarrow_table().to_pylist()
    assert (aside["record"], aside["value"], aside["raw"]) == (2, "b", '{"a":3,"b":4}')


def _scalar(chance: random.Random, kind: str) -> Any:
    if chance.random() < 0.2:
        return None
    match kind:
        case "bigint":
            return chance.randint(-(2**53), 2**53)
        case "double":
            return chance.choice([chance.randint(-999, 999), chance.random() * 10.0 ** chance.randint(-9, 9)])
        case "boolean":
            return chance.random() < 0.5
    return "".join(chance.choice('aä {}[]",:\\1') for _ in range(chance.randint(0, 6)))


KINDS = ("bigint", "double", "boolean", "string")


def _kind(chance: random.Random, depth: int = 0) -> Any:
    """Draw a type: a name, a list of one type, or the types of keys."""
    form = chance.choice(["scalar", "scalar", "list", "object"]) if depth < 3 else "scalar"
    if form == "scalar":
        return chance.choice(KINDS)
    if form == "list":
        return [_kind(chance, depth + 1)]
    return {f"k{i}": _kind(chance, depth + 1) for i in range(chance.randint(1, 3))}


def _value(chance: random.Random, kind: Any) -> Any:
    if isinstance(kind, str):
        return _scalar(chance, kind)
    if chance.random() < 0.15:
        return None
    if isinstance(kind, list):
        return [_value(chance, kind[0]) for _ in range(chance.randint(0, 3))]
    return {key: _value(chance, below) for key, below in kind.items() if chance.random() < 0.8}


def _full(kind: Any) -> Any:
    """Return a value that shows all of a type."""
    if isinstance(kind, str):
        return {"bigint": 1, "double": 0.5, "boolean": True, "string": "x"}[kind]
    return [_full(kind[0])] if isinstance(kind, list) else {key: _full(below) for key, below in kind.items()}


def _as_read(value: Any, kind: Any) -> Any:
    """Return what Python reads, with NULL for the keys that are not there."""
    if value is None:
        return None
    if isinstance(kind, list):
        return [_as_read(item, kind[0]) for item in value]
    if isinstance(kind, dict):
        return {key: _as_read(value.get(key), below) for key, below in kind.items()}
    return float(value) if kind == "double" else value


def _told(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True)


MORE_SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.loads) for seed in (1, 2))]


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize("seed", MORE_SEEDS)
@pytest.mark.parametrize("changes", [{}, INFER], ids=["None", "infer"])
def test_records_give_the_same_table_however_they_fall_into_files_and_batches(bench, seed, changes):
    chance = random.Random(seed)
    kinds = {"id": "bigint", **{f"c{i}": _kind(chance) for i in range(5)}}
    records = [{**{k: _value(chance, kind) for k, kind in kinds.items()}, "id": i} for i in range(1, 40)]
    records = [_full(kinds), *records]  # which types the columns have has to show in the first batch
    texts = [json.dumps(record) for record in records]
    cuts = sorted(chance.sample(range(1, len(texts)), 7))
    parts = [texts[a:b] for a, b in zip([0, *cuts], [*cuts, len(texts)], strict=True)]
    files = [bench.text(f"{i}.json", "\n".join(part)) for i, part in enumerate(parts)]
    first = chance.randint(1, 3)
    batches = [files[:first], files[first:5], files[5:6], files[6:]]

    bench.run_plan(*[bench.batch(i, *some) for i, some in enumerate(batches)], **{**JSON, **changes})

    expected = [_as_read(json.loads(text), kinds) for text in texts]
    rows = DeltaTable(str(bench.table)).to_pyarrow_table().to_pylist()
    assert sorted(map(_told, rows)) == sorted(map(_told, expected))


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_without_a_full_first_record_a_value_is_loaded_as_it_is_or_the_batch_fails(bench, seed):
    chance = random.Random(100 + seed)
    numbers = [chance.choice([None, chance.randint(0, 9), 0.5, "x", [], {}, {"x": 1}]) for _ in range(8)]
    texts = [json.dumps({"id": i, "v": value}) for i, value in enumerate(numbers)]

    for i, text in enumerate(texts):
        try:
            bench.run(bench.batch(i, bench.text(f"{i}.json", text)), **JSON)
        except ScopeProviderError:
            break

    loaded = {row["id"]: row["v"] for row in bench.rows()} if (bench.table / "_delta_log").exists() else {}
    for number, value in loaded.items():
        wanted = numbers[number]
        as_text = None if wanted is None else wanted if isinstance(wanted, str) else json.dumps(wanted)
        if isinstance(wanted, dict) and isinstance(value, dict):
            assert {key: part for key, part in value.items() if part is not None} == wanted
            continue
        assert value in (wanted, as_text, (as_text or "").replace(" ", ""))
