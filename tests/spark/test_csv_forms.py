"""CSV as it arrives: files of several forms in one folder, lines that are no records, commas in numbers."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_provider_scope.exceptions import BadFileError, BadRecordError, InputError
from airflow_provider_scope.spark.session import with_settings

pytestmark = pytest.mark.spark

COLUMNS = {"id": "int", "name": "string", "price": "decimal(12,2)"}
GERMAN = {"sep": ";", "decimalSeparator": ",", "thousandsSeparator": ".", "encoding": "ISO-8859-1"}
FORMS: dict[str, Any] = {
    "format": "csv",
    "columns": COLUMNS,
    "options": {"header": "true"},
    "options_by_pattern": {
        r"_de\.csv$": {**GERMAN, "skipRows": "2", "footer": "Summe;.*"},
        r"_us\.csv$": {},
        r"\.tsv$": {"sep": "\t", "header": "false", "footer": r"total.*"},
        r"_lines\.csv$": {"multiLine": "true", "skipRows": "1"},
    },
}


@pytest.mark.slow
def test_files_of_several_forms_are_one_batch_and_what_is_left_out_is_named(bench, capfd):
    entry = bench.batch(
        0,
        bench.file(
            "a_de.csv",
            'Umsätze\n\n;Stand: heute\nID;Name;price\n1;Ä;1.234,50\n2;"a;b";7\nSumme;;1.241,50\n'.encode(
                "latin-1"
            ),
        ),
        bench.file("b_de.csv", "Umsätze\n;\nid;name;price\n3;B;-0,5\n4;Summe;1".encode("latin-1")),
        bench.text("c_us.csv", 'id,name,price\n5,"Ö, ""C""",1234.50\n'),
        bench.text("d.tsv", "6\tD\t8.00\n7\t\t\ntotal\t2\n"),
        bench.text("e_lines.csv", '"of two\nlines",x\nid,name,price\n8,"E\nF",9\n'),
        bench.text("empty_us.csv", ""),
        bench.text("only_header_de.csv", "x\ny\nid;name;price\n"),
    )

    bench.run_plan(entry, **FORMS)

    assert [(row["id"], row["name"], row["price"]) for row in bench.rows()] == [
        (1, "Ä", Decimal("1234.50")),
        (2, "a;b", Decimal("7.00")),
        (3, "B", Decimal("-0.50")),
        (4, "Summe", Decimal("1.00")),
        (5, 'Ö, "C"', Decimal("1234.50")),
        (6, "D", Decimal("8.00")),
        (7, None, None),
        (8, "E\nF", Decimal("9.00")),
    ]
    events = [line.partition(" ")[2] for line in capfd.readouterr().out.splitlines() if '"columns"' in line]
    told = " ".join(json.loads(event)["message"] for event in events)
    assert "a_de.csv: 'Umsätze', ';Stand: heute', 'Summe;;1.241,50'" in told
    assert "b_de.csv: 'Umsätze', ';'" in told
    assert "d.tsv: 'total\\t2'" in told
    assert "only_header_de.csv: 'x', 'y'" in told


@pytest.mark.parametrize(
    ("name", "words", "bad_records"),
    [
        ("x.csv", "matches none of the patterns", "quarantine"),
        ("_us.csv_de.csv", None, "fail"),
        ("_us.csv.tsv", None, "fail"),
    ],
)
def test_a_file_of_no_form_or_of_two_is_refused_before_anything_is_written(bench, name, words, bad_records):
    forms = {r"_us\.csv": {}, r"_de\.csv$": GERMAN, r"\.tsv$": {"sep": "\t"}}
    files = [bench.text("a_us.csv", "id,name,price\n1,A,2\n"), bench.text(name, "id,name,price\n1,A,2\n")]

    with pytest.raises(InputError, match=words or "matches the patterns") as caught:
        bench.run(
            bench.batch(0, *files), **{**FORMS, "options_by_pattern": forms, "bad_records": bad_records}
        )

    assert name in caught.value.what
    assert not Path(bench.table).exists()
    assert not Path(f"{bench.table}_quarantine").exists()


@pytest.mark.slow
def test_what_is_wrong_with_one_form_goes_aside_with_its_numbers(bench):
    files = {
        "number_de.csv": "x\ny\nid;name;price\n1;A;1.5\n2;B;12.34,5\n3;C;1,5\n4;D\nSumme;9\n",
        "footer_de.csv": "x\ny\nid;name;price\n5;E;1\nsumme;9\n",
        "quote_de.csv": 'x "\ny\nid;name;price\n6;F;1\n7;"G;1\nSumme;9\n',
        "header_de.csv": "x\nid;name;price\n8;H;1\nSumme;9\n",
        "short_de.csv": "x\n",
        "us_de.csv": "x\ny\nid,name,price\n9,I,1\n",
        "rescue_us.csv": 'id,name,price\n10,J,"1,5"\n',
        "latin_us.csv": "id,name,price\n11,\ufffd,1\n",
    }
    entries = {name: bench.file(name, text.encode("latin-1", "replace")) for name, text in files.items()}
    entries["latin_us.csv"] = bench.file("latin_us.csv", b"id,name,price\n11,\xe9,1\n")

    strict = {
        name: bench.failure(bench.batch(0, file), reads=True, **FORMS) for name, file in entries.items()
    }
    good, bad = bench.sort(bench.batch(0, *entries.values()), **FORMS)

    of_files = {"header_de.csv", "short_de.csv", "us_de.csv", "latin_us.csv"}
    assert {name for name, err in strict.items() if isinstance(err, BadFileError)} == of_files
    assert {
        name for name, err in strict.items() if isinstance(err, BadRecordError)
    } == files.keys() - of_files
    assert sorted(row["id"] for row in good) == [3, 5, 6]
    records = {(row["file"].rpartition("/")[2], row["record"]): row["raw"] for row in bad if row["raw"]}
    assert records == {
        ("number_de.csv", 1): '{"id":"1","name":"A","price":"1.5"}',
        ("number_de.csv", 2): '{"id":"2","name":"B","price":"12.34,5"}',
        ("number_de.csv", 4): "4;D",
        ("footer_de.csv", 2): "summe;9",
        ("quote_de.csv", 2): '7;"G;1',
        ("rescue_us.csv", 1): '{"id":"10","name":"J","price":"1,5"}',
    }
    whole = {row["file"].rpartition("/")[2]: row["rule"] for row in bad if not row["raw"]}
    assert whole.keys() == {*of_files, "rescue_us.csv"}
    assert "header is not where" in whole["header_de.csv"]


def test_forms_go_together_with_rescued_data(bench):
    forms = {r"_de\.csv$": GERMAN, r"_us\.csv$": {}, r"\.tsv$": {"sep": "\t", "header": "false"}}
    files = [
        bench.text("a_de.csv", "zz;price;id\n7;1,50;1\n8;1.5;2\n"),
        bench.text("b_us.csv", "id,name,price\n3,B,1.5\n"),
        bench.text("c.tsv", "4\tC\tx\n"),
    ]

    good, bad = bench.sort(
        bench.batch(0, *files), **{**FORMS, "options_by_pattern": forms}, rescued_data_column="_rescued"
    )

    rows = {row["id"]: (row["price"], json.loads(row["_rescued"] or "{}")) for row in good}
    assert not bad
    assert {
        key: (price, {n: v for n, v in more.items() if n[0] != "_"}) for key, (price, more) in rows.items()
    } == {
        1: (Decimal("1.50"), {"zz": "7"}),
        2: (None, {"zz": "8", "price": "1.5"}),
        3: (Decimal("1.50"), {}),
        4: (None, {"price": "x"}),
    }


def test_a_footer_is_known_without_its_quotes_however_many_fields_it_has(bench):
    files = [bench.text("a.csv", '1,2\n"T","3"\n'), bench.text("b.csv", '3,4\n"T",5,6\n')]
    plan = {"columns": {"a": "string", "b": "string"}, "options": {"footer": "T,.*"}}

    rows = bench.read(bench.batch(0, *files), format="csv", **plan)

    assert sorted((row["a"], row["b"]) for row in rows) == [("1", "2"), ("3", "4")]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.loads) for seed in range(1, 9))])
def test_lines_at_the_edges_are_left_out_wherever_spark_splits_the_files(bench, seed):
    chance = random.Random(seed)
    skipped = chance.randint(1, 3)
    header, footer = ["id", "v"], "T,[0-9]+"
    texts, expected = [], []
    for _ in range(12):
        lines = [chance.choice(["title", "a,b", "id,v", "T,1", "1,2,3"]) for _ in range(skipped)]
        lines.append(",".join(header))
        for _ in range(chance.choice([0, 1, 40])):
            record = (chance.choice(["1", "T", "id"]), chance.choice(["v", "1", "9" * 30]))
            lines.append(",".join(record))
            expected.append(record)
        if lines[-1].startswith("T,") and lines[-1][2:].isdigit() and len(lines) > skipped + 1:
            expected.pop()  # it is one to whoever reads the pattern
        elif chance.random() < 0.5:
            lines.append(f"T,{chance.randint(0, 99)}")
        for place in sorted(chance.sample(range(len(lines)), min(3, len(lines))), reverse=True):
            lines.insert(place, "")
        texts.append("\n".join(lines) + chance.choice(["", "\n", "\n\n"]))
    files = [bench.text(f"{place}.csv", text) for place, text in enumerate(texts)]
    options = {"header": "true", "skipRows": str(skipped), "footer": footer}
    plan = {"format": "csv", "columns": dict.fromkeys(header, "string"), "options": options}

    with with_settings(bench.spark, {"spark.sql.files.maxPartitionBytes": "100b"}):
        rows = bench.read(bench.batch(0, *files), **plan)
        good, bad = bench.sort(bench.batch(0, *files), **plan)

    assert sorted((row["id"], row["v"]) for row in rows) == sorted(expected)
    assert sorted((row["id"], row["v"]) for row in good) == sorted(expected)
    assert not bad
    assert not DeltaTable.is_deltatable(str(bench.table))


@pytest.mark.parametrize("text", ["a\rb\r", "a\rb", '"a"\rb\r'])
def test_multi_line_does_not_take_lines_that_end_with_a_carriage_return_for_one(bench, text):
    entry = bench.batch(0, bench.text("cr.csv", text))
    plan = {"format": "csv", "columns": {"v": "string"}}

    error = bench.failure(entry, reads=True, **plan, options={"multiLine": "true"})
    rows = bench.read(entry, **plan, options={"multiLine": "true", "lineSep": "\r"})

    assert "its lines may end with a carriage return alone" in error.what
    assert r"set lineSep: '\r' if they do" in error.do
    assert len(rows) == 2


def test_multi_line_keeps_a_carriage_return_in_quotes(bench):
    entry = bench.batch(0, bench.text("q.csv", '"a\rb"\n'))

    rows = bench.read(entry, format="csv", columns={"v": "string"}, options={"multiLine": "true"})

    assert rows == [{"v": "a\rb"}]
