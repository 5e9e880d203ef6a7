"""The ends of what a cursor reads, as users write them and as intervals have them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, CursorError
from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_scope.values import Window


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ISO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]00:?00)?")


class Bound(NamedTuple):
    """One end of the rows that are read, as the user wrote it, or the end of an interval."""

    kind: str
    """"number", "date", "timestamp", "timestamp_ntz", "text", or "instant" of an interval."""
    text: str
    side: str = ""
    """"open" of a first value that is not read, "closed" of an end that is; empty otherwise."""

    def encode(self) -> str:
        """Write it so that an older version refuses a bound with a side, as one of an unknown kind."""
        return f"{self.side} {self.kind}:{self.text}".lstrip()

    @classmethod
    def decode(cls, text: str) -> Bound:
        """Read what ``encode`` wrote."""
        head, _, value = text.partition(":")
        side, _, kind = head.rpartition(" ")
        return cls(kind, value, side)

    def milliseconds(self) -> int | None:
        """Convert it to an instant that can be compared with an interval; None if it is none.

        Numbers are unix seconds, and what has no zone is UTC: as an interval's ends become such values. A
        date is the last millisecond of its day: an interval that ends within a day does not take it.
        """
        if self.kind == "number":
            number = _number(self)
            return None if number is None else int(number * 1000)
        moment = _instant(self)
        if moment is not None and self.kind == "date":
            moment += timedelta(days=1, milliseconds=-1)
        return None if moment is None else (moment - EPOCH) // timedelta(milliseconds=1)

    def beyond(self, other: Bound, func: str) -> bool:
        """Whether it comes after another bound of its kind; never for text, whose type is not known."""
        if self.kind == "number":
            value, limit = Decimal(self.text), Decimal(other.text)
        elif self.kind == "text":
            return False
        else:
            value, limit = (moment_of(bound.text) for bound in (self, other))  # type: ignore[assignment]
        return value > limit if func == "max" else value < limit


BELOW, ABOVE = Bound("far", "-1"), Bound("far", "1")
"""What stands for the end of a range that has none, before and after all values."""


def overlap(
    first_range: tuple[Bound, Bound], second_range: tuple[Bound, Bound], *, is_text: bool | None = None
) -> bool | None:
    """Return whether two ranges have values in common; None if their ends cannot be compared.

    Each range is its first value and its end, which is not in it unless its side says so. It goes down if
    the end is smaller.

    :param is_text: Whether the column holds text; None if it is not known. Then ends that can all be read as
        numbers, or all as times, are compared as such.
    """
    ends = (*first_range, *second_range)
    readers = {None: (_number, _instant, _text), True: (_text,), False: (_number, _instant)}[is_text]
    for reader in readers:
        values = [(int(bound.text), None) if bound.kind == "far" else (0, reader(bound)) for bound in ends]
        if (0, None) not in values:
            lower_ends, upper_ends = zip(
                _sorted(first_range, values[:2]), _sorted(second_range, values[2:]), strict=True
            )
            # Of equal ends, one that is not in its range leaves least.
            start, has_start = max(lower_ends, key=lambda end: (end[0], not end[1]))
            end, has_end = min(upper_ends)
            return bool(start < end or (start == end and has_start and has_end))
    return None


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


def _sorted(ends: tuple[Bound, Bound], values: Sequence[Any]) -> list[tuple[Any, bool]]:
    """Return the smaller and the larger end of a range, each with whether it is in the range."""
    first, end = ((values[0], ends[0].side != "open"), (values[1], ends[1].side == "closed"))
    return [end, first] if end[0] < first[0] else [first, end]


def window_bounds(window: Window, kind: str = "instant") -> tuple[Bound, Bound]:
    """Return the ends of an interval: rows from the first on, and before the second.

    :param kind: "number" or "date" for the numbers or dates that they become; else they are instants.
    """
    ends = (window.start_ms, window.end_ms)
    if kind == "number":
        first, end = (str(Decimal(ms) / 1000) for ms in ends)
        return Bound(kind, first), Bound(kind, end)
    moments = [EPOCH + timedelta(milliseconds=ms) for ms in ends]
    if kind == "date":
        first, end = (moment.date().isoformat() for moment in moments)
        return Bound(kind, first), Bound(kind, end)
    first, end = (moment.isoformat() for moment in moments)
    return Bound("instant", first), Bound("instant", end)


def moment_of(text: str) -> datetime | date:
    """Read a date or a time of text.

    :raises ValueError: It is neither.
    """
    return (
        date.fromisoformat(text) if re.fullmatch(r"\d{4}-\d\d-\d\d", text) else datetime.fromisoformat(text)
    )


def check_times(column: str, largest: str | None) -> None:
    """Refuse a column of text that does not hold times as an interval's ends are written.

    :param largest: The largest value in the source, by code point; None if there is none.
    :raises CursorError: It is no such time: the order of the texts is not the one of their times.
    """
    if largest is None or _ISO_TIME.fullmatch(largest.rstrip(" ")):
        return
    name = column if "." in column else quoted(column)
    select = f"SELECT *, CAST({name} AS timestamp) AS scope_time FROM @data"  # noqa: S608 - it is shown
    raise CursorError(
        f"The column {column!r} is text, and its largest value is {largest[:60]!r}. The rows of an interval "
        "are found only by UTC text such as '2026-01-31T05:00:00' or '2026-01-31T05:00:00Z'.",
        kept=NO_ROW_WRITTEN,
        do=f"make times of it: pre_filter_sql={select!r}, with column='scope_time' (what has no zone is UTC "
        "then). The batch that is open keeps its column: abandon it with `airflow scope abandon`",
    )
