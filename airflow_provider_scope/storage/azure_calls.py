"""Calls of Azure's storage SDK: repeated where that helps, and their errors as text without secrets.

The SDK's own retries are switched off. If a write takes effect and its answer is lost, they repeat it and
report that it was refused. They do not repeat 429, and begin with a wait of 15 s.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.core.masking import HIDDEN, mask
from airflow_provider_scope.storage.repeating import Repeating

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

_PASSING = (408, 429, 500, 502, 503, 504)
_REFUSED = (401, 403)

# "ResourceNotFound" is not one of them: it is also the answer to who may not look without a key.
_MISSING = ("BlobNotFound", "ContainerNotFound")
_EXISTING = ("BlobAlreadyExists", "ConditionNotMet", "TargetConditionNotMet")


class AzureCalls:
    """Runs the SDK's coroutines on the loop of an adlfs filesystem.

    :param repeating: How to try again after transport errors, 429 and 5xx.
    :param timeout_seconds: For the connection, and for each wait for a part of the answer.
    """

    def __init__(self, fs: Any, repeating: Repeating | None = None, *, timeout_seconds: float = 60.0) -> None:
        self._repeating = repeating or Repeating()
        self.options = {
            "retry_total": 0,
            "connection_timeout": timeout_seconds,
            "read_timeout": timeout_seconds,
        }
        """Arguments of every call of the SDK."""
        self._fs = fs
        # At INFO it writes 25 lines for each request into the task's log.
        logging.getLogger("azure.core.pipeline.policies.http_logging_policy").setLevel(logging.WARNING)

    def repeated(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Make a call that may be carried out twice, until it succeeds or is refused."""
        return self._repeating.repeated(
            lambda: asyncio.run_coroutine_threadsafe(call(), self._fs.loop).result(),
            may_pass=may_pass,
            retry_after_of=lambda err: _headers(err).get("Retry-After"),
        )


def status_of(err: BaseException) -> int | None:
    """Give the HTTP status of an error; None if there was no answer."""
    status = getattr(err, "status_code", None)
    return status if isinstance(status, int) else None


def code_of(err: BaseException) -> str:
    """Give the service's code of an error, such as ``BlobNotFound``."""
    code = getattr(err, "error_code", None)
    return str(getattr(code, "value", code) or "")


def may_pass(err: BaseException) -> bool:
    """Tell whether the same call may succeed later: no answer, or one that asks to come back."""
    return status_of(err) is None or status_of(err) in _PASSING


def is_missing(err: BaseException) -> bool:
    """Tell whether the service says that there is nothing; no other 404 says so."""
    return status_of(err) == 404 and code_of(err) in _MISSING  # noqa: PLR2004


def is_existing(err: BaseException) -> bool:
    """Tell whether a creation was refused because the name is taken."""
    return status_of(err) in (409, 412) and code_of(err) in _EXISTING


def is_refused(err: BaseException) -> bool:
    """Tell whether the identity is not known, or not allowed to do this."""
    return status_of(err) in _REFUSED


def described(err: BaseException) -> str:
    """Give status, code, text and request id of an error, for people."""
    first = next(iter(str(err).strip().splitlines()), "")
    text = " ".join(str(part) for part in (status_of(err), code_of(err)) if part)
    text = text or type(err).__name__
    text = mask(f"{text}: {first}" if first else text)[:1000]
    request_id = _headers(err).get("x-ms-request-id")
    return f"{text} (request id {request_id})" if request_id else text


def without_secrets(err: BaseException) -> BaseException | None:
    """Give an error as the cause of another one; None if its text holds a secret."""
    text = "".join(traceback.format_exception_only(err))
    cause = err.__cause__ or err.__context__
    while cause is not None:
        text += "".join(traceback.format_exception_only(cause))
        cause = cause.__cause__ or cause.__context__
    return None if mask(text).count(HIDDEN) > text.count(HIDDEN) else err


def _headers(err: BaseException) -> Mapping[str, str]:
    headers: Mapping[str, str] | None = getattr(getattr(err, "response", None), "headers", None)
    return {} if headers is None else headers
