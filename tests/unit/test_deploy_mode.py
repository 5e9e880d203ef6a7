"""Where the driver runs, and what is refused before anything is logged because of it."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import Connection

from airflow_provider_scope.engines import assembly
from airflow_provider_scope.engines.cluster import check_no_application
from airflow_provider_scope.engines.submit import DEPLOY_MODE, deploy_mode
from airflow_provider_scope.engines.yarn import ADDRESS
from airflow_provider_scope.exceptions import (
    ConnectionMissingError,
    InputError,
    ServiceAuthError,
    ServiceUnavailableError,
)
from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import Checkpoint, FileSource, JdbcSource, SparkEngine
from tests.support.kubeconfig import kubeconfig
from tests.support.loopback import Answer, listening

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    monkeypatch.delenv("DEPLOY_MODE", raising=False)


def a_cluster(mode: str | None = None) -> Connection:
    extra = json.dumps({"deploy-mode": mode} if mode else {})
    return Connection(conn_id="big", conn_type="spark", host="yarn", extra=extra)


def place(connection: Connection | None, conf: dict[str, Any] | None = None) -> str:
    """Return the place that asks for the cluster."""
    mode, where = deploy_mode(connection, conf)
    assert mode == "cluster"
    return where


def defaults(tmp_path: Path, text: str) -> None:
    (tmp_path / "conf" / "spark-defaults.conf").write_text(text)


def test_the_connection_and_the_conf_of_the_engine_are_looked_at():
    assert place(a_cluster("cluster")) == "The Spark connection 'big'"
    assert place(a_cluster(), {DEPLOY_MODE: "Cluster "}) == f"conf['{DEPLOY_MODE}']"
    assert place(None, {DEPLOY_MODE: "cluster"}) == f"conf['{DEPLOY_MODE}']"


@pytest.mark.parametrize(
    "line", [f"{DEPLOY_MODE} cluster", f"  {DEPLOY_MODE}=cluster", f"{DEPLOY_MODE} : cluster  "]
)
def test_the_defaults_of_the_worker_are_looked_at(tmp_path, line):
    defaults(tmp_path, f"spark.ui.enabled false\n#{DEPLOY_MODE} client\n{line}\n")

    assert place(a_cluster()) == str(tmp_path / "conf" / "spark-defaults.conf")


def test_the_environment_is_looked_at(monkeypatch):
    monkeypatch.setenv("DEPLOY_MODE", "cluster")

    assert place(a_cluster()) == "The variable DEPLOY_MODE of the worker"


def test_the_first_place_that_names_a_mode_decides_as_for_spark(tmp_path):
    defaults(tmp_path, f"{DEPLOY_MODE} cluster\n")

    assert deploy_mode(a_cluster("client"), {DEPLOY_MODE: "cluster"})[0] == "client"
    assert deploy_mode(a_cluster(), {DEPLOY_MODE: "client"})[0] == "client"
    assert deploy_mode(None, None)[0] == "client"  # local Spark sets its own


def test_without_a_word_of_it_spark_takes_client_mode():
    assert deploy_mode(a_cluster(), {}) == ("client", "")


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


YARN = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
MANAGER = {"yarn_resourcemanager_webapp_address": "http://127.0.0.1:1"}
LIVY = {"conn_type": "livy", "host": "127.0.0.1", "port": 1, "extra": {"http_retries": 0}}


@pytest.mark.parametrize(
    ("connection", "engine", "message"),
    [
        pytest.param(
            {**YARN, "host": "spark://a:7077"},
            {},
            "asks for deploy mode cluster, which is not supported here: the master spark://a:7077",
            id="no driver in Python",
        ),
        pytest.param(
            YARN, {}, "yarn_resourcemanager_webapp_address=None: expected the address", id="no address"
        ),
        pytest.param(
            {**YARN, "extra": {**YARN["extra"], **MANAGER}},
            {},
            "table is on a disk of the worker, and the machines of big do not see it",
            id="a disk of the worker, YARN",
        ),
        pytest.param(LIVY, {}, "table is on a disk of the worker", id="a disk of the worker, Livy"),
        pytest.param(
            LIVY,
            {"conf": {"spark.hadoop.fs.s3a.secret.key": "canary-7f"}},
            "s3a.secret.key, and whoever",
            id="a secret",
        ),
        pytest.param({**LIVY, "host": ""}, {}, "has host=", id="no host"),
        pytest.param({**YARN, "host": "mesos://a"}, {}, "the master mesos://a", id="an unknown manager"),
        pytest.param(
            {"conn_type": "http", "host": "a", "password": "canary-7f"},
            {},
            "The connection big has the type 'http': expected spark or livy.",
            id="another type",
        ),
    ],
)
def test_what_a_cluster_cannot_do_fails_for_good_before_anything_is_logged(
    tmp_path, monkeypatch, connection, engine, message
):
    monkeypatch.setenv("AIRFLOW_CONN_BIG", json.dumps(connection))

    with pytest.raises(AirflowFailException) as failed:
        an_operator(tmp_path, spark_conn_id="big", **engine).execute(context())

    assert message in str(failed.value)
    assert "canary" not in str(failed.value)
    assert not (tmp_path / "table").exists()


def test_a_database_is_read_by_a_driver_on_the_worker_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_BIG", json.dumps(LIVY))
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", "postgresql://reader:canary-7f@127.0.0.1:1/shop")
    task = DeltaIncrementalIngestOperator(
        task_id="ingest",
        delta_location=str(tmp_path / "table"),
        source=JdbcSource(conn_id="shop", table="orders", cursor={"column": "at"}),
        engine=SparkEngine(spark_conn_id="big", shared_folders=[str(tmp_path)]),
    )

    with pytest.raises(
        AirflowFailException, match="The password of the database would have to be left"
    ) as failed:
        task.execute(context())

    assert "canary" not in str(failed.value)


YARN_AT = {**YARN, "extra": {**YARN["extra"], ADDRESS: "http://127.0.0.1:1", "http_retries": 0}}
K8S = {**YARN, "host": "k8s://http://127.0.0.1:1", "extra": {**YARN["extra"], "http_retries": 0}}


@pytest.fixture
def refusing_port() -> Iterator[int]:
    """Return the port of a service that takes no token for valid any more."""
    with listening(lambda *_: Answer(401)) as port:
        yield port


@pytest.mark.parametrize(
    "manager",
    [
        pytest.param((YARN_AT, "ask YARN for 1 application"), id="YARN"),
        pytest.param((K8S, "ask Kubernetes for"), id="Kubernetes"),
        pytest.param((LIVY, "ask Livy for its applications"), id="Livy"),
    ],
)
@pytest.mark.parametrize("is_refused", [False, True], ids=["nobody answers", "an expired token"])
def test_a_manager_that_does_not_answer_or_takes_no_token_is_asked_again_by_the_next_try(
    tmp_path, monkeypatch, refusing_port, manager, is_refused
):
    config = kubeconfig("canary-7f", server="https://elsewhere")
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    connection, doing = manager
    text = json.dumps(connection)
    if is_refused:
        text = text.replace("127.0.0.1:1", f"127.0.0.1:{refusing_port}")
        text = text.replace('"port": 1', f'"port": {refusing_port}')
    monkeypatch.setenv("AIRFLOW_CONN_BIG", text)
    task = an_operator(tmp_path, spark_conn_id="big", shared_folders=[str(tmp_path)])

    error = ServiceAuthError if is_refused else ServiceUnavailableError
    with pytest.raises(error, match=f"Could not {doing}") as failed:
        task.execute(context())

    assert ("401" in failed.value.what) is is_refused
    assert failed.value.kept
    assert failed.value.do
    assert "canary" not in str(failed.value)
    assert not (tmp_path / "table" / "_delta_log").exists()
    log = assembly.open_log(str(tmp_path / "table"), Checkpoint())
    assert (log.logged(), log.committed()) == ([0], [])


@pytest.mark.parametrize("mode", [None, "cluster"])
def test_what_a_command_runs_stays_on_this_machine_wherever_the_cluster_is_named(tmp_path, monkeypatch, mode):
    extra = {**MANAGER, **({} if mode is None else {"deploy-mode": mode})}
    monkeypatch.setenv("AIRFLOW_CONN_BIG", json.dumps({**YARN, "extra": extra}))
    conf = {"spark.driver.memory": "2g", DEPLOY_MODE: "cluster"}

    settings = assembly.on_this_machine(SparkEngine(spark_conn_id="big", conf=conf), tmp_path / "log")

    assert settings == SparkEngine(conf={"spark.driver.memory": "2g"})
    client = SparkEngine(spark_conn_id="big", conf={DEPLOY_MODE: "client"})
    if mode is None:
        assert assembly.on_this_machine(client, tmp_path / "log") == client


def test_a_connection_that_is_missing_is_told_in_three_parts_and_tried_again(tmp_path):
    with pytest.raises(ConnectionMissingError) as caught:
        an_operator(tmp_path, spark_conn_id="nobody_made_it").execute(context())

    assert str(caught.value) == (
        "Airflow has no connection 'nobody_made_it'.\n"
        "Kept: everything; nothing was read or written\n"
        "What to do: define it (`airflow connections add nobody_made_it …`, the UI, or the variable "
        "AIRFLOW_CONN_NOBODY_MADE_IT), or correct its name in the Dag or in the options of the command. If "
        "it is defined, the secrets backend did not answer: Airflow reports both in the same way, and the "
        "next try asks again"
    )
    assert caught.value.is_retryable
    assert not (tmp_path / "table").exists()


def test_scope_jobs_are_refused_for_a_batch_that_an_application_may_still_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_BIG", json.dumps(LIVY))
    task = an_operator(tmp_path, spark_conn_id="big", shared_folders=[str(tmp_path)])
    with pytest.raises(ServiceUnavailableError):
        task.execute(context())
    (plan,) = (tmp_path / "table" / "_checkpoint" / "plans").iterdir()

    log = assembly.open_log(str(tmp_path / "table"), Checkpoint())
    with pytest.raises(InputError) as refused:
        check_no_application(log)

    assert refused.value.what == (
        f"Batch 0 of {log.location} is open, and the application {plan.name} of Spark was to run it: "
        "SCOPE jobs cannot check what became of that."
    )
