"""Tests against Azurite are run when they are asked for: ``-m azurite``, as ``make test-azurite`` does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "azurite" in config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker("azurite")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
