"""Calls to services: their answers and tokens, repeating them, and errors that hold no secret."""

from __future__ import annotations

import ipaddress
import json
import logging
import random
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from airflow_provider_scope.exceptions import (
    HIDDEN,
    ScopeProviderError,
    ServiceAuthError,
    ServiceError,
    ServiceProtocolError,
    ServiceRefusedError,
    SourceRefusedError,
    SourceUnreadableError,
    StorageError,
    mask,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

PASSING = (408, 429, 500, 502, 503, 504)
"""Statuses of answers after which the same call may succeed later."""
REFUSED = (401, 403)
"""Statuses of answers to an identity that is unknown, or not allowed to do this."""
LONGEST_WAIT_SECONDS = 30.0
LONGEST_RETRY_AFTER_SECONDS = 120.0
"""A service that asks for a longer wait is called again earlier: the tries run out, and the task fails."""


def wait_seconds(failures: int, *, jitter: float, retry_after: str | None, now: float) -> float:
    """Wait after the ``failures``-th failure in a row: about 1, 2, 4 … s, or what the service asks.

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
    except (ValueError, OverflowError):  # of a zone with too many digits
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.fromtimestamp(now, UTC)).total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a call of a client failed."""

    status: int | None = None
    """The HTTP status; None if there was no answer."""
    code: str = ""
    """The service's own code, such as ``BlobNotFound``; without an answer the name of the client's error."""
    message: str = ""
    request_id: str | None = None
    retry_after: str | None = None
    """The header ``Retry-After`` of the answer."""
    may_pass: bool = False
    """Whether the same call may succeed later."""
    is_refused: bool = False
    """Whether the identity is not known, or not allowed to do this."""

    def __str__(self) -> str:
        """Describe it for people, without secrets."""
        message = mask(self.message)[:1000].removesuffix(".")
        return _described(self.status, mask(self.code), message, self.request_id)


def _described(status: int | None, code: str, message: str, request_id: str | None) -> str:
    text = " ".join(str(part) for part in (status, code) if part)
    text = ": ".join(part for part in (text, message) if part)
    return f"{text} (request id {request_id})" if request_id else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeating:
    """How often a call is repeated, and the functions by which it waits."""

    retries: int = 3
    """Further tries after the first one."""
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.random
    clock: Callable[[], float] = time.time

    def repeated(self, call: Callable[[], _T], failure_of: Callable[[BaseException], Failure]) -> _T:
        """Make a call that may be carried out twice, until it succeeds or is refused.

        :raises Exception: The error of the last try, as the call raised it.
        """
        failures = 0
        while True:
            try:
                return call()
            except ScopeProviderError:
                raise
            except Exception as err:
                failures += 1
                failure = failure_of(err)
                if failures > self.retries or not failure.may_pass:
                    raise
                _log.info("A request failed: %s. Trying again.", failure)
                self.pause(failures, failure.retry_after)

    def tries(self) -> Iterator[bool]:
        """Yield for each try of an operation whether it is the last, and wait before all but the first."""
        for failures in range(self.retries + 1):
            if failures:
                self.pause(failures)
            yield failures == self.retries

    def pause(self, failures: int, retry_after: str | None = None) -> None:
        """Wait after the ``failures``-th failure in a row; see ``wait_seconds``."""
        self.sleep(wait_seconds(failures, jitter=self.jitter(), retry_after=retry_after, now=self.clock()))


class Calls(ABC):
    """Calls of a client library, repeated after failures that pass; its errors become ours.

    A kind of store says how the errors of its client are read, and what helps against them.
    """

    files_advice: ClassVar[str]
    """What to check if a control file cannot be read or written."""
    source_advice: ClassVar[str]
    """What to check if a source cannot be listed."""
    rights: ClassVar[str]
    """What an identity needs that may not list a source."""

    def __init__(self, repeating: Repeating | None = None) -> None:
        self._repeating = repeating or Repeating()

    @staticmethod
    @abstractmethod
    def failure_of(err: BaseException) -> Failure:
        """Read an error of the client."""

    def repeated(self, call: Callable[[], Any], *, none_if: Callable[[Failure], bool] | None = None) -> Any:
        """Make a call that may be carried out twice, until it succeeds or is refused.

        :param none_if: Which failures are answers: the result is None.
        """
        try:
            return self._repeating.repeated(call, self.failure_of)
        except Exception as err:
            if none_if and none_if(self.failure_of(err)):
                return None
            raise

    @contextmanager
    def failing(self, verb: str, path: str) -> Iterator[None]:
        """Raise the errors of the client as ``StorageError``: whatever it raises, it is not absence."""
        try:
            yield
        except ScopeProviderError:
            raise
        except Exception as err:  # noqa: BLE001 - as above
            raise self.failed(verb, path, self.failure_of(err)) from without_secrets(err)

    @contextmanager
    def listing(self, root: str) -> Iterator[None]:
        """Raise the errors of the client as ``SourceError``, for the same reason."""
        try:
            yield
        except ScopeProviderError:
            raise
        except Exception as err:  # noqa: BLE001 - as above
            failure = self.failure_of(err)
            if failure.is_refused:
                raise not_allowed(root, failure, self.rights) from without_secrets(err)
            raise self.unreadable(root, failure) from without_secrets(err)

    def failed(self, verb: str, path: str, why: Failure | str) -> StorageError:
        return failed(verb, path, why, self.files_advice)

    def unreadable(self, root: str, why: Failure | str) -> SourceUnreadableError:
        return unreadable(root, why, self.source_advice)


def failed(verb: str, path: str, why: object, advice: str) -> StorageError:
    return StorageError(
        f"Could not {verb} {path}: {why}.",
        kept="everything that was written before",
        do=f"{advice}. The next try reads the log and goes on",
    )


def unreadable(root: str, why: object, advice: str) -> SourceUnreadableError:
    return SourceUnreadableError(
        f"The source folder {root} could not be listed: {why}.",
        kept="the table and the checkpoint; nothing was written",
        do=f"{advice}. A part of the source is never skipped. The next try lists again",
    )


def not_allowed(root: str, why: object, rights: str) -> SourceRefusedError:
    return SourceRefusedError(
        f"The source folder {root} could not be listed: {why}.",
        kept="the table and the checkpoint; nothing was written",
        do=f"give the connection's identity {rights}",
    )


def without_secrets(err: BaseException) -> BaseException | None:
    """Return an error for ``raise … from``; None if its text, or that of a cause, holds a secret."""
    text = "".join(traceback.format_exception_only(err))
    cause = err.__cause__ or err.__context__
    while cause is not None:
        text += "".join(traceback.format_exception_only(cause))
        cause = cause.__cause__ or cause.__context__
    return None if mask(text).count(HIDDEN) > text.count(HIDDEN) else err


# ---- HTTP ------------------------------------------------------------------------------------------

TEXT_LIMIT = 2000
"""The most characters of an error's text."""

# Hadoop answers 403 to each kind of IOException, such as that of a namenode in standby, or of a quota.
_ABOUT_RIGHTS = ("AccessControl", "Authentication", "Authorization", "Forbidden", "Security")


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
        return 200 <= self.status < 300

    def json(self, doing: str) -> Any:
        """Parse the body's JSON value.

        :raises ServiceProtocolError: It is not JSON.
        """
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as err:
            raise not_understood(doing, f"the body is not JSON ({type(err).__name__})") from err

    def accepted(self, doing: str) -> Answer:
        """Return this answer if it is a success.

        :param doing: As for ``error``.
        :raises ServiceError: It is a refusal.
        """
        if not self.ok:
            raise self.error(doing)
        return self

    def described(self) -> str:
        """Describe the answer for people: status, code, text and request id."""
        return _described(self.status, self.code, self.message, self.headers.get("x-ms-request-id"))

    def error(self, doing: str) -> ServiceError:
        """Return the error for an answer that is a refusal.

        :param doing: The purpose of the request, as it follows "Could not".
        """
        is_other = self.code.endswith("Exception") and not self.code.startswith(_ABOUT_RIGHTS)
        if self.status == 401 or (self.status == 403 and not is_other):
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
    if 200 <= status < 300:
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
    ``{"RemoteException": {"exception", "message"}}``, ``{"msg"}`` (Livy), plain text and nothing at all.
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
    message = inner.get("message") or inner.get("Message") or inner.get("msg")
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
