"""Calls that are made again after failures that pass, with waits between the tries."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.core.retries import wait_seconds

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeating:
    """How often a call is made again, and what is waited by."""

    retries: int = 3
    """Further tries after failures that pass."""
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

        :param may_pass: Tells of an error whether the same call may succeed later.
        :param retry_after_of: Gives the header ``Retry-After`` of the answer that an error is about.
        :return: What the call gives.
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
