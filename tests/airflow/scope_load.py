"""A task that loads files by SCOPE jobs."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource, ScopeEngine, TableSpec
from tests.scope.conftest import ROOT

COLUMNS = {"id": "bigint", "source_file_uri": "string"}


def load(world, **more) -> DeltaIncrementalIngestOperator:
    defaults = {
        "task_id": "load",
        "delta_location": str(world.table),
        "source": FileSource(roots=ROOT, columns={"id": "bigint"}),
        "sql": "SELECT id, source_file_uri FROM @data",
        "table": TableSpec(columns=COLUMNS),
        "engine": ScopeEngine(),
    }
    return DeltaIncrementalIngestOperator(**{**defaults, **more})


def a_context(started: datetime | None = None) -> dict:
    xcom: dict[str, Any] = {}
    ti = SimpleNamespace(
        dag_id="d",
        run_id="r",
        task_id="load",
        map_index=-1,
        try_number=1,
        start_date=started or datetime.now(tz=UTC),
        xcom_push=xcom.__setitem__,
        xcom_pull=lambda task_ids, key, map_indexes: xcom.get(key),
    )
    return {"ti": ti}
