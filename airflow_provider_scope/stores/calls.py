"""Repeating calls to stores after failures that pass, and keeping secrets out of their errors."""

from __future__ import annotations

import random
import time
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.exceptions import HIDDEN, mask

if TYPE_CHECKING:
    from collections.abc import Callable


PASSING = (408, 429, 500, 502, 503, 504)
"""Statuses of answers after which the same call may succeed later."""
REFUSED = (401, 403)
"""Statuses of answers to an identity that is unknown, or not allowed to do this."""
LONGEST_WAIT_SECONDS = 30.0
LONGEST_RETRY_AFTER_SECONDS = 120.0
"""A service that asks for a longer wait is called again earlier: the tries run out, and the task fails."""


def wait_seconds(failures: int, *, jitter: float, retry_after: str | None, now: float) -> float:
    """Give the wait after the ``failures``-th failure in a row: about 1, 2, 4 … s, or what the service asks.

    :param jitter: A random number from 0 to 1.
    :param retry_after: The header ``Retry-After`` of the answer: seconds or a date. One that cannot
        be parsed is ignored.
    :param now: Wall clock, seconds since the epoch.
    """
    requested = _parse_retry_after((retry_after or "").strip(), now)
    if requested is not None:
        return min(requested, LONGEST_RETRY_AFTER_SECONDS)
    # Half of it is random: clients that failed together must not come back together.
    return min(2.0 ** (failures - 1), LONGEST_WAIT_SECONDS) * (0.5 + 0.5 * jitter)


def _parse_retry_after(retry_after: str, now: float) -> float | None:
    if retry_after.isdecimal():
        return float(retry_after)
    try:
        date = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.fromtimestamp(now, UTC)).total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeating:
    """How often a call is repeated, and the functions by which it waits."""

    retries: int = 3
    """Further tries after the first one."""
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.random
    clock: Callable[[], float] = time.time

    def repeated(
        self,
        call: Callable[[], Any],
        *,
        may_pass: Callable[[BaseException], bool],
        retry_after_of: Callable[[BaseException], str | None],
    ) -> Any:
        """Make a call that may be carried out twice, until it succeeds or is refused.

        :param may_pass: Tells for an error whether the same call may succeed later.
        :param retry_after_of: Returns the header ``Retry-After`` of the answer that an error reports.
        :return: The result of the call.
        :raises Exception: The error of the last try, as the call raised it.
        """
        failures = 0
        while True:
            try:
                return call()
            except Exception as err:
                failures += 1
                if failures > self.retries or not may_pass(err):
                    raise
                wait = wait_seconds(
                    failures, jitter=self.jitter(), retry_after=retry_after_of(err), now=self.clock()
                )
                self.sleep(wait)


def without_secrets(err: BaseException) -> BaseException | None:
    """Give an error for ``raise … from``; None if its text, or that of a cause, holds a secret."""
    text = "".join(traceback.format_exception_only(err))
    cause = err.__cause__ or err.__context__
    while cause is not None:
        text += "".join(traceback.format_exception_only(cause))
        cause = cause.__cause__ or cause.__context__
    return None if mask(text).count(HIDDEN) > text.count(HIDDEN) else err
