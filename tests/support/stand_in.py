"""Replace a function of a standard module for one of our modules alone."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest


def stand_in(patch: pytest.MonkeyPatch, user: ModuleType, module: ModuleType, **functions: Any) -> None:
    """Let a module see other functions in a module that it imports, as ``time.sleep``.

    A patch of ``time.sleep`` itself reaches every thread of the process: one that sleeps in a loop would
    spin, and what the stand-in notes of it would grow until memory is full.
    """
    patch.setattr(user, module.__name__, SimpleNamespace(**vars(module) | functions))
