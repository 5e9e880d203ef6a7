"""Text without the secrets in it, for errors and logs."""

from __future__ import annotations

import re

HIDDEN = "***"

_SECRETS = (
    re.compile(r"(?i)(\bbearer\s+)[^\s\"',;]+"),
    re.compile(r"(?i)(\bshared_?key(?:lite)?\s+[\w-]+:)[^\s\"',;]+"),
    re.compile(r"()\beyJ[\w-]+\.[\w-]+(?:\.[\w-]*)?"),  # a JSON web token, wherever it stands
    re.compile(r"(?i)((?<!\w)(?:sig|delegation)=)[^&\s\"']+"),
    re.compile(
        r"(?i)((?<![A-Za-z0-9])(?:token|client_secret|client_assertion|account_?key|"
        r"secret_?(?:access_?)?key|shared_?access_?(?:key|signature)|password)[\"']?\s*[=:]\s*[\"']?)"
        r"[^\s\"'&;,}]+"
    ),
    re.compile(r"()(?<![\w+/])[A-Za-z0-9+/]{86}=="),  # 64 bytes, the length of an account key
)


def mask(text: str, *secrets: str) -> str:
    """Hide tokens, keys and signatures, and the ``secrets`` themselves."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, HIDDEN)
    for pattern in _SECRETS:
        text = pattern.sub(rf"\g<1>{HIDDEN}", text)
    return text
