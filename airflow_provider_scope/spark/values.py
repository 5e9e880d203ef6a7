"""Text to a typed value, strictly: as SQL expressions, for what CSV and JSON hold as text.

Spark's own readers are lenient, and change values by that. They strip commas out of decimals, and round what
is beyond the scale. They take ``2026-01-01 xyz`` and ``2026`` for dates, cut a timestamp behind its sixth
digit, and read ``1f`` as a number. Here a text either is a value of the type, or it is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.sql import literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

INSTANT_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
"""Spark's pattern of an instant as text: with its microseconds and its offset."""
_DATE = r"\\d{4,6}-\\d\\d?-\\d\\d?"
_TIME = r"\\d\\d?:\\d\\d?(?::\\d\\d?(?:\\.\\d{1,6}0*)?)?"
_ZONE = r" ?(?:Z|UTC|GMT|[+-]\\d\\d(?::?\\d\\d)?)"
_DAY = rf"'^\\s*{_DATE}\\s*$'"
_INSTANT = rf"'^\\s*{_DATE}(?:[ T]{_TIME}(?:{_ZONE})?)?\\s*$'"
_WALL_CLOCK = rf"'^\\s*{_DATE}(?:[ T]{_TIME})?\\s*$'"
_NO_NUMBER = ("nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity")
_ZONE_LETTERS = frozenset("XxZzVO")
"""Letters of a pattern that read a zone."""


@dataclass(frozen=True, slots=True)
class Converted:
    """SQL for one value."""

    value: str
    """The typed value; NULL where the text is none."""
    is_exact: str | None
    """Whether a text that is not NULL is a value of the type; None if every text is."""


def convert(text: str, kind: T.DataType, column: str, options: Mapping[str, str]) -> Converted:
    """Give the typed value of a text.

    :param text: SQL of the text.
    :param column: The column's name, for the error.
    :param options: The reader's options, their names in lower case: ``dateformat``, ``timestampformat``,
        ``timestampntzformat``, ``timezone``, ``nanvalue``, ``positiveinf``, ``negativeinf``.
    :raises InputError: There is no strict reading of text as this type.
    """
    plain = f"try_cast({text} AS {kind.simpleString()})"
    if isinstance(kind, (T.VarcharType, T.CharType)):
        return Converted(text, f"char_length({text}) <= {kind.length}")
    if isinstance(kind, (T.StringType, T.BinaryType)):
        return Converted(f"CAST({text} AS {kind.simpleString()})", None)
    if isinstance(kind, (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.BooleanType)):
        return Converted(plain, f"{plain} IS NOT NULL")
    if isinstance(kind, (T.FloatType, T.DoubleType)):
        return _floating(text, kind, options)
    if isinstance(kind, T.DecimalType):
        return Converted(plain, _decimal(text, plain, kind))
    if isinstance(kind, T.DateType):
        return _date(text, plain, options)
    if isinstance(kind, T.TimestampNTZType):
        return _wall_clock(text, plain, options)
    if isinstance(kind, T.TimestampType):
        return _instant(text, plain, options)
    raise InputError(
        f"The column {column!r} is declared as {kind.simpleString()}, which cannot be read from text.",
        kept="the table; no row was written, and the batch stays logged",
        do="declare it as string, and CAST it in the SELECT",
    )


def _has(text: str, letter: str) -> str:
    """Give SQL for whether a letter is in a text, small or capital: ``lower`` costs more than all else."""
    return f"(contains({text}, '{letter}') OR contains({text}, '{letter.upper()}'))"


def floating_names(options: Mapping[str, str]) -> tuple[list[str], Sequence[str]]:
    """Give the names of floating values that are no numbers: those of the options; others in lower case."""
    return [*_named(options)], _NO_NUMBER


def _named(options: Mapping[str, str]) -> dict[str, str]:
    return {
        options.get("nanvalue", "NaN"): "NaN",
        options.get("positiveinf", "Inf"): "Infinity",
        options.get("negativeinf", "-Inf"): "-Infinity",
    }


def _floating(text: str, kind: T.DataType, options: Mapping[str, str]) -> Converted:
    plain = f"try_cast({text} AS {kind.simpleString()})"
    cases = " ".join(f"WHEN {literal(name)} THEN '{value}'" for name, value in _named(options).items())
    names, others = (", ".join(map(literal, known)) for known in floating_names(options))
    # A name of the options, or a number that ends in a digit, a point or a blank. Java takes `1f` and
    # `0x1p3` as well, makes infinity of what is too large, and zero of what is too small.
    number = (
        f"ascii(right({text}, 1)) < 58 AND {plain} IS NOT NULL"
        f" AND abs({plain}) < {kind.simpleString()}('Infinity')"
        f" AND NOT {_has(text, 'x')} AND ({plain} <> 0 OR NOT {text} RLIKE '^[^eE]*[1-9]')"
    )
    known = f"({text} IN ({names}) OR lower(trim({text})) IN ({others}))"
    value = plain
    if any(name in options for name in ("nanvalue", "positiveinf", "negativeinf")):
        value = f"try_cast(CASE {text} {cases} ELSE {text} END AS {kind.simpleString()})"
    return Converted(value, f"(({number}) OR {known})")


def _decimal(text: str, plain: str, kind: T.DecimalType) -> str:
    scale = kind.scale
    wider = f"try_cast({text} AS decimal(38,{min(37, scale + 12)}))"
    return (
        f"({plain} IS NOT NULL AND CASE"
        f" WHEN {_has(text, 'e')} THEN coalesce({wider} = {plain}, false)"
        f" WHEN instr({text}, '.') = 0 OR length({text}) - instr({text}, '.') <= {scale} THEN true"
        rf" ELSE {text} RLIKE '^[^.]*\\.\\d{{0,{scale}}}0*\\s*$' END)"
    )


def _date(text: str, plain: str, options: Mapping[str, str]) -> Converted:
    if "dateformat" in options:
        value = f"CAST(try_to_timestamp({text}, {literal(options['dateformat'])}) AS date)"
        return Converted(value, f"{value} IS NOT NULL")
    # Written out again it is the same text; a single digit for month or day is as clear.
    clear = f"(CAST({plain} AS string) = {text} OR {text} RLIKE {_DAY})"
    return Converted(plain, f"({plain} IS NOT NULL AND {clear})")


def _instant(text: str, plain: str, options: Mapping[str, str]) -> Converted:
    zone = options.get("timezone")
    if "timestampformat" in options:
        pattern = options["timestampformat"]
        value = f"try_to_timestamp({text}, {literal(pattern)})"
        if zone and not _ZONE_LETTERS & set(pattern):
            value = f"to_utc_timestamp({value}, {literal(zone)})"
        return Converted(value, f"{value} IS NOT NULL")
    exact = f"({plain} IS NOT NULL AND {text} RLIKE {_INSTANT})"
    if zone:
        return Converted(
            f"if({text} RLIKE {_WALL_CLOCK}, to_utc_timestamp({plain}, {literal(zone)}), {plain})", exact
        )
    return Converted(plain, exact)


def _wall_clock(text: str, plain: str, options: Mapping[str, str]) -> Converted:
    if "timestampntzformat" in options:
        value = f"CAST(try_to_timestamp({text}, {literal(options['timestampntzformat'])}) AS timestamp_ntz)"
        return Converted(value, f"{value} IS NOT NULL")
    return Converted(plain, f"({plain} IS NOT NULL AND {text} RLIKE {_WALL_CLOCK})")
