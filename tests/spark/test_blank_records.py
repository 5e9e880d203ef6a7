"""A line of separators that are blanks is a record of NULLs, and Spark leaves it out as an empty line."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from airflow_provider_scope.exceptions import BadFileError

pytestmark = [pytest.mark.spark, pytest.mark.compiled]

COLUMNS = {"a": "int", "b": "string"}
WIDE = {"encoding": "UTF-16LE", "lineSep": "\n"}
TABS = [
    b"1\tx\n\t\n2\ty\n",
    b"\t\n1\tx\n2\ty",
    b"1\tx\n2\ty\n\t",  # the last record has no line end
    b"1\tx\r\n\t\r\n2\ty\r\n",
]
ROWS = [{"a": 1, "b": "x"}, {"a": None, "b": None}, {"a": 2, "b": "y"}]


def read(bench: Any, *files: Any, sep: str, columns: dict[str, str] = COLUMNS, **options: str) -> list[Any]:
    plan = {"format": "csv", "columns": columns, "options": {"sep": sep, **options}}
    return sorted(bench.read(bench.batch(0, *files), **plan), key=repr)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sep", "content", "options"),
    [
        pytest.param("\t", TABS, {}, id="tabs"),
        pytest.param("\\t", b"1\tx\n\t\n2\ty\n", {}, id="written as Spark takes it"),
        pytest.param("\t", b"n\tm\n1\tx\n\t\n2\ty\n", {"header": "true"}, id="header"),
        pytest.param("\x01", b"1\x01x\n\x01\n2\x01y\n", {}, id="Hive's"),
        pytest.param(" ", b"1 x\n \n2 y\n", {}, id="blanks"),
        pytest.param("\t\t", b"1\t\tx\n\t\t\n2\t\ty\n", {}, id="two tabs"),
        pytest.param("\t", b"1\tx|\t|2\ty", {"lineSep": "|"}, id="own line ends"),
        pytest.param("\t", b"1\tx\r\t\r2\ty", {"lineSep": "\r"}, id="carriage returns alone"),
        pytest.param("\t", b"1\tx\n\t\n2\ty\n", {"multiLine": "true"}, id="multiLine"),
        pytest.param("\t", "1\tx\n\t\n2\ty\n".encode("utf-16-le"), WIDE, id="wide"),
    ],
)  # fmt: skip
def test_a_record_of_separators_that_are_blanks_is_a_row(bench, sep, content, options):
    columns = {"n": "int", "m": "string"} if "header" in options else COLUMNS
    rows = [dict(zip(columns, row.values(), strict=True)) for row in ROWS]

    contents = content if isinstance(content, list) else [content]
    files = [bench.file(f"{number}.csv", one) for number, one in enumerate(contents)]
    assert read(bench, *files, sep=sep, columns=columns, **options) == sorted(rows * len(files), key=repr)


def test_such_records_lie_in_some_files_of_a_batch(bench):
    files = [
        bench.file("a.csv", b"1\tx\n"),
        bench.file("b.csv.gz", gzip.compress(b"\t\n2\ty\n")),
        bench.file("c.csv", b"3\tz\n\t\n\n"),
    ]

    rows = read(bench, *files, sep="\t")

    assert sorted(str(row["a"]) for row in rows) == ["1", "2", "3", "None", "None"]


def test_a_bad_record_beside_one_goes_to_the_quarantine_alone(bench):
    entry = bench.batch(0, bench.file("a.csv", b"1\tx\n\t\nno\ty\n"), bench.file("b.csv", b"2\ty\n"))

    good, bad = bench.sort(entry, format="csv", columns=COLUMNS, options={"sep": "\t"})

    assert sorted(str(row["a"]) for row in good) == ["1", "2", "None"]
    assert len(bad) == 1


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        pytest.param(b"1\tx\r\t\r2\ty", COLUMNS, id="where lines may end with a carriage return alone"),
        pytest.param(b"x\n\x01\ny\n", {"a": "string"}, id="of one column, a control character"),
        pytest.param(b"x\r\t\ry\r", {"a": "string"}, id="of one column, between carriage returns"),
    ],
)
def test_what_the_parser_would_leave_out_is_refused_where_it_cannot_be_read(bench, content, columns):
    with pytest.raises(BadFileError, match=r"line of (blanks|separators)"):
        read(bench, bench.file("a.csv", content), sep="\t" if len(columns) > 1 else ",", columns=columns)


def test_a_line_of_blanks_without_a_separator_is_no_record(bench):
    assert len(read(bench, bench.file("a.csv", b"1\tx\n  \n\n2\ty\n"), sep="\t")) == 2
