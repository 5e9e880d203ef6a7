"""What the beginnings of some files say about their format. Nothing is read here, and nothing decided."""

from __future__ import annotations

import bz2
import codecs
import csv
import io
import json
import re
import zlib
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

SEPARATORS = (",", ";", "\t", "|")
_RECORDS = 2_000
"""Records of a file that are looked at."""
_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    **dict.fromkeys(("gz", "gzip", "deflate"), partial(zlib.decompressobj, 47)),  # which tells them apart
    "bz2": bz2.BZ2Decompressor,
}
_NOT_IN_LATIN = re.compile(rb"[\x80-\x9f]")
"""Bytes that ISO-8859-1 has no letter for, and windows-1252 has: Spark reads only the first."""
_VALUE = re.compile(
    r"[-+]?[0-9][0-9.,]*([eE][-+]?[0-9]+)?%?|[-+]?\.[0-9]+|[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}.*|true|false"
    r"|nan?|null",
    re.IGNORECASE,
)
"""Texts that are values rather than names of columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvSample:
    """What the beginning of a CSV file shows."""

    separator: str
    first: tuple[str, ...]
    """The fields of the first record."""
    looks_like_header: bool
    """Whether the first record has names: above values that are none, or no value among them."""
    is_above_values: bool | None
    """Whether a name stands above values: then no other file has to have the same. None: nothing is below."""
    has_escapes: bool
    """Whether quotes inside of quoted fields follow a backslash, and are not doubled."""
    has_line_breaks: bool
    """Whether there are line breaks in quoted fields."""
    uneven: int | None
    """The number of the first record with more or fewer fields than the first; None if all have as many."""
    is_mostly_even: bool
    """Whether most records have as many fields as the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSample:
    """What the beginning of a JSON file shows."""

    is_document: bool
    """Whether the file as a whole is one value, instead of each of its lines."""
    values: int
    """How many were looked at."""
    names: tuple[str, ...] = ()
    """The keys of its objects, at any depth: only of lines, and of a document that was read to its end."""


def unpacked(name: str, head: bytes, at_most: int, *, is_whole: bool) -> tuple[bytes, bool]:
    """Unpack the beginning of a file as its name says.

    :param head: The first bytes of the file.
    :param at_most: How many bytes to unpack at the most.
    :param is_whole: Whether these are all of its bytes.
    :return: The bytes, and whether they are all that the file holds.
    :raises ValueError: The file is not what its name says; it says why.
    """
    ending = name.lower().rpartition(".")[2]
    if ending not in _DECOMPRESSORS:
        return head[:at_most], is_whole and len(head) <= at_most
    data, packed = b"", head
    try:
        while packed and len(data) < at_most:  # a file may consist of several
            decompressor = _DECOMPRESSORS[ending]()
            data += decompressor.decompress(packed, at_most - len(data))
            if not decompressor.eof and is_whole and len(data) < at_most:
                raise ValueError("its compressed data is cut off")
            packed = decompressor.unused_data.lstrip(b"\0")
    except (OSError, zlib.error) as err:
        raise ValueError(f"it cannot be unpacked: {err}") from err
    return data, is_whole and not packed and len(data) < at_most


def decoded(data: bytes) -> tuple[str, str | None]:
    """Read the beginning of a text.

    :return: The text, and the name of its encoding for Spark; None is UTF-8.
    :raises ValueError: It has an encoding that Spark does not read.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data[: len(data) // 2 * 2].decode("utf-16", errors="replace"), "UTF-16"
    try:
        # The last character may be cut.
        return codecs.getincrementaldecoder("utf-8-sig")().decode(data), None
    except UnicodeDecodeError:
        if _NOT_IN_LATIN.search(data):
            raise ValueError("it is neither UTF-8 nor ISO-8859-1; rewrite it as UTF-8") from None
        return data.decode("iso-8859-1"), "ISO-8859-1"


def csv_sample(text: str, *, is_whole: bool) -> CsvSample | None:
    """Look at the beginning of a CSV file; None if it has no record.

    Of all separators, the one counts by which the first records have the same number of fields, and most.
    """
    readings = [
        (separator, escape, records)
        for separator in SEPARATORS
        for escape in ("", "\\")
        if (not escape or '\\"' in text)
        and (records := list(_records(text, separator, escape, is_whole=is_whole)))
    ]
    if not readings:
        return None
    separator, escape, records = max(readings, key=lambda reading: _fit(reading[2]))
    first, *later = records
    is_above_values = _is_above_values(first, later) if later else None
    uneven = next((n for n, record in enumerate(later, 2) if len(record) != len(first)), None)
    return CsvSample(
        separator=separator,
        first=tuple(first),
        looks_like_header=bool(is_above_values) or not any(map(_is_value, first)),
        is_above_values=is_above_values,
        has_escapes=bool(escape),
        has_line_breaks=any("\n" in value or "\r" in value for record in records for value in record),
        uneven=uneven,
        is_mostly_even=_fit(records)[1] > 0.5,  # noqa: PLR2004 - most
    )


def _records(text: str, separator: str, escape: str, *, is_whole: bool) -> Iterator[list[str]]:
    """Read records up to one that cannot be read; not the last one of a beginning, which may be cut."""
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=separator, escapechar=escape or None, strict=True
    )
    before: list[str] = []
    try:
        for record in islice(filter(None, reader), _RECORDS):
            if before:
                yield before
            before = record
    except csv.Error:
        is_whole = True  # what was read before the error is whole
    if before and is_whole:
        yield before


def _fit(records: Sequence[Sequence[str]]) -> tuple[int, float, int]:
    """Tell how well a separator and an escape fit: records as wide as the first, their share, and fields."""
    width = len(records[0])
    even = sum(len(record) == width for record in records)
    return (even if width > 1 else 0), even / len(records), width


def _is_above_values(first: Sequence[str], later: Sequence[Sequence[str]]) -> bool:
    """Tell whether a field of the first record is no value, and stands above values."""
    for number, name in enumerate(first):
        below = [record[number] for record in later if len(record) > number and record[number].strip()]
        if name and not _is_value(name) and below and all(map(_is_value, below)):
            return True
    return False


def _is_value(text: str) -> bool:
    return _VALUE.fullmatch(text.strip()) is not None


def are_headers(csv_samples: Collection[CsvSample]) -> bool:
    """Tell whether the first records of some files are headers."""
    firsts = list(dict.fromkeys(sample.first for sample in csv_samples))
    if len(csv_samples) > 1 and len(firsts) == 1:
        return True  # no row comes first in each of several files
    if not all(sample.looks_like_header for sample in csv_samples):
        return False
    are_above_values = {sample.is_above_values for sample in csv_samples}
    shared = {*firsts[0]}.intersection(*firsts[1:])
    return are_above_values in ({True}, {True, None}) or 2 * len(shared) >= len(firsts[0])


def json_sample(text: str, *, is_whole: bool) -> JsonSample | None:
    """Look at the beginning of a JSON file; None if it holds nothing, or nothing of JSON."""
    lines = [line for line in re.split(r"[\r\n]", text) if line.strip()]  # other breaks stand in values
    if not is_whole and len(lines) > 1:
        lines.pop()  # it may be cut
    try:
        values = [json.loads(line) for line in lines[:_RECORDS]]
        is_document = False
    except (ValueError, RecursionError):
        is_document = True
        try:
            values = [json.loads(text)]
        except (ValueError, RecursionError):
            if is_whole or not text.lstrip().startswith(("{", "[")):
                return None
            values = [{}]
    if not values:
        return None
    names = tuple(dict.fromkeys(_keys(values)))
    return JsonSample(is_document=is_document, values=len(values), names=names)


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _keys(inner)
