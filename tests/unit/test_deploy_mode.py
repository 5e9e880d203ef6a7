"""Deploy mode cluster is refused wherever it comes from, and nothing is logged before."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import Connection

from airflow_provider_scope.engines.submit import DEPLOY_MODE, check_client_mode
from airflow_provider_scope.exceptions import ConnectionMissingError, InputError
from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource, SparkEngine

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    monkeypatch.delenv("DEPLOY_MODE", raising=False)


def a_cluster(mode: str | None = None) -> Connection:
    extra = json.dumps({"deploy-mode": mode} if mode else {})
    return Connection(conn_id="big", conn_type="spark", host="yarn", extra=extra)


def refusal(connection: Connection | None, conf: dict[str, Any] | None = None) -> str:
    with pytest.raises(InputError) as caught:
        check_client_mode(connection, conf)
    assert caught.value.kept
    assert "`client`" in caught.value.do
    return caught.value.what.partition(" asks for")[0]


def defaults(tmp_path: Path, text: str) -> None:
    (tmp_path / "conf" / "spark-defaults.conf").write_text(text)


def test_the_connection_and_the_conf_of_the_engine_are_looked_at():
    assert refusal(a_cluster("cluster")) == "The Spark connection 'big'"
    assert refusal(a_cluster(), {DEPLOY_MODE: "Cluster "}) == f"conf['{DEPLOY_MODE}']"
    assert refusal(None, {DEPLOY_MODE: "cluster"}) == f"conf['{DEPLOY_MODE}']"


@pytest.mark.parametrize(
    "line", [f"{DEPLOY_MODE} cluster", f"  {DEPLOY_MODE}=cluster", f"{DEPLOY_MODE} : cluster  "]
)
def test_the_defaults_of_the_worker_are_looked_at(tmp_path, line):
    defaults(tmp_path, f"spark.ui.enabled false\n#{DEPLOY_MODE} client\n{line}\n")

    assert refusal(a_cluster()) == str(tmp_path / "conf" / "spark-defaults.conf")


def test_the_environment_is_looked_at(monkeypatch):
    monkeypatch.setenv("DEPLOY_MODE", "cluster")

    assert refusal(a_cluster()) == "The variable DEPLOY_MODE of the worker"


def test_the_first_place_that_names_a_mode_decides_as_for_spark(tmp_path):
    defaults(tmp_path, f"{DEPLOY_MODE} cluster\n")

    check_client_mode(a_cluster("client"), {DEPLOY_MODE: "cluster"})
    check_client_mode(a_cluster(), {DEPLOY_MODE: "client"})
    check_client_mode(None, None)  # local Spark sets its own


def test_without_a_word_of_it_spark_takes_client_mode():
    check_client_mode(a_cluster(), {})


def an_operator(tmp_path: Path, **engine: Any) -> DeltaIncrementalIngestOperator:
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "a.txt").write_text("a row")
    os.utime(tmp_path / "landing" / "a.txt", (1, 1))
    return DeltaIncrementalIngestOperator(
        task_id="ingest",
        delta_location=str(tmp_path / "table"),
        source=FileSource(roots=str(tmp_path / "landing"), patterns=r"\.txt$", format="text"),
        engine=SparkEngine(**engine),
    )


def context() -> dict[str, Any]:
    ti = SimpleNamespace(dag_id="d", run_id="one", task_id="ingest", map_index=-1, try_number=1)
    return {"ti": ti, "outlet_events": {}}


def test_a_run_on_such_a_connection_fails_for_good_before_anything_is_logged(tmp_path, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_BIG", '{"conn_type": "spark", "extra": {"deploy-mode": "cluster"}}')

    with pytest.raises(AirflowFailException, match="asks for deploy mode cluster, which is not supported"):
        an_operator(tmp_path, spark_conn_id="big").execute(context())

    assert not (tmp_path / "table").exists()


def test_a_connection_that_is_missing_is_told_in_three_parts_and_tried_again(tmp_path):
    with pytest.raises(ConnectionMissingError) as caught:
        an_operator(tmp_path, spark_conn_id="nobody_made_it").execute(context())

    assert str(caught.value) == (
        "Airflow has no connection 'nobody_made_it'.\n"
        "Kept: everything; nothing was read or written\n"
        "What to do: define it (`airflow connections add nobody_made_it …`, the UI, or the variable "
        "AIRFLOW_CONN_NOBODY_MADE_IT), or correct its name in the Dag. If it is defined, the secrets "
        "backend did not answer: Airflow reports both in the same way, and the next try asks again"
    )
    assert caught.value.is_retryable
    assert not (tmp_path / "table").exists()
