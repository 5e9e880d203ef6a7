"""The classes that make Delta's commits; ``tests/airflow/test_s3_store.py`` has the one for S3 commit."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException

from airflow_provider_scope.spark import log_stores

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

COMMITS, WARM = 200, 10
LINKING, CONDITIONAL = "LinkingLogStore", "ConditionalLogStore"


def store_of(spark: Any, name: str) -> Any:
    jvm, gateway = spark._jvm, spark.sparkContext._gateway
    given = gateway.new_array(jvm.java.lang.Object, 1)
    given[0] = spark._jsc.hadoopConfiguration()
    return log_stores.load_class(spark, name).getConstructors()[0].newInstance(given)


def write(spark: Any, store: Any, path: Path, *, overwrite: bool) -> None:
    jvm = spark._jvm
    actions = jvm.java.util.ArrayList()
    actions.add('{"a":"é"}')
    actions.add("{}")
    file = jvm.org.apache.hadoop.fs.Path(str(path))
    store.write(file, actions.iterator(), overwrite, spark._jsc.hadoopConfiguration())


@pytest.mark.parametrize("name", [LINKING, CONDITIONAL])
def test_what_may_be_overwritten_is_written_as_delta_does(spark, name, tmp_path):
    store = store_of(spark, name)
    for _ in range(2):
        write(spark, store, tmp_path / "_last_checkpoint", overwrite=True)
    assert (tmp_path / "_last_checkpoint").read_bytes() == '{"a":"é"}\n{}\n'.encode()


def test_a_client_that_cannot_refuse_a_commit_writes_none(spark, tmp_path):
    """The one of a disk cannot, and neither can Hadoop's for S3 before 3.4.2."""
    with pytest.raises(IllegalArgumentException, match=r"fs\.option\.create\.conditional\.overwrite"):
        write(spark, store_of(spark, CONDITIONAL), tmp_path / "0.json", overwrite=False)
    assert not (tmp_path / "0.json").exists()


def test_of_two_processes_that_commit_a_version_on_a_disk_one_does(spark, tmp_path):
    """This one creates each file as well, at another moment of the commit for each version.

    Delta's own class replaces some of them: those that come after it has looked, and before its rename.
    """
    store, folder = store_of(spark, LINKING), tmp_path / "ä b%41"
    folder.mkdir()
    (tmp_path / "theirs").write_text("theirs")

    def by_delta(path: Path) -> str:
        try:
            write(spark, store, path, overwrite=False)
        except Py4JJavaError as err:
            return str(err.java_exception.getClass().getName())
        return ""

    def by_others(path: Path, wait: float) -> bool:
        time.sleep(wait)
        try:
            os.link(tmp_path / "theirs", path)
        except FileExistsError:
            return False
        return True

    wins = [0, 0]
    began = time.perf_counter()
    for number in range(WARM):
        by_delta(tmp_path / f"{number}.json")
    takes = (time.perf_counter() - began) / WARM
    with ThreadPoolExecutor(2) as pool:
        for number in range(COMMITS):
            path = folder / f"{number:020}.json"
            ours = pool.submit(by_delta, path)
            is_theirs = pool.submit(by_others, path, takes * number / COMMITS).result()
            error = "java.nio.file.FileAlreadyExistsException" if is_theirs else ""
            text = "theirs" if is_theirs else '{"a":"é"}\n{}\n'
            assert (ours.result(), path.read_text()) == (error, text)
            wins[is_theirs] += 1
    assert all(wins)
    assert len([*folder.iterdir()]) == COMMITS  # nothing is left beside them


def test_a_class_of_the_users_own_is_left_alone(spark):
    conf, setting = spark._jsc.sc().conf(), "spark.delta.logStore.s3.impl"
    conf.set(setting, "io.delta.storage.S3DynamoDBLogStore")
    try:
        log_stores.use(spark, "s3://bucket/table")
        assert conf.get(setting) == "io.delta.storage.S3DynamoDBLogStore"
    finally:
        conf.remove(setting)


def test_a_table_that_delta_has_at_hand_is_committed_to_by_it_as_well(spark, tmp_path):
    conf, setting, table = (
        spark._jsc.sc().conf(),
        "spark.delta.logStore.file.impl",
        f"file://{tmp_path}/table",
    )
    conf.remove(setting)

    def store() -> str:
        log = getattr(spark._jvm, "org.apache.spark.sql.delta.DeltaLog").forTable(spark._jsparkSession, table)
        return str(log.store().getDelegate(log.logPath()).logStoreImpl().getClass().getSimpleName())

    spark.range(1).write.format("delta").save(table)
    assert store() == "HDFSLogStore"
    log_stores.use(spark, table)
    assert store() == LINKING
