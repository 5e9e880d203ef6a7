"""Bearer tokens: kept until shortly before they expire, acquired by one thread at a time."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

REFRESH_BEFORE_SECONDS = 300
"""A token is replaced this long before it expires: a request may take a while to arrive."""


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token."""

    value: str = field(repr=False)
    expires_at: float
    """Seconds since the epoch."""


class Tokens:
    """The token of one identity.

    :param acquire: Gets a new token; it is called with the lock held, so at most once at a time.
    :param clock: Wall clock, seconds since the epoch.
    """

    def __init__(self, acquire: Callable[[], Token], *, clock: Callable[[], float] = time.time) -> None:
        self._acquire = acquire
        self._clock = clock
        self._lock = threading.Lock()
        self._token: Token | None = None

    def get(self) -> str:
        """Give a token that is valid for some time to come.

        :raises ServiceAuthError: None could be acquired.
        """
        with self._lock:
            if self._token is None or self._token.expires_at - self._clock() < REFRESH_BEFORE_SECONDS:
                self._token = self._acquire()
            return self._token.value

    def reject(self, value: str) -> None:
        """Forget a token that the service refused; one that came since is kept."""
        with self._lock:
            if self._token is not None and self._token.value == value:
                self._token = None
