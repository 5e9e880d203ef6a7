"""JSON: one of the many texts that stand for a row."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
from typing import TYPE_CHECKING, Any

from tests.datasets import csv_files

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tests.datasets.kinds import Kind


def token(value: Any, kind: Kind, rng: random.Random) -> str:
    """Return a value as JSON."""
    if value is None:
        return "null"
    match kind.name:
        case "array":
            return "[" + _comma(rng).join(token(v, kind.parts[0], rng) for v in value) + "]"
        case "map":
            pairs = [(k, token(v, kind.parts[1], rng)) for k, v in value]
            return members(pairs, rng)
        case "struct":
            return members(present(value.items(), kind.parts, rng), rng)
        case "binary":
            return json.dumps(base64.b64encode(value).decode())
        case "decimal":
            return csv_files.plain(value, rng)
    if isinstance(value, dt.date | dt.datetime):
        return json.dumps(csv_files.written(value, kind, rng))
    return json.dumps(value, ensure_ascii=rng.random() < 0.3)


def present(pairs: Any, kinds: Sequence[Kind], rng: random.Random) -> list[tuple[str, str]]:
    """Return keys and tokens in any order; a NULL is left out by chance."""
    found = [
        (name, token(value, kind, rng))
        for (name, value), kind in zip(pairs, kinds, strict=True)
        if value is not None or rng.random() < 0.6
    ]
    if rng.random() < 0.3:
        rng.shuffle(found)
    return found


def members(pairs: Sequence[tuple[str, str]], rng: random.Random) -> str:
    """Return an object of tokens."""
    space = rng.choice(("", "", " "))
    return "{" + _comma(rng).join(f"{json.dumps(k, ensure_ascii=False)}:{space}{t}" for k, t in pairs) + "}"


def document(objects: Sequence[str], rng: random.Random) -> str:
    """Return the content of a ``multiLine`` file: one object, or an array of them on many lines."""
    if len(objects) == 1 and rng.random() < 0.5:
        return json.dumps(_Raw.load(objects[0]), indent=2) if "." not in objects[0] else objects[0]
    return "[\n" + ",\n".join(objects) + "\n]\n"


class _Raw:
    """Load an object with its numbers as they are written."""

    @staticmethod
    def load(text: str) -> Any:
        return json.loads(text, parse_float=decimal.Decimal)


def _comma(rng: random.Random) -> str:
    return rng.choice((",", ",", ", "))
