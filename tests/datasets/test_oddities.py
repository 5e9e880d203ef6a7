"""Files whose oddity changed rows silently. Each is read as RFC 4180 and UTF-8 say, or refused."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import random
import zlib
from decimal import Decimal

import pytest

from tests.datasets import arrow_files, lab
from tests.datasets.generator import Case, File
from tests.datasets.kinds import Kind

pytestmark = [pytest.mark.spark, pytest.mark.compiled]

INT, TEXT, DAY = Kind("int"), Kind("string"), Kind("date")
TWO = [("n", INT), ("t", TEXT)]
ONE = [("t", TEXT)]
MANY_LINES = {"multiLine": "true"}


def source(columns, contents, options=None, *, name="a.csv", kind="csv") -> Case:
    """Return a source of one file for each content, with the rows that are in it."""
    files = [File(f"{number}/{name}", content, rows) for number, (content, rows) in enumerate(contents)]
    return Case(None, kind, columns, files, options=options or {}, with_uri=True)


LINE_ENDS = [
    (b'1,"x\r\ny"\r\n2,z\r\n', [(1, "x\r\ny"), (2, "z")]),
    (b'1,"x\r\ny"\n2,z\n', [(1, "x\r\ny"), (2, "z")]),
    (b'1,z\n2,"x\r\ny"\n', [(1, "z"), (2, "x\r\ny")]),
    (b'1,"x\ny"\r\n2,z\r\n', [(1, "x\ny"), (2, "z")]),
    (b'1,z\r\n2,"x\ny"\r\n', [(1, "z"), (2, "x\ny")]),
    (b'1,"x\ry"\n2,z\n', [(1, "x\ry"), (2, "z")]),
    (b"1,x\n2,z\r\n3,w\r\n", [(1, "x"), (2, "z"), (3, "w")]),
    (b"1,x\r\n2,z\n3,w\r\n", [(1, "x"), (2, "z"), (3, "w")]),
]
QUOTED_LINE_ENDS = [
    (b'1,"x\n2,y"\n3,z\n', [(1, "x\n2,y"), (3, "z")]),
    (b'1,"x\n2,y\n3,z"\n', [(1, "x\n2,y\n3,z")]),
]
BLANK_LINES = [(b"1,x\n" + blank + b"2,y\n", [(1, "x"), (2, "y")]) for blank in (b"\n", b"\r\n", b"  \n")]
OF_ONE_COLUMN = [
    (b"x\n  \ny\n", [("x",), ("  ",), ("y",)]),
    (b"x\n\t\ny\n", [("x",), ("\t",), ("y",)]),
    (b'x\n""\ny\n', [("x",), ("",), ("y",)]),
    (b'""\n', [("",)]),
    (b"\0x\ny\n", [("\0x",), ("y",)]),
    (b"#x\ny\n", [("#x",), ("y",)]),
    (b'"x\ny"\nz\n', [("x\ny",), ("z",)]),
    (b'"x\r\ny"\r\nz\r\n', [("x\r\ny",), ("z",)]),
    (b"\xef\xbb\xbfx\n", [("x",)]),  # the mark of UTF-8
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "contents", "options"),
    [
        (TWO, LINE_ENDS, MANY_LINES),
        (TWO, QUOTED_LINE_ENDS + BLANK_LINES, {}),
        (ONE, OF_ONE_COLUMN, {}),
        (ONE, OF_ONE_COLUMN, MANY_LINES),
    ],
)
def test_no_line_of_csv_is_lost_or_made_into_two(spark, tmp_path, columns, contents, options):
    lab.check_each_right_or_aside(lab.Lab(spark, tmp_path, source(columns, contents, options)))


@pytest.mark.parametrize("kind", ["json", "text"])
def test_a_mark_of_utf8_at_the_beginning_is_no_part_of_the_first_value(spark, tmp_path, kind):
    content = {"json": b'{"_corrupt_record":"x"}\n', "text": b"x\n"}[kind]
    name = {"json": "_corrupt_record", "text": "value"}[kind]  # a text may be called like a corrupt record
    contents = [(mark + content, [("x",)]) for mark in (b"", b"\xef\xbb\xbf")]

    lab.check_each_right_or_aside(lab.Lab(spark, tmp_path, source([(name, TEXT)], contents, kind=kind)))


def test_a_name_with_glob_characters_in_a_folder_with_a_colon_is_read(spark, tmp_path):
    files = [
        File(name, b"1,x\n", [(1, "x")])
        for name in ("10:30/[x].csv", "10:30/x.csv", "{a}:1/b.csv", "tidy.csv")
    ]

    lab.check_read(lab.Lab(spark, tmp_path, Case(None, "csv", TWO, files)))


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_column_is_read_whatever_its_name(spark, tmp_path, kind):
    names = ["a`b", "``", "_metadata", "_corrupt_record", "scope_key", "a.b`c.d", "b"]
    columns = [(name, TEXT if name == "_corrupt_record" else INT) for name in names]
    row = (1, 2, 3, "x", 5, 6, 7)
    content = {"csv": "1,2,3,x,5,6,7", "json": json.dumps(dict(zip(names, row, strict=True)))}[kind]
    files = [File(f"a.{kind}", f"{content}\n".encode(), [row])]

    lab.check_read(lab.Lab(spark, tmp_path, Case(None, kind, columns, files, with_uri=True)))


@pytest.mark.parametrize("options", [{}, MANY_LINES])
def test_no_digit_of_a_number_is_lost_in_a_compressed_document(spark, tmp_path, options):
    """Spark keeps the digits of a number only where it has the bytes of the whole document at hand."""
    columns = [("a", Kind("decimal", digits=(20, 2))), ("t", TEXT)]
    content, rows = b'{"a":123456789012345678.12,"t":1.10}\n', [(Decimal("123456789012345678.12"), "1.10")]
    packed = {"": content, ".gz": gzip.compress(content), ".deflate": zlib.compress(content)}
    files = [File(f"a.json{suffix}", data, rows) for suffix, data in packed.items()]

    lab.check_each_right_or_aside(
        lab.Lab(spark, tmp_path, Case(None, "json", columns, files, options=options, with_uri=True))
    )


def test_a_column_is_in_the_table_whatever_its_name(spark, tmp_path):
    columns = [(name, INT) for name in ("a`b", "_metadata", "a.b", "value", "b")]
    case = Case(None, "csv", columns, [File("a.csv", b"1,2,3,4,5\n", [(1, 2, 3, 4, 5)])])

    lab.check_commit(lab.Lab(spark, tmp_path, case), [case.files])


def test_names_that_delta_does_not_take_are_refused_by_their_signs(spark, tmp_path):
    names = ["a b", "a,b", "a;b", "{a}", "(a)", "a\nb", "a\tb", "a=b"]
    columns = [(name, INT) for name in [*names, "b"]]
    case = Case(None, "csv", columns, [File("a.csv", b"1,2,3,4,5,6,7,8,9\n", [(*range(1, 10),)])])

    error = lab.check_not_committed(lab.Lab(spark, tmp_path, case), "names that Delta refuses")

    listed = ", ".join(f"`{name}`" for name in names)
    assert f"cannot have columns with these names: {listed}." in error


def test_an_orc_time_is_the_one_that_was_written_or_refused(spark, tmp_path):
    """ORC's footer names the calendar; other writers than Java leave it out. Each file has one column."""
    pair = Kind("struct", (INT, Kind("timestamp_ntz")), ("a", "b.c"))
    columns = [
        ("day", DAY),
        ("array", Kind("array", (DAY,))),
        ("map", Kind("map", (DAY, INT))),
        ("nested", Kind("map", (INT, pair))),
        ("instant", Kind("timestamp")),
        ("time", Kind("timestamp_ntz")),
    ]

    def values(name, day):
        zone = dt.UTC if name == "instant" else None
        fraction = 678901 if day.year > 1970 else 0
        time = dt.datetime(day.year, day.month, day.day, 3, 4, 5, fraction, zone)
        return {
            "day": day,
            "array": [None, day],
            "map": [(day, 1)],
            "nested": [(1, None), (2, {"a": 1, "b.c": time})],
            "instant": time,
            "time": time,
        }[name]

    contents = []
    for name, _ in columns:
        days = (
            [dt.date(1800, 1, 2)]
            if name in ("instant", "time")
            else [dt.date(1582, 10, 14), dt.date(1, 1, 1)]
        )
        for day in days:
            own = [values(name, dt.date(2026, 1, 2)), None, values(name, day)]
            rows = [tuple(value if other == name else None for other, _ in columns) for value in own]
            contents.append((arrow_files.orc(arrow_files.table(columns, rows), random.Random(0)), rows))

    lab.check_each_right_or_aside(
        lab.Lab(spark, tmp_path, source(columns, contents, name="a.orc", kind="orc"))
    )
