"""Bounds of decimals that hold although statistics of files are rounded."""

from __future__ import annotations

import re
from decimal import Decimal, localcontext
from typing import Literal

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_ROUNDED = Decimal("1e-14")
"""More than the relative error of a decimal that was made a float of 64 bits."""


def loosened(kind: str, value: str, sign: Literal[-1, 1]) -> str:
    """Move a value so far that no file is left out by it that has rows beside it.

    delta-rs keeps the statistics of decimals as floats, so the range of a file may be off by a rounding.

    :param value: As Spark writes it as text.
    :param sign: -1 for a lower bound, 1 for an upper one.
    :return: The value itself, if its type has no such statistics.
    """
    decimal = _DECIMAL.fullmatch(kind)
    if decimal is None:
        return value
    digits, scale = int(decimal[1]), int(decimal[2])
    with localcontext(prec=2 * digits):
        number, step = Decimal(value), Decimal(1).scaleb(-scale)
        most = Decimal(10) ** (digits - scale) - step
        moved = number + sign * (abs(number) * _ROUNDED + step)
        return f"{min(max(moved, -most), most).quantize(step):f}"
