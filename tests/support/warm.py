"""Runs of a pipeline as the operator's, but for the process: the batches run in the tests' own session."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from airflow_provider_scope.engines import assembly
from airflow_provider_scope.engines.spark import SubmitEngine
from airflow_provider_scope.exceptions import ScopeProviderError
from airflow_provider_scope.protocol.log import CheckpointLog
from airflow_provider_scope.sources.cursor.databases import CONF
from airflow_provider_scope.spark import plan as plans
from airflow_provider_scope.specs.ingest import ingest_from
from airflow_provider_scope.stores.protocol import open_storage
from tests.support.values import arguments

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

    from airflow_provider_scope.protocol.engine import More, Work
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.report import RunReport
    from airflow_provider_scope.protocol.run import MicroBatchExecution
    from airflow_provider_scope.protocol.source import Request
    from airflow_provider_scope.spark.plan import Plan


@dataclass(kw_only=True)
class SessionEngine(SubmitEngine):
    """Runs the plans in a session that there is, and starts no application."""

    session: Any

    def _submit(
        self, work: Work, entries: Sequence[OffsetEntry], *, fence: bool, more: More | None = None
    ) -> None:
        while entries:
            self.run_plan(self.plan(work, entries, fence=fence))
            entries = more() if more else ()

    def run_plan(self, plan: Plan) -> None:
        """Run one plan, as an application reads it; Spark's own errors become what they mean."""
        from airflow_provider_scope.spark import app

        for name, value in (self.database.spark_conf if self.database else {}).items():
            if name.startswith(CONF):
                self.session.conf.set(name, value)
        try:
            app.run(self.session, plans.decode(plans.encode(plan)))
        except ScopeProviderError:
            raise
        except Exception as err:
            raise app.as_error(err) from err


def use(monkeypatch: pytest.MonkeyPatch, session: Any) -> None:
    """Let the batches of a test run in this session, which a user cannot ask for."""
    monkeypatch.setattr(assembly, "SubmitEngine", partial(SessionEngine, session=session))


def use_in_tasks(monkeypatch: pytest.MonkeyPatch, session: Any) -> None:
    """Do so for tasks, too; nothing starts another session unnoticed."""
    monkeypatch.setenv("JAVA_HOME", "/there/is/no/java")
    use(monkeypatch, session)


def count_plans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets, each time Spark would be started, how many batches it is given."""
    run_plan, counts = SessionEngine.run_plan, list[int]()

    def counted(self: SessionEngine, plan: Plan) -> None:
        counts.append(len(plan.batches))
        run_plan(self, plan)

    monkeypatch.setattr(SessionEngine, "run_plan", counted)
    return counts


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

    def execution(self, **changes: Any) -> tuple[MicroBatchExecution, Request]:
        window = changes.pop("window", None)
        defaults = {"delta_location": str(self.table), "max_batches_per_run": 3}
        ingest = ingest_from(arguments(**{**defaults, **self.arguments, **changes}))
        assert ingest is not None
        if window:
            ingest = replace(ingest, mode="data_interval", window=window)
        context = assembly.RunContext(
            task="dag.task", log_file=self.folder / "spark.log", report=lambda _: None
        )
        execution, request, _ = assembly.assemble(ingest, context)
        return execution, request

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """Return the table's rows, sorted, by a reader that is not Spark."""
        query = QueryBuilder().register("t", DeltaTable(str(self.table))).execute("SELECT * FROM t")
        data = pa.table(query.read_all())
        names = columns or tuple(data.column_names)
        return sorted(zip(*(data[name].to_pylist() for name in names), strict=True), key=repr)

    def state(self) -> dict[str, Any]:
        uri = f"file://{self.table}/_checkpoint"
        log = CheckpointLog(open_storage(uri), uri)
        return dict(json.loads(log.commit(log.committed()[-1]).state or "{}"))
