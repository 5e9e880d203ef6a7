from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.client.server import Server, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.fixture(autouse=True)
def no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without the tokens of other tests."""
    from airflow_provider_scope.hooks import credentials

    monkeypatch.setattr(credentials, "_tokens", {})


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Make a connection as Airflow reads it from the environment, and give its id."""

    def make(conn_type: str = "adla_scope", **fields: Any) -> str:
        value = {"conn_type": conn_type, **fields}
        monkeypatch.setenv("AIRFLOW_CONN_TRIED", json.dumps(value))
        return "tried"

    return make
