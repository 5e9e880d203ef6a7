"""What is told about a run whose rows are in the table; it cannot fail the run any more."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.models.asset import AssetEvent, AssetModel
from airflow.providers.common.compat.lineage.entities import File, Table
from airflow.sdk import DAG, Asset, AssetAlias
from airflow.utils.session import create_session
from deltalake import DeltaTable
from sqlalchemy import select

from airflow_provider_scope.engines import assembly
from airflow_provider_scope.operators import delta_ingest
from airflow_provider_scope.operators.base import emit
from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.protocol.report import RunReport
from airflow_provider_scope.specs import FileSource, ScopeEngine
from tests.support.delta_engine import SOURCE, DeltaEngine

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _without_a_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "spark_engine", lambda *_, **__: DeltaEngine())


def land(folder: Path, name: str, *ids: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": ids, "day": [1] * len(ids)}, schema=SOURCE), folder / name)
    old = time.time() - 3600
    os.utime(folder / name, (old, old))


def a_dag(name: str, base: Path, *outlets: Any, **more: Any) -> DAG:
    with DAG(name, schedule=None) as dag:
        DeltaIncrementalIngestOperator(
            task_id="ingest",
            delta_location=str(base / "table"),
            source=FileSource(roots=str(base / "landing"), patterns=r"\.parquet$", format="parquet"),
            outlets=list(outlets),
            **more,
        )
    return dag


def ids(table: Path) -> list[int]:
    return sorted(DeltaTable(str(table)).to_pyarrow_table()["id"].to_pylist())


def events(dag: DAG) -> list[tuple[str, str, dict[str, Any]]]:
    """Return name, URI and extra of the events that a Dag's runs have emitted."""
    with create_session() as session:
        found = session.execute(
            select(AssetModel.name, AssetModel.uri, AssetEvent.extra)
            .join(AssetEvent, AssetEvent.asset_id == AssetModel.id)
            .where(AssetEvent.source_dag_id == dag.dag_id)
            .order_by(AssetEvent.id)
        ).all()
        return [(row.name, row.uri, row.extra) for row in found]


def test_outlets_that_are_no_assets_take_no_event_and_fail_nothing(run_dag, tmp_path, capfd):
    land(tmp_path / "landing", "a.parquet", 1)
    dag = a_dag(
        "no_assets",
        tmp_path,
        File(url="file:///x.csv"),
        Table(database="d", cluster="c", name="t"),
        Asset("mine", uri="x-mine:/mine"),
    )

    run = run_dag(dag)

    assert run.state == "success"
    assert ids(tmp_path / "table") == [1]
    ((name, _, extra),) = events(dag)
    assert (name, extra["files"], extra["rows"]) == ("mine", 1, 1)
    assert "warning" not in capfd.readouterr().out


@pytest.mark.parametrize("ref", [Asset.ref(name="known"), Asset.ref(uri="x-known:/known")])
def test_an_asset_that_is_named_by_a_reference_gets_its_extra(run_dag, tmp_path, ref):
    land(tmp_path / "landing", "a.parquet", 1)
    land(tmp_path / "other/landing", "a.parquet", 1)
    run_dag(a_dag("the_owner", tmp_path / "other", Asset("known", uri="x-known:/known")))
    dag = a_dag(f"by_reference_{type(ref).__name__}", tmp_path, ref)

    assert run_dag(dag).state == "success"

    ((name, uri, extra),) = events(dag)
    assert (name, uri, extra["rows"]) == ("known", "x-known:/known", 1)


def test_an_alias_gets_an_event_of_the_table_for_each_run_that_committed(run_dag, tmp_path):
    land(tmp_path / "landing", "a.parquet", 1)
    dag = a_dag("with_alias", tmp_path, AssetAlias("tables"))

    assert run_dag(dag).state == "success"
    assert run_dag(dag).state == "success"  # nothing new, so nothing to tell

    ((name, uri, extra),) = events(dag)
    assert name == uri
    assert uri == f"file://{tmp_path}/table"
    assert (extra["files"], extra["rows"]) == (1, 1)


def test_an_alias_gets_an_event_of_a_second_try_as_an_asset_does(run_dag, tmp_path, monkeypatch):
    """The first one died when its rows were in the table: whoever waits for the alias has to be started."""
    land(tmp_path / "landing", "a.parquet", 1)
    tries: list[int] = []

    def die_once(*args: Any, **more: Any) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError
        emit(*args, **more)

    monkeypatch.setattr(delta_ingest, "emit", die_once)
    dag = a_dag("two_tries", tmp_path, Asset("x"), AssetAlias("y"), retries=1, retry_delay=timedelta(0))

    assert run_dag(dag).state == "success"

    assert {name for name, _, _ in events(dag)} == {"x", f"file://{tmp_path}/table"}


def test_an_asset_takes_no_event_of_a_run_that_loaded_nothing(run_dag, tmp_path):
    land(tmp_path / "landing", "a.parquet", 1)
    dag = a_dag("with_nothing_new", tmp_path, Asset("of idle runs"), Asset.ref(name="of idle runs"))

    assert run_dag(dag).state == "success"
    told = len(events(dag))
    assert run_dag(dag).state == "success"  # nothing new, so nothing to tell
    assert len(events(dag)) == told >= 1
    land(tmp_path / "landing", "b.parquet", 2)
    assert run_dag(dag).state == "success"
    assert len(events(dag)) == 2 * told


def test_an_alias_gets_the_asset_that_somebody_named_for_the_table(run_dag, tmp_path):
    """Two assets may not have one URI: a second one would stay inactive, and start nobody."""
    land(tmp_path / "landing", "a.parquet", 1)
    uri = f"file://{tmp_path}/table"
    land(tmp_path / "other/landing", "a.parquet", 1)
    run_dag(a_dag("the_owner_of_the_table", tmp_path / "other", Asset("flights", uri=uri)))
    dag = a_dag("with_alias_of_it", tmp_path, AssetAlias("all tables"))

    assert run_dag(dag).state == "success"

    assert [(name, uri) for name, uri, _ in events(dag)] == [("flights", uri)]


@pytest.mark.parametrize("method", ["text", "to_xcom"])
def test_a_report_that_cannot_be_made_fails_no_run_that_is_in_the_table(
    run_dag, tmp_path, monkeypatch, capfd, method
):
    def broken(self: RunReport) -> Any:
        raise ValueError("a name that nobody can print")

    monkeypatch.setattr(RunReport, method, broken)
    land(tmp_path / "landing", "a.parquet", 1)

    run = run_dag(a_dag(f"no_report_{method}", tmp_path, Asset(f"mine {method}")))

    assert run.state == "success"
    assert ids(tmp_path / "table") == [1]
    assert "a name that nobody can print" in capfd.readouterr().out


def test_a_store_of_progress_that_fails_fails_no_run(tmp_path, capfd):
    class Broken:
        def set(self, key: str, value: str) -> None:
            raise RuntimeError("the API server is away")

    operator = a_dag("no_progress", tmp_path).get_task("ingest")

    operator._progress({"task_state_store": Broken()})("batch 1: 5 files")

    assert "the API server is away" in capfd.readouterr().out


def test_an_address_of_a_job_that_cannot_be_made_hides_neither_result_nor_error(tmp_path, monkeypatch, capfd):
    def gone(_: str) -> None:
        raise RuntimeError("the connection is gone")

    monkeypatch.setattr(delta_ingest, "connection_of", gone)
    operator = a_dag("no_link", tmp_path).get_task("ingest")
    operator._runner = SimpleNamespace(newest_job="a job")

    operator._note_job(SimpleNamespace(engine=ScopeEngine()))

    assert "the connection is gone" in capfd.readouterr().out
