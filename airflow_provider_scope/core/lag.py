"""How far a table is behind a change feed, and how long the source keeps what is not loaded yet.

Delta forgets changes in two ways. A commit file of the log may be deleted when it is older than
``delta.logRetentionDuration``, and VACUUM deletes files of changes that are older than
``delta.deletedFileRetentionDuration``. Either makes a load impossible. People are warned when the oldest
commit that is not loaded has spent half of the shorter time: a load that runs regularly and still comes so
far fails soon, and half of the time is left to do something about it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_scope.core.audit import duration_text, iso_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_scope.core.changes import SourceCommit

LOG, FILES = "delta.logRetentionDuration", "delta.deletedFileRetentionDuration"
DEFAULTS = {LOG: "interval 30 days", FILES: "interval 7 days"}
"""Delta's own, for a table that does not set the property."""
WARNED_FROM = 2
"""A warning comes from one part in so many of the time on."""
_GOES = {LOG: "the source's log may lose the commit", FILES: "VACUUM may delete the files of its changes"}
"""What happens to a commit of that age."""
_UNIT_MS = {
    "week": 7 * 86_400_000.0,
    "day": 86_400_000.0,
    "hour": 3_600_000.0,
    "minute": 60_000.0,
    "second": 1_000.0,
    "millisecond": 1.0,
    "microsecond": 0.001,
}
_MOST_MS = 2**31 * 86_400_000
"""More days are no interval."""
_NUMBER = r"[0-9]+|(?:[0-9]+\.[0-9]{0,9}|\.[0-9]{1,9})(?=\s+second)"
_PART = re.compile(rf"\s*([+-]?)\s*({_NUMBER})\s+({'|'.join(_UNIT_MS)})s?(?=\s|$)")


def interval_ms(text: str) -> int | None:
    """Read an interval as Delta spells it, such as ``interval 1 week 12 hours``; "interval" may be missing.

    :return: Milliseconds; None if it is none that Delta takes, such as one of months, or below 0.
    """
    rest = text.strip().lower().removeprefix("interval ").strip()
    total, at = 0.0, 0
    while at < len(rest):
        part = _PART.match(rest, at)
        if part is None:
            return None
        total += float(f"{part[1]}{part[2]}") * _UNIT_MS[part[3]]
        at = part.end()
    return int(total) if rest and 0 <= total < _MOST_MS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """Versions of a source that are not loaded."""

    commits: int
    size_bytes: int
    """Bytes of the files with their changes."""
    version: int
    """The oldest one."""
    oldest_ms: int | None
    """When it was committed, or a later one if it does not say; None if none of them does."""

    def text(self, table: str) -> str:
        """Name them: ``12 commits of <table>, 3,456 bytes, the oldest of <time>``."""
        count = "1 commit" if self.commits == 1 else f"{self.commits:,} commits"
        since = "" if self.oldest_ms is None else f", the oldest of {iso_time(self.oldest_ms)[:19]}Z"
        return f"{count} of {table}, {self.size_bytes:,} bytes{since}"


def lag_of(commits: Sequence[SourceCommit]) -> Lag | None:
    """Give the lag of a table to which some versions, oldest first, are new; None if there are none."""
    if not commits:
        return None
    return Lag(
        commits=len(commits),
        size_bytes=sum(commit.size_bytes for commit in commits),
        version=commits[0].version,
        oldest_ms=next((commit.time_ms for commit in commits if commit.time_ms is not None), None),
    )


def warning(
    table: str, lag: Lag | None, kept: Mapping[str, str], now_ms: int, *, is_read: bool = False
) -> str:
    """Warn of versions that the source keeps not much longer, or perhaps no more; empty if there is no need.

    :param table: The source, for people.
    :param kept: The properties ``LOG`` and ``FILES`` as the source has them; those that it lacks have
        Delta's default.
    :param now_ms: The time, milliseconds since the epoch.
    :param is_read: Whether a run is about to load them.
    """
    if lag is None:
        return ""
    spelled = {name: kept.get(name, default) for name, default in DEFAULTS.items()}
    read = {name: interval_ms(text) for name, text in spelled.items()}
    told = [
        (
            f"{name} of {table} is {spelled[name]!r}, which is not an interval: it is not known how long "
            "changes are kept"
        )
        for name, found in read.items()
        if found is None
    ]
    known = [(found, name) for name, found in read.items() if found is not None]
    if known and lag.oldest_ms is not None:
        # Of two that are equal, the files': VACUUM comes at any time, and the log is cleaned by whole days.
        horizon, name = min(known, key=lambda one: (one[0], one[1] == LOG))
        age = max(0, now_ms - lag.oldest_ms)
        what = f"version {lag.version} of {table} is {duration_text(age)} old and "
        what += "loaded only now" if is_read else "not loaded"
        told.append(_near(what, age, horizon, name))
    return "; ".join(filter(None, told))


def _near(what: str, age_ms: int, horizon_ms: int, name: str) -> str:
    """Say what comes of an age; empty if there is time enough."""
    if age_ms * WARNED_FROM <= horizon_ms:
        return ""
    limit = duration_text(horizon_ms)
    lost = "changes that are not loaded by then can only be loaded by starting over"
    do = "What to do: run the load more often, or set a longer time on the source table"
    if age_ms > horizon_ms:
        return f"{what}, which is beyond {name} ({limit}): {_GOES[name]} at any time, and {lost}. {do}"
    return f"{what}. At {limit} ({name}) {_GOES[name]}, and {lost}. {do}"
