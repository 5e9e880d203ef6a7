"""The user's SELECT over the rows of a batch, and the rules of ``TableSpec.expect`` that its rows keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_scope import sql as sql_text
from airflow_provider_scope.exceptions import SqlError
from airflow_provider_scope.spark.files.formats import RULE_HINT, Check, fail_on_bad_record, json_of
from airflow_provider_scope.spark.files.listing import KEPT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_scope.spark.plan import Plan

ROW = json_of("*")
"""SQL of a row of the SELECT as text."""


def selected(spark: SparkSession, plan: Plan, data: DataFrame, seq: int) -> DataFrame:
    """Make the user's SELECT over the rows of a batch.

    :param seq: Of the batch, for the view's name.
    """
    return over_rows(spark, plan.sql, plan.sql_params, data, seq)


def over_rows(
    spark: SparkSession, sql: str, params: Mapping[str, Any], data: DataFrame, seq: int
) -> DataFrame:
    """Make a SELECT over rows; ``pre_filter_sql`` is one, too."""
    view = f"scope_data_{seq}"
    data.createOrReplaceTempView(view)
    try:
        return spark.sql(sql_text.over_view(sql, view), args=dict(params) or None)
    finally:
        spark.catalog.dropTempView(view)


def checked(plan: Plan, result: DataFrame) -> DataFrame:
    """Let the rows of a SELECT fail that break a rule of ``TableSpec.expect``."""
    rules = [
        Check(f"it breaks the rule {name!r} ({predicate})", predicate, "NULL", RULE_HINT)
        for name, predicate in plan.expect.items()
    ]
    return fail_on_bad_record(result, rules, ROW, file_of(result))


def file_of(result: DataFrame) -> str:
    """Write SQL of the file of a row of the SELECT, NULL where the SELECT does not have it."""
    return "source_file_uri" if "source_file_uri" in result.columns else "CAST(NULL AS string)"


def failed(place: str, cause: str) -> SqlError:
    """Make the error of a SELECT that fails on a record, or on the rows of a batch."""
    return SqlError(
        f"The SQL fails on {place}: {cause}",
        kept=KEPT,
        do="correct `sql` (or `columns`, or `options`); the next run loads the batch with them",
    )
