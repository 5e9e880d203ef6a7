"""Settings and fixtures that every suite shares. Airflow reads its settings at its first import."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

assert "airflow" not in sys.modules, "a plugin imported Airflow before its settings were made"

_HOME = Path(tempfile.mkdtemp(prefix="airflow-provider-scope-tests-"))
(_HOME / "dags").mkdir()
os.environ.update(
    AIRFLOW_HOME=str(_HOME),
    AIRFLOW__CORE__LOAD_EXAMPLES="False",
    AIRFLOW__CORE__DAGS_FOLDER=str(_HOME / "dags"),
    AIRFLOW__CORE__UNIT_TEST_MODE="False",
    AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=f"sqlite:///{_HOME}/airflow.db",
    AIRFLOW__LOGGING__LOGGING_LEVEL="WARNING",
    AIRFLOW__LOGGING__BASE_LOG_FOLDER=str(_HOME / "logs"),
)

os.fsync = lambda _: None  # it only matters when the machine goes down, and no test does that

# How long an example takes says nothing here: others use the machine, too.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("short", untimed, max_examples=30)
settings.register_profile("long", untimed, max_examples=1000)  # of `make test-properties`
settings.load_profile("short")

UNASKED = ("azurite", "hdfs", "jdbc", "kubernetes", "livy", "loads", "s3", "vega", "yarn")
"""Marks of tests that are left out unless they are asked for: they take long, or fetch something first."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    unasked = [name for name in UNASKED if name not in config.option.markexpr]
    if len(unasked) == len(UNASKED) and "slow" not in config.option.markexpr:
        unasked.append("slow")  # a suite of its own has all of its tests
    left_out = [item for item in items if any(item.get_closest_marker(name) for name in unasked)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


def pytest_unconfigure() -> None:
    shutil.rmtree(_HOME, ignore_errors=True)


@pytest.fixture(scope="session")
def airflow_db() -> None:
    """Make Airflow's database, once."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.utils.db import initdb
    from airflow.utils.session import create_session

    initdb()
    with create_session() as session:
        DagBundlesManager().sync_bundles_to_db(session=session)


@pytest.fixture
def in_dags(airflow_db: None) -> Iterator[Callable[[str, str], Path]]:
    """Write files into the folder of the Dags; they go with the test."""
    paths: list[Path] = []

    def write(name: str, text: str) -> Path:
        paths.append(_HOME / "dags" / name)
        paths[-1].write_text(text)
        return paths[-1]

    yield write
    for path in paths:
        path.unlink(missing_ok=True)


@pytest.fixture
def run_dag(airflow_db: None) -> Callable[..., Any]:
    """Run a Dag with ``dag.test()`` and give the finished run."""
    more = {"bundle_name": "dags-folder"}
    try:
        from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    except ImportError:
        from airflow.models.dagbag import DagBag, sync_bag_to_db

        more = {}  # Airflow 3.1

    def run(dag: Any, **kwargs: Any) -> Any:
        bag = DagBag(dag_folder=os.devnull, collect_dags=False, **more)
        bag.bag_dag(dag)
        sync_bag_to_db(bag, "dags-folder", None)
        return dag.test(**kwargs)

    return run


COMPILED = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.ui.explainMode": "formatted",
    "spark.databricks.delta.snapshotPartitions": "2",
}
INTERPRETED = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ui.explainMode": "simple",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""A few rows are written before Java has compiled the code that Spark makes for them, or planned it anew."""


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[Any]:
    """One small Spark session for all tests of a worker; it interprets its plans."""
    from pyspark.sql import SparkSession

    from airflow_provider_scope.engines import application
    from airflow_provider_scope.spark.session import make_exact

    builder = SparkSession.builder.master("local[2]").appName("tests")
    packages = [application.delta_package()]
    if "jdbc" in request.config.option.markexpr:
        from airflow_provider_scope.hooks.databases import DRIVERS

        packages += [package for _, package in DRIVERS.values()]  # a session takes no jar later on
    builder = builder.config("spark.jars.packages", ",".join(packages))
    builder = builder.config("spark.jars.excludes", ",".join(application.EXCLUDED_PACKAGES))
    settings = {**application.REQUIRED_CONF, **application.LOCAL_CONF, **INTERPRETED}
    # Thousands of tests share it: half a gigabyte was still in use where 1 GiB is all that there is.
    settings |= {"spark.driver.memory": "2g", "spark.sql.ui.retainedExecutions": "10"}
    # Java's optimizing compiler is off as for the application: it took a quarter of what these tests cost.
    # All their code needs room. With room for the heap from the start, garbage is collected half as often.
    # G1 has threads of its own, and two of these sessions share two cores. Hadoop starts a program for each
    # file that it makes or renames: at once, and not by a helper of Java.
    java = application.LOCAL_CONF["spark.driver.extraJavaOptions"]
    java += " -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Xms1g -Xmn512m -XX:MetaspaceSize=256m"
    java += " -Djdk.lang.Process.launchMechanism=VFORK"
    # And it is started as on a worker far from where this was written.
    zone_id = os.environ.get("TZ", "America/New_York")
    far_away = f"-Duser.timezone={zone_id} -Duser.language=tr -Duser.country=TR"
    settings["spark.driver.extraJavaOptions"] = f"{java} {far_away}"
    settings |= dict.fromkeys(
        ("spark.ui.retainedJobs", "spark.ui.retainedStages", "spark.ui.retainedTasks"), "50"
    )
    for key, value in settings.items():
        builder = builder.config(key, value)
    # As the package starts Spark, whatever the locale of its caller: Java takes the encoding of file names
    # from it.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LC_ALL", "C.UTF-8")
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    make_exact(session)
    _leave_out_other_services(session)
    yield session
    session.stop()


def _leave_out_other_services(session: Any) -> None:
    """Let Spark send its tasks no defaults of YARN, MapReduce and HDFS: a fifteenth of all work was that."""
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    for service in ("yarn.", "mapreduce.", "dfs."):
        for name in hadoop.getPropsWithPrefix(service).keySet().toString()[1:-1].split(", "):
            hadoop.unset(f"{service}{name}")


@pytest.fixture(autouse=True)
def _compiled(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let Spark compile for a test with this mark, as each application does that is submitted.

    What reads files does much with single values.
    """
    if not request.node.get_closest_marker("compiled") or "spark" not in request.fixturenames:
        yield
        return
    from airflow_provider_scope.spark.session import with_settings

    with with_settings(request.getfixturevalue("spark"), COMPILED):
        yield


@pytest.fixture(autouse=True)
def _forget_tables(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let go of the tables of a test: Delta holds each for an hour, and a worker's tests make thousands."""
    yield
    session = getattr(request.node, "funcargs", {}).get("spark")
    if hasattr(session, "_jvm"):  # some tests have a text of this name
        # By its whole name: for each part of it, Java would look through all jars.
        getattr(session._jvm, "org.apache.spark.sql.delta.DeltaLog").clearCache()
