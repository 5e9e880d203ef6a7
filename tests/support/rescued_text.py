"""The text that a rescued value has."""

from __future__ import annotations

import json
from typing import Any


class Number(str):
    """A number, as it stands in the file."""

    __slots__ = ()


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else compact(value)


def compact(value: Any) -> str:
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key, ensure_ascii=False)}:{compact(item)}" for key, item in value.items())
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(compact, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
