from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.triggers.gen1_files import AdlsGen1FilesTrigger

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

START = 2_000_000_000.0


class Time:
    """A clock that moves by waiting, and what happens at some of its times."""

    def __init__(self) -> None:
        self.now = START
        self.waits: list[float] = []
        self.then: list[Callable[[], Any]] = []
        """Done one after the other, each at the end of a wait."""

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
        self.waits.append(round(seconds, 3))
        self.now += seconds
        if self.then:
            self.then.pop(0)()


@pytest.fixture
def passing(monkeypatch) -> Time:
    """Let triggers wait without waiting."""
    time = Time()
    monkeypatch.setattr(AdlsGen1FilesTrigger, "_clock", staticmethod(time.clock))
    monkeypatch.setattr(AdlsGen1FilesTrigger, "_sleep", staticmethod(time.sleep))
    monkeypatch.setattr("airflow_provider_scope.triggers.gen1_files.random.random", lambda: 0.0)
    return time


def put(folder: Path, name: str, modified: int = 1_000_000_000, size: int = 10) -> Path:
    """Put a file of some bytes."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (modified, modified))
    return path
