"""Whether a request may come in."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider_scope.emulator.web import Request

_AUDIENCE = "https://datalake.azure.net"


def refusal(request: Request, mode: str, now: float) -> str:
    """Give why a request is refused; empty if it is not.

    :param mode: ``off``, ``any`` or ``strict``, as ``Switches.auth`` describes them.
    :param now: Seconds since the epoch.
    """
    if mode == "off":
        return ""
    header = request.headers.get("authorization")
    if header is None:
        return "The request has no bearer token." if mode == "strict" else ""
    kind, _, token = header.strip().partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        return "The Authorization header holds no bearer token."
    if mode == "any":
        return ""
    claims = _claims(token.strip())
    if claims is None:
        return ""
    if isinstance(claims.get("exp"), int | float) and claims["exp"] <= now:
        return "The access token is expired."
    audience = claims.get("aud")
    if isinstance(audience, str) and audience.rstrip("/") != _AUDIENCE:
        return "The access token is for another service."
    return ""


def _claims(token: str) -> dict[str, Any] | None:
    """Read the claims of a JWT, unchecked; None for a token of any other form."""
    pieces = token.split(".")
    try:
        _, payload, _ = pieces
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except ValueError:
        return None
    return claims if isinstance(claims, dict) else None
