"""What may be odd about a file, by format: the rows that come out, or the error. Docs are made of it."""

from __future__ import annotations

import gzip
import io
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
from pyarrow import orc as pa_orc
from pyarrow import parquet as pa_parquet

if TYPE_CHECKING:
    from collections.abc import Callable

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """One odd thing."""

    format: str
    what: str
    """As the page says it."""
    content: bytes | str | dict[str, Any]
    then: Rows | str
    """The rows, or a part of the error that a user reads."""
    columns: dict[str, str] | None = None
    options: dict[str, str] = field(default_factory=dict)
    name: str = "odd"
    plan: dict[str, Any] = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        return self.name if "." in self.name else f"{self.name}.{self.format}"

    @property
    def bytes(self) -> bytes:
        if isinstance(self.content, bytes):
            return self.content
        return self.content.encode() if isinstance(self.content, str) else file_of(self.format, self.content)


def file_of(kind: str, columns: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    write = pa_parquet.write_table if kind == "parquet" else pa_orc.write_table
    write(pa.table(columns), buffer)
    return buffer.getvalue()


PEOPLE = {"id": "int", "name": "string", "city": "string"}
KEYS = {"id": "int", "name": "string"}
HEADER = {"header": "true"}
TOTAL = {"footer": "Total,.*"}
COMMA = {"sep": ";", "decimalSeparator": ",", "thousandsSeparator": "."}
ONE = {"v": "string"}


def csv(what: str, content: Any, then: Any, columns: Any = PEOPLE, *more: Any, **named: Any) -> Case:
    return Case("csv", what, content, then, columns, *more, **named)


def json(what: str, content: Any, then: Any, columns: Any = KEYS, *more: Any, **named: Any) -> Case:
    return Case("json", what, content, then, columns, *more, **named)


parquet = partial(Case, "parquet")
orc = partial(Case, "orc")
avro = partial(Case, "avro")
text = partial(Case, "text")

_TIMES = pa.struct([("a", pa.int32()), ("t", pa.time64("us"))])
LACKED = {
    "s": pa.array([{"a": 1, "t": time(1)}], _TIMES),
    "half": pa.array([1.5]).cast(pa.float32()).cast(pa.float16()),
    "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef"], pa.binary(16))),
    "digits": pa.array([Decimal("1.10")], pa.decimal256(50, 2)),
}
"""Columns of types that Spark lacks."""
EITHER = pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])])
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
WALL = datetime(2026, 1, 1, 12)  # noqa: DTZ001 - a wall-clock time

BEFORE_1970 = datetime(1969, 7, 20, 20, 17, 40, 500000)  # noqa: DTZ001


def typed(kind: str, content: str, then: Any, what: str, **more: Any) -> Case:
    rows = then if isinstance(then, str) and then.startswith("v is not") else [(then,)]
    return csv(what, f"{content}\n", rows, {"v": kind}, **more)


NOT_CLOSED = "a quote is not closed"
STRAY_QUOTE = "a quote in a quoted field is not doubled, or text stands after its closing quote"
CSV = [
    csv("declared columns, no header", "1,Alice,Berlin\n", [(1, "Alice", "Berlin")]),
    csv(
        "declared columns, header in their order",
        "id,name,city\n1,Alice,Berlin\n",
        [(1, "Alice", "Berlin")],
        PEOPLE,
        HEADER,
    ),
    csv(
        "header in another order",
        "id,city,name\n1,Berlin,Alice\n",
        "CSV header does not conform",
        PEOPLE,
        HEADER,
    ),
    csv(
        "header lacks a declared column",
        "id,name\n1,Alice\n",
        "Number of column in CSV header is not equal",
        PEOPLE,
        HEADER,
    ),
    csv(
        "header has a further column",
        "id,name,city,x\n1,Alice,Berlin,2\n",
        "Number of column in CSV header is not equal",
        PEOPLE,
        HEADER,
    ),
    csv("header has a name twice", "a,b,A\n1,2,3\n", "a name more than once: a, A", None, HEADER),
    csv("header has an empty name", "a,,c\n1,2,3\n", "no name for column 2", None, HEADER),
    csv("header and nothing else", "id,name,city\n", [], PEOPLE, HEADER),
    csv("a record is too short", "1,Alice\n2,Bob,Rom\n", "it has not the 3 fields"),
    csv("a record is too long", "1,Alice,Berlin,x\n", "it has not the 3 fields"),
    csv("a record has 21,000 fields", f"1,A,B\n{',' * 20_999}\n", "it has not the 3 fields"),
    csv(
        "a record has more than 200,000 fields",
        f"1,A,B\n{',' * 200_000}\n",
        "a record has more than 200,000 fields",
    ),
    csv("a quote in a quoted field, doubled", '1,"Al ""the"" ice",Berlin\n', [(1, 'Al "the" ice', "Berlin")]),
    csv("a quote in a quoted field, with a backslash", '1,"Al \\"the\\" ice",Berlin\n', STRAY_QUOTE),
    csv(
        "the same, with the option `escape`",
        '1,"Al \\"the\\" ice",Berlin\n',
        [(1, 'Al "the" ice', "Berlin")],
        PEOPLE,
        {"escape": "\\"},
    ),
    csv(
        "a quote of another kind, doubled",
        "1,'it''s 5\"',B\n",
        [(1, "it's 5\"", "B")],
        PEOPLE,
        {"quote": "'"},
    ),
    csv("a field that ends in a backslash", '1,"C:\\dir\\",Berlin\n', [(1, "C:\\dir\\", "Berlin")]),
    csv("text after a closing quote", '1,"Al"ice,Berlin\n', STRAY_QUOTE),
    csv("a quote that is never closed", '1,Alice,"Berlin\n2,B,Rom\n', NOT_CLOSED),
    csv("a quote in a field that has none around it", '1,5" pipe,Rom\n', [(1, '5" pipe', "Rom")]),
    csv("a line break in a quoted field", '1,"Al\nice",Berlin\n', NOT_CLOSED),
    csv(
        "the same, with `multiLine`",
        '1,"Al\nice",Berlin\n',
        [(1, "Al\nice", "Berlin")],
        PEOPLE,
        {"multiLine": "true"},
    ),
    csv(
        "`multiLine`, lines that end with CRLF",
        '1,"Al\r\nice",Berlin\r\n2,B,R\r\n',
        [(1, "Al\r\nice", "Berlin"), (2, "B", "R")],
        PEOPLE,
        {"multiLine": "true"},
    ),
    csv(
        "`multiLine`, a quote that is never closed",
        '1,A,"Ber\n2,B,Rom\n',
        NOT_CLOSED,
        PEOPLE,
        {"multiLine": "true"},
    ),
    csv("an empty field: NULL", "1,,Berlin\n", [(1, None, "Berlin")]),
    csv("a quoted empty field: an empty text", '1,"",Berlin\n', [(1, "", "Berlin")]),
    csv("the same, of a varchar", '1,""\n2,\n', [(1, ""), (2, None)], {"i": "int", "v": "varchar(3)"}),
    csv("a quoted empty field that is not text: NULL", '"",A,Berlin\n', [(None, "A", "Berlin")]),
    csv("blanks around a number", " 1 ,A,B\n", [(1, "A", "B")]),
    csv("a NUL character", "1,A\0B,\0C\n", [(1, "A\0B", "\0C")]),
    csv("a byte order mark", "\ufeff1,A,B\n", [(1, "A", "B")]),
    csv(
        "a byte order mark before the header", "\ufeffid,name,city\n1,A,B\n", [(1, "A", "B")], PEOPLE, HEADER
    ),
    csv("lines that end with CRLF", "1,A,B\r\n2,C,D\r\n", [(1, "A", "B"), (2, "C", "D")]),
    csv("bytes that are not UTF-8", b"1,caf\xe9,B\n", "not UTF-8"),
    csv("the same, in a varchar", b"caf\xe9\n", "not UTF-8", {"v": "varchar(9)"}),
    csv(
        "the same, with their `encoding`",
        b"1,caf\xe9,B\n",
        [(1, "caf\u00e9", "B")],
        PEOPLE,
        {"encoding": "ISO-8859-1"},
    ),
    csv("a replacement character that is in the file", "1,caf\ufffd,B\n", [(1, "caf\ufffd", "B")]),
    csv(
        "UTF-16, `multiLine`",
        "1,\u00e9,B\n2,C,D\n".encode("utf-16"),
        [(1, "\u00e9", "B"), (2, "C", "D")],
        PEOPLE,
        {"encoding": "UTF-16", "multiLine": "true"},
    ),
    csv("gzip", gzip.compress(b"1,A,B\n"), [(1, "A", "B")], PEOPLE, name="odd.csv.gz"),
    csv("gzip, cut", gzip.compress(b"1,A,B\n" * 5000)[:-30], "odd.csv.gz", PEOPLE, name="odd.csv.gz"),
    csv(
        "gzip, and bytes after its end",
        gzip.compress(b"1,A,B\n") + b"\n",
        "bytes after the end of its compressed data",
        PEOPLE,
        name="odd.csv.gz",
    ),
    csv("named .gz and not gzip", "1,A,B\n", "odd.csv.gz", PEOPLE, name="odd.csv.gz"),
    csv("gzip, and not named so", gzip.compress(b"1,A,B\n" * 9), "odd"),
    csv("another separator", "1;A;B\n", "it has not the 3 fields"),
    csv("the same, with `sep`", "1;A;B\n", [(1, "A", "B")], PEOPLE, {"sep": ";"}),
    csv(
        "two lines before the header, with `skipRows`",
        "Report\n\nof today,EUR\nid,name,city\n1,A,B\n",
        [(1, "A", "B")],
        PEOPLE,
        {**HEADER, "skipRows": "2"},
    ),
    csv(
        "one line before the header, with `skipRows` of two",
        "Report\nid,name,city\n1,A,B\n",
        "its header is not where it has to be",
        PEOPLE,
        {**HEADER, "skipRows": "2"},
    ),
    csv("a last line that `footer` matches", "1,A,B\nTotal,1\n", [(1, "A", "B")], PEOPLE, TOTAL),
    csv(
        "a last line that `footer` does not match", "1,A,B\nSum,1\n", "it has not the 3 fields", PEOPLE, TOTAL
    ),
    csv(
        "a line that `footer` matches before the last",
        "Total,1\n1,A,B\n",
        "it has not the 3 fields",
        PEOPLE,
        TOTAL,
    ),
    csv("without `columns`, all is text", "x,b\n01,\n", [("01", None)], None, HEADER),
]
VALUES = [
    typed("int", "1", 1, "`int`"),
    typed("int", "1.0", "v is not int", "`int`, a point"),
    typed("int", "2147483648", "v is not int", "`int`, too large"),
    typed("double", "1.5e3", 1500.0, "`double`"),
    typed("double", "1f", "v is not double", "`double`, a letter"),
    typed("double", "1e400", "v is not double", "`double`, too large"),
    typed("double", "NaN", float("nan"), "`double`, NaN"),
    typed("decimal(10,2)", "1.50", Decimal("1.50"), "`decimal(10,2)`"),
    typed("decimal(10,2)", "1.500", Decimal("1.50"), "`decimal(10,2)`, further zeros"),
    typed("decimal(10,2)", "1.239", "v is not decimal(10,2)", "`decimal(10,2)`, more digits"),
    typed("decimal(10,2)", "12.300e-1", Decimal("1.23"), "`decimal(10,2)`, an exponent"),
    typed(
        "decimal(10,2)",
        "1.2300000000000002e1",
        "v is not decimal(10,2)",
        "`decimal(10,2)`, an exponent and more digits",
    ),
    typed("decimal(10,2)", "1,5", "v is not decimal(10,2)", "`decimal(10,2)`, a comma", options={"sep": ";"}),
    typed(
        "decimal(10,2)", "-1.234,5", Decimal("-1234.50"), "the same, with `decimalSeparator`", options=COMMA
    ),
    typed(
        "decimal(10,2)",
        "12.34,5",
        "v is not decimal(10,2)",
        "with it, thousands of two digits",
        options=COMMA,
    ),
    typed("double", "1.5", "v is not double", "with it, a point", options=COMMA),
    typed("double", "1,5e3", 1500.0, "with it, `double`", options=COMMA),
    typed("int", "1.234", 1234, "with it, `int`", options=COMMA),
    typed("date", "2026-01-01", date(2026, 1, 1), "`date`"),
    typed("date", "1500-03-01", date(1500, 3, 1), "`date`, before 1582"),
    typed("date", "2026-01-01 xyz", "v is not date", "`date`, more text"),
    typed("date", "2026", "v is not date", "`date`, a year"),
    typed("date", "01.02.2026", "v is not date", "`date`, another spelling"),
    typed(
        "date",
        "01.02.2026",
        date(2026, 2, 1),
        "the same, with `dateFormat`",
        options={"dateFormat": "dd.MM.yyyy"},
    ),
    typed(
        "date",
        "2026-01-01 13:45",
        "v is not date",
        "with it, a time of day",
        options={"dateFormat": "yyyy-MM-dd HH:mm"},
    ),
    typed(
        "date",
        "2026-01-01+14:00",
        "v is not date",
        "with it, a day of another zone",
        options={"dateFormat": "yyyy-MM-ddXXX"},
    ),
    typed(
        "date",
        "2026-01-01T19:00:00-05:00",
        "v is not date",
        "with it, the first second of a day, written in another zone",
        options={"dateFormat": "yyyy-MM-dd'T'HH:mm:ssXXX"},
    ),
    typed("timestamp", "2026-01-01T12:00:00Z", NOON, "`timestamp`"),
    typed("timestamp", "2026-01-01 12:00", NOON, "`timestamp` without zone: UTC"),
    typed("timestamp", "2026-01-01 13:00:00+01:00", NOON, "`timestamp` of another zone"),
    typed(
        "timestamp",
        "2026-01-01 13:00",
        NOON,
        "`timestamp`, with `timeZone`",
        options={"timeZone": "Europe/Berlin"},
    ),
    typed(
        "timestamp",
        "2026-01-01T12:00:00Z",
        NOON,
        "with it, a `timestampFormat` that ends in `'Z'`: UTC",
        options={"timeZone": "Europe/Berlin", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss'Z'"},
    ),
    typed("timestamp", "12:30", "v is not timestamp", "`timestamp`, a time alone"),
    typed("timestamp", "2026-01-01 12:00:00.1234567", "v is not timestamp", "`timestamp`, a seventh digit"),
    typed(
        "timestamp",
        "2026-01-01 12:00:00.123456789",
        "v is not timestamp",
        "the same, with `timestampFormat`",
        options={"timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSSSSS"},
    ),
    typed("timestamp", "1767268800000", "v is not timestamp", "`timestamp`, a number"),
    typed("timestamp_ntz", "2026-01-01 12:00:00", WALL, "`timestamp_ntz`"),
    typed("timestamp_ntz", "2026-01-01 12:00:00Z", "v is not timestamp_ntz", "`timestamp_ntz`, a zone"),
    typed(
        "timestamp_ntz",
        "2026-01-01 13:00+01:00",
        "v is not timestamp_ntz",
        "the same, with `timestampNTZFormat`",
        options={"timestampNTZFormat": "yyyy-MM-dd HH:mmXXX"},
    ),
    typed(
        "timestamp_ntz",
        "2026-01-01 12:00",
        NOON.replace(tzinfo=None),
        "with it, a zone that may be left out, and is",
        options={"timestampNTZFormat": "yyyy-MM-dd HH:mm[XXX]"},
    ),
    typed("boolean", "TRUE", True, "`boolean`"),  # noqa: FBT003
    typed("boolean", "maybe", "v is not boolean", "`boolean`, another word"),
]
JSON = [
    json("one object on a line", '{"id":1,"name":"A"}\n', [(1, "A")]),
    json("a key is missing, or null: NULL", '{"id":1}\n{"name":null,"id":2}\n', [(1, None), (2, None)]),
    json("keys in another order, blank lines", '{"name":"A","id":1}\n\n', [(1, "A")]),
    json("a second object on the line", '{"id":1}{"id":2}\n', "after its first JSON value"),
    json("a second object after a comma", '{"id":1},{"id":2}\n', "after its first JSON value"),
    json("text after the object", '{"id":1} x\n', "after its first JSON value"),
    json("an array of objects on a line: a row each", '[{"id":1},{"id":2}]\n', [(1, None), (2, None)]),
    json("a key that is not declared", '{"id":1,"zz":2}\n', "keys that are not declared: zz"),
    json(
        "the same, with extra_columns",
        '{"id":1,"zz":2}\n',
        [(1, None)],
        KEYS,
        plan={"extra_columns": "ignore"},
    ),
    json("such a key before blanks", '{"id":1,"zz"  :2}\n', "keys that are not declared: zz"),
    json("such a key in single quotes", "{\"id\":1,'zz':2}\n", "keys that are not declared: zz"),
    json(
        "`multiLine`, such a key at the end of its line",
        '{"id":1,"zz"\n:2}\n',
        "keys that are not declared: zz",
        KEYS,
        {"multiLine": "true"},
    ),
    json(
        "`allowComments`, such a key before one",
        '{"id":1,"zz"/**/:2}\n',
        "keys that are not declared: zz",
        KEYS,
        {"allowComments": "true"},
    ),
    json("a key in another case", '{"ID":1}\n', "keys that are not declared: ID"),
    json(
        "without `columns`, keys that differ in case alone",
        '{"id":1}\n{"ID":2,"name":"A"}\n',
        "keys that differ in letter case alone: ID, id",
        None,
    ),
    json(
        "without `columns`, a key that holds nothing but `{}`",
        '{"id":1,"s":{}}\n',
        "keys that are not declared: s",
        None,
    ),
    json("a key twice", '{"id":1,"id":2}\n', "a key twice"),
    json(
        "a key of an inner object that is not declared",
        '{"s":{"a":1,"b":2}}\n',
        "keys that are not declared: b",
        {"s": "struct<a:int>"},
    ),
    json(
        "such a key inside an array",
        '{"s":[{"a":1},{"A":2}]}\n',
        "keys that are not declared: A",
        {"s": "array<struct<a:int>>"},
    ),
    json("a text with braces and quotes", '{"id":1,"name":"}{\\"id\\":2"}\n', [(1, '}{"id":2')]),
    json("NaN or Infinity as a `double`", '{"v":NaN}\n', [(float("nan"),)], {"v": "double"}),
    json(
        "NaN or Infinity inside of an object",
        '{"s":{"v":-Infinity}}\n',
        "it has NaN or Infinity, which are no JSON",
        {"s": "struct<v:double>"},
    ),
    json(
        "the same, with `allowNonNumericNumbers`",
        '{"s":{"v":-Infinity}}\n',
        [({"v": float("-inf")},)],
        {"s": "struct<v:double>"},
        {"allowNonNumericNumbers": "true"},
    ),
    json("not JSON", "hello\n", "it is not JSON"),
    json("cut", '{"id":1,"na', "it is not JSON"),
    json("a text where a number is declared", '{"id":"x"}\n', "id is not int"),
    json(
        "a number too large for a tinyint",
        '{"v":[-128]}\n{"v":[200]}\n',
        "v is not array<tinyint>",
        {"v": "array<tinyint>"},
    ),
    json("a number with a fraction in an int", '{"id":1.5}\n', "id is not int"),
    json(
        "a number as text, as it stands in the file",
        '{"v":12345678901234567890.10}\n',
        [("12345678901234567890.10",)],
        ONE,
    ),
    json("an object as text", '{"v":{"a": [1, 2.50]}}\n', [('{"a": [1, 2.50]}',)], ONE),
    json("`decimal`, exact", '{"v":1.10}\n', [(Decimal("1.10"),)], {"v": "decimal(10,2)"}),
    json("`decimal`, more digits", '{"v":1.239}\n', "v is not decimal(10,2)", {"v": "decimal(10,2)"}),
    json("`decimal` as text with a comma", '{"v":"1,5"}\n', "v is not decimal(10,2)", {"v": "decimal(10,2)"}),
    json("`timestamp`, a number", '{"v":1767268800000}\n', "v is not timestamp", {"v": "timestamp"}),
    json("`timestamp`", '{"v":"2026-01-01T12:00:00Z"}\n', [(NOON,)], {"v": "timestamp"}),
    json(
        "`decimal` inside a struct in an array",
        '{"v":[{"p":1.239}]}\n',
        "v is not array<struct<p:decimal(10,2)>>",
        {"v": "array<struct<p:decimal(10,2)>>"},
    ),
    json("bytes that are not UTF-8", b'{"id":1,"name":"caf\xe9"}\n', "not UTF-8"),
    json(
        "the same, with their `encoding`",
        b'{"id":1,"name":"caf\xe9"}\n',
        [(1, "caf\u00e9")],
        KEYS,
        {"encoding": "ISO-8859-1", "lineSep": "\n"},
    ),
    json("a replacement character that is in the file", '{"name":"caf\ufffd"}\n', [(None, "caf\ufffd")]),
    json("`multiLine`, one object", '{"id":1,\n "name":"A"}\n', [(1, "A")], KEYS, {"multiLine": "true"}),
    json(
        "`multiLine`, an array: a row each",
        '[{"id":1},\n{"id":2}]',
        [(1, None), (2, None)],
        KEYS,
        {"multiLine": "true"},
    ),
    json(
        "`multiLine`, two objects",
        '{"id":1}\n{"id":2}\n',
        "after its first JSON value",
        KEYS,
        {"multiLine": "true"},
    ),
    json(
        "`multiLine`, an undeclared key in an array",
        '[{"id":1},\n{"zz":2}]',
        "keys that are not declared: zz",
        KEYS,
        {"multiLine": "true"},
    ),
    json("no object", "3\n", "it is not JSON"),
    json("null on a line of its own", "null\n", "it is not JSON"),
    json("an array with null", '[{"id":1},null]\n', "it is not JSON"),
]
JSON += [
    json(
        "`multiLine` and compressed, a decimal",
        gzip.compress(b'{"v":1.10}'),
        "decimals would be rounded",
        {"v": "decimal(10,2)"},
        {"multiLine": "true"},
        name="odd.json.gz",
    ),
    json(
        "`multiLine` and compressed, a number as text",
        gzip.compress(b'{"v":1.10}'),
        "may be a number that was rounded",
        ONE,
        {"multiLine": "true"},
        name="odd.json.gz",
    ),
    json(
        "`multiLine` and compressed, texts and floating numbers",
        gzip.compress(b'{"v":"A", "d":1.10}'),
        [("A", 1.1)],
        {"v": "string", "d": "double"},
        {"multiLine": "true"},
        name="odd.json.gz",
    ),
    json(
        "`multiLine` and compressed, floating numbers in arrays",
        gzip.compress(b'{"v":[1.10, null], "s":{"n":1,"t":["A"]}}'),
        [([1.1, None], {"n": 1, "t": ["A"]})],
        {"v": "array<double>", "s": "struct<n: bigint, t: array<string>>"},
        {"multiLine": "true"},
        name="odd.json.gz",
    ),
    json(
        "`multiLine` and compressed, a number as text in an array",
        gzip.compress(b'{"v":["A", 1.10]}'),
        "may be a number that was rounded",
        {"v": "array<string>"},
        {"multiLine": "true"},
        name="odd.json.gz",
    ),
    json(
        "`multiLine` and compressed, a number too large for its type in an array",
        gzip.compress(b'{"v":[1.0, 1e999]}'),
        "v is not array<double>",
        {"v": "array<double>"},
        {"multiLine": "true"},
        name="odd.json.gz",
    ),
    json(
        "`multiLine` and compressed, a decimal in an array",
        gzip.compress(b'{"v":[1.10]}'),
        "decimals would be rounded",
        {"v": "array<decimal(10,2)>"},
        {"multiLine": "true"},
        name="odd.json.gz",
    ),
    json("an escape for half of a character", '{"v":"\\ud800"}\n', "half of a character", ONE),
    json("an escaped character in two halves", '{"v":"\\ud83d\\ude00"}\n', [("\U0001f600",)], ONE),
]
IDENTITY = pa.timestamp("ns")
INSIDE = {
    "s": [{"b": "B", "a": 1}],
    "m": pa.array(
        [[("k", [{"y": 2, "x": 3}])]],
        pa.map_(pa.string(), pa.list_(pa.struct({"y": pa.int32(), "x": pa.int32()}))),
    ),
}
INSIDE_TYPES = {
    "s": "struct<a:bigint,z:date,b:string>",
    "m": "map<string,array<struct<x:bigint,y:decimal(20,0)>>>",
}
INSIDE_ROWS: list[tuple[Any, ...]] = [
    ({"a": 1, "z": None, "b": "B"}, [("k", [{"x": 3, "y": Decimal(2)}])]),
]


def fields_inside(case: Callable[..., Case]) -> list[Case]:
    """List the cases that parquet and ORC share."""
    one = {"s": "struct<a:bigint>"}
    return [
        case(
            "fields inside another column, in another order, and one missing",
            INSIDE,
            INSIDE_ROWS,
            INSIDE_TYPES,
        ),
        case("a field inside another column in another letter case", {"s": [{"A": 1}]}, [({"a": 1},)], one),
        case(
            "a field inside another column that is not declared",
            {"s": [{"a": 1, "x": 2}]},
            "s is struct<a:bigint,x:bigint>, declared is struct<a:bigint>",
            one,
        ),
    ]


PARQUET = [
    parquet(
        "declared columns, another order", {"name": ["A"], "id": pa.array([1], pa.int32())}, [(1, "A")], KEYS
    ),
    parquet(
        "columns that differ in letter case alone",
        {"id": [1], "ID": [2]},
        "columns that differ in letter case alone: id",
        {"id": "bigint"},
    ),
    parquet(
        "a column that is not declared",
        {"name": ["A"], "id": pa.array([1], pa.int32()), "x": [1]},
        "it has the column x, which is not declared",
        KEYS,
    ),
    parquet(
        "the same, with extra_columns",
        {"name": ["A"], "id": pa.array([1], pa.int32()), "x": [1]},
        [(1, "A")],
        KEYS,
        plan={"extra_columns": "ignore"},
    ),
    parquet("a declared column is missing", {"name": ["A"]}, "it has no column id", KEYS),
    parquet(
        "the same, with missing_columns",
        {"name": ["A"]},
        [(None, "A")],
        KEYS,
        plan={"missing_columns": "null"},
    ),
    parquet("a narrower type", {"v": pa.array([1], pa.int32())}, [(1,)], {"v": "bigint"}),
    parquet(
        "narrower types inside others",
        {"v": [[1, None]], "s": [{"a": [0.5], "m": 7}]},
        [([Decimal("1.0000000000"), None], {"a": [0.5], "m": Decimal(7)})],
        {"v": "array<decimal(38,10)>", "s": "struct<a:array<double>,m:decimal(20,0)>"},
    ),
    parquet("a wider type", {"v": pa.array([1], pa.int64())}, "v is bigint, declared is int", {"v": "int"}),
    *fields_inside(parquet),
    parquet("text where a number is declared", {"v": ["1"]}, "v is string, declared is int", {"v": "int"}),
    parquet(
        "an instant, declared as wall-clock time",
        {"v": pa.array([NOON], pa.timestamp("us", "UTC"))},
        "v is timestamp, declared is timestamp_ntz",
        {"v": "timestamp_ntz"},
    ),
    parquet(
        "a wall-clock time, declared as instant",
        {"v": pa.array([WALL], pa.timestamp("us"))},
        "v is timestamp_ntz, declared is timestamp",
        {"v": "timestamp"},
    ),
    parquet(
        "a column that is NULL in all rows, as pandas writes it",
        {"id": [1], "v": pa.nulls(1)},
        [(1, None)],
    ),
    parquet(
        "the same, declared",
        {"id": [1], "v": pa.nulls(1)},
        [(1, None)],
        {"id": "bigint", "v": "struct<day:date>"},
    ),
    parquet(
        "nanoseconds, as pandas writes them",
        {"v": pa.array([1767268800123456000], IDENTITY)},
        [(WALL.replace(microsecond=123456),)],
    ),
    parquet(
        "nanoseconds that a timestamp cannot hold",
        {"v": pa.array([1767268800123456789], IDENTITY)},
        "v has nanoseconds that a timestamp cannot hold",
    ),
    parquet(
        "the same, declared as bigint",
        {"v": pa.array([1767268800123456789], IDENTITY)},
        [(1767268800123456789,)],
        {"v": "bigint"},
    ),
    parquet(
        "the same, in another letter case",
        {"v": pa.array([1767268800123456789], IDENTITY)},
        [(1767268800123456789,)],
        {"V": "bigint"},
    ),
    parquet(
        "nanoseconds inside another column",
        {"v": pa.array([[1767268800123456789]], pa.list_(IDENTITY))},
        "nanoseconds inside another column",
    ),
    parquet(
        "the same, not declared, with extra_columns",
        {"id": [1], "v v": pa.array([[7]], pa.list_(IDENTITY))},
        [(1,)],
        {"id": "bigint"},
        plan={"extra_columns": "ignore"},
    ),
    parquet(
        "a type that Spark lacks (a time of day, a half float, a UUID, a decimal of 50 digits)",
        {"id": [1], **LACKED},
        "s cannot be read: a time of day; half cannot be read: Illegal Parquet type: FIXED_LEN_BYTE_ARRAY "
        "(FLOAT16); uuid cannot be read: Illegal Parquet type: FIXED_LEN_BYTE_ARRAY (UUID); digits cannot be "
        "read: Decimal precision 50 exceeds max precision 38",
    ),
    parquet(
        "the same, not declared, with extra_columns",
        {"id": [1], **LACKED},
        [(1,)],
        {"id": "bigint"},
        plan={"extra_columns": "ignore"},
    ),
    parquet(
        "decimals with fewer digits",
        {"v": pa.array([Decimal("1.5")], pa.decimal128(3, 1))},
        [(Decimal("1.50"),)],
        {"v": "decimal(10,2)"},
    ),
    parquet(
        "decimals with more digits",
        {"v": pa.array([Decimal("1.239")], pa.decimal128(5, 3))},
        "v is decimal(5,3), declared is decimal(10,2)",
        {"v": "decimal(10,2)"},
    ),
    parquet("cut", file_of("parquet", {"v": [1]})[:-9], "is not a Parquet file"),
    parquet("no parquet at all", "hello, world\n", "is not a Parquet file"),
]
CLOCK = {"v": pa.array([WALL], pa.timestamp("us"))}
INSTANT = {"v": pa.array([NOON], pa.timestamp("us", "UTC"))}


def in_another_zone(content: bytes) -> bytes:
    """Let the stripes of an ORC file say that they were written in New York, with the same clock."""
    stripes = content.count(b"\x1a\x03GMT")
    assert stripes
    return content.replace(b"\x1a\x03GMT", b"\x1a\x03EST")


ORC = [
    orc(
        "declared columns, another order", {"name": ["A"], "id": pa.array([1], pa.int32())}, [(1, "A")], KEYS
    ),
    orc(
        "columns that differ in letter case alone",
        {"id": [1], "ID": [2]},
        "columns that differ in letter case alone: id",
        {"id": "bigint"},
    ),
    orc(
        "a column that is not declared",
        {"name": ["A"], "id": pa.array([1], pa.int32()), "x": [1]},
        "it has the column x, which is not declared",
        KEYS,
    ),
    orc("a declared column is missing", {"name": ["A"]}, "it has no column id", KEYS),
    orc("a narrower type", {"v": pa.array([1], pa.int32())}, [(1,)], {"v": "bigint"}),
    orc(
        "narrower types inside others",
        {"v": [[1, None]], "s": [{"a": [0.5], "m": 7}]},
        [([Decimal("1.0000000000"), None], {"a": [0.5], "m": Decimal(7)})],
        {"v": "array<decimal(38,10)>", "s": "struct<a:array<double>,m:decimal(20,0)>"},
    ),
    *fields_inside(orc),
    orc("text where a number is declared", {"v": ["1"]}, "v is string, declared is int", {"v": "int"}),
    orc(
        "names that all begin with _col, declared in another order",
        {"_col0": [1], "_col1": ["a"], "_col2": [7], "_col3": ["x"]},
        [("x", 7, None, "a")],
        {"_col3": "string", "_col2": "bigint", "_col9": "string", "_col1": "string"},
        plan={"extra_columns": "ignore", "missing_columns": "null"},
    ),
    orc(
        "a union, also not declared and with extra_columns",
        {"id": [1], "u": EITHER},
        "u cannot be read: Spark has no unions",
        {"id": "bigint"},
        plan={"extra_columns": "ignore"},
    ),
    orc("a wall-clock time", CLOCK, [(WALL,)], {"v": "timestamp_ntz"}),
    orc("a wall-clock time, declared as instant", CLOCK, [(NOON,)], {"v": "timestamp"}),
    orc("without `columns`, a wall-clock time", CLOCK, [(WALL,)]),
    orc("an instant", INSTANT, [(NOON,)], {"v": "timestamp"}),
    orc(
        "an instant, declared as wall-clock time",
        INSTANT,
        "v is timestamp, declared is timestamp_ntz",
        {"v": "timestamp_ntz"},
    ),
    orc(
        "a wall-clock time written in another zone",
        in_another_zone(file_of("orc", CLOCK)),
        [(WALL,)],
        {"v": "timestamp_ntz"},
    ),
    orc(
        "the same, declared as instant",
        in_another_zone(file_of("orc", CLOCK)),
        "v is timestamp_ntz, declared is timestamp",
        {"v": "timestamp"},
    ),
    orc(
        "a time before 1970 with a fraction of a second, written by Arrow",
        {"v": pa.array([BEFORE_1970], pa.timestamp("us"))},
        "it has a time before 1970 with a fraction of a second as ORC does not write such",
    ),
    orc(
        "nanoseconds, as pandas writes them",
        {"v": pa.array([1767268800123456000, None], IDENTITY)},
        [(WALL.replace(microsecond=123456),), (None,)],
    ),
    orc(
        "nanoseconds that a timestamp cannot hold, also inside another column",
        {"v": pa.array([[None, 1767268800123456789]], pa.list_(IDENTITY))},
        "v has nanoseconds that a timestamp cannot hold",
    ),
    orc("cut", file_of("orc", {"v": [1]})[:-9], "cannot be read"),
]


def avro_file(types: dict[str, Any], *rows: tuple[Any, ...], codec: str = "null", **more: Any) -> bytes:
    """Write records, each of them in a block of its own."""
    buffer = io.BytesIO()
    fields = [{"name": name, "type": kind} for name, kind in types.items()]
    schema = fastavro.parse_schema({"type": "record", "name": "r", "fields": fields, **more})
    records = [dict(zip(types, row, strict=True)) for row in rows]
    fastavro.writer(buffer, schema, records, codec=codec, sync_interval=1, sync_marker=MARK)
    return buffer.getvalue()


MARK = b"0123456789abcdef"
"""What each block of an Avro file ends with."""
BLOCKS = avro_file({"id": "int"}, (1,), (2,))
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}


def logical(kind: Any, name: str, **more: Any) -> dict[str, Any]:
    return {"v": {"type": kind, "logicalType": name, **more}}


def raw(types: dict[str, Any], *values: bytes) -> bytes:
    """Write blocks of one record each, whose bytes a writer would refuse."""
    blocks = (b"\x02" + bytes([2 * len(value)]) + value + MARK for value in values)
    return avro_file(types) + b"".join(blocks)


def avro_struct(*fields: tuple[str, Any], name: str = "s") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": kind} for n, kind in fields]}


AVRO = [
    avro(
        "declared columns, another order",
        avro_file({"name": "string", "id": "int"}, ("A", 1)),
        [(1, "A")],
        KEYS,
    ),
    avro(
        "a column that is not declared",
        avro_file({"name": "string", "id": "int", "x": "int"}, ("A", 1, 1)),
        "it has the column x, which is not declared",
        KEYS,
    ),
    avro(
        "the same, with extra_columns",
        avro_file({"name": "string", "id": "int", "x": "int"}, ("A", 1, 1)),
        [(1, "A")],
        KEYS,
        plan={"extra_columns": "ignore"},
    ),
    avro("a declared column is missing", avro_file({"name": "string"}, ("A",)), "it has no column id", KEYS),
    avro(
        "the same, with missing_columns",
        avro_file({"name": "string"}, ("A",)),
        [(None, "A")],
        KEYS,
        plan={"missing_columns": "null"},
    ),
    avro("a name that does not end in .avro", BLOCKS, [(1,), (2,)], {"id": "int"}, name="odd.bin"),
    avro("a narrower type", avro_file({"v": "int"}, (1,)), [(1,)], {"v": "bigint"}),
    avro("a wider type", avro_file({"v": "long"}, (1,)), "v is bigint, declared is int", {"v": "int"}),
    avro(
        "fields inside another column, in another order, and one missing",
        avro_file(
            {
                "s": avro_struct(("b", "string"), ("a", "int")),
                "m": {
                    "type": "map",
                    "values": {"type": "array", "items": avro_struct(("y", "int"), ("x", "int"), name="t")},
                },
            },
            ({"b": "B", "a": 1}, {"k": [{"y": 2, "x": 3}]}),
        ),
        INSIDE_ROWS,
        INSIDE_TYPES,
    ),
    avro(
        "a field inside another column in another letter case",
        avro_file({"s": avro_struct(("A", "int"))}, ({"A": 1},)),
        [({"a": 1},)],
        {"s": "struct<a:bigint>"},
    ),
    avro(
        "a field inside another column that is not declared",
        avro_file({"s": avro_struct(("a", "int"), ("x", "int"))}, ({"a": 1, "x": 2},)),
        "s is struct<a:int,x:int>, declared is struct<a:bigint>",
        {"s": "struct<a:bigint>"},
    ),
    avro(
        "text where a number is declared",
        avro_file({"v": "string"}, ("1",)),
        "v is string, declared is int",
        {"v": "int"},
    ),
    avro(
        "bytes where text is declared",
        avro_file({"v": "bytes"}, (b"1",)),
        "v is binary, declared is string",
        {"v": "string"},
    ),
    avro(
        "a number where a time is declared",
        avro_file({"v": "long"}, (1,)),
        "v is bigint, declared is timestamp",
        {"v": "timestamp"},
    ),
    avro(
        "an instant, in milliseconds or microseconds",
        avro_file(logical("long", "timestamp-millis"), (NOON,)),
        [(NOON,)],
        {"v": "timestamp"},
    ),
    avro(
        "an instant, declared as wall-clock time",
        avro_file(logical("long", "timestamp-micros"), (NOON,)),
        "v is timestamp, declared is timestamp_ntz",
        {"v": "timestamp_ntz"},
    ),
    avro(
        "a wall-clock time",
        avro_file(logical("long", "local-timestamp-micros"), (WALL,)),
        [(WALL,)],
        {"v": "timestamp_ntz"},
    ),
    avro(
        "nanoseconds",
        avro_file(logical("long", "timestamp-nanos"), (1767268800123456000,)),
        [(NOON.replace(microsecond=123456),)],
    ),
    avro(
        "nanoseconds that a timestamp cannot hold",
        avro_file(logical("long", "local-timestamp-nanos"), (1767268800123456789,)),
        "v has nanoseconds that a timestamp cannot hold",
    ),
    avro(
        "the same, declared as bigint",
        avro_file(logical("long", "local-timestamp-nanos"), (1767268800123456789,)),
        [(1767268800123456789,)],
        {"v": "bigint"},
    ),
    avro(
        "a date before 1582 and a time before 1900",
        avro_file(
            {**logical("int", "date"), "t": logical("long", "timestamp-micros")["v"]},
            (date(1, 1, 1), datetime(1883, 11, 18, tzinfo=UTC)),
        ),
        [(date(1, 1, 1), datetime(1883, 11, 18, tzinfo=UTC))],
    ),
    avro(
        "the same, as Spark 2 or Hive may have written it",
        avro_file(logical("int", "date"), (date(1, 1, 1),), name="topLevelRecord"),
        "READ_ANCIENT_DATETIME",
    ),
    avro("decimals with fewer digits", avro_file({"v": DECIMAL}, (Decimal("1.5"),)), [(Decimal("1.50"),)]),
    avro(
        "a decimal with more digits than its type has",
        raw({"v": DECIMAL}, b"\x18" + (2**64 * 5 + 123).to_bytes(12)),
        "v is not decimal(10,2)",
    ),
    avro(
        "the same, inside another column",
        raw({"v": {"type": "array", "items": DECIMAL}}, b"\x02\x18" + (2**64 * 5 + 123).to_bytes(12) + b"\0"),
        "v is not array<decimal(10,2)>",
    ),
    avro(
        "an enum as text", avro_file({"v": {"type": "enum", "name": "e", "symbols": ["A"]}}, ("A",)), [("A",)]
    ),
    avro("null, or a value", avro_file({"v": ["null", "int"]}, (None,), (1,)), [(None,), (1,)], {"v": "int"}),
    avro("int or long", avro_file({"v": ["null", "int", "long"]}, (2**40,), (1,)), [(2**40,), (1,)]),
    avro(
        "one of several types",
        avro_file({"v": ["int", "string"]}, (1,)),
        "v cannot be read: Spark has no unions, and it is one of int, string",
    ),
    avro(
        "a type that Spark lacks (a time of day, a duration, 50 digits, a type that holds itself)",
        avro_file(
            {
                "id": "int",
                "s": {"type": "long", "logicalType": "time-micros"},
                "d": {"type": "fixed", "name": "f", "size": 12, "logicalType": "duration"},
                "big": {**DECIMAL, "precision": 50},
                "r": ["null", "r"],
            }
        ),
        "s cannot be read: a time of day; d cannot be read: a duration; big cannot be read: a decimal of 50 "
        "digits with 2 after the point; r cannot be read: Spark has no types that hold themselves, as r does",
    ),
    avro(
        "the same, not declared, with extra_columns",
        avro_file(
            {"id": "int", "s": {"type": "long", "logicalType": "time-micros"}, "r": ["null", "r"]},
            (1, time(1), None),
        ),
        [(1,)],
        {"id": "int"},
        plan={"extra_columns": "ignore"},
    ),
    avro(
        "names that differ in letter case alone",
        avro_file({"a": "int", "A": "int"}, (1, 2)),
        "a cannot be read: the names a, A differ in letter case alone",
    ),
    avro("cut", BLOCKS[:-1], "it cannot be read: the Avro file ends inside a block"),
    avro("a changed mark at the end of a block", BLOCKS[:-1] + b"!", "a block of the Avro file is damaged"),
    avro(
        "an empty block before others",
        avro_file({"id": "int"}) + b"\0\0" + MARK + BLOCKS.split(MARK, 1)[1],
        "it cannot be read: an empty block of the Avro file, after which rows may be lost",
    ),
    avro("no records", avro_file({"id": "int"}), [], {"id": "int"}),
    avro("no Avro at all", "hello, world\n", "not an Avro file: it does not begin like one"),
]
TEXT = [
    text("one row for each line", "a\n\nb\r\n", [("a",), ("",), ("b",)]),
    text("bytes that are not UTF-8", b"caf\xe9\n", "not UTF-8"),
]
CASES = [*CSV, *VALUES, *JSON, *PARQUET, *ORC, *AVRO, *TEXT]
