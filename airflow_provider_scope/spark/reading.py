"""From the files of a batch to the rows of the user's SELECT."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql import types as T  # noqa: N812

from airflow_provider_scope.core import sql as sql_text
from airflow_provider_scope.spark.structs import to_struct

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from airflow_provider_scope.core.plan import Plan
    from airflow_provider_scope.core.records import OffsetEntry

VIRTUAL = T.StructType(
    [
        T.StructField("source_file_uri", T.StringType()),
        T.StructField("source_file_length", T.LongType()),
        T.StructField("source_file_created", T.TimestampType()),
        T.StructField("source_file_modified", T.TimestampType()),
    ]
)
_STRICT: dict[str, dict[str, str]] = {
    # Spark's defaults turn what does not parse into NULL, and ignore a CSV header in another order.
    "csv": {"mode": "FAILFAST", "enforceSchema": "false"},
    "json": {"mode": "FAILFAST"},
    # Without it the first file's columns are taken and the others' extra columns vanish silently.
    "parquet": {"mergeSchema": "true"},
    "orc": {"mergeSchema": "true"},
}


def select(spark: SparkSession, plan: Plan, entry: OffsetEntry) -> DataFrame:
    """Give the SELECT over the files of a batch, as a lazy DataFrame."""
    view = f"scope_data_{entry.seq}"
    data = read_files(spark, plan, entry)
    wanted = [name for name in VIRTUAL.names if name in sql_text.words(plan.sql)]
    if wanted:
        data = _with_virtual_columns(spark, data, entry, wanted)
    data.createOrReplaceTempView(view)
    # Spark 4.2 hands parameters to the parser, and Delta 4.4's parser drops them there.
    spark.conf.set("spark.sql.legacy.parameterSubstitution.constantsOnly", "true")
    try:
        result = spark.sql(sql_text.over_view(plan.sql, view), args=plan.sql_params or None)
    finally:
        spark.catalog.dropTempView(view)
    return _once(result, wanted)


def read_files(spark: SparkSession, plan: Plan, entry: OffsetEntry) -> DataFrame:
    """Read exactly the files of a batch.

    ``__globPaths__=false`` is what Spark's own streaming source sets: without it ``part[1].parquet``
    reads ``part1.parquet``.
    """
    options = {**_STRICT.get(plan.source_format, {}), **plan.source_options, "__globPaths__": "false"}
    reader = spark.read.format(plan.source_format)
    if plan.source_columns:
        reader = reader.schema(to_struct(plan.source_columns))
        if "mergeSchema" not in plan.source_options:
            options.pop("mergeSchema", None)  # it would read every footer for nothing
    return reader.options(**options).load([file.path for file in entry.files])


def _with_virtual_columns(
    spark: SparkSession, data: DataFrame, entry: OffsetEntry, wanted: list[str]
) -> DataFrame:
    """Add the virtual columns that the SQL names, with the values of the log.

    Spark's own ``_metadata`` is percent-encoded and shows the state at planning.
    """
    path = spark._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr]  # noqa: SLF001 - as Spark encodes it
    rows = [
        {
            "scope_key": _slashes(path(file.path).toUri().toString()),
            "uri": file.path,
            "length": file.size_bytes,
            "created": file.created_ms,
            "modified": file.modified_ms,
        }
        for file in entry.files
    ]
    # As a literal: a list of Python rows would start a Python worker, half a second for each batch.
    schema = "array<struct<scope_key string, uri string, length bigint, created bigint, modified bigint>>"
    known = (
        spark.range(1)
        .select(F.inline(F.from_json(F.lit(json.dumps(rows)), schema)))
        .select(
            "scope_key",
            F.col("uri").alias("source_file_uri"),
            F.col("length").alias("source_file_length"),
            F.timestamp_millis("created").alias("source_file_created"),
            F.timestamp_millis("modified").alias("source_file_modified"),
        )
    )
    key = F.regexp_replace(F.col("_metadata.file_path"), "^file:/+", "file:///")
    names = data.columns
    keyed = data.select("*", key.alias("scope_key"))
    joined = keyed.join(F.broadcast(known.withColumn("scope_found", F.lit(col=True))), "scope_key", "left")
    return joined.select(*[F.col(f"`{name}`") for name in names], *[_known(name) for name in wanted])


def _known(name: str) -> Column:
    message = F.concat(F.lit("rows of a file that is not in the batch: "), F.col("scope_key"))
    return F.when(F.col("scope_found"), F.col(name)).otherwise(F.raise_error(message)).alias(name)


def _slashes(uri: str) -> str:
    return re.sub("^file:/+", "file:///", uri)


def _once(result: DataFrame, wanted: list[str]) -> DataFrame:
    """Drop the second copy of a virtual column: ``SELECT *, source_file_uri`` names it twice."""
    names = [field.name for field in result.schema.fields]
    seen: set[str] = set()
    keep = []
    for index, name in enumerate(names):
        if name in wanted and name in seen:
            continue
        seen.add(name)
        keep.append(index)
    if len(keep) == len(names):
        return result
    numbered = result.toDF(*[f"c{index}" for index in range(len(names))])
    return numbered.select(*[F.col(f"c{index}").alias(names[index]) for index in keep])
