"""Each odd file gives the right rows or an error that says what to do; with tidy files beside it, too."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.spark.files import json_files
from airflow_provider_scope.spark.files.formats import Source
from airflow_provider_scope.spark.structs import literal_rows, to_struct
from tests.spark.reading_cases import CASES, NOT_CLOSED, VALUES, Case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.conftest import Bench

pytestmark = [pytest.mark.spark, pytest.mark.compiled]

FILES = [case for case in CASES if case not in VALUES]


def same(rows: Any) -> list[str]:
    def text(value: Any) -> str:
        if isinstance(value, datetime) and value.tzinfo:
            return value.astimezone(UTC).isoformat()
        return "NaN" if isinstance(value, float) and math.isnan(value) else repr(value)

    return sorted(str([text(value) for value in row]) for row in rows)


def plan_of(case: Case) -> dict[str, Any]:
    return {"format": case.format, "columns": case.columns, "options": case.options, **case.plan}


def read_together(cases: list[Case]) -> list[list[Case]]:
    """Put the cases together that are read alike; files without declared columns stay alone.

    So do those with a quote that is not closed: beside others that go aside, they have another reason.
    """
    groups: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        is_alone = not case.columns or case.then == NOT_CLOSED
        groups[f"{case.format} {case.what}" if is_alone else str(plan_of(case))].append(case)
    return [*groups.values()]


ROWS = read_together([case for case in FILES if not isinstance(case.then, str)])
ERRORS = read_together([case for case in FILES if isinstance(case.then, str)])


def first_of(cases: list[Case]) -> str:
    return f"{cases[0].format}: {cases[0].what}"


@pytest.mark.slow
@pytest.mark.parametrize("cases", ROWS, ids=first_of)
def test_odd_files_beside_each_other_give_their_rows(bench: Bench, cases: list[Case]):
    files = {bench.file(f"{i}/{case.file_name}", case.bytes): case for i, case in enumerate(cases)}

    rows = bench.read(bench.batch(0, *files), **plan_of(cases[0]), sql="SELECT *, source_file_uri FROM @data")

    read: dict[str, list[Any]] = {file.path: [] for file in files}
    for row in rows:
        read[row.pop("source_file_uri")].append(row.values())
    for file, case in files.items():
        assert same(read[file.path]) == same(case.then), case.what


@pytest.mark.parametrize("case", [cases[0] for cases in ERRORS], ids=lambda case: first_of([case]))
def test_an_odd_file_is_an_error(bench: Bench, case: Case):
    entry = bench.batch(0, bench.file(case.file_name, case.bytes))

    error = bench.failure(entry, reads=True, **plan_of(case))

    assert case.then in error.what


@pytest.mark.slow
@pytest.mark.parametrize("cases", [cases for cases in ERRORS if len(cases) > 1], ids=first_of)
def test_odd_files_beside_each_other_go_aside_each_for_its_own_reason(bench: Bench, cases: list[Case]):
    """All others like the first one, which alone is an error above: what is checked is the same."""
    files = {bench.file(f"{i}/{case.file_name}", case.bytes): case for i, case in enumerate(cases)}

    _, aside = bench.sort(bench.batch(0, *files), **plan_of(cases[0]))

    for file, case in files.items():
        reasons = [f"{file.path}: {row['rule']}: {row['value']}" for row in aside if row["file"] == file.path]
        assert any(str(case.then) in reason for reason in reasons), (case.what, reasons)


ODD_KEYS = ("a", "b", "A", "zz", "", "a b", r"\u0062", r"a\"", r"\\", "é", ":")
ODD_ENDS = ("", "", " ", "  ", "\t", "\r", "\n", " \t", "/**/", "\u00a0", "\u2028")
ODD_VALUES = (
    *("1", '"x"', "null", "-0.5e3", "'x'", "[1]", "{}", '{"zz":1}', '[{"zz":1}]', "x", ""),
    *('"}"', '"{"', r'"\":"', r'"a\":1"', r'"\\"', "\"'b':\"", '" :"', '"b\t:"', '",\\"zz\\":"'),
    *(r'"\ud800"', r'"\uD83D\uDE00"', r'"\u00e9"', r'"\\ud800"', r'"\udc00"'),
)


def odd_lines(count: int) -> list[str]:
    """Write objects whose keys, and what follows them, are mostly as tidy writers do not write them."""
    chance = random.Random(1)

    def member() -> str:
        quote = chance.choice(['"', '"', '"', "'", ""])
        key = chance.choice(ODD_KEYS if chance.random() < 0.5 else ["a", "b"])
        gap, after = chance.choice(ODD_ENDS), chance.choice(["", "", " ", "\t"])
        return f"{quote}{key}{quote}{gap}:{after}{chance.choice(ODD_VALUES)}"

    def line() -> str:
        members = chance.choice([",", ",", " , "]).join(member() for _ in range(chance.randrange(4)))
        before, after = chance.choice(["", "", " ", "\t"]), chance.choice(["", "", " ", "}", "{}", ",", "x"])
        return f"{before}{{{members}}}{after}"

    return [line() for _ in range(count)]


def test_the_quick_look_at_a_json_line_passes_none_that_the_close_look_refuses(spark: SparkSession):
    """A line that only the quick look takes for plain would lose a key, or be read to its middle."""
    columns = to_struct({"a": "string", "b": "string"})
    plain = json_files._is_plain(columns, "line", {})
    wrong = json_files._problem_sql(
        columns,
        "line",
        Source("json", columns, {}, ignores_extra=False, allows_missing=True, infers_columns=False),
    )
    rows = literal_rows(spark, [{"line": line} for line in odd_lines(20_000)], "line string")

    looked = rows.selectExpr("line", f"{plain} AS plain", f"{wrong} AS wrong").where("plain").cache()

    assert [row.line for row in looked.where("wrong IS NOT NULL").collect()] == []
    assert looked.count() > 100


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [dict(pairs) for pairs in dict.fromkeys((*case.options.items(),) for case in VALUES)]
)
def test_a_text_is_the_value_that_it_means_or_a_bad_record(bench: Bench, options: dict[str, str]):
    """Each text is a record, and has a column of its type."""
    cases = {f"v{i}": case for i, case in enumerate(VALUES) if case.options == options}
    sep = options.get("sep", ",")
    lines = [
        sep.join(str(case.content).strip() if case is one else "" for case in cases.values())
        for one in cases.values()
    ]
    entry = bench.batch(0, bench.text("a.csv", "\n".join(lines)))

    good, bad = bench.sort(
        entry,
        format="csv",
        columns={name: (case.columns or {})["v"] for name, case in cases.items()},
        options=options,
    )

    values = {name: case.then for name, case in cases.items() if not isinstance(case.then, str)}
    assert same([row[name] for name in cases] for row in good) == same(
        [then[0][0] if name == of else None for name in cases] for of, then in values.items()
    )
    rules = {
        number: case.then.replace("v", name, 1)
        for number, (name, case) in enumerate(cases.items(), 1)
        if isinstance(case.then, str)
    }
    assert {row["record"]: row["rule"] for row in bad if row["record"]} == rules


@pytest.mark.parametrize(
    ("kind", "text", "where"),
    [
        ("json", '{"a": 1}\n\n{"a": 2}{"a": 3}\n{"a": 4}\n', """(line 3: '{"a": 2}{"a": 3}')"""),
        ("json", '{"a": 1}\n{"a": 2, "a": 3}\n', """(line 2: '{"a": 2, "a": 3}')"""),
        ("csv", "1\n2\n\udce4\n", "(line 3: '\N{REPLACEMENT CHARACTER}')"),
    ],
)
def test_the_error_for_a_file_names_the_line(bench, kind, text, where):
    odd = bench.file("[a].txt", text.encode(errors="surrogateescape"))
    entry = bench.batch(0, odd, bench.text("good", "1\n" if kind == "csv" else '{"a": 1}\n'))

    error = bench.failure(entry, reads=True, format=kind, columns={"a": "string"})

    assert where in error.what


def test_a_secret_in_a_bad_record_is_hidden(bench):
    entry = bench.batch(0, bench.text("a.csv", "1,account_key=c2VjcmV0\nx,password=hunter2\n"))

    error = bench.failure(entry, reads=True, format="csv", columns={"a": "int", "b": "string"})

    assert "a is not int: 'x'" in error.what
    assert "hunter2" not in error.what


def test_keys_of_json_files_that_are_read_alone_are_columns(bench):
    files = [
        bench.text("10:30/[x].json", '{"own": 1}\n'),
        bench.text("10:30/[y].json", '{"other": 2}\n'),
        bench.text("plain.json", '{"n": 3}\n'),
    ]

    rows = bench.read(bench.batch(0, *files), format="json")

    assert sorted(next(item for item in row.items() if item[1]) for row in rows) == [
        ("n", 3),
        ("other", 2),
        ("own", 1),
    ]


def test_keys_of_json_maps_that_are_no_texts_are_refused(bench):
    entry = bench.batch(0, bench.text("m.json", '{"m": {"1": "a"}}\n'))

    error = bench.failure(entry, reads=True, format="json", columns={"m": "map<int,string>"})
    rows = bench.read(
        entry,
        format="json",
        columns={"m": "map<string,string>"},
        sql="SELECT CAST(m AS map<int,string>) AS m FROM @data",
    )

    assert isinstance(error, InputError)
    assert "'m' is map<int,string>, and the keys of JSON are texts" in error.what
    assert "CAST" in error.do
    assert rows == [{"m": [(1, "a")]}]
