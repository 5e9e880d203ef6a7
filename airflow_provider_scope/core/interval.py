"""Times as text, and the part of time that one run of ``mode="data_interval"`` loads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOMENT = r"\d{8}T\d{9}Z"
_NAME = re.compile(rf"({_MOMENT})_({_MOMENT})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """Files modified at ``start_ms`` or later, and before ``end_ms``; milliseconds since the epoch."""

    start_ms: int
    end_ms: int

    def __contains__(self, modified_ms: int) -> bool:
        """Tell whether a file of this time is in it."""
        return self.start_ms <= modified_ms < self.end_ms

    @property
    def name(self) -> str:
        """Its name in the checkpoint: names sort as the windows do, and need no quoting in a URI."""
        return f"{_compact(self.start_ms)}_{_compact(self.end_ms)}"

    def overlaps(self, other: Window) -> bool:
        """Tell whether a file can be in both."""
        return self.start_ms < other.end_ms and other.start_ms < self.end_ms


def milliseconds(moment: datetime) -> int:
    """Give a time in milliseconds since the epoch, rounded down."""
    # Not by subtraction: Airflow's times are pendulum's, whose differences are not divided by a timedelta.
    return int(moment.replace(microsecond=0).timestamp()) * 1000 + moment.microsecond // 1000


def window_of(name: str) -> Window | None:
    """Give the window of a name; None for any other text."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    try:
        window = Window(*(milliseconds(_moment(text)) for text in match.groups()))
    except ValueError:
        return None
    return window if window.start_ms < window.end_ms else None


def window_of_log(location: str) -> Window | None:
    """Give the interval whose log is in a folder; None if it is the log of ``mode="incremental"``."""
    folder, _, name = location.rpartition("/")
    return window_of(name) if folder.endswith("/intervals") else None


def overlapping(window: Window, others: Iterable[Window]) -> Window | None:
    """Give the first other window that shares time with this one."""
    return next((other for other in sorted(others) if other != window and other.overlaps(window)), None)


def _compact(moment_ms: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=moment_ms)
    # strftime("%Y") gives years before 1000 fewer digits on some systems.
    return f"{moment.year:04}{moment:%m%dT%H%M%S}{moment.microsecond // 1000:03}Z"


def _moment(text: str) -> datetime:
    return datetime.strptime(f"{text[:-1]}000+0000", "%Y%m%dT%H%M%S%f%z")


def iso_time(milliseconds: int) -> str:
    """Give an ISO-8601 time with microseconds and offset, as dbt-scope writes it."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="microseconds")


def duration_text(milliseconds: int) -> str:
    """Give how long something takes, in its two largest units: ``3 d 4 h``."""
    seconds = max(0, milliseconds) // 1000
    units = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")]
    parts = [
        (seconds // size % limit, unit)
        for (size, unit), limit in zip(units, (10**9, 24, 60, 60), strict=True)
    ]
    first = next((i for i, (value, _) in enumerate(parts) if value), len(parts) - 1)
    return " ".join(f"{value:,} {unit}" for value, unit in parts[first : first + 2] if value) or "0 s"
