"""The options of CSV files: those of Spark's reader, by their spelling, and some that it does not have."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any

from airflow_provider_scope import validation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SKIP_ROWS, FOOTER, DECIMAL, THOUSANDS = "skipRows", "footer", "decimalSeparator", "thousandsSeparator"
VALUES = {
    SKIP_ROWS: (r"[1-9][0-9]*", "a whole number, at least 1"),
    FOOTER: (r"(?s).+", "a regular expression"),
    DECIMAL: ("[.,]", "'.' or ','"),
    THOUSANDS: ("[.,' _\u00a0\u2009\u202f]", "one of . , ' _ or a blank"),
}
"""Options that Spark's reader does not have -> regular expression of their values, and what it means.

As many lines before the header, and a last line of a file that matches the footer, are no records. The others
say how numbers are written.
"""
_OF_SPARK = (
    "sep", "delimiter", "encoding", "charset", "quote", "escape", "charToEscapeQuoteEscaping", "comment",
    "header", "inferSchema", "preferDate", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace",
    "nullValue", "emptyValue", "nanValue", "positiveInf", "negativeInf", "dateFormat", "timestampFormat",
    "timestampNTZFormat", "enableDateTimeParsingFallback", "maxColumns", "maxCharsPerColumn",
    "unescapedQuoteHandling", "multiLine", "lineSep", "timeZone", "samplingRatio", "singleVariantColumn",
    "columnPruning", "enforceSchema", "locale", "mode",
)  # fmt: skip
_NAMES = {name.lower(): name for name in (*_OF_SPARK, *VALUES)}
_ALIKE = 0.8
"""How alike an option and a known one are, from 0 to 1, if one is meant for the other."""


def by_lower_name(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Write the names in lower case: Spark does not tell them apart by case."""
    return {name.lower(): value for name, value in (options or {}).items()}


def check_spelling(argument: str, names: Iterable[str]) -> None:
    """Refuse an option that looks like another one: Spark ignores what it does not know.

    :raises InputError: As said.
    """
    for name in names:
        close = difflib.get_close_matches(name.lower(), _NAMES, n=1, cutoff=_ALIKE)
        if close and close[0] != name.lower():
            raise validation.bad(argument, name, "options of CSV files", f"write {_NAMES[close[0]]!r}")


def own_names(options: Mapping[str, Any]) -> list[str]:
    """List the options that only CSV has."""
    given = {name.lower() for name in options}
    return [name for name in VALUES if name.lower() in given]


def check(argument: str, options: Mapping[str, Any]) -> None:
    """Check the options that Spark does not have, beside all others of the same files.

    :param options: By their names in lower case.

    :raises InputError: One has another value than it may have, or they do not go together.
    """
    for name in own_names(options):
        value, (pattern, expected) = options[name.lower()], VALUES[name]
        if validation.is_deferred(value):
            continue
        is_value = re.fullmatch(pattern, str(value)) is not None
        if name == FOOTER and is_value:
            try:
                re.compile(value)
            except re.error:
                is_value = False
        if not is_value:
            raise validation.bad(f"{argument}[{name!r}]", value, expected)
    header = options.get("header", "false")
    if SKIP_ROWS.lower() in options and not (validation.is_deferred(header) or is_true(header)):
        do = "set header='true': the header shows that what is skipped before it is no record"
        raise validation.bad(argument, SKIP_ROWS, "other options without a header", do)
    fraction, thousands = options.get(DECIMAL.lower(), "."), options.get(THOUSANDS.lower())
    if fraction == thousands and not validation.is_deferred(fraction):
        do = f"set {DECIMAL}, too: a number has one before its fraction, and another between thousands"
        raise validation.bad(f"{argument}[{THOUSANDS!r}]", thousands, f"another than {DECIMAL}", do)


def is_true(value: Any) -> bool:
    """Return whether an option is set."""
    return str(value).lower() == "true"
