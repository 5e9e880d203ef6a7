"""Run a model on some files, into a table that is thrown away."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.core import model_check
from airflow_provider_scope.core.plan import EVENT
from airflow_provider_scope.core.sql import quoted
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.spark.app import make_exact
from airflow_provider_scope.spark.causes import short_cause
from airflow_provider_scope.spark.imports import leave_out_numpy
from airflow_provider_scope.spark.streams import checked, read_streams
from airflow_provider_scope.spark.structs import to_columns, to_struct

if TYPE_CHECKING:
    from airflow_provider_scope.core.model_check import ModelPlan


def main(arguments: list[str]) -> int:
    """Run the plan whose path is given; report by one event on standard output."""
    plan = model_check.decode(Path(arguments[0]).read_bytes())
    leave_out_numpy()
    spark = SparkSession.builder.getOrCreate()
    try:
        _emit(event="ran", **run(spark, plan))
    except InputError as err:
        _emit(event="failed", cause=err.what)
        return 1
    except Exception as err:  # the boundary of the process: whatever it is becomes the reported cause
        _emit(event="failed", cause=short_cause(err))
        raise
    finally:
        spark.stop()
    return 0


def run(spark: SparkSession, plan: ModelPlan) -> dict[str, Any]:
    """Do what the script of a batch does, and give the model's columns and the number of rows."""
    make_exact(spark)
    read_streams(spark, plan.extraction).createOrReplaceTempView(plan.rowset)
    made = []
    for name, sql in plan.queries:
        made.append(spark.sql(sql))
        made[-1].createOrReplaceTempView(name)
    declared = to_struct({column.name: column.spark for column in plan.columns})
    empty = spark.createDataFrame([], declared).write.format("delta")
    empty.partitionBy(*plan.partition_by).save(plan.table)
    rows = made[-1].select([checked(F.col(quoted(c.name)), c, c.name) for c in plan.columns])
    rows.write.format("delta").mode("append").save(plan.table)
    count = spark.read.format("delta").load(plan.table).count()
    return {"columns": to_columns(made[0].schema), "rows": count}


def _emit(**event: Any) -> None:
    sys.stdout.write(EVENT + json.dumps(event) + "\n")
    sys.stdout.flush()
