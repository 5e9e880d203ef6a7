from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import parquet

from airflow_provider_scope.stores.calls import Repeating
from tests.support import values
from tests.support.emulators import start_emulator

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_scope.emulator import Emulator
    from airflow_provider_scope.protocol.report import RunReport
    from airflow_provider_scope.protocol.run import MicroBatchExecution
    from airflow_provider_scope.scope.engine import ScopeRunner
    from airflow_provider_scope.waiting import Job

__all__ = ["start_emulator"]

ROOT = "adl://acme.azuredatalakestore.net/landing"


@dataclass
class World:
    """An account with files, jobs and a table, and runs over it."""

    account: Path
    start: Callable[..., Emulator]
    monkeypatch: pytest.MonkeyPatch
    emulator: Emulator = field(init=False)

    def open(self, **switches: Any) -> None:
        """Start the emulator and point the connections at it."""
        self.emulator = self.start(self.account, **switches)
        for name, kind in (("ADLA_SCOPE_DEFAULT", "adla_scope"), ("ADLS_GEN1_DEFAULT", "adls_gen1")):
            extra = {"account_name": "acme", "poll_interval": "0.1", "http_retries": 2}
            value = {"conn_type": kind, "host": self.emulator.url, "extra": extra}
            self.monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(value))

    @property
    def table(self) -> Path:
        return self.account / "delta" / "flights"

    def land(self, *numbers: int) -> None:
        """Put numbered files of two rows; the numbers are their order in time."""
        for number in numbers:
            path = self.account / "landing" / f"f{number}.ss"
            path.parent.mkdir(parents=True, exist_ok=True)
            parquet.write_table(pa.table({"id": [number, number + 100]}), path)
            os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))

    def arguments(self, **changes: Any) -> dict[str, Any]:
        defaults = {
            "delta_location": str(self.table),
            "sql": "SELECT id, source_file_uri FROM @data",
            "source": {"roots": ROOT, "columns": {"id": "bigint"}, "max_files_per_trigger": 2},
            "table": {"columns": {"id": "bigint", "source_file_uri": "string"}},
            "engine": {"scope_conn_id": "adla_scope_default"},
        }
        return values.arguments(**{**defaults, **changes})

    def assemble(
        self, *, deferrable: bool = False, **changes: Any
    ) -> tuple[MicroBatchExecution, Any, ScopeRunner]:
        from airflow_provider_scope.engines.assembly import RunContext, assemble
        from airflow_provider_scope.specs.ingest import ingest_from

        context = RunContext(
            task="dag.load", task_id="load", log_file=Path("unused"), report=print, deferrable=deferrable
        )
        ingest = ingest_from(self.arguments(**changes))
        assert ingest
        return assemble(ingest, context)  # type: ignore[return-value]

    def run(self, **changes: Any) -> RunReport:
        execution, request, _ = self.assemble(**changes)
        return execution.run(request)

    def rows(self) -> Counter[int]:
        return Counter(DeltaTable(self.table).to_pyarrow_table()["id"].to_pylist())

    def rows_are_those_of(self, *numbers: int) -> bool:
        """Return whether the table holds the rows of these files, each once."""
        return self.rows() == Counter([*numbers, *(number + 100 for number in numbers)])

    def jobs(self) -> list[Job]:
        from airflow_provider_scope.hooks.scope import ScopeHook

        return list(ScopeHook().list_jobs(orderby="submitTime asc"))

    def job(self, listed: Job) -> Job:
        """Describe a job of a list, with its script."""
        from airflow_provider_scope.hooks.scope import ScopeHook

        found = ScopeHook().get_job(listed.job_id)
        assert found
        return found


@pytest.fixture
def world(tmp_path, start_emulator, monkeypatch) -> World:
    monkeypatch.setattr(Repeating, "pause", lambda *_: None)  # a request that fails is sent again at once
    return World(tmp_path / "account", start_emulator, monkeypatch)
