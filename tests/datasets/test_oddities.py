"""Files whose oddity changed rows silently. Each is read as RFC 4180 and UTF-8 say, or refused."""

from __future__ import annotations

import datetime as dt
import gzip
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


def test_line_ends_in_quotes_and_behind_rows_are_kept_apart(spark, tmp_path):
    contents = [
        (b'1,"x\r\ny"\r\n2,z\r\n', [(1, "x\r\ny"), (2, "z")]),
        (b'1,"x\r\ny"\n2,z\n', [(1, "x\r\ny"), (2, "z")]),
        (b'1,z\n2,"x\r\ny"\n', [(1, "z"), (2, "x\r\ny")]),
        (b'1,"x\ny"\r\n2,z\r\n', [(1, "x\ny"), (2, "z")]),
        (b'1,z\r\n2,"x\ny"\r\n', [(1, "z"), (2, "x\ny")]),
        (b'1,"x\ry"\n2,z\n', [(1, "x\ry"), (2, "z")]),
        (b"1,x\n2,z\r\n3,w\r\n", [(1, "x"), (2, "z"), (3, "w")]),
        (b"1,x\r\n2,z\n3,w\r\n", [(1, "x"), (2, "z"), (3, "w")]),
    ]

    lab.check_each_right_or_aside(lab.Lab(spark, tmp_path, source(TWO, contents, MANY_LINES)))


@pytest.mark.parametrize(
    ("columns", "contents"),
    [
        (ONE, [(b'"x\ny"\nz\n', [("x\ny",), ("z",)]), (b'"x\r\ny"\r\nz\r\n', [("x\r\ny",), ("z",)])]),
        (
            TWO,
            [
                (b'1,"x\n2,y"\n3,z\n', [(1, "x\n2,y"), (3, "z")]),
                (b'1,"x\n2,y\n3,z"\n', [(1, "x\n2,y\n3,z")]),
            ],
        ),
    ],
)
def test_a_line_end_in_quotes_without_multiline_makes_no_rows_of_its_own(spark, tmp_path, columns, contents):
    lab.check_each_right_or_aside(lab.Lab(spark, tmp_path, source(columns, contents)))


@pytest.mark.parametrize("options", [{}, MANY_LINES])
def test_no_line_of_a_file_of_one_column_is_lost(spark, tmp_path, options):
    contents = [
        (b"x\n  \ny\n", [("x",), ("  ",), ("y",)]),
        (b"x\n\t\ny\n", [("x",), ("\t",), ("y",)]),
        (b'x\n""\ny\n', [("x",), ("",), ("y",)]),
        (b'""\n', [("",)]),
        (b"\0x\ny\n", [("\0x",), ("y",)]),
        (b"#x\ny\n", [("#x",), ("y",)]),
    ]

    lab.check_each_right_or_aside(lab.Lab(spark, tmp_path, source(ONE, contents, options)))


def test_a_blank_line_among_rows_of_two_columns_adds_no_row(spark, tmp_path):
    contents = [(b"1,x\n" + blank + b"2,y\n", [(1, "x"), (2, "y")]) for blank in (b"\n", b"\r\n", b"  \n")]

    lab.check_each_right_or_aside(lab.Lab(spark, tmp_path, source(TWO, contents)))


@pytest.mark.parametrize("kind", ["csv", "json", "text"])
def test_a_mark_of_utf8_at_the_beginning_is_no_part_of_the_first_value(spark, tmp_path, kind):
    content = {"csv": b"x\n", "json": b'{"value":"x"}\n', "text": b"x\n"}[kind]
    case = source([("value", TEXT)], [(b"\xef\xbb\xbf" + content, [("x",)])], kind=kind)

    lab.check_each_right_or_aside(lab.Lab(spark, tmp_path, case))


def test_a_name_with_glob_characters_in_a_folder_with_a_colon_is_read(spark, tmp_path):
    files = [
        File(name, b"1,x\n", [(1, "x")])
        for name in ("10:30/[x].csv", "10:30/x.csv", "{a}:1/b.csv", "tidy.csv")
    ]

    lab.check_read(lab.Lab(spark, tmp_path, Case(None, "csv", TWO, files)))


@pytest.mark.parametrize("with_uri", [True, False])
def test_a_column_is_read_whatever_its_name(spark, tmp_path, with_uri):
    names = ["a`b", "``", "_metadata", "_corrupt_record", "scope_key", "a.b`c.d", "b"]
    files = [File("a.csv", b"1,2,3,4,5,6,7\n", [(1, 2, 3, 4, 5, 6, 7)])]

    lab.check_read(
        lab.Lab(spark, tmp_path, Case(None, "csv", [(name, INT) for name in names], files, with_uri=with_uri))
    )


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_text_that_is_called_like_a_corrupt_record_is_a_text(spark, tmp_path, kind):
    content = {
        "csv": b"x,1\ny,2\n",
        "json": b'{"_corrupt_record":"x","n":1}\n{"_corrupt_record":"y","n":2}\n',
    }[kind]
    case = source([("_corrupt_record", TEXT), ("n", INT)], [(content, [("x", 1), ("y", 2)])], kind=kind)

    lab.check_each_right_or_aside(lab.Lab(spark, tmp_path, case))


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


@pytest.mark.parametrize(
    ("kind", "wrapped"),
    [
        (DAY, lambda day: day),
        (Kind("array", (DAY,)), lambda day: [None, day]),
        (Kind("map", (DAY, INT)), lambda day: [(day, 1)]),
        (Kind("map", (INT, Kind("struct", (INT, Kind("timestamp_ntz")), ("a", "b.c")))), lambda day: [
            (1, None), (2, {"a": 1, "b.c": dt.datetime(day.year, day.month, day.day)})
        ]),
    ],
)  # fmt: skip
def test_an_orc_date_of_before_1582_is_the_day_that_was_written_or_refused(spark, tmp_path, kind, wrapped):
    """ORC's footer names the calendar; other writers than Java leave it out."""
    columns, contents = [("d", kind)], []
    for day in (dt.date(1582, 10, 14), dt.date(1, 1, 1)):
        rows = [(wrapped(dt.date(2026, 1, 2)),), (None,), (wrapped(day),)]
        contents.append((arrow_files.orc(arrow_files.table(columns, rows), random.Random(0)), rows))

    lab.check_each_right_or_aside(
        lab.Lab(spark, tmp_path, source(columns, contents, name="a.orc", kind="orc"))
    )


@pytest.mark.parametrize("kind", [Kind("timestamp"), Kind("timestamp_ntz")])
def test_an_orc_timestamp_is_the_time_that_was_written_or_refused(spark, tmp_path, kind):
    zone = dt.UTC if kind.name == "timestamp" else None
    rows = [(dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=zone),), (dt.datetime(1800, 1, 2, tzinfo=zone),)]
    columns = [("t", kind)]
    content = arrow_files.orc(arrow_files.table(columns, rows), random.Random(0))

    lab.check_each_right_or_aside(
        lab.Lab(spark, tmp_path, source(columns, [(content, rows)], name="a.orc", kind="orc"))
    )
