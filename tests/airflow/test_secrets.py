"""A secret of a store reaches Spark by the file that only this user can read, and shows nowhere else."""

from __future__ import annotations

import importlib
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import DAG

from airflow_provider_scope.exceptions import ScopeProviderError
from airflow_provider_scope.hooks.stores import store_of
from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource, SparkEngine
from tests.airflow.watch import FRAGMENTS, SECRETS, Watch, found_in
from tests.crash.spark_world import SparkWorld
from tests.support.faulty_storage import open_gate
from tests.support.jars import fetch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_scope.stores.protocol import Store

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _no_secrets_of_other_tests() -> None:
    """Let Airflow forget what it remembers for the whole process.

    It masks by each secret that was ever read, in no order: one of another test may be the beginning of ours,
    and leave the rest of it.
    """
    for side in ("airflow._shared", "airflow.sdk._shared"):
        importlib.import_module(f"{side}.secrets_masker").reset_secrets_masker()


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> dict[str, Store]:
    """Three accounts, each with another kind of secret."""
    uri = "abfss://lake@{}.dfs.core.windows.net/x"
    made = {
        "one": {"conn_type": "wasb", "login": "one", "password": SECRETS["key"]},
        "two": {"conn_type": "wasb", "login": "two", "extra": {"sas_token": SECRETS["sas"]}},
        "three": {
            "conn_type": "adls",
            "host": "three",
            "login": "app",
            "password": SECRETS["client"],
            "extra": {"tenant_id": "contoso"},
        },
    }
    for name, fields in made.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(fields))
    monkeypatch.setenv("AIRFLOW__PLANTED__TOKEN", SECRETS["token"])
    return {uri.format(name): store_of(uri.format(name), name) for name in made}


class World(SparkWorld):
    stores: Mapping[str, Store]
    sql = ""

    def engine(self, gate: Any) -> Any:
        made = super().engine(gate)
        # Without the jar for Azure: nothing is read there, and the properties are given all the same.
        made.settings = SparkEngine(
            conf={
                "spark.logConf": "true",
                "spark.log.level": "INFO",
                "spark.eventLog.enabled": "true",
                "spark.eventLog.dir": f"file://{self.folder}/events",
                "spark.scope.bearer.token": SECRETS["token"],
            },
            packages=made.settings.packages,
        )
        made.stores = {uri: replace(store, packages=()) for uri, store in self.stores.items()}
        made.ingest = replace(made.ingest, sql=self.sql or made.ingest.sql)
        return made


@pytest.mark.parametrize("fails", [pytest.param(False, marks=pytest.mark.loads), True])
def test_a_secret_is_in_the_file_of_properties_and_nowhere_else(stores, tmp_path, fails, caplog):
    world = World(tmp_path)
    world.stores = stores
    (tmp_path / "events").mkdir()
    world.drop("a", 1_000)
    if fails:
        world.sql = "SELECT no_such_column FROM @data"
    error = ""
    with Watch() as watch:
        try:
            world.run(open_gate)
        except ScopeProviderError as err:
            error = repr(err) + str(err)
    assert error.startswith("SqlError(") is fails  # as the other process said

    assert len(watch.files) == 1
    ((file, (mode, contents)),) = watch.files.items()
    assert mode == 0o600
    assert contents == [*FRAGMENTS]
    assert not file.exists()

    shown = {
        "command lines": "\n".join(watch.command_lines),
        "environments": "\n".join(watch.environments),
        "error": error,
        "log": caplog.text,
        "runner": repr(world.engine(open_gate)).replace(repr(world.engine(open_gate).settings), ""),
    }
    for path in tmp_path.rglob("*"):
        if path.is_file():
            shown[str(path.relative_to(tmp_path))] = path.read_bytes().decode(errors="replace")
    assert {name: found_in(text) for name, text in shown.items() if found_in(text)} == {}
    # Spark did tell its properties, and hid these.
    assert "spark.hadoop.fs.azure.account.key.one.dfs.core.windows.net" in shown["spark.log"] + "".join(
        text for name, text in shown.items() if name.startswith("events/")
    )


@pytest.mark.parametrize("mapped", [False, True])
def test_a_secret_of_sparks_settings_is_not_among_the_rendered_fields(run_dag, tmp_path, monkeypatch, mapped):
    """Airflow hides values by a few names of its own, and an account's key has none of them."""
    from airflow.utils.session import create_session
    from sqlalchemy import text

    monkeypatch.setenv("AIRFLOW_VAR_OF_THE_LAKE", SECRETS["key"])
    monkeypatch.setenv("AIRFLOW_VAR_OF_TWO", SECRETS["client"])
    monkeypatch.setenv("AIRFLOW_VAR_OF_JAVA", SECRETS["token"])
    settings = {
        "spark.hadoop.fs.azure.account.key.one.dfs.core.windows.net": "{{ var.value.of_the_lake }}",
        "spark.hadoop.fs.azure.sas.fixed.token.two": "{{ var.value.of_two }}",
        "spark.driver.extraJavaOptions": "-Da=b -Dmy.storePassword={{ var.value.of_java }}",
        "spark.sql.shuffle.partitions": "2",
    }
    more = {
        "task_id": "ingest",
        "source": FileSource(roots=f"{tmp_path}/nowhere", patterns=r"\.csv$", format="csv"),
        "engine": SparkEngine(conf=settings),
    }
    with DAG(f"rendered_{mapped}", schedule=None) as dag:
        if mapped:
            DeltaIncrementalIngestOperator.partial(**more, max_active_tis_per_dag=1).expand(
                delta_location=[f"{tmp_path}/table"]
            )
        else:
            DeltaIncrementalIngestOperator(**more, delta_location=f"{tmp_path}/table")

    run = run_dag(dag)

    assert run.state == "failed"  # there is nothing to read, and no need of Spark
    with create_session() as session:
        query = "SELECT rendered_fields FROM rendered_task_instance_fields WHERE dag_id = :dag"
        ((fields,),) = session.execute(text(query), {"dag": dag.dag_id}).all()
    assert found_in(fields) == []
    assert list(json.loads(fields)["engine"]["conf"].values()) == [
        "-Da=b -Dmy.storePassword=***",
        "***",
        "***",
        "2",
    ]


@pytest.mark.azurite
def test_a_secret_shows_nowhere_in_airflow(run_dag, tmp_path, monkeypatch):
    """Spark cannot read there, for Azurite has no DFS endpoint: so every message of a failure is told."""
    from airflow.configuration import conf

    from tests.support import azurite

    fetch(*store_of(f"abfss://x@{azurite.HOST}").packages)  # what comes below lets Spark reach nothing
    address = azurite.address()
    azurite.filesystem(address).mkdir("secrets")
    azurite.filesystem(address).pipe_file("secrets/landing/a.csv", b"a\n1\n")
    text = f"AccountName={azurite.ACCOUNT};AccountKey={azurite.KEY};BlobEndpoint={address}"
    monkeypatch.setenv(
        "AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "wasb", "extra": {"connection_string": text}})
    )
    base = f"abfss://secrets@{azurite.HOST}"
    with DAG("secrets", schedule=None) as dag:
        DeltaIncrementalIngestOperator(
            task_id="ingest",
            delta_location=f"{base}/table",
            source=FileSource(
                roots=f"{base}/landing",
                patterns=r"\.csv$",
                format="csv",
                columns={"a": "bigint"},
                safety_buffer_seconds=0,
            ),
            storage_conn_id="lake",
            engine=SparkEngine(
                conf={
                    "spark.driver.extraJavaOptions": "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=9",
                    "spark.hadoop.fs.azure.networking.library": "JDK_HTTP_URL_CONNECTION",
                    "spark.hadoop.fs.azure.io.retry.max.retries": "0",
                }
            ),
        )
    began = time.time()
    with Watch() as watch:
        run = run_dag(dag)
    assert run.state == "failed"
    (ti,) = run.get_task_instances()

    home = Path(conf.get("logging", "base_log_folder")).parent
    shown = {
        "command lines": "\n".join(watch.command_lines),
        "environments": "\n".join(watch.environments),
        "xcom": json.dumps(ti.xcom_pull(task_ids="ingest")),
    }
    for path in home.rglob("*"):
        if path.is_file() and path.stat().st_mtime >= began - 1:
            shown[str(path)] = path.read_bytes().decode(errors="replace")
    fs = azurite.filesystem(address)
    for name in fs.find("secrets"):
        shown[name] = fs.cat_file(name).decode(errors="replace")
    logs = "".join(text for name, text in shown.items() if name.endswith(".log"))
    assert f"{base}/" in logs
    # The jars are whole: what is missing is the service.
    assert "Connection refused" in logs
    assert "NoClassDefFound" not in logs
    assert "ClassNotFound" not in logs
    assert any(name.startswith("secrets/table/_checkpoint/offsets/") for name in shown)
    assert [name for name, text in shown.items() if azurite.KEY in text] == []
    assert [mode for mode, _ in watch.files.values()] == [0o600]
