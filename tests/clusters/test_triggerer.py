"""Applications that tasks of a real Airflow wait for: its scheduler, workers and triggerer are processes."""

from __future__ import annotations

import json
import os
import random
from contextlib import ExitStack
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.chaos.__main__ import SIGNS_OF_LIFE
from tests.chaos.deeds import TASK, Deeds
from tests.real_airflow.deployment import Deployment
from tests.real_airflow.postgres import postgres
from tests.support.processes import eventually

pytestmark = pytest.mark.spark

DAGS = Path(__file__).parent / "dags"
SECONDS = 300.0


def wait(is_so, what):
    assert eventually(is_so, SECONDS), what


@pytest.fixture
def start(tmp_path_factory):
    """Start an Airflow with a Dag for each set of arguments of a task, and give it."""
    with ExitStack() as stack:

        def start(dags):
            database = stack.enter_context(postgres())
            connection = {"AIRFLOW_CONN_CLUSTER": os.environ["AIRFLOW_CONN_CLUSTER"]}
            environment = {**SIGNS_OF_LIFE, **connection, "CLUSTER_DAGS": json.dumps(dags)}
            airflow = Deployment(tmp_path_factory.mktemp("airflow"), DAGS, database, environment)
            stack.callback(airflow.stop)
            airflow.start()
            wait(lambda: airflow.rest.dags() >= {*dags}, "the Dags")
            for dag in dags:
                airflow.rest.unpause(dag)
            return airflow

        yield start


@pytest.mark.parametrize("cluster", [pytest.param("yarn", marks=pytest.mark.yarn)], indirect=True)
def test_a_worker_and_a_triggerer_that_are_killed_leave_one_application_and_each_row_once(cluster, start):
    cluster.land(1, 2)
    cluster.land_people(3)
    dags = {
        "files": cluster.arguments(deferrable=True),
        "in_turn": cluster.in_turn(deferrable=True, delta_location=cluster.place("turns")),
    }
    airflow = start(dags)
    rest, deeds = airflow.rest, Deeds(airflow, {}, random.Random(0), print)

    def task():
        return rest.task("files", "one", TASK)

    def triggerer():
        return task()["state"] == "deferred" and (task()["triggerer_job"] or {}).get("id")

    def master():  # spark-submit has the plan in its command line, too
        drivers = cluster.drivers()  # ascending: what a driver starts looks like itself for a moment
        return [one for one in drivers if "ApplicationMaster" in " ".join(one.info["cmdline"])][:1]

    rest.trigger("files", "one")
    wait(master, "the application")
    (driver,) = master()
    driver.suspend()  # so that it runs until all is done to those who wait for it
    wait(lambda: deeds.kill_worker(supervisor=True), "a worker to kill")
    wait(triggerer, "the triggerer that waits")
    first, tries = triggerer(), task()["try_number"]
    airflow.kill("triggerer 1")
    airflow.run("triggerer", process="triggerer 1")
    wait(lambda: triggerer() not in (first, False, None), "the triggerer that waits after it")
    driver.resume()
    wait(lambda: rest.runs("files")["one"] in ("success", "failed"), "the end of the run")

    assert rest.runs("files") == {"one": "success"}
    assert (tries, task()["try_number"]) == (2, 2)
    assert len(cluster.jobs()) == 1
    assert cluster.rows() == [1, 2]

    rest.trigger("in_turn", "one")
    wait(lambda: rest.runs("in_turn")["one"] in ("success", "failed"), "the batches in turn")

    assert rest.runs("in_turn") == {"one": "success"}
    turns = DeltaTable(str(cluster.copy("turns")))
    assert sorted(turns.to_pyarrow_table()["id"].to_pylist()) == [0, 1, 2]
    assert len(turns.history()) == 3
    assert eventually(lambda: not cluster.drivers())
