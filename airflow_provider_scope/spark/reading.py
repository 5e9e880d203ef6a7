"""From the files of a batch to the rows of the user's SELECT."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql import types as T  # noqa: N812

from airflow_provider_scope.core import sql as sql_text
from airflow_provider_scope.core.sql import quoted
from airflow_provider_scope.spark import columnar, csv_files, json_files, text_files
from airflow_provider_scope.spark.checks import Check, failing, json_of
from airflow_provider_scope.spark.listing import FILE, same_key
from airflow_provider_scope.spark.source import source_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from airflow_provider_scope.core.plan import Plan
    from airflow_provider_scope.core.records import OffsetEntry
    from airflow_provider_scope.spark.checks import Records
    from airflow_provider_scope.spark.source import Source

VIRTUAL = T.StructType(
    [
        T.StructField("source_file_uri", T.StringType()),
        T.StructField("source_file_length", T.LongType()),
        T.StructField("source_file_created", T.TimestampType()),
        T.StructField("source_file_modified", T.TimestampType()),
    ]
)


_FORMATS: dict[str, Callable[[SparkSession, OffsetEntry, Source], list[Records]]] = {
    "csv": csv_files.records,
    "json": json_files.records,
    "text": text_files.records,
    "parquet": columnar.records,
    "orc": columnar.records,
}


def select(
    spark: SparkSession, plan: Plan, entry: OffsetEntry, *, trusted: frozenset[str] = frozenset()
) -> DataFrame:
    """Give the SELECT over the files of a batch, as a lazy DataFrame.

    Reading it fails at the first record that is not what was declared, and at the first row of the SELECT
    that breaks a rule of ``TableSpec.expect``.

    :param trusted: Rules that are not checked again: what they suspected was looked at in the bytes.
    :raises BadFileError: A file has other columns than declared, or is not of the declared form.
    """
    data = read_files(spark, entry, source_of(plan, trusted))
    return checked(plan, over(spark, plan, entry, data))


def read_files(spark: SparkSession, entry: OffsetEntry, source: Source) -> DataFrame:
    """Read exactly the files of a batch: their columns, and ``FILE``."""
    return union([piece.strict() for piece in records(spark, entry, source)])


def records(spark: SparkSession, entry: OffsetEntry, source: Source) -> list[Records]:
    """Give the records of the files of a batch, one value for all files that are read alike.

    :raises BadFileError: A file has other columns than declared, or is not of the declared form.
    """
    return _FORMATS[source.format](spark, entry, source)


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """Give the rows of frames with the same columns."""
    rows = frames[0]
    for frame in frames[1:]:
        rows = rows.unionByName(frame)
    return rows


def over(spark: SparkSession, plan: Plan, entry: OffsetEntry, data: DataFrame) -> DataFrame:
    """Give the user's SELECT over rows of the files of a batch.

    :param data: The columns of the source, and ``FILE``.
    """
    wanted = [name for name in VIRTUAL.names if name in sql_text.words(plan.sql)]
    data = _with_virtual_columns(spark, data, entry, wanted) if wanted else data.drop(FILE)
    return _once(over_rows(spark, plan.sql, plan.sql_params, data, entry.seq), wanted)


def over_rows(
    spark: SparkSession, sql: str, params: Mapping[str, Any], data: DataFrame, number: int
) -> DataFrame:
    """Give a SELECT of the user's over rows.

    :param number: Of the batch, for the view's name.
    """
    view = f"scope_data_{number}"
    data.createOrReplaceTempView(view)
    try:
        return spark.sql(sql_text.over_view(sql, view), args=dict(params) or None)
    finally:
        spark.catalog.dropTempView(view)


def checked(plan: Plan, result: DataFrame) -> DataFrame:
    """Let the rows of a SELECT fail that break a rule of ``TableSpec.expect``."""
    return failing(result, expected(plan), ROW, file_of(result))


_RULE_HINT = "correct the rule or the SELECT; with source_file_uri in the SELECT the message names the file"
ROW = json_of("struct(*)")
"""SQL of a row of the SELECT as text."""


def expected(plan: Plan) -> list[Check]:
    """Give the rules of ``TableSpec.expect`` as checks of the SELECT's rows."""
    return [
        Check(f"it breaks the rule {name!r} ({predicate})", predicate, "NULL", _RULE_HINT)
        for name, predicate in plan.expect.items()
    ]


def file_of(result: DataFrame) -> str:
    """Give SQL of the file of a row of the SELECT, NULL where the SELECT does not have it."""
    return "source_file_uri" if "source_file_uri" in result.columns else "CAST(NULL AS string)"


def _with_virtual_columns(
    spark: SparkSession, data: DataFrame, entry: OffsetEntry, wanted: list[str]
) -> DataFrame:
    """Add the virtual columns that the SQL names, with the values of the log.

    Spark's own ``_metadata`` is percent-encoded and shows the state at planning.
    """
    path = spark._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr]  # noqa: SLF001 - as Spark encodes it
    rows = [
        {
            "_scope_key": same_key(path(file.path).toUri().toString()),
            "uri": file.path,
            "length": file.size_bytes,
            "created": file.created_ms,
            "modified": file.modified_ms,
        }
        for file in entry.files
    ]
    # As a literal: a list of Python rows would start a Python worker, half a second for each batch.
    schema = "array<struct<_scope_key string, uri string, length bigint, created bigint, modified bigint>>"
    known = (
        spark.range(1)
        .select(F.inline(F.from_json(F.lit(json.dumps(rows)), schema)))
        .select(
            "_scope_key",
            F.col("uri").alias("source_file_uri"),
            F.col("length").alias("source_file_length"),
            F.timestamp_millis("created").alias("source_file_created"),
            F.timestamp_millis("modified").alias("source_file_modified"),
        )
    )
    key = F.regexp_replace(F.col(FILE), "^file:/+", "file:///")
    names = [name for name in data.columns if name != FILE]
    keyed = data.select("*", key.alias("_scope_key"))
    joined = keyed.join(F.broadcast(known.withColumn("_scope_found", F.lit(col=True))), "_scope_key", "left")
    return joined.select(*[F.col(quoted(name)) for name in names], *[_known(name) for name in wanted])


def _known(name: str) -> Column:
    message = F.concat(F.lit("rows of a file that is not in the batch: "), F.col("_scope_key"))
    return F.when(F.col("_scope_found"), F.col(name)).otherwise(F.raise_error(message)).alias(name)


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
