"""The class that makes Delta's commits on S3; ``tests/airflow/test_s3_store.py`` has it commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import IllegalArgumentException

from airflow_provider_scope.spark import session

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark


@pytest.fixture
def store(spark: Any) -> Any:
    spark.conf.set(session.LOG_STORE, session.LOG_STORE_CLASS)
    try:
        session.load_log_store(spark)
    finally:
        spark.conf.unset(session.LOG_STORE)
    jvm, gateway = spark._jvm, spark.sparkContext._gateway
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    given = gateway.new_array(jvm.java.lang.Object, 1)
    given[0] = spark._jsc.hadoopConfiguration()
    constructor = jvm.java.lang.Class.forName(session.LOG_STORE_CLASS, True, loader).getConstructors()[0]  # noqa: FBT003
    return constructor.newInstance(given)


def write(spark: Any, store: Any, path: Path, *, overwrite: bool) -> None:
    jvm = spark._jvm
    actions = jvm.java.util.ArrayList()
    actions.add('{"a":"é"}')
    actions.add("{}")
    file = jvm.org.apache.hadoop.fs.Path(str(path))
    store.write(file, actions.iterator(), overwrite, spark._jsc.hadoopConfiguration())


def test_what_may_be_overwritten_is_written_as_delta_does(spark, store, tmp_path):
    for _ in range(2):
        write(spark, store, tmp_path / "_last_checkpoint", overwrite=True)
    assert (tmp_path / "_last_checkpoint").read_bytes() == '{"a":"é"}\n{}\n'.encode()


def test_a_client_that_cannot_refuse_a_commit_writes_none(spark, store, tmp_path):
    """The one of a disk cannot, and neither can Hadoop's for S3 before 3.4.2."""
    with pytest.raises(IllegalArgumentException, match=r"fs\.option\.create\.conditional\.overwrite"):
        write(spark, store, tmp_path / "0.json", overwrite=False)
    assert not (tmp_path / "0.json").exists()


def test_a_class_of_the_users_own_is_left_alone(spark):
    spark.conf.set(session.LOG_STORE, "io.delta.storage.S3DynamoDBLogStore")
    try:
        session.load_log_store(spark)
        assert spark.conf.get(session.LOG_STORE) == "io.delta.storage.S3DynamoDBLogStore"
    finally:
        spark.conf.unset(session.LOG_STORE)
