"""One thing that is wrong in a CSV file.

A mutilation gives the bytes of the file, or None where a source has nothing to be spoilt in this way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.datasets import csv_files, generator

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.datasets.generator import Case, File
    from tests.datasets.kinds import Kind

BAD_TEXTS = {
    "boolean": ("maybe", "2", "tru", "falsey"),
    "tinyint": ("128", "-129", "1.5", "x", "1e1", "--1", "0x1"),
    "smallint": ("32768", "1.5", "x", "1e1"),
    "int": ("2147483648", "-2147483649", "1.5", "1f", "x", "1,000", "1_000", "1e1"),
    "bigint": ("9223372036854775808", "1L", "1.5", "x", "1e1"),
    "float": ("1f", "1d", "x", "1,5", "1e39", "0x1p3", "1e"),
    "double": ("1f", "1d", "x", "1,5", "1e400", "-1e309", "0x1p3", "1.2.3"),
    "date": (
        "2026-02-30", "2026-01-01 xyz", "2026-01-01x", "2026-13-01", "01.02.2026", "x", "2026-01-01T", "now",
        "2026", "2026-01",
    ),
    "timestamp": (
        "2026-01-01 25:00:00", "2026-01-01 00:00:00 xyz", "12:30", "T12:30", "1767225600000", "x", "now",
        "2026-02-30 00:00:00", "2026-01-01 00:00:00.123456789", "2026-01-01 00:00:00+25:00", "today",
    ),
    "timestamp_ntz": (
        "2026-01-01 25:00:00", "2026-01-01 00:00:00 xyz", "12:30", "x", "2026-01-01 00:00:00.1234567",
        "2026-01-01 00:00:00+05:00",
    ),
}  # fmt: skip
"""What stands for no value of the type."""


def bad_text(kind: Kind, rng: random.Random) -> str | None:
    """Return a text that is no value of a type."""
    if kind.name == "decimal":
        precision, scale = kind.digits
        return rng.choice((f"1{'0' * (precision - scale)}", f"0.{'0' * scale}1", "1,5", "x", "1f"))
    return rng.choice(BAD_TEXTS.get(kind.name, (None,)))


class Sheet:
    """The fields of a CSV file, to be changed and written again."""

    def __init__(self, case: Case, file: File, rng: random.Random) -> None:
        self.case, self.how, self.rng = case, case.dialect, rng
        header = [generator.header_field(name, self.how, rng) for name, _ in case.columns]
        self.header = header if self.how.header else None
        self.body = [
            [csv_files.field(v, k, self.how, rng) for v, (_, k) in zip(row, case.columns, strict=True)]
            for row in file.rows
        ]
        self.at = rng.randrange(len(self.body))

    def column(self, wanted: Callable[[Kind], bool]) -> int | None:
        found = [i for i, (_, kind) in enumerate(self.case.columns) if wanted(kind)]
        return self.rng.choice(found) if found else None

    @property
    def width(self) -> int:
        return len(self.case.columns)

    def text(self) -> str:
        lines = [*([self.header] if self.header is not None else []), *self.body]
        return "".join(csv_files.record(line, self.how) for line in lines)

    def bytes(self) -> bytes:
        return self.text().encode()


def csv_field_less(sheet: Sheet) -> bytes | None:
    if sheet.width == 1:
        return None
    del sheet.body[sheet.at][sheet.rng.randrange(sheet.width)]
    return sheet.bytes()


def csv_field_more(sheet: Sheet) -> bytes | None:
    sheet.body[sheet.at].append(sheet.rng.choice(("", "x", "1")))
    return sheet.bytes()


def csv_value_of_another_type(sheet: Sheet) -> bytes | None:
    index = sheet.column(lambda kind: kind.name != "string")
    if index is None:
        return None
    text = bad_text(sheet.case.columns[index][1], sheet.rng)
    assert text is not None
    sheet.body[sheet.at][index] = csv_files.quoted(text, sheet.how)
    return sheet.bytes()


def csv_bytes_that_are_not_utf8(sheet: Sheet) -> bytes | None:
    index = sheet.column(lambda kind: kind.name == "string")
    if index is None:
        return None
    sheet.body[sheet.at][index] = "@@@"
    bad = sheet.rng.choice((b"\xff", b"\xe4", b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"a\xf6b"))
    return sheet.bytes().replace(b"@@@", bad)


def csv_cut_in_a_row(sheet: Sheet) -> bytes | None:
    if sheet.width == 1:
        return None
    last = sheet.body.pop()
    rest = sheet.how.separator.join(last[: sheet.rng.randrange(1, sheet.width)])
    return (sheet.text() + rest).encode() if rest else None  # without a rest it is cut between two rows


def csv_quote_that_is_not_closed(sheet: Sheet) -> bytes | None:
    index = sheet.column(lambda kind: kind.name == "string")
    if index is None:
        return None
    sheet.body[sheet.at][index] = f"{sheet.how.quote}abc"
    return sheet.bytes()


def csv_text_behind_a_closing_quote(sheet: Sheet) -> bytes | None:
    index = sheet.column(lambda kind: kind.name == "string")
    if index is None:
        return None
    sheet.body[sheet.at][index] = f"{sheet.how.quote}abc{sheet.how.quote}def"
    return sheet.bytes()


def csv_another_separator(sheet: Sheet) -> bytes | None:
    if sheet.width == 1:
        return None
    other = sheet.rng.choice([s for s in ";,\t|" if s != sheet.how.separator])
    sheet.how = replace(sheet.how, separator=other)
    return sheet.bytes()


def csv_header_renamed(sheet: Sheet) -> bytes | None:
    if sheet.header is None:
        return None
    sheet.header[sheet.rng.randrange(sheet.width)] = "renamed"
    return sheet.bytes()


def csv_header_swapped(sheet: Sheet) -> bytes | None:
    if sheet.header is None or sheet.width == 1:
        return None
    one, two = sheet.rng.sample(range(sheet.width), 2)
    sheet.header[one], sheet.header[two] = sheet.header[two], sheet.header[one]
    return sheet.bytes()


def csv_columns_swapped(sheet: Sheet) -> bytes | None:
    if sheet.header is None or sheet.width == 1:
        return None
    one, two = sheet.rng.sample(range(sheet.width), 2)
    for line in [sheet.header, *sheet.body]:
        line[one], line[two] = line[two], line[one]
    return sheet.bytes()


def csv_column_missing(sheet: Sheet) -> bytes | None:
    if sheet.width == 1:
        return None
    index = sheet.rng.randrange(sheet.width)
    for line in [sheet.header or [""] * sheet.width, *sheet.body]:
        del line[index]
    return sheet.bytes()


def csv_column_more(sheet: Sheet) -> bytes | None:
    index = sheet.rng.randrange(sheet.width + 1)
    if sheet.header is not None:
        sheet.header.insert(index, "more")
    for line in sheet.body:
        line.insert(index, "")
    return sheet.bytes()


def csv_no_header(sheet: Sheet) -> bytes | None:
    if sheet.header is None:
        return None
    sheet.header = None
    return sheet.bytes()


def csv_header_that_nobody_said(sheet: Sheet) -> bytes | None:
    if sheet.header is not None or all(kind.name == "string" for _, kind in sheet.case.columns):
        return None
    sheet.header = [csv_files.quoted(f"x{i}", sheet.how) for i in range(sheet.width)]
    return sheet.bytes()


def csv_second_header_in_the_middle(sheet: Sheet) -> bytes | None:
    if sheet.header is None or all(kind.name == "string" for _, kind in sheet.case.columns):
        return None
    sheet.body.insert(sheet.at, [csv_files.quoted(f"x{i}", sheet.how) for i in range(sheet.width)])
    return sheet.bytes()
