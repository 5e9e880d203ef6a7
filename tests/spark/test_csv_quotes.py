"""Each record of a CSV file arrives as a strict reader gives it, or is refused by its number."""

from __future__ import annotations

import csv
import gzip
import itertools
import os
import random
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.exceptions import BadFileError, BadRecordError
from airflow_provider_scope.spark.files.csv_files import quotes_of
from airflow_provider_scope.spark.structs import literal_rows
from airflow_provider_scope.sql import literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.spark.conftest import Bench

pytestmark = [pytest.mark.spark, pytest.mark.compiled]

TWO = {"a": "string", "b": "string"}
EXAMPLES = int(os.environ.get("CSV_EXAMPLES", "8"))
"""Files for each dialect; by hand with thousands."""
DIALECTS: dict[str, dict[str, str]] = {
    "plain": {},
    "quote": {"quote": "'", "escape": "'", "sep": ";"},
    "escape": {"escape": "\\"},
    "separator of two": {"sep": "||"},
    "comment and header": {"comment": "#", "header": "true"},
    "CRLF": {},
    "gzip": {},
    "UTF-16": {"encoding": "UTF-16LE", "lineSep": "\n"},
    "many lines": {"multiLine": "true"},
    "many lines, CRLF": {"multiLine": "true"},
    "many lines, line end": {"multiLine": "true", "lineSep": "\n"},
    "many lines, escape": {"multiLine": "true", "escape": "\\"},
    "many lines, UTF-16": {"multiLine": "true", "encoding": "UTF-16"},
    "many lines, comment": {"multiLine": "true", "comment": "#", "header": "true"},
}


class Form:
    """How the files of a dialect are written, and what a reader that is not Spark makes of them."""

    def __init__(self, name: str) -> None:
        options = DIALECTS[name]
        self.options = options
        self.quote = options.get("quote", '"')
        self.escape = options.get("escape", '"')
        self.sep = options.get("sep", ",")
        self.end = "\r\n" if "CRLF" in name else "\n"
        self.has_lines = "multiLine" in options
        self.suffix = ".csv.gz" if name == "gzip" else ".csv"

    def bytes(self, text: str) -> bytes:
        content = text.encode(self.options.get("encoding", "UTF-8"))
        return gzip.compress(content) if self.suffix.endswith("gz") else content

    def field(self, rng: random.Random) -> str:
        # Not in records of many lines: behind a closing quote it is a blank, which the parser drops.
        chars = ["x", "7", "#", self.sep, self.quote, self.quote, self.end if self.has_lines else "\0"]
        text = "".join(rng.choice(chars) for _ in range(rng.randrange(6)))
        if rng.random() < 0.5:
            plain = text.replace(self.sep, "").replace(self.end, "").lstrip(self.quote + "#")
            return plain if self.escape == self.quote else plain.replace(self.quote, "")
        text = text.replace(self.quote, self.escape + self.quote)
        end = "" if rng.random() < 0.06 else self.quote
        return f"{self.quote}{text}{end}"

    def record(self, rng: random.Random) -> str:
        return f"{self.field(rng) or 'x'}{self.sep}{self.field(rng)}"

    def file(self, rng: random.Random) -> str:
        lines = [self.record(rng) for _ in range(rng.randrange(1, 7))]
        if "comment" in self.options:
            lines.insert(rng.randrange(len(lines) + 1), f'# {self.quote}x{self.sep}"')
        if "header" in self.options:
            lines.insert(0, f"a{self.sep}b")
        return self.end.join(lines) + self.end * (rng.random() < 0.8)

    def records(self, text: str) -> Iterator[list[str] | None]:
        """Return the records; None for one that is none."""
        lines = text.split(self.end)
        if not lines[-1]:
            lines.pop()
        if "header" in self.options:
            lines = lines[1:]
        # A comment is one where a record begins: no field but a part of a quoted one begins so.
        lines = [line for line in lines if not ("comment" in self.options and line.startswith("# "))]
        sep = "\x1f" if len(self.sep) > 1 else self.sep
        lines = [line.replace(self.sep, sep) for line in lines]
        how: dict[str, Any] = {"delimiter": sep, "quotechar": self.quote, "strict": True}
        if self.escape != self.quote:
            how |= {"doublequote": False, "escapechar": self.escape}
        for group in [[line + self.end for line in lines]] if self.has_lines else [[line] for line in lines]:
            try:
                for row in csv.reader(group, **how):
                    # With a longer separator, Spark's parser adds a quote to one at the end of a bare field.
                    is_spoilt = (
                        sep != self.sep and group[0].endswith(f"{sep}{row[-1]}") and row[-1][-1:] == '"'
                    )
                    is_good = len(row) == len(TWO) and not is_spoilt
                    yield [value.replace(sep, self.sep) for value in row] if is_good else None
            except csv.Error:
                yield None


def test_the_quick_look_at_a_line_finds_what_the_pattern_finds(spark: SparkSession):
    """A quick look that takes a line for closed would load a record without the rest of its last field."""
    quotes = quotes_of(spark, {"escape": '"', "chartoescapequoteescaping": "\uffff"})
    assert quotes
    assert quotes.separator
    lines = ["".join(line) for size in range(8) for line in itertools.product('",x', repeat=size)]
    rows = literal_rows(spark, [{"line": line} for line in lines], "line string")

    wrong = rows.where(f"{quotes.leaves_open('line')} != (line RLIKE {literal(quotes.is_open)})")

    assert [row.line for row in wrong.collect()] == []


@pytest.mark.parametrize("multi_line", ["false", "true"])
@pytest.mark.parametrize("roles", [{}, {"quote": ""}, {"quote": "", "escape": ""}], ids=str)
def test_no_character_has_a_role_that_none_is_to_have(bench: Bench, roles: dict[str, str], multi_line: str):
    rows = [{"a": '\0x"y', "b": 'z"\0'}, {"a": "\0", "b": "\\"}]
    quoted = [[f'"{value.replace(chr(34), chr(34) * 2)}"' for value in row.values()] for row in rows]
    fields = [list(row.values()) for row in rows] if roles else quoted
    file = bench.text("a.csv", "".join(f"{','.join(record)}\n" for record in fields))
    plan = {"format": "csv", "columns": TWO, "options": {"multiLine": multi_line, **roles}}

    assert bench.read(bench.batch(0, file), **plan) == rows


MORE = ("many lines", "many lines, comment", "many lines, line end", "many lines, UTF-16", "gzip")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.loads] * (name in MORE)) for name in DIALECTS]
)
def test_a_record_arrives_as_it_is_or_is_refused_by_its_number(bench: Bench, name: str):
    form, rng = Form(name), random.Random(f"{name} {os.environ.get('CSV_SEED', '')}")
    texts = {f"{number}{form.suffix}": form.file(rng) for number in range(EXAMPLES)}
    entry = bench.batch(0, *[bench.file(file, form.bytes(text)) for file, text in texts.items()])

    good_rows, aside = bench.sort(
        entry, format="csv", columns=TWO, options=form.options, sql="SELECT a, b, source_file_uri FROM @data"
    )

    loaded: dict[str, list[Any]] = {file: [] for file in texts}
    for row in good_rows:
        loaded[row["source_file_uri"].rpartition("/")[2]].append([row["a"] or "", row["b"] or ""])
    refused: dict[str, dict[int | None, str]] = {file: {} for file in texts}
    for row in aside:
        refused[row["file"].rpartition("/")[2]][row["record"]] = row["rule"]
    whole = 0
    for file, text in texts.items():
        records = list(form.records(text))
        good = [record for record in records if record is not None]
        bad = {number for number, record in enumerate(records, start=1) if record is None}
        if refused[file].keys() == {None}:
            assert bad, (text, refused[file])
            assert not loaded[file]
            whole += 1
            continue
        assert sorted(loaded[file]) == sorted(good), (text, refused[file])
        assert refused[file].keys() - {None} == bad, text
    assert whole < EXAMPLES * 0.6


@pytest.mark.parametrize("options", [{}, {"multiLine": "true"}, {"multiLine": "true", "lineSep": "\n"}])
def test_an_unclosed_quote_is_told_with_the_number_of_its_record(bench, options):
    texts = {"a.csv": '1,a\n2,"b', "b.csv": '1,a\n2,"b\n', "c.csv": '1,a\n2,"'}
    files = [bench.text(name, text) for name, text in texts.items()]
    plan = {"format": "csv", "columns": TWO, "options": options}
    entry = bench.batch(0, bench.text("good.csv", "1,a\n"), *files)

    error = bench.failure(entry, reads=True, **plan)
    good, aside = bench.sort(entry, **plan)

    assert isinstance(error, BadRecordError)
    assert "(number 2 of the file): a quote is not closed" in error.what
    assert good == [{"a": "1", "b": "a"}] * 4
    bad = [(row["file"], row["record"], row["rule"]) for row in aside]
    assert sorted(bad) == [(file.path, 2, "a quote is not closed") for file in files]


def test_a_number_with_an_unclosed_quote_is_put_aside_as_it_stands_in_the_file(bench):
    text = 'a,b\n1,1\n\n2,"12\n#,"\n"3",\n4,4\n'
    entry = bench.batch(0, bench.text("a.csv", text))

    options = {"header": "true", "comment": "#"}
    good, (row,) = bench.sort(entry, format="csv", columns={"a": "int", "b": "int"}, options=options)

    assert good == [{"a": 1, "b": 1}, {"a": 3, "b": None}, {"a": 4, "b": 4}]
    assert (row["record"], row["rule"], row["raw"]) == (2, "a quote is not closed", '2,"12')


@pytest.mark.slow
def test_types_are_inferred_without_records_that_have_an_unclosed_quote(bench):
    entry = bench.batch(0, bench.text("a.csv", '1,1\n2,"b\n3,3\n'))

    bench.run_plan(
        entry, format="csv", columns=None, infers_columns=True, options={}, bad_records="quarantine"
    )

    assert bench.rows() == [{"_c0": 1, "_c1": 1}, {"_c0": 3, "_c1": 3}]


def test_a_file_whose_next_line_may_belong_to_the_field_is_put_aside_as_a_whole(bench):
    good = bench.text("good.csv", "1,a\n")
    entry = bench.batch(0, good, bench.text("a.csv", '1,"a\n2,b"\n3,c\n'))

    loaded, (row,) = bench.sort(entry, format="csv", columns=TWO)

    assert loaded == [{"a": "1", "b": "a"}]
    assert (row["record"], row["rule"]) == (
        None,
        "a quoted field has a line break, or its quote is not closed",
    )


def test_a_header_that_swallows_the_file_is_refused(bench):
    entry = bench.batch(0, bench.text("a.csv", 'a,"b\n1,2\n'))

    options = {"header": "true", "multiLine": "true"}
    error = bench.failure(entry, reads=True, format="csv", columns=None, options=options)

    assert isinstance(error, BadFileError)
    assert "a quote is not closed in its header" in error.what
