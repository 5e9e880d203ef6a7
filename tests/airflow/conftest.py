"""Dag runs whose batches run in the tests' own Spark session, where no process of its own is to be tested."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import warm


@pytest.fixture
def warm_spark(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no ``spark-submit``: it costs each run of a test ten seconds, and few tests are about it."""
    warm.use_in_tasks(monkeypatch, spark)
