"""What the demo shows, apart from what Airflow and Spark print."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def take_screen(log: Path) -> TextIO:
    """Send all that this process prints from now on to a file; give the screen.

    Airflow, alembic and what they import print and warn in many ways; a descriptor catches them all.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    screen = os.fdopen(os.dup(1), "w", buffering=1, errors="replace")
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    return screen


def indented(text: str) -> str:
    """Return text, such as a task's messages, four columns to the right."""
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Return rows as columns; the first row is their heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)
