from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.client.server import Server, Waits, serving

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.fixture
def waits() -> Waits:
    return Waits()
