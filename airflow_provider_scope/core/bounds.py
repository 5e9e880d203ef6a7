"""The ends of what a cursor reads, as users and intervals say them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_scope.core.interval import Window

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Bound(NamedTuple):
    """One end of the rows that are read, as the user or an interval says it."""

    kind: str
    """"number", "date", "timestamp", "timestamp_ntz", "text", or "instant" of an interval."""
    text: str

    def encode(self) -> str:
        """Give it as one text."""
        return f"{self.kind}:{self.text}"

    @classmethod
    def decode(cls, text: str) -> Bound:
        """Read what ``encode`` gave."""
        kind, _, value = text.partition(":")
        return cls(kind, value)

    def milliseconds(self) -> int | None:
        """Give it as an instant, as an interval would compare with it; None if it is none.

        Numbers are unix seconds, and what has no zone is UTC: as an interval's ends become such values.
        """
        if self.kind == "number":
            number = _number(self)
            return None if number is None else int(number * 1000)
        moment = _instant(self)
        return None if moment is None else (moment - EPOCH) // timedelta(milliseconds=1)

    def beyond(self, other: Bound, func: str) -> bool:
        """Tell whether it comes behind another one of its kind; never for text, whose type is not known."""
        if self.kind == "number":
            one, two = Decimal(self.text), Decimal(other.text)
        elif self.kind == "text":
            return False
        else:
            one, two = (moment_of(bound.text) for bound in (self, other))  # type: ignore[assignment]
        return one > two if func == "max" else one < two


def overlap(one: tuple[Bound, Bound], other: tuple[Bound, Bound], *, is_text: bool | None = None) -> bool:
    """Tell whether two ranges have values in common.

    :param one: Its first value, and its end, which is not in it. It goes down if the end is the smaller one.
    :param is_text: Whether the column holds text; None if it is not known. Then ends that can all be read as
        numbers, or all as times, are.
    """
    ends = (*one, *other)
    ways = {None: (_number, _instant, _text), True: (_text,), False: (_number, _instant)}[is_text]
    for way in ways:
        found = [way(bound) for bound in ends]
        if None not in found:
            left, right = found[:2], found[2:]
            return _reaches(left, right) and _reaches(right, left)
    return False


def _number(bound: Bound) -> Decimal | None:
    try:
        number = Decimal(bound.text) if bound.kind in ("number", "text") else None
    except InvalidOperation:
        return None
    return number if number is not None and number.is_finite() else None


def _instant(bound: Bound) -> datetime | None:
    """Read a time; what has no zone is UTC: in one column all have one, or none has."""
    try:
        moment = datetime.fromisoformat(bound.text) if bound.kind != "number" else None
    except ValueError:
        return None
    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC)


def _text(bound: Bound) -> bytes | None:
    return bound.text.encode() if bound.kind == "text" else None


def _reaches(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Tell whether the largest value of one range is not below the smallest of another."""
    (first, end), (start, stop) = one, other
    high, is_in = (end, False) if end > first else (first, True)
    low, is_there = (start, True) if stop > start else (stop, False)
    return bool(high > low or (is_in and is_there and high == low))


def window_bounds(window: Window) -> tuple[Bound, Bound]:
    """Give the ends of an interval: rows from the first on, and before the second."""
    ends = (window.start_ms, window.end_ms)
    first, end = ((EPOCH + timedelta(milliseconds=ms)).isoformat() for ms in ends)
    return Bound("instant", first), Bound("instant", end)


def moment_of(text: str) -> datetime | date:
    """Read a date or a time of text.

    :raises ValueError: It is neither.
    """
    return (
        date.fromisoformat(text) if re.fullmatch(r"\d{4}-\d\d-\d\d", text) else datetime.fromisoformat(text)
    )
