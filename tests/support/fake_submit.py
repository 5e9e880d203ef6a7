"""A ``spark-submit`` of a test's own, and what comes of running it."""

from __future__ import annotations

import os
import select
import sys
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.engines.spark import SubmitEngine
from airflow_provider_scope.engines.submit import SubmitHook
from airflow_provider_scope.exceptions import ScopeProviderError
from airflow_provider_scope.protocol.engine import Work
from airflow_provider_scope.specs import SparkEngine
from airflow_provider_scope.stores.local import LocalStorage
from tests.support.values import an_ingest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_provider_scope.stores.protocol import Store

PATIENCE = 30
"""Seconds until a test that waits for something gives up; nothing waits that long when all is well."""


class Fake:
    """A ``spark-submit`` (and a ``java``) beside the interpreter, and what comes of running it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log_file = folder / "logs" / "spark.1.log"
        self.events: list[dict[str, Any]] = []
        self.fifo = folder / "alive"
        os.mkfifo(self.fifo)
        self.alive = os.open(self.fifo, os.O_RDONLY | os.O_NONBLOCK)
        self.program("java", "echo 'openjdk version \"17.0.19\" 2026-04-21' >&2")

    def program(self, name: str, text: str, folder: str = "bin") -> None:
        place = self.folder / folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"#!/bin/sh\n{text}\n")
        place.chmod(0o755)

    def prints(self, text: str, status: int) -> None:
        """Let spark-submit write a text and end."""
        (self.folder / "output").write_text(text)
        self.program("spark-submit", f"cat {self.folder}/output\nexit {status}")

    def works_on(self, before: str = "") -> None:
        """Let spark-submit and a child of it run on, each holding the pipe open while it lives."""
        self.program(
            "spark-submit", f"{before}\nexec 9>{self.fifo}\nsleep 600 &\necho both >&9\nsleep 600\nwait"
        )

    def wait_until_both_run(self) -> None:
        assert self._read() == b"both\n"

    def wait_until_none_runs(self) -> None:
        assert self._read() == b"", "somebody is still alive"

    def _read(self) -> bytes:
        ready, _, _ = select.select([self.alive], [], [], PATIENCE)
        assert ready, "nothing happened on the pipe"
        return os.read(self.alive, 100)

    def hook(self, **conf: str) -> SubmitHook:
        return SubmitHook(conn_id=None, log_file=self.log_file, on_event=self.events.append, conf=conf)

    def failure(self, **conf: str) -> ScopeProviderError:
        with pytest.raises(ScopeProviderError) as caught:
            self.hook(**conf).run("main.py", ["the plan"])
        return caught.value

    def runner(self, stores: tuple[Store, ...] = (), **engine: Any) -> SubmitEngine:
        return SubmitEngine(
            stores={str(number): store for number, store in enumerate(stores)},
            settings=SparkEngine(**engine),
            ingest=an_ingest(),
            storage=LocalStorage(),
            table_storage=LocalStorage(),
            log_file=self.log_file,
            new_id=lambda: "11111111-1111-1111-1111-111111111111",
            task="dag.task",
            report=lambda line: None,
        )

    def work(self) -> Work:
        return Work("pipeline", f"file://{self.folder}/table", f"file://{self.folder}/checkpoint")


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]]))
    made = Fake(tmp_path)
    yield made
    os.close(made.alive)
