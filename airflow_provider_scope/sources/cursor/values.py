"""The values of a cursor's column, as text: bounds, what lies a lag before a value, and their order."""

from __future__ import annotations

import re
from ctypes import c_float
from datetime import UTC, datetime, timedelta
from decimal import ROUND_FLOOR, Decimal, InvalidOperation, localcontext
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, CursorError
from airflow_provider_scope.sources.cursor.bounds import EPOCH, moment_of

if TYPE_CHECKING:
    from airflow_provider_scope.sources.cursor.bounds import Bound
    from airflow_provider_scope.sources.cursor.spec import Cursor


_DIGITS = 400
"""More than a double or a decimal has: Python itself rounds to 28."""
WHOLE = re.compile(r"tinyint|smallint|int|bigint")
_NANOSECONDS = re.compile(r"[.,]\d{6}0*[1-9]")
_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
NUMBER = re.compile(r"tinyint|smallint|int|bigint|decimal\(\d+,\d+\)|float|double")


def value_of(argument: str, bound: Bound, kind: str) -> str:
    """Return a bound as text of the column's type.

    :raises CursorError: It is of another type.
    """
    try:
        text = _converted(bound, kind)
        if text is not None and NUMBER.fullmatch(kind) and _within(Decimal(text), kind) != Decimal(text):
            text = None
    except (InvalidOperation, OverflowError, ValueError):
        text = None
    if text is None:
        shown = f"{bound.text!r} (text)" if bound.kind == "text" else f"{bound.text} ({bound.kind})"
        raise CursorError(
            f"cursor.{argument} is {shown}, and the column has the type {kind}.",
            kept=NO_ROW_WRITTEN,
            do=_WANTED.get(kind, "give a number that the type has")
            + "; a batch that is open keeps its bound: abandon it with `airflow scope abandon`",
        )
    return text


_WANTED = {
    "timestamp": "give a datetime with time zone, of the years 1 to 9999 in UTC, in microseconds, or text "
    "such as '2026-01-31T00:00:00+00:00'",
    "timestamp_ntz": "give a datetime without time zone, in microseconds, or text: '2026-01-31T00:00:00'",
    "date": "give a date, or text such as '2026-01-31'",
    "string": "give text",
}


def _converted(bound: Bound, kind: str) -> str | None:
    of, text, _ = bound
    if of == "instant":
        return _of_instant(datetime.fromisoformat(text), kind)
    if kind == "string":
        return text if of == "text" else None
    if NUMBER.fullmatch(kind):
        number = Decimal(text) if of in ("number", "text") else Decimal("NaN")
        # By the digits of the type: Spark takes no 1.0 for a whole number.
        exact = _floor(number, kind) if number.is_finite() else None
        return f"{exact:f}" if exact == number else None
    if _NANOSECONDS.search(text):
        return None  # they would be cut off, and the rows of that microsecond be in no range
    if of == "text":
        moment = moment_of(text)
        if kind == "date":
            return None if isinstance(moment, datetime) else text
        if not isinstance(moment, datetime):
            return f"{text} 00:00:00" + ("Z" if kind == "timestamp" else "")
        return _plain(moment) if (moment.tzinfo is not None) == (kind == "timestamp") else None
    if of != kind:
        return None
    return text if kind == "date" else _plain(datetime.fromisoformat(text))


def _of_instant(moment: datetime, kind: str) -> str:
    """Return an end of an interval as a value of the column, as dlt does: all in UTC."""
    if NUMBER.fullmatch(kind):
        seconds = Decimal((moment - EPOCH) // timedelta(milliseconds=1)) / 1000
        return f"{_floor(seconds, kind):f}"
    if kind == "date":
        return moment.date().isoformat()
    if kind == "timestamp_ntz":
        return _plain(moment.replace(tzinfo=None))
    if kind == "timestamp":
        return _plain(moment)
    # Without zone, and zeros at the end: so it is before each text of that time.
    text = moment.replace(tzinfo=None).isoformat()
    return text.rstrip("0") if moment.microsecond else text


def _floor(number: Decimal, kind: str) -> Decimal:
    """Return the next lower number that a type of numbers has: Spark would round, PostgreSQL would not."""
    scale = "0" if WHOLE.fullmatch(kind) else kind[:-1].partition(",")[2]
    if not scale:
        return number  # of a float
    with localcontext(prec=_DIGITS):
        return number.quantize(Decimal(1).scaleb(-int(scale)), ROUND_FLOOR)


def _within(number: Decimal, kind: str) -> Decimal:
    """Return the number of a type's range that is next to a number."""
    if bits := _BITS.get(kind):
        return max(Decimal(-(2**bits)), min(number, Decimal(2**bits - 1)))
    if not kind.startswith("decimal"):
        return number
    digits, scale = map(int, kind[8:-1].split(","))
    least, most = (Decimal((sign, (9,) * digits, -scale)) for sign in (1, 0))
    return max(least, min(number, most))


def _plain(moment: datetime) -> str:
    """Return a time as Spark writes it, in UTC."""
    if moment.tzinfo is None:
        return f"{moment:%Y-%m-%d %H:%M:%S.%f}".zfill(26)
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}Z".zfill(27)


def shifted(last: str, kind: str, cursor: Cursor) -> str:
    """Return the value that lies before the last one by the lag."""
    lag = Decimal(str(cursor.lag))
    if NUMBER.fullmatch(kind):
        lag = _floor(lag, kind)  # Spark would round the value, and find rows before it that are not known
    lag = lag if cursor.is_rising else lag.copy_negate()
    try:
        if NUMBER.fullmatch(kind):
            # A database is asked before the last value is written as its column's new type would: 5.0 is 5.
            with localcontext(prec=_DIGITS):
                return f"{_within(Decimal(last) - lag, kind):f}"
        if kind == "date":
            return (datetime.fromisoformat(last).date() - timedelta(days=int(lag))).isoformat()
        if kind in ("timestamp", "timestamp_ntz"):
            return _plain(datetime.fromisoformat(last) - timedelta(microseconds=int(lag * 1_000_000)))
    except (OverflowError, ValueError) as err:
        raise CursorError(
            f"cursor.lag={cursor.lag} cannot be applied to the last value {last}: {err}.",
            kept=NO_ROW_WRITTEN,
            do="leave rows with such a value out in pre_filter_sql, or give them another one there; or set a "
            "smaller lag, or none",
        ) from err
    raise CursorError(
        f"cursor.lag={cursor.lag} is for numbers, dates and timestamps; {cursor.column!r} has the type "
        f"{kind}.",
        kept=NO_ROW_WRITTEN,
        do="leave it out; or CAST the column in pre_filter_sql",
    )


def is_beyond(first: str, second: str, kind: str, func: str) -> bool:
    """Return whether a value comes after another, both as text of the column's type."""
    first_order, second_order = (ordered(value, kind) for value in (first, second))
    return bool(first_order > second_order if func == "max" else first_order < second_order)


def ordered(text: str, kind: str) -> Any:
    """Return what stands for a value where values are put in order, as Spark does."""
    if kind in ("float", "double"):
        # A start that is computed by a lag may have digits that no float has.
        return c_float(float(text)).value if kind == "float" else float(text)
    if NUMBER.fullmatch(kind):
        return Decimal(text)
    if kind == "string":
        return text.encode()
    # Spark's years go on where those of Python's dates end.
    end_of_year = text.index("-", 1)
    whole, _, fraction = text[end_of_year:].rstrip("Z").partition(".")
    return int(text[:end_of_year]), whole, fraction.rstrip("0")


def order_of(kind: str) -> str:
    """Name the order that the values of a type have: types of one order can replace each other."""
    return "numbers" if NUMBER.fullmatch(kind) else kind.replace("timestamp_ntz", "date")


def is_end_of_time(last: str | None, kind: str) -> bool:
    """Return whether a value is the last day of the year 9999: it stands for "never"."""
    if last is None or kind not in ("date", "timestamp", "timestamp_ntz"):
        return False
    return last >= "9999-12-31" or last.startswith("+")
