r"""Text to a typed value, strictly: as SQL expressions, for what CSV and JSON hold as text.

Spark's own readers are lenient, and change values by that. They strip commas out of decimals, and round what
is beyond the scale. They take ``2026-01-01 xyz`` and ``2026`` for dates, cut a timestamp after its sixth
digit, and read ``1f`` as a number. Here a text either is a value of the type, or it is not.

Where nobody declared the type, a text is a value of it only if it comes back from it as it is. ``007`` is no
number then, since it would come back as ``7``, and a number of 20 digits is no double. What may differ is how
the same value is written: zeros at the end of a fraction, an exponent, the zone of a time, a capital in
``True``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.sql import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

INSTANT_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
"""Spark's pattern of an instant as text: with its microseconds and its offset."""
_SPARK_NAMES = ("nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity")
"""Texts, in lower case, that Spark casts to floating values that are no numbers."""
_ZONE_LETTERS = frozenset("XxZzVO")
"""Letters of a pattern that read a zone."""
_CLOCK_LETTERS = frozenset("aBhHkKmsSnNA")
"""Letters of a pattern that read a time of day."""
_VERBATIM = re.compile("'[^']*'")
"""A part of a pattern that stands for itself."""
_UTC = re.compile("'(Z|UTC|GMT)'")
"""One that says the zone."""
_OPTIONAL_ZONE = re.compile(r"\[[^\[\]']*[XxZzVO][^\[\]']*\]")
_ENDS_IN_UTC = r"(Z|UTC|GMT|[+-]00(:?00)?)\s*$"
_NO_DIGITS = r"[eE].*|[^\p{Nd}.]"
"""What a number has beside its digits and its point."""
_NANOSECONDS = re.compile("([^A-Za-z])S{7,}")
"""A fraction with more digits than a timestamp has, and what is before it, in a pattern."""

_DATE = r"\d{4,6}-\d\d?-\d\d?"
_CLOCK = r"[ T]\d\d?:\d\d?(?::\d\d?(?:\.\d{1,6}0*)?)?"
_OFFSET = r" ?(?:Z|UTC|GMT|[+-]\d\d(?::?\d\d)?)"
_WALL_CLOCK = rf"^\s*{_DATE}(?:{_CLOCK})?\s*$"
_DATE_BACK = r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK_BACK = r"[ T][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
_OFFSET_BACK = r" ?(?:Z|UTC|GMT|[+-][0-9]{2}(?::?[0-9]{2})?)"


class _Time(NamedTuple):
    """How texts of a type of times are written."""

    option: str
    """The reader's option for another format."""
    clear: str
    """The pattern of texts that can mean one time only."""
    comes_back: str
    """The pattern of texts that come back as they are."""


_TIMES: dict[type[T.DataType], _Time] = {
    T.DateType: _Time("dateformat", rf"^\s*{_DATE}\s*$", _DATE_BACK),
    T.TimestampType: _Time(
        "timestampformat",
        rf"^\s*{_DATE}(?:{_CLOCK}(?:{_OFFSET})?)?\s*$",
        f"{_DATE_BACK}{_CLOCK_BACK}(?:{_OFFSET_BACK})",
    ),
    T.TimestampNTZType: _Time("timestampntzformat", _WALL_CLOCK, f"{_DATE_BACK}{_CLOCK_BACK}"),
}


@dataclass(frozen=True, slots=True)
class Converted:
    """SQL of a text, or of a value with texts inside, that is converted to a type."""

    value: str
    """The typed value; NULL where the text is no value of the type."""
    is_exact: str | None
    """Whether a text that is not NULL is a value of the type; None if every text is."""


_SEPARATORS = ("decimalseparator", "thousandsseparator")


def convert(
    text: str, kind: T.DataType, column: str, options: Mapping[str, str], *, comes_back: bool = False
) -> Converted:
    """Convert a text to a type.

    :param text: SQL of the text.
    :param column: The column's name, for the error.
    :param options: The reader's options, their names in lower case: ``dateformat``, ``timestampformat``,
        ``timestampntzformat``, ``timezone``, ``nanvalue``, ``positiveinf``, ``negativeinf``, and how numbers
        are written: ``decimalseparator``, ``thousandsseparator``.
    :param comes_back: Whether only a text that comes back as it is is a value of the type.
    :raises InputError: There is no strict reading of text as this type.
    """
    if isinstance(kind, T.NumericType) and not options.keys().isdisjoint(_SEPARATORS):
        return _with_separators(text, kind, column, options, comes_back=comes_back)
    converted = _convert(text, kind, column, options)
    if not comes_back or converted.is_exact is None:
        return converted
    is_same = _comes_back(text, kind, converted.value, options)
    return Converted(converted.value, f"({is_same} AND {converted.is_exact})")


def _with_separators(
    text: str, kind: T.DataType, column: str, options: Mapping[str, str], *, comes_back: bool
) -> Converted:
    """Convert a text such as ``1.234,56`` to a number: a point or a comma in another place makes it none."""
    fraction, thousands = (options.get(name) for name in _SEPARATORS)
    digits = rf"[0-9]{{1,3}}(?:{re.escape(thousands)}[0-9]{{3}})+|[0-9]+" if thousands else "[0-9]+"
    point = re.escape(fraction or ".")
    number = rf"^\s*[-+]?(?:{digits})?(?:{point}[0-9]*)?(?:[eE][-+]?[0-9]+)?\s*$"
    plain = f"replace({text}, {literal(thousands)}, '')" if thousands else text
    plain = f"replace({plain}, {literal(fraction)}, '.')" if fraction else plain
    other_options = {name: value for name, value in options.items() if name not in _SEPARATORS}
    converted = convert(plain, kind, column, other_options, comes_back=comes_back)
    # What has no digit may be a name, such as NaN.
    is_number = f"({_matches(text, number)} OR NOT {_matches(text, '[0-9]')})"
    return Converted(converted.value, f"({is_number} AND {converted.is_exact})")


def _convert(text: str, kind: T.DataType, column: str, options: Mapping[str, str]) -> Converted:
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
    if isinstance(kind, tuple(_TIMES)):
        return _time(text, cast, kind, options)
    raise InputError(
        f"The column {column!r} is declared as {kind.simpleString()}, which cannot be read from text.",
        kept="the table; no row was written, and the batch stays logged",
        do="declare it as string, and CAST it in the SELECT",
    )


def _contains_letter(text: str, letter: str) -> str:
    # Without `lower`, which is slow.
    return f"(contains({text}, '{letter}') OR contains({text}, '{letter.upper()}'))"


def _is_floating_name(text: str, lower_text: str, options: Mapping[str, str]) -> str:
    """Write SQL for whether a text names a floating value that is no number, such as NaN.

    :param lower_text: SQL of the text in lower case, in which Spark's own names for such values are found.
        The names of the options have to be spelled exactly.
    """
    exact_names = ", ".join(map(literal, _names_of_options(options)))
    spark_names = ", ".join(map(literal, _SPARK_NAMES))
    return f"({text} IN ({exact_names}) OR {lower_text} IN ({spark_names}))"


def _names_of_options(options: Mapping[str, str]) -> dict[str, str]:
    """Map what the reader's options name such values to what Spark casts to them."""
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
    is_name = _is_floating_name(text, f"lower(trim({text}))", options)
    value = cast
    if any(option in options for option in ("nanvalue", "positiveinf", "negativeinf")):
        names = _names_of_options(options)
        cases = " ".join(f"WHEN {literal(name)} THEN '{spark_name}'" for name, spark_name in names.items())
        value = f"try_cast(CASE {text} {cases} ELSE {text} END AS {kind.simpleString()})"
    return Converted(value, f"(({is_number}) OR {is_name})")


def _is_decimal(text: str, cast: str, kind: T.DecimalType) -> str:
    scale = kind.scale
    # With an exponent: how many digits the point has after it, but for zeros at the end.
    mantissa = f"regexp_replace({text}, {literal(_NO_DIGITS)}, '')"
    significant = f"trim(TRAILING '0' FROM replace({mantissa}, '.', ''))"
    exponent = f"try_cast(substring_index(lower({text}), 'e', -1) AS int)"
    digits = f"length({significant}) - length(substring_index({mantissa}, '.', 1)) - {exponent}"
    return (
        f"({cast} IS NOT NULL AND CASE"
        f" WHEN {_contains_letter(text, 'e')} THEN {significant} = '' OR {digits} <= {scale}"
        f" WHEN instr({text}, '.') = 0 OR length({text}) - instr({text}, '.') <= {scale} THEN true"
        rf" ELSE {text} RLIKE '^[^.]*\\.\\d{{0,{scale}}}0*\\s*$' END)"
    )


def _time(text: str, cast: str, kind: T.DataType, options: Mapping[str, str]) -> Converted:
    time, zone = _TIMES[type(kind)], options.get("timezone")
    is_instant = isinstance(kind, T.TimestampType)
    if time.option in options:
        return _by_pattern(text, options[time.option], kind, zone)
    is_clear = _matches(text, time.clear)
    if isinstance(kind, T.DateType):
        # Written out again it is the same text; a single digit for month or day is as clear.
        is_clear = f"(CAST({cast} AS string) = {text} OR {is_clear})"
    value = cast
    if is_instant and zone:
        value = f"if({_matches(text, _WALL_CLOCK)}, to_utc_timestamp({cast}, {literal(zone)}), {cast})"
    return Converted(value, f"({cast} IS NOT NULL AND {is_clear})")


def _by_pattern(text: str, pattern: str, kind: T.DataType, zone: str | None) -> Converted:
    """Convert a text by a pattern of Spark's; a part of it that its type does not have is not cut off."""
    is_date, is_instant = isinstance(kind, T.DateType), isinstance(kind, T.TimestampType)
    if isinstance(kind, T.TimestampNTZType):
        pattern = _OPTIONAL_ZONE.sub("", pattern)  # so a text with a zone does not fit
    letters = _VERBATIM.sub("", pattern)
    has_zone = not _ZONE_LETTERS.isdisjoint(letters)
    instant = value = f"try_to_timestamp({text}, {literal(pattern)})"
    if not is_instant:
        value = f"CAST({value} AS {kind.simpleString()})"
    elif zone and not has_zone and not _UTC.search(pattern):
        value = f"to_utc_timestamp({value}, {literal(zone)})"
    checks = [f"{value} IS NOT NULL"]
    if is_date and not _CLOCK_LETTERS.isdisjoint(letters):
        checks.append(f"{value} = {instant}")
    if has_zone and not is_instant:
        checks.append(_matches(text, _ENDS_IN_UTC) if is_date else "false")
    signs = _VERBATIM.sub(lambda part: re.sub("['A-Za-z]", "", part[0]), pattern)
    if fraction := _NANOSECONDS.search(signs):
        checks.append(f"NOT {_matches(text, f'{re.escape(fraction[1])}[0-9]{{6}}0*[1-9]')}")
    return Converted(value, f"({' AND '.join(checks)})")


def _matches(text: str, pattern: str) -> str:
    return f"{text} RLIKE {literal(pattern)}"


# ---- values that have texts inside, at any depth ----


def convert_inside(
    value: str,
    kind: T.DataType,
    leaf: Callable[[str, T.DataType], Converted],
    *,
    checks_keys: bool = False,
    depth: int = 0,
) -> Converted:
    """Convert the leaves of a value: all that is in it and has no types inside. NULL is exact at every depth.

    What holds no leaf that is converted stays as it is, as do the keys of maps.

    :param value: SQL of the value.
    :param leaf: Converts SQL of a leaf.
    :param checks_keys: Whether the keys of maps have to be exact, too.
    """

    def inside(value: str, kind: T.DataType, depth: int) -> Converted:
        return convert_inside(value, kind, leaf, checks_keys=checks_keys, depth=depth)

    if isinstance(kind, T.StructType):
        fields = {f.name: inside(f"{value}.{quoted(f.name)}", f.dataType, depth) for f in kind}
        if not any(field.is_exact for field in fields.values()):
            return Converted(value, None)
        pairs = ", ".join(f"{literal(name)}, {field.value}" for name, field in fields.items())
        exact = [
            f"({value}.{quoted(name)} IS NULL OR coalesce({field.is_exact}, false))"
            for name, field in fields.items()
            if field.is_exact
        ]
        return Converted(f"if({value} IS NULL, NULL, named_struct({pairs}))", f"({' AND '.join(exact)})")
    item = f"x{depth}"
    if isinstance(kind, T.ArrayType):
        element = inside(item, kind.elementType, depth + 1)
        if not element.is_exact:
            return Converted(value, None)
        return Converted(f"transform({value}, {item} -> {element.value})", _all_exact(value, item, element))
    if isinstance(kind, T.MapType):
        part = inside(item, kind.valueType, depth + 1)
        parts = {"map_values": part}
        if checks_keys:
            parts["map_keys"] = inside(item, kind.keyType, depth + 1)
        exact = [_all_exact(f"{f}({value})", item, inner) for f, inner in parts.items() if inner.is_exact]
        if not exact:
            return Converted(value, None)
        changed = f"transform_values({value}, (k{depth}, {item}) -> {part.value})"
        return Converted(changed if part.is_exact else value, " AND ".join(exact))
    return leaf(value, kind)


def _all_exact(items: str, item: str, converted: Converted) -> str:
    return f"forall({items}, {item} -> {item} IS NULL OR coalesce({converted.is_exact}, false))"


# ---- the types that a text may be of, and that it comes back from ----

_WHOLE_DIGITS, _FRACTION_DIGITS = 20, 18
NUMBERS: tuple[T.DataType, ...] = (
    T.LongType(),
    T.DecimalType(38, 0),  # for whole numbers that are too large for a bigint
    T.DoubleType(),
    T.DecimalType(38, _FRACTION_DIGITS),  # for more digits than a double keeps; as many as Spark's default
)
"""The first that holds all values is taken. Double is before decimal: it keeps up to 15 digits wherever the
point is. A decimal as wide as the first batch is too narrow for the next one, and products of wide decimals
are rounded by Spark."""
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


def types_of_texts(options: Mapping[str, str]) -> tuple[T.DataType, ...]:
    """List the types in which a CSV file may have values, the first one first.

    :param options: The reader's options, their names in lower case. A type for which they have a format goes
        first: ``yyyyMMdd`` says that ``20260131`` is no number.
    """
    times = [kind() for kind in _TIMES]
    formatted = [kind for kind in times if _has_format(kind, options)]
    return (*formatted, T.BooleanType(), *NUMBERS, *(kind for kind in times if kind not in formatted))


def _has_format(kind: T.DataType, options: Mapping[str, str]) -> bool:
    return _TIMES[type(kind)].option in options


def type_bits(text: str, kinds: tuple[T.DataType, ...], options: Mapping[str, str]) -> str:
    """Write SQL of a number whose bits say which of these types a text may be of; ``ANY`` for NULL.

    Those of several texts together are the bits that all of them have.
    """

    def bits_of(types: Iterable[T.DataType]) -> str:
        bits = [
            _bit(convert(text, kind, "", options, comes_back=True).is_exact, 1 << kinds.index(kind))
            for kind in types
            if kind in kinds
        ]
        return " | ".join(bits) or "0L"

    times = [kind for kind in kinds if isinstance(kind, tuple(_TIMES))]
    formatted = [kind for kind in times if _has_format(kind, options)]
    is_name = _is_name(text, options)
    words = f"{bits_of([T.BooleanType()])} | {_bit(is_name, 1 << kinds.index(T.DoubleType()))}"
    # Most texts begin with a letter: then few types need a check.
    return (
        f"CASE WHEN {text} IS NULL THEN {ANY}L ELSE {bits_of(formatted)} | {_bit(is_name, _ONLY_NAMES)} |"
        f" CASE WHEN NOT {text} RLIKE '^[-.0-9]' THEN {words}"
        f" WHEN {text} RLIKE '^[0-9]{{4}}-' THEN {bits_of(kind for kind in times if kind not in formatted)}"
        f" ELSE {bits_of(NUMBERS)} END END"
    )


def _bit(condition: str | None, bit: int) -> str:
    return f"if(coalesce({condition}, false), {bit}L, 0L)"


def narrowest(bits: int, kinds: tuple[T.DataType, ...]) -> T.DataType:
    """Find the first type that all texts may be of; string if there is none, or no text."""
    if bits == ANY or bits & _ONLY_NAMES:
        return T.StringType()
    return next((kind for place, kind in enumerate(kinds) if bits & 1 << place), T.StringType())


def _comes_back(text: str, kind: T.DataType, value: str, options: Mapping[str, str]) -> str:
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
    time, is_instant = _TIMES[type(kind)], isinstance(kind, T.TimestampType)
    if time.option not in options:
        is_optional = is_instant and "timezone" in options
        return _matches(text, rf"^{time.comes_back}{'?' if is_optional else ''}\z")
    if is_instant:
        return "true"  # the same instant may be written in any zone
    return f"date_format({value}, {literal(options[time.option])}) = {text}"


def _is_name(text: str, options: Mapping[str, str]) -> str:
    return _is_floating_name(text, f"lower({text})", options)


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
    """Write SQL of the significant digits of a number."""
    digits = f"regexp_replace({text}, '[eE].*|[-.]', '')"
    return f"regexp_replace({digits}, '^0+|0+\\\\z', '')"
