"""HTTP: where a token may be sent, and which requests are repeated.

A bearer token is sent to one origin (scheme, host and port) only. Some requests change something and must
not be carried out twice. If it is not known whether such a request was carried out, it is not repeated
here. The error is ``ServiceOutcomeUnknownError``, and the caller checks whether the request took effect.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import NewConnectionError

from airflow_provider_scope.exceptions import (
    InputError,
    ServiceOutcomeUnknownError,
    ServiceUnavailableError,
    mask,
)
from airflow_provider_scope.stores.calls import (
    Answer,
    Failure,
    Repeating,
    Tokens,
    answer_of,
    is_loopback,
    not_understood,
    without_secrets,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


BODY_LIMIT_BYTES = 64 * 1024 * 1024
"""Larger answers are refused: a page of 4,000 files has about 2 MB, a range of a file at most 4 MB."""

MESSAGE_TRIES = 25
"""Tries of a request that is refused with one of the texts of ``retry_on_error_messages``."""

_HOPS = 3
_CONNECTIONS = 16
_TRANSPORT_ERRORS = (
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,
    requests.exceptions.ContentDecodingError,
)

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class HttpClient:
    """Requests to one service; it may be used by several threads at once.

    :param base_url: ``https://<host>``, or ``http://`` to this machine itself; to any host without a secret.
    :param tokens: The bearer token, if one is sent. Without a secret a redirect may lead to another host, as
        those of plain WebHDFS do; they hold all that it needs.
    :param user: The caller's name at a plain service of Hadoop.
    :param auth: What signs the requests in place of a token.
    :param headers: Of each request.
    :param verify: A file of certificates that the service's has to be signed by; True is the usual ones.
    :param certificate: Files of the caller's own certificate and its key.
    :param timeout_seconds: For the connection, and for each wait for a part of the answer.
    :param repeating: How to try again after transport errors, 408, 429 and 5xx.
    :param retry_on_error_messages: Texts of refusals (4xx) that pass: a fragment, or ``re:`` and a
        regular expression.
    :raises InputError: A token may not be sent to the URL, or a pattern is not valid.
    """

    def __init__(
        self,
        base_url: str,
        tokens: Tokens | None,
        *,
        user: str | None = None,
        auth: requests.auth.AuthBase | None = None,
        headers: Mapping[str, str] | None = None,
        verify: str | bool = True,
        certificate: tuple[str, str] | None = None,
        timeout_seconds: float = 30.0,
        repeating: Repeating | None = None,
        retry_on_error_messages: Sequence[str] = (),
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.repeating = repeating or Repeating()
        self._identity = {"user.name": user} if user else {}
        self._origin = _checked_origin(self.base_url, has_secret=bool(tokens or auth))
        self._tokens = tokens
        self._auth = auth
        self._headers = dict(headers or {})
        self._verify = verify
        self._certificate = certificate
        self._timeout = timeout_seconds
        self._patterns = [_pattern(text) for text in retry_on_error_messages]
        self._session = _session(use_environment=self._origin[0] == "https")

    def __repr__(self) -> str:
        """Name the service; everything else may be secret."""
        return f"{type(self).__name__}({self.base_url!r})"

    def close(self) -> None:
        self._session.close()

    def request(
        self,
        method: str,
        target: str,
        *,
        doing: str,
        repeatable: bool = True,
        params: Mapping[str, str] | None = None,
        json: Any = None,
        data: bytes | None = None,
        in_two_steps: bool = False,
    ) -> Answer:
        """Send a request; the answer is a success, or a refusal (4xx) that no repetition would change.

        :param target: A path below ``base_url``, or a whole URL that the service gave.
        :param doing: The purpose of the request, as it follows "Could not" in an error.
        :param repeatable: Whether carrying the request out twice has the same effect as once.
        :param in_two_steps: Send the request without data first, and the data only to where the answer
            redirects.
        :raises ServiceUnavailableError: All tries ended without an answer, with 408, 429 or 5xx, or with a
            refusal that passes.
        :raises ServiceOutcomeUnknownError: The same, for a request that is not repeatable and that
            the service may have carried out.
        :raises ServiceProtocolError: The target or a redirect is not at this service.
        :raises ServiceAuthError: No token could be acquired.
        """
        sent = _Request(
            method=method,
            url=self._url(target, doing),
            doing=doing,
            params={**(params or {}), **self._identity},
            json=json,
            data=data,
            in_two_steps=in_two_steps,
        )

        def failure_of(err: BaseException) -> Failure:
            if not isinstance(err, _FailedError):
                return Failure()
            may_pass = repeatable or not err.may_have_arrived
            message = f"Could not {doing}: {err}"
            return Failure(message=message, retry_after=err.retry_after, may_pass=may_pass)

        for _ in replace(self.repeating, retries=MESSAGE_TRIES - 1).tries():
            try:
                answer = self.repeating.repeated(lambda: self._carry_out(sent), failure_of)
            except _FailedError as err:
                if not repeatable and err.may_have_arrived:
                    raise _outcome_unknown(doing, str(err)) from err
                raise _unavailable(doing, str(err), self.repeating.retries + 1) from err
            if not self._passes(answer):
                return answer
            _log.info("Could not %s yet: %s", doing, answer.described())
        raise _unavailable(doing, answer.described(), MESSAGE_TRIES)

    def once(self, attempt: Callable[[], _T], check: Callable[[ServiceOutcomeUnknownError], _T | None]) -> _T:
        """Do what must not be done twice: it is tried again only if a check shows that it was not done.

        :param attempt: Does it, by requests that are not repeatable.
        :param check: Looks for its effect when an answer got lost; None if there is none.
        :raises ServiceOutcomeUnknownError: The answers of all tries got lost, without an effect so far: the
            last request may still be on its way.
        """
        tries = self.repeating.tries()
        while True:
            is_last = next(tries)
            try:
                return attempt()
            except ServiceOutcomeUnknownError as err:
                effect = check(err)
                if effect is not None:
                    return effect
                if is_last:
                    raise

    def _carry_out(self, request: _Request) -> Answer:
        """Send a request once, or a second time with a new token.

        :raises _FailedError: There was no answer, or it was 408, 429 or 5xx.
        """
        token = self._tokens.get() if self._tokens else ""
        answer = self._follow(request, token)
        if answer.status == 401 and self._tokens:
            self._tokens.reject(token)
            answer = self._follow(request, self._tokens.get())
        if answer.status in (408, 429) or answer.status >= 500:
            may_have_arrived = answer.status != 429  # throttled: not carried out
            raise _FailedError(answer.described(), may_have_arrived, answer.headers.get("retry-after"))
        return answer

    def _follow(self, request: _Request, token: str) -> Answer:
        """Send a request once, and follow WebHDFS's redirects (307)."""
        doing = request.doing
        for hop in range(_HOPS):
            without_data = request.in_two_steps and hop == 0
            answer = self._send(replace(request, data=None) if without_data else request, token)
            if not 300 <= answer.status < 400:
                if without_data and answer.ok:
                    raise not_understood(doing, "the service did not ask for the data")
                return answer
            location = answer.headers.get("location", "")
            if answer.status != 307 or not location:
                raise not_understood(doing, f"the answer is a redirect ({answer.status})")
            url = self._redirected(urljoin(request.url, location), doing)
            request = replace(request, url=url, params={})
        raise not_understood(doing, f"there were more than {_HOPS} redirects")

    def _send(self, request: _Request, token: str) -> Answer:
        doing = request.doing
        try:
            with self._session.request(
                request.method,
                request.url,
                params=request.params,
                json=request.json,
                data=request.data,
                headers={**self._headers, **_content_type(request.data)},
                auth=self._auth or _Bearer(token),
                verify=self._verify,
                cert=self._certificate,
                timeout=self._timeout,
                allow_redirects=False,
                stream=True,
            ) as response:
                body = bytearray()
                for part in response.iter_content(65536):
                    body += part
                    if len(body) > BODY_LIMIT_BYTES:
                        raise not_understood(doing, f"the answer has more than {BODY_LIMIT_BYTES:,} bytes")
                return answer_of(response.status_code, response.headers, bytes(body), token)
        except requests.RequestException as err:
            problem = mask(f"{type(err).__name__}: {err}", token)
            if isinstance(err, _TRANSPORT_ERRORS):
                raise _FailedError(problem, _may_have_arrived(err)) from without_secrets(err)
            raise not_understood(doing, problem) from err

    def _passes(self, answer: Answer) -> bool:
        """Whether a refusal matches ``retry_on_error_messages``."""
        if not 400 <= answer.status < 500 or answer.status in (401, 429):
            return False
        text = f"{answer.code} {answer.message}"
        return any(pattern.search(text) for pattern in self._patterns)

    def _url(self, target: str, doing: str) -> str:
        if target.startswith("/") and not target.startswith("//"):
            return self.base_url + target
        if _origin(target) != self._origin:
            raise not_understood(doing, f"the service's answer leads to another host: {_shown(target)}")
        return target

    def _redirected(self, target: str, doing: str) -> str:
        """Check the target of a redirect: no token goes to another host, and nothing from https to http."""
        origin = _origin(target)
        if self._tokens or self._auth or origin is None or (self._origin[0], origin[0]) == ("https", "http"):
            return self._url(target, doing)
        return target


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    method: str
    url: str
    doing: str
    params: Mapping[str, str]
    json: Any
    data: bytes | None
    in_two_steps: bool


class _FailedError(Exception):
    """A request had no answer, or one that may be another the next time."""

    def __init__(self, problem: str, may_have_arrived: bool, retry_after: str | None = None) -> None:
        super().__init__(problem)
        self.may_have_arrived = may_have_arrived
        """Whether the service may have carried it out."""
        self.retry_after = retry_after


class _Bearer(requests.auth.AuthBase):
    """Sets the header of one request, if there is a token.

    Because of it, requests does not look for credentials in ``~/.netrc``.
    """

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class _NoCookies(requests.cookies.RequestsCookieJar):
    """Drops all cookies."""

    def set_cookie(self, *_: Any, **__: Any) -> None:
        """Do nothing."""


def _content_type(data: bytes | None) -> dict[str, str]:
    return {} if data is None else {"Content-Type": "application/octet-stream"}


def _session(*, use_environment: bool) -> requests.Session:
    session = requests.Session()
    # A proxy sees what goes through it in clear text; https is tunnelled, http to this machine is not.
    session.trust_env = use_environment
    session.cookies = _NoCookies()
    adapter = HTTPAdapter(pool_connections=1, pool_maxsize=_CONNECTIONS, max_retries=0)
    session.mount("https://", adapter)
    session.mount("http://", adapter)
    return session


def _checked_origin(base_url: str, *, has_secret: bool) -> tuple[str, str, int]:
    origin = _origin(base_url)
    parts = urlsplit(base_url) if origin else None
    if origin is None or parts is None or parts.query or parts.fragment:
        raise _bad_url(base_url, "https://<account host>")
    if has_secret and origin[0] == "http" and not is_loopback(origin[1]):
        raise _bad_url(base_url, "https, because a token must not leave this machine unencrypted")
    return origin


def _origin(url: str) -> tuple[str, str, int] | None:
    """Split into scheme, host and port; None if the URL is not a plain http or https URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or "\\" in url:
        return None
    return parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80)


def _shown(url: str) -> str:
    """Return the part of a foreign URL that holds no secret."""
    return mask(url.partition("?")[0].rpartition("@")[2][:200])


def _bad_url(url: str, expected: str) -> InputError:
    return InputError(
        f"The service's URL {_shown(url)!r} is not valid: expected {expected}.",
        kept="everything; nothing was sent",
        do="correct the host of the connection",
    )


def _pattern(text: str) -> re.Pattern[str]:
    if not text.startswith("re:"):
        return re.compile(re.escape(text), re.IGNORECASE)
    try:
        return re.compile(text[3:])
    except re.error as err:
        raise InputError(
            f"retry_on_error_messages has {text!r}, which is not a regular expression: {err}.",
            kept="everything; nothing was sent",
            do="correct the connection",
        ) from err


def _may_have_arrived(err: requests.RequestException) -> bool:
    """Whether the service may have received the request; True when in doubt."""
    if isinstance(err, requests.ConnectTimeout):
        return False
    reason = err.args[0] if err.args else None
    return not isinstance(getattr(reason, "reason", reason), NewConnectionError)


def _outcome_unknown(doing: str, problem: str) -> ServiceOutcomeUnknownError:
    return ServiceOutcomeUnknownError(
        f"It is not known whether the service could {doing}: {problem}.",
        kept="what was there before; the request may have been carried out",
        do="nothing: the next try first checks whether the request took effect",
    )


def _unavailable(doing: str, problem: str, tries: int) -> ServiceUnavailableError:
    return ServiceUnavailableError(
        f"Could not {doing} in {tries} tries: {problem}.",
        kept="everything that was there before",
        do="check the service and the network; the next try asks again",
    )
