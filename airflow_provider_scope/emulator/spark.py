"""Runs queries that do more than pick columns on Spark. Imported by the first of them: it needs Java."""

from __future__ import annotations

from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_provider_scope.engines.application import (
    EXCLUDED_PACKAGES,
    LOCAL_CONF,
    REQUIRED_CONF,
    delta_package,
)
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.spark.session import make_exact, short_cause
from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa


def run_query(sql: str, views: Mapping[str, pa.Table]) -> pa.Table:
    """Run a query over some tables and give its rows.

    :raises InputError: Spark cannot parse the query, or fails on a row.
    """
    session = _session()
    try:
        for name, rows in views.items():
            session.createDataFrame(rows).createOrReplaceTempView(quoted(name))
        return session.sql(sql).toArrow()
    except (PySparkException, Py4JJavaError) as err:
        raise InputError(short_cause(err)) from err


def _session() -> SparkSession:
    """Give a new session in the Spark of this process, which is started if there is none.

    That Spark is never stopped: other code in the process may use it, and it ends with the process.
    """
    builder = SparkSession.builder
    if SparkContext._active_spark_context is None:  # noqa: SLF001 - nothing public tells without a start
        builder = builder.master("local[*]").appName("scope-emulator")
        # With Delta, which cannot be added to a running Spark: later code in this process may need it.
        settings = {
            "spark.jars.packages": delta_package(),
            "spark.jars.excludes": ",".join(EXCLUDED_PACKAGES),
            **REQUIRED_CONF,
            **LOCAL_CONF,
        }
        for key, value in settings.items():
            builder = builder.config(key, value)
    session = builder.getOrCreate().newSession()
    make_exact(session)
    return session
