"""Calls of botocore's S3 client: repeated where that helps, and their errors as text without secrets.

botocore's own retries are switched off (``CONFIG``): they do not tell how long a service asks to wait, and
they give up at 409 ``ConditionalRequestConflict``, which only says that two writers met.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.core.masking import mask
from airflow_provider_scope.exceptions import ScopeProviderError
from airflow_provider_scope.storage.repeating import Repeating

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CONFIG: dict[str, Any] = {
    "retries": {"total_max_attempts": 1, "mode": "standard"},
    # Stores that only resemble S3 refuse the checksums that AWS takes; the signature covers the data.
    "request_checksum_calculation": "when_required",
    "response_checksum_validation": "when_required",
}
"""Settings of every client that is given to ``S3Calls``."""

_PASSING = (408, 429, 500, 502, 503, 504)
_PASSING_CODES = ("ConditionalRequestConflict", "OperationAborted", "RequestTimeout", "SlowDown")
_REFUSED = (401, 403)
# By their names: this module is there without botocore, too.
_NO_IDENTITY = ("NoCredentialsError", "PartialCredentialsError")


class S3Calls:
    """Makes calls of a client.

    :param repeating: How to try again after transport errors, 409 that pass, 429 and 5xx.
    """

    def __init__(self, repeating: Repeating | None = None) -> None:
        self._repeating = repeating or Repeating()
        # At DEBUG it writes the headers of each request, and with them the token of a session.
        logging.getLogger("botocore").setLevel(logging.INFO)

    def repeated(self, call: Callable[..., Any], **arguments: Any) -> Any:
        """Make a call that may be carried out twice, until it succeeds or is refused."""
        return self._repeating.repeated(
            partial(call, **arguments),
            may_pass=may_pass,
            retry_after_of=lambda err: _headers(err).get("retry-after"),
        )


def status_of(err: BaseException) -> int | None:
    """Give the HTTP status of an error; None if there was no answer."""
    status = _metadata(err).get("HTTPStatusCode")
    return status if isinstance(status, int) else None


def code_of(err: BaseException) -> str:
    """Give the service's code of an error, such as ``NoSuchKey``; a number if it told none."""
    return str(_error(err).get("Code", ""))


def may_pass(err: BaseException) -> bool:
    """Tell whether the same call may succeed later: no answer, or one that asks to come back."""
    if isinstance(err, ScopeProviderError) or type(err).__name__ in _NO_IDENTITY:
        return False
    return status_of(err) in (None, *_PASSING) or code_of(err) in _PASSING_CODES


def is_missing(err: BaseException) -> bool:
    """Tell whether the service says that there is no such object; no other 404 says so, nor a bucket's."""
    return status_of(err) == 404 and code_of(err) == "NoSuchKey"  # noqa: PLR2004


def is_existing(err: BaseException) -> bool:
    """Tell whether a creation was refused because the name is taken; a conflict (409) does not say so."""
    return status_of(err) == 412 and code_of(err) == "PreconditionFailed"  # noqa: PLR2004


def is_not_implemented(err: BaseException) -> bool:
    """Tell whether the service does not know what was asked for, such as a header."""
    return status_of(err) == 501 or code_of(err) == "NotImplemented"  # noqa: PLR2004


def is_refused(err: BaseException) -> bool:
    """Tell whether the identity is not known, or not allowed to do this."""
    return status_of(err) in _REFUSED or type(err).__name__ in _NO_IDENTITY


def described(err: BaseException) -> str:
    """Give status, code, text and request id of an error, for people."""
    first = next(iter(str(err).strip().splitlines()), "")
    if status_of(err):
        first = str(_error(err).get("Message", ""))
    status = status_of(err)
    parts = (status, code_of(err) if code_of(err) != str(status) else "")
    text = " ".join(str(part) for part in parts if part) or type(err).__name__
    text = mask(f"{text}: {first}" if first else text)[:1000].removesuffix(".")
    request_id = _metadata(err).get("RequestId")
    return f"{text} (request id {request_id})" if request_id else text


def _metadata(err: BaseException) -> Mapping[str, Any]:
    return _response(err).get("ResponseMetadata") or {}


def _error(err: BaseException) -> Mapping[str, Any]:
    return _response(err).get("Error") or {}


def _response(err: BaseException) -> Mapping[str, Any]:
    """Give the answer that botocore's ``ClientError`` is about."""
    response = getattr(err, "response", None)
    return response if isinstance(response, dict) else {}


def _headers(err: BaseException) -> Mapping[str, str]:
    return _metadata(err).get("HTTPHeaders") or {}
