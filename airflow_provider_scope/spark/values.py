"""Text to a typed value, strictly: as SQL expressions, for what CSV and JSON hold as text.

Spark's own readers are lenient, and change values by that. They strip commas out of decimals, and round what
is beyond the scale. They take ``2026-01-01 xyz`` and ``2026`` for dates, cut a timestamp after its sixth
digit, and read ``1f`` as a number. Here a text either is a value of the type, or it is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.sql import literal

if TYPE_CHECKING:
    from collections.abc import Mapping

INSTANT_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
"""Spark's pattern of an instant as text: with its microseconds and its offset."""
_DATE = r"\\d{4,6}-\\d\\d?-\\d\\d?"
_TIME = r"\\d\\d?:\\d\\d?(?::\\d\\d?(?:\\.\\d{1,6}0*)?)?"
_ZONE = r" ?(?:Z|UTC|GMT|[+-]\\d\\d(?::?\\d\\d)?)"
_DAY = rf"'^\\s*{_DATE}\\s*$'"
_INSTANT = rf"'^\\s*{_DATE}(?:[ T]{_TIME}(?:{_ZONE})?)?\\s*$'"
_WALL_CLOCK = rf"'^\\s*{_DATE}(?:[ T]{_TIME})?\\s*$'"
_SPARK_NAMES = ("nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity")
"""Texts, in lower case, that Spark casts to floating values that are no numbers."""
_ZONE_LETTERS = frozenset("XxZzVO")
"""Letters of a pattern that read a zone."""


@dataclass(frozen=True, slots=True)
class Converted:
    """SQL of one text that is converted to a type."""

    value: str
    """The typed value; NULL where the text is no value of the type."""
    is_exact: str | None
    """Whether a text that is not NULL is a value of the type; None if every text is."""


def convert(text: str, kind: T.DataType, column: str, options: Mapping[str, str]) -> Converted:
    """Convert a text to a type.

    :param text: SQL of the text.
    :param column: The column's name, for the error.
    :param options: The reader's options, their names in lower case: ``dateformat``, ``timestampformat``,
        ``timestampntzformat``, ``timezone``, ``nanvalue``, ``positiveinf``, ``negativeinf``.
    :raises InputError: There is no strict reading of text as this type.
    """
    cast = f"try_cast({text} AS {kind.simpleString()})"
    if isinstance(kind, (T.VarcharType, T.CharType)):
        return Converted(text, f"char_length({text}) <= {kind.length}")
    if isinstance(kind, (T.StringType, T.BinaryType)):
        return Converted(f"CAST({text} AS {kind.simpleString()})", None)
    if isinstance(kind, (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.BooleanType)):
        return Converted(cast, f"{cast} IS NOT NULL")
    if isinstance(kind, (T.FloatType, T.DoubleType)):
        return _floating(text, cast, kind, options)
    if isinstance(kind, T.DecimalType):
        return Converted(cast, _is_decimal(text, cast, kind))
    if isinstance(kind, T.DateType):
        return _date(text, cast, options)
    if isinstance(kind, T.TimestampNTZType):
        return _wall_clock(text, cast, options)
    if isinstance(kind, T.TimestampType):
        return _instant(text, cast, options)
    raise InputError(
        f"The column {column!r} is declared as {kind.simpleString()}, which cannot be read from text.",
        kept="the table; no row was written, and the batch stays logged",
        do="declare it as string, and CAST it in the SELECT",
    )


def _contains_letter(text: str, letter: str) -> str:
    """Give SQL for whether a letter is in a text, small or capital, without ``lower``, which is slow."""
    return f"(contains({text}, '{letter}') OR contains({text}, '{letter.upper()}'))"


def is_floating_name(text: str, lower_text: str, options: Mapping[str, str]) -> str:
    """Give SQL for whether a text names a floating value that is no number, such as NaN.

    :param lower_text: SQL of the text in lower case, in which Spark's own names for such values are found.
        The names of the options have to be spelled exactly.
    """
    exact_names = ", ".join(map(literal, _names_of_options(options)))
    spark_names = ", ".join(map(literal, _SPARK_NAMES))
    return f"({text} IN ({exact_names}) OR {lower_text} IN ({spark_names}))"


def _names_of_options(options: Mapping[str, str]) -> dict[str, str]:
    """Give what the reader's options name such values -> what Spark casts to them."""
    return {
        options.get("nanvalue", "NaN"): "NaN",
        options.get("positiveinf", "Inf"): "Infinity",
        options.get("negativeinf", "-Inf"): "-Infinity",
    }


def _floating(text: str, cast: str, kind: T.DataType, options: Mapping[str, str]) -> Converted:
    # A name of the options, or a number that ends in a digit, a point or a blank. Java takes `1f` and
    # `0x1p3` as well, makes infinity of what is too large, and zero of what is too small.
    is_number = (
        f"ascii(right({text}, 1)) < 58 AND {cast} IS NOT NULL"
        f" AND abs({cast}) < {kind.simpleString()}('Infinity')"
        f" AND NOT {_contains_letter(text, 'x')} AND ({cast} <> 0 OR NOT {text} RLIKE '^[^eE]*[1-9]')"
    )
    is_name = is_floating_name(text, f"lower(trim({text}))", options)
    value = cast
    if any(option in options for option in ("nanvalue", "positiveinf", "negativeinf")):
        names = _names_of_options(options)
        cases = " ".join(f"WHEN {literal(name)} THEN '{spark_name}'" for name, spark_name in names.items())
        value = f"try_cast(CASE {text} {cases} ELSE {text} END AS {kind.simpleString()})"
    return Converted(value, f"(({is_number}) OR {is_name})")


def _is_decimal(text: str, cast: str, kind: T.DecimalType) -> str:
    scale = kind.scale
    wider_cast = f"try_cast({text} AS decimal(38,{min(37, scale + 12)}))"
    return (
        f"({cast} IS NOT NULL AND CASE"
        f" WHEN {_contains_letter(text, 'e')} THEN coalesce({wider_cast} = {cast}, false)"
        f" WHEN instr({text}, '.') = 0 OR length({text}) - instr({text}, '.') <= {scale} THEN true"
        rf" ELSE {text} RLIKE '^[^.]*\\.\\d{{0,{scale}}}0*\\s*$' END)"
    )


def _date(text: str, cast: str, options: Mapping[str, str]) -> Converted:
    if "dateformat" in options:
        value = f"CAST(try_to_timestamp({text}, {literal(options['dateformat'])}) AS date)"
        return Converted(value, f"{value} IS NOT NULL")
    # Written out again it is the same text; a single digit for month or day is as clear.
    is_clear = f"(CAST({cast} AS string) = {text} OR {text} RLIKE {_DAY})"
    return Converted(cast, f"({cast} IS NOT NULL AND {is_clear})")


def _instant(text: str, cast: str, options: Mapping[str, str]) -> Converted:
    zone = options.get("timezone")
    if "timestampformat" in options:
        pattern = options["timestampformat"]
        value = f"try_to_timestamp({text}, {literal(pattern)})"
        if zone and not _ZONE_LETTERS & set(pattern):
            value = f"to_utc_timestamp({value}, {literal(zone)})"
        return Converted(value, f"{value} IS NOT NULL")
    value = cast
    if zone:
        value = f"if({text} RLIKE {_WALL_CLOCK}, to_utc_timestamp({cast}, {literal(zone)}), {cast})"
    return Converted(value, f"({cast} IS NOT NULL AND {text} RLIKE {_INSTANT})")


def _wall_clock(text: str, cast: str, options: Mapping[str, str]) -> Converted:
    if "timestampntzformat" in options:
        value = f"CAST(try_to_timestamp({text}, {literal(options['timestampntzformat'])}) AS timestamp_ntz)"
        return Converted(value, f"{value} IS NOT NULL")
    return Converted(cast, f"({cast} IS NOT NULL AND {text} RLIKE {_WALL_CLOCK})")
