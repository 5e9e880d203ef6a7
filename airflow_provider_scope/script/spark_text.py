""".NET's date formats as Spark's."""

from __future__ import annotations

import re

_FORMATS = {
    **{token: token for token in ("yyyy", "yy", "MMMM", "MMM", "MM", "M", "dd", "d")},
    **{token: token for token in ("HH", "H", "hh", "h", "mm", "m", "ss", "s")},
    **{"f" * count: "S" * count for count in range(1, 7)},
    "dddd": "EEEE",
    "ddd": "E",
    "tt": "a",
}
"""A .NET token -> Spark's. Seven ``f`` are ticks, which Spark's microseconds cannot hold."""
_NET_LETTERS = "dfFgGhHKmMstyYz"
_SAFE = re.compile(r"[-/:. ,_0-9]+")
_RUN = re.compile(r"([A-Za-z])\1*|[^A-Za-z]+")


def date_format(net: str) -> str | None:
    """Give Spark's pattern for a .NET custom date format; None if there is none that means the same.

    A format of one character is one of .NET's standard formats, which depend on the culture.
    """
    if len(net) <= 1 or any(char in net for char in "'\"\\%"):
        return None
    parts = []
    for match in _RUN.finditer(net):
        run = match.group()
        if run in _FORMATS:
            parts.append(_FORMATS[run])
        elif run[0] in _NET_LETTERS:
            return None
        elif _SAFE.fullmatch(run):
            parts.append(run)
        else:
            parts.append(f"'{run}'")
    return "".join(parts)
