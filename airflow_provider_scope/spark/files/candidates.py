"""The types as which a text can be read without being changed: to infer types, and to read as them.

A text is a value of such a type only if it comes back from it as it is. ``007`` is no number, since it would
come back as ``7``, and a number of 20 digits is no double. What may differ is how the same value is written:
zeros at the end of a fraction, an exponent, the zone of a time, a capital in ``True``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.spark.values import Converted, convert, is_floating_name
from airflow_provider_scope.sql import literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_WHOLE_DIGITS, _FRACTION_DIGITS = 20, 18
WHOLE = T.DecimalType(38, 0)
"""For whole numbers that are too large for a bigint."""
FRACTION = T.DecimalType(38, _FRACTION_DIGITS)
"""For fractions with more digits than a double keeps; as many digits as Spark's own default."""
NUMBERS: tuple[T.DataType, ...] = (T.LongType(), WHOLE, T.DoubleType(), FRACTION)
"""The first that holds all values is taken. Double is before decimal: it keeps up to 15 digits wherever the
point is. A decimal as wide as the first batch is too narrow for the next one, and products of wide decimals
are rounded by Spark."""
_TIMES: tuple[T.DataType, ...] = (T.DateType(), T.TimestampType(), T.TimestampNTZType())
_FORMATS = dict(zip(("dateformat", "timestampformat", "timestampntzformat"), _TIMES, strict=True))
_KEPT_DIGITS = 15
"""Significant digits that a double keeps, whatever they are, unless it is very large or very small."""
_LEAST, _MOST = "1e-300D", "1e300D"
ANY = -1
"""All types are possible: there was no text."""
_ONLY_NAMES = 1 << 30
"""No number is among the values, only names such as NaN, which may mean something else."""

_BIGINT = r"^(?:0|-?[1-9][0-9]{0,18})\z"
_WHOLE = r"^(?:0|-?[1-9][0-9]{0,37})\z"
_FLOATING = r"^-?(?:0|[1-9][0-9]*)?(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?\z"
_FRACTION = rf"^-?(?:0|[1-9][0-9]{{0,{_WHOLE_DIGITS - 1}}})?(?:\.[0-9]{{1,{_FRACTION_DIGITS}}})?\z"
_DAY = r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[ T][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
_ZONE = r" ?(?:Z|UTC|GMT|[+-][0-9]{2}(?::?[0-9]{2})?)"


def candidates(options: Mapping[str, str]) -> list[T.DataType]:
    """Give the types in which a CSV file may have values, the first one first.

    :param options: The reader's options, their names in lower case. A type for which they have a format goes
        first: ``yyyyMMdd`` says that ``20260131`` is no number.
    """
    first = [kind for name, kind in _FORMATS.items() if name in options]
    rest = [T.BooleanType(), *NUMBERS, *_TIMES]
    return [*first, *[kind for kind in rest if kind not in first]]


def convert_reversibly(text: str, kind: T.DataType, column: str, options: Mapping[str, str]) -> Converted:
    """Convert as ``convert`` does; but a text is a value of the type only if it comes back as it is."""
    converted = convert(text, kind, column, options)
    if converted.is_exact is None:
        return converted
    comes_back = _comes_back(text, kind, converted.value, options)
    return Converted(converted.value, f"({comes_back} AND {converted.is_exact})")


def type_bits(text: str, kinds: tuple[T.DataType, ...], options: Mapping[str, str]) -> str:
    """Give SQL of a number whose bits say which types a text may be of; ``ANY`` for NULL.

    Those of several texts together are the bits that all of them have.
    """
    formatted = [kind for name, kind in _FORMATS.items() if name in options]

    def bits_of(types: Iterable[T.DataType]) -> str:
        """Give SQL of the bits of some types; those that are not among the kinds are left out."""
        bits = []
        for kind in types:
            if kind in kinds:
                is_exact = convert_reversibly(text, kind, "", options).is_exact
                bits.append(_bit(is_exact, 1 << kinds.index(kind)))
        return " | ".join(bits) or "0L"

    times = bits_of(kind for kind in _TIMES if kind not in formatted)
    is_name = _is_name(text, options)
    words = f"{bits_of([T.BooleanType()])} | {_bit(is_name, 1 << kinds.index(T.DoubleType()))}"
    # Most texts begin with a letter: then few types need a check.
    return (
        f"CASE WHEN {text} IS NULL THEN {ANY}L ELSE {bits_of(formatted)} | {_bit(is_name, _ONLY_NAMES)} |"
        f" CASE WHEN NOT {text} RLIKE '^[-.0-9]' THEN {words}"
        f" WHEN {text} RLIKE '^[0-9]{{4}}-' THEN {times} ELSE {bits_of(NUMBERS)} END END"
    )


def _bit(condition: str | None, bit: int) -> str:
    return f"if(coalesce({condition}, false), {bit}L, 0L)"


def narrowest(bits: int, kinds: tuple[T.DataType, ...]) -> T.DataType:
    """Give the first type that all texts may be of; string if there is none, or no text."""
    if bits == ANY or bits & _ONLY_NAMES:
        return T.StringType()
    return next((kind for place, kind in enumerate(kinds) if bits & 1 << place), T.StringType())


def _comes_back(text: str, kind: T.DataType, value: str, options: Mapping[str, str]) -> str:
    """Give SQL for whether a text that is a value of a type comes back as it is."""
    if isinstance(kind, T.BooleanType):
        return f"lower({text}) IN ('true', 'false')"
    if isinstance(kind, T.IntegralType):
        return _matches(text, _BIGINT)
    if isinstance(kind, T.DecimalType):
        return _matches(text, _WHOLE if kind.scale == 0 else _FRACTION)
    if isinstance(kind, T.FloatType):
        shortest = f"CAST(try_cast({text} AS float) AS string)"
        return f"({_matches(text, _FLOATING)} AND {_digits(text)} = {_digits(shortest)})"
    if isinstance(kind, T.DoubleType):
        return f"({_is_name(text, options)} OR ({_matches(text, _FLOATING)} AND {_keeps_digits(text)}))"
    return _time_comes_back(text, kind, value, options)


def _time_comes_back(text: str, kind: T.DataType, value: str, options: Mapping[str, str]) -> str:
    zone = options.get("timezone")
    formats: dict[type[T.DataType], tuple[str, str]] = {
        T.DateType: ("dateformat", _DAY),
        T.TimestampType: ("timestampformat", f"{_DAY}{_TIME}(?:{_ZONE}){'?' if zone else ''}"),
        T.TimestampNTZType: ("timestampntzformat", f"{_DAY}{_TIME}"),
    }
    option, pattern = formats[type(kind)]
    if option not in options:
        return _matches(text, rf"^{pattern}\z")
    if isinstance(kind, T.TimestampType):
        return "true"  # the same instant may be written in any zone
    return f"date_format({value}, {literal(options[option])}) = {text}"


def _matches(text: str, pattern: str) -> str:
    return f"{text} RLIKE {literal(pattern)}"


def _is_name(text: str, options: Mapping[str, str]) -> str:
    return is_floating_name(text, f"lower({text})", options)


def _keeps_digits(text: str) -> str:
    value = f"try_cast({text} AS double)"
    is_usual = f"abs({value}) BETWEEN {_LEAST} AND {_MOST}"
    digits = _digits(text)
    # What a program wrote of a double comes back as it is, too, with its 16 or 17 digits. Before Java 19 some
    # above 1e17 do not, and are no double here.
    return (
        f"CASE WHEN length({text}) <= {_KEPT_DIGITS} AND {is_usual} THEN true"
        f" WHEN length({digits}) <= {_KEPT_DIGITS} AND {is_usual} THEN true"
        f" ELSE {digits} = {_digits(f'CAST({value} AS string)')} END"
    )


def _digits(text: str) -> str:
    """Give SQL of the significant digits of a number."""
    digits = f"regexp_replace({text}, '[eE].*|[-.]', '')"
    return f"regexp_replace({digits}, '^0+|0+\\\\z', '')"
