"""Values of the HTTP clients: tokens, answers, and errors whose text holds no secret."""

from __future__ import annotations

import ipaddress
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_scope.exceptions import (
    ServiceAuthError,
    ServiceError,
    ServiceProtocolError,
    ServiceRefusedError,
    mask,
)

TEXT_LIMIT = 2000
"""The most characters of an error's text."""

# Refusals with status 403 that are not about rights.
_NOT_ABOUT_RIGHTS = ("FileAlreadyExistsException", "IOException")


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer, with the error that its body describes."""

    status: int
    body: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Names in lower case."""
    code: str = ""
    """The error's code: ``JobNotFound``, ``FileNotFoundException``; empty where there is none."""
    message: str = ""
    """The error's text, masked; empty if the body is empty."""

    @property
    def ok(self) -> bool:
        """Whether the request was carried out."""
        return 200 <= self.status < 300  # noqa: PLR2004 - the class of successes

    def json(self, doing: str) -> Any:
        """Parse the body's JSON value.

        :raises ServiceProtocolError: It is not JSON.
        """
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as err:
            raise not_understood(doing, f"the body is not JSON ({type(err).__name__})") from err

    def described(self) -> str:
        """Describe the answer for people: status, code, text and request id."""
        parts = [str(self.status), self.code]
        text = " ".join(part for part in parts if part)
        text = f"{text}: {self.message}" if self.message else text
        request_id = self.headers.get("x-ms-request-id")
        return f"{text} (request id {request_id})" if request_id else text

    def error(self, doing: str) -> ServiceError:
        """Return the error for an answer that is a refusal.

        :param doing: The purpose of the request, as it follows "Could not".
        """
        about_rights = self.status == 401 or (  # noqa: PLR2004
            self.status == 403 and self.code not in _NOT_ABOUT_RIGHTS  # noqa: PLR2004
        )
        if about_rights:
            return ServiceAuthError(
                f"Could not {doing}: {self.described()}.",
                kept="nothing was changed by this request",
                do="give the connection's identity the rights on the account, or correct its credentials",
            )
        return ServiceRefusedError(
            f"Could not {doing}: {self.described()}.",
            kept="nothing was changed by this request",
            do="correct what the service's message names",
        )


def answer_of(status: int, headers: Mapping[str, str], body: bytes, token: str = "") -> Answer:
    """Make an answer; the text of an error is masked, ``token`` included."""
    lower_headers = {name.lower(): value for name, value in headers.items()}
    if 200 <= status < 300:  # noqa: PLR2004
        return Answer(status, body, lower_headers)
    code, message = _error_text(body)
    return Answer(status, body, lower_headers, mask(code, token)[:200], mask(message, token)[:TEXT_LIMIT])


def not_understood(doing: str, problem: str) -> ServiceProtocolError:
    return ServiceProtocolError(
        f"Could not {doing}: {problem}.",
        kept="everything that was there before",
        do="check that the connection's host is the service itself, and that no proxy answers for it",
    )


def _error_text(body: bytes) -> tuple[str, str]:
    """Find code and text in the error bodies that were recorded.

    They are ``{"error": {"code", "message"}}``, ``{"Message"}`` with a capital (a full queue),
    ``{"RemoteException": {"exception", "message"}}``, plain text and nothing at all.
    """
    text = body.decode(errors="replace").strip()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return "", text
    if not isinstance(value, Mapping):
        return "", text
    inner = value.get("error") or value.get("RemoteException") or value
    if isinstance(inner, str):  # OAuth's shape: {"error": code, "error_description": text}
        return inner, str(value.get("error_description") or text)
    if not isinstance(inner, Mapping):
        return "", text
    code = inner.get("code") or inner.get("exception") or ""
    message = inner.get("message") or inner.get("Message")
    return str(code), str(message) if message else text


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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
        """Return a token that is valid for some time to come.

        :raises ServiceAuthError: None could be acquired.
        """
        with self._lock:
            if self._token is None or self._token.expires_at - self._clock() < REFRESH_BEFORE_SECONDS:
                self._token = self._acquire()
            return self._token.value

    def reject(self, value: str) -> None:
        """Forget a token that the service refused; keep one that was acquired since."""
        with self._lock:
            if self._token is not None and self._token.value == value:
                self._token = None
