"""Fixtures for tests that need the emulator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.emulator import Emulator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def start_emulator(tmp_path: Path) -> Iterator[Callable[..., Emulator]]:
    """Start emulators with switches of one's own; all are stopped after the test.

    The account directory is ``tmp_path / "account"`` unless ``root`` names another one.
    """
    started: list[Emulator] = []

    def start(root: Path | None = None, **arguments: Any) -> Emulator:
        emulator = Emulator(root or tmp_path / "account", **arguments).start()
        started.append(emulator)
        return emulator

    yield start
    for emulator in started:
        emulator.stop()


@pytest.fixture
def emulator(start_emulator: Callable[..., Emulator]) -> Emulator:
    """Return an emulator with the default switches."""
    return start_emulator()
