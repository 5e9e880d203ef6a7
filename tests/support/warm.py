"""Runs of a pipeline as the operator's, but for the process: the batches run in the tests' own session."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable, QueryBuilder

from airflow_provider_scope.engines import assembly
from airflow_provider_scope.engines.spark import SparkRunner
from airflow_provider_scope.exceptions import ScopeProviderError
from airflow_provider_scope.sources.cursor.databases import CONF
from airflow_provider_scope.spark import app
from airflow_provider_scope.spark import plan as plans
from airflow_provider_scope.specs.ingest import ARGUMENTS, SELECT_ALL, ingest_from

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

    from airflow_provider_scope.protocol.engine import More, Work
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.report import RunReport


class WarmRunner(SparkRunner):
    """Gives the plan to the application's own function, in a session that is there."""

    session: Any = None

    def _submit(
        self, work: Work, entries: Sequence[OffsetEntry], *, fence: bool, more: More | None = None
    ) -> None:
        while entries:
            self._run_here(work, entries, fence=fence)
            entries = more() if more else ()

    def _run_here(self, work: Work, entries: Sequence[OffsetEntry], *, fence: bool) -> None:
        plan = plans.decode(plans.encode(self.plan(work, entries, fence=fence)))
        if self.database:
            for name, value in self.database.spark_conf.items():
                if name.startswith(CONF):
                    type(self).session.conf.set(name, value)
        try:
            app.run(type(self).session, plan)
        except ScopeProviderError:
            raise
        except Exception as err:
            raise app.as_error(err) from err


def use(monkeypatch: pytest.MonkeyPatch, session: Any) -> None:
    """Let every Spark engine of a test be a warm one."""
    monkeypatch.setattr(WarmRunner, "session", session)
    monkeypatch.setattr(assembly, "SparkRunner", WarmRunner)


@dataclass
class Pipe:
    """One task: its arguments, its runs, and the table as another reader sees it."""

    folder: Path
    arguments: dict[str, Any]
    table: Path = field(init=False)

    def __post_init__(self) -> None:
        self.table = self.folder / "target"

    def run(self, **changes: Any) -> RunReport:
        execution, request = self.execution(**changes)
        report: RunReport = execution.run(request)
        return report

    def execution(self, **changes: Any) -> Any:
        raw: dict[str, Any] = dict.fromkeys(ARGUMENTS)
        raw |= {"delta_location": str(self.table), "sql": SELECT_ALL, "write": "append", "engine": {}}
        window = changes.pop("window", None)
        raw |= {"full_refresh": False, "max_batches_per_run": 3, **self.arguments, **changes}
        ingest = ingest_from(raw)
        assert ingest is not None
        if window:
            from dataclasses import replace

            ingest = replace(ingest, mode="data_interval", window=window)
        context = assembly.RunContext(
            task="dag.task", log_file=self.folder / "spark.log", report=lambda _: None
        )
        execution, request, _ = assembly.assemble(ingest, context)
        execution.new_id = lambda: str(uuid.uuid4())
        return execution, request

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """Give the table's rows, sorted, by a reader that is not Spark."""
        found = (
            QueryBuilder().register("t", DeltaTable(str(self.table))).execute("SELECT * FROM t").read_all()
        )
        import pyarrow as pa

        data = pa.table(found)
        names = columns or tuple(data.column_names)
        return sorted(zip(*(data[name].to_pylist() for name in names), strict=True), key=repr)

    def state(self) -> dict[str, Any]:
        import json

        from airflow_provider_scope.protocol.log import CheckpointLog
        from airflow_provider_scope.stores.protocol import open_storage

        uri = f"file://{self.table}/_checkpoint"
        log = CheckpointLog(open_storage(uri), uri)
        return dict(json.loads(log.commit(log.committed()[-1]).state or "{}"))
