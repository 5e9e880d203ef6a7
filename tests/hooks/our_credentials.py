"""Credential classes as a company may have them."""

from __future__ import annotations

from typing import NamedTuple

SCOPES: list[str] = []
"""What tokens were asked for."""


class AccessToken(NamedTuple):
    token: str
    expires_on: int


class Good:
    def __init__(self, **kwargs: str) -> None:
        self.kwargs = kwargs

    def get_token(self, *scopes: str) -> AccessToken:
        SCOPES.extend(scopes)
        return AccessToken(f"token of {self.kwargs['name']}", 4_000_000_000)


class Telling:
    """Fails with its secret in the text."""

    def __init__(self, key: str) -> None:
        self.key = key

    def get_token(self, *_: str) -> AccessToken:
        message = f"could not log in with {self.key}"
        raise RuntimeError(message)
