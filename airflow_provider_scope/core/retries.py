"""How long to wait before a request is sent again, for every service."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST_WAIT_SECONDS = 30.0
LONGEST_RETRY_AFTER_SECONDS = 120.0
"""A service that asks for more is asked again earlier; the tries are used up then, and the task fails."""


def wait_seconds(failures: int, *, jitter: float, retry_after: str | None, now: float) -> float:
    """Give the wait after the ``failures``-th failure in a row: about 1, 2, 4 … s, or what the service asks.

    :param jitter: A random number from 0 to 1.
    :param retry_after: The header ``Retry-After`` of the answer: seconds or a date; one that cannot
        be read counts as none.
    :param now: Wall clock, seconds since the epoch.
    """
    asked_for = _asked_for((retry_after or "").strip(), now)
    if asked_for is not None:
        return min(asked_for, LONGEST_RETRY_AFTER_SECONDS)
    # Half of it is random: clients that failed together must not come back together.
    return min(2.0 ** (failures - 1), LONGEST_WAIT_SECONDS) * (0.5 + 0.5 * jitter)


def _asked_for(retry_after: str, now: float) -> float | None:
    if retry_after.isdecimal():
        return float(retry_after)
    try:
        date = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.fromtimestamp(now, UTC)).total_seconds())
