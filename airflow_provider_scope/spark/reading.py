"""From the files of a batch to the rows of the user's SELECT."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql import types as T  # noqa: N812

from airflow_provider_scope.core import sql as sql_text
from airflow_provider_scope.spark import (
    columnar,
    csv_files,
    file_columns,
    footers,
    json_files,
    json_form,
    text_files,
)
from airflow_provider_scope.spark.bad_files import bad_files, unreadable
from airflow_provider_scope.spark.listing import FILE, same_key
from airflow_provider_scope.spark.records import Check, failing, quoted
from airflow_provider_scope.spark.structs import to_struct

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from airflow_provider_scope.core.plan import Plan
    from airflow_provider_scope.core.records import OffsetEntry
    from airflow_provider_scope.spark.records import Records

OURS = frozenset({"mode", "columnnameofcorruptrecord", "enforceschema", "columnpruning", "mergeschema"})
"""Options that the specs let through only with the value that they have anyway."""
VIRTUAL = T.StructType(
    [
        T.StructField("source_file_uri", T.StringType()),
        T.StructField("source_file_length", T.LongType()),
        T.StructField("source_file_created", T.TimestampType()),
        T.StructField("source_file_modified", T.TimestampType()),
    ]
)


def select(
    spark: SparkSession, plan: Plan, entry: OffsetEntry, *, trusted: frozenset[str] = frozenset()
) -> DataFrame:
    """Give the SELECT over the files of a batch, as a lazy DataFrame.

    :param trusted: Rules that are not checked again: what they suspected was looked at in the bytes.
    :raises BadFileError: A file has other columns than declared, or is not of the declared form.
    """
    view = f"scope_data_{entry.seq}"
    data = read_files(spark, plan, entry, trusted=trusted)
    wanted = [name for name in VIRTUAL.names if name in sql_text.words(plan.sql)]
    data = _with_virtual_columns(spark, data, entry, wanted) if wanted else data.drop(FILE)
    data.createOrReplaceTempView(view)
    try:
        result = spark.sql(sql_text.over_view(plan.sql, view), args=plan.sql_params or None)
    finally:
        spark.catalog.dropTempView(view)
    return _expected(plan, _once(result, wanted))


def _expected(plan: Plan, result: DataFrame) -> DataFrame:
    """Let the batch fail at the first row of the SELECT that breaks a rule of ``TableSpec.expect``."""
    checks = [
        Check(f"it breaks the rule {name!r} ({predicate})", predicate, "NULL")
        for name, predicate in plan.expect.items()
    ]
    named = "source_file_uri" if "source_file_uri" in result.columns else "CAST(NULL AS string)"
    return failing(result, checks, "to_json(struct(*))", named)


def read_files(
    spark: SparkSession, plan: Plan, entry: OffsetEntry, *, trusted: frozenset[str] = frozenset()
) -> DataFrame:
    """Read exactly the files of a batch: their columns, and ``FILE``."""
    found = [piece.strict() for piece in _pieces(spark, plan, entry, trusted=trusted)]
    rows = found[0]
    for piece in found[1:]:
        rows = rows.unionByName(piece)
    return rows


def _pieces(spark: SparkSession, plan: Plan, entry: OffsetEntry, *, trusted: frozenset[str]) -> list[Records]:
    paths = [file.path for file in entry.files]
    declared = to_struct(plan.source_columns) if plan.source_columns else None
    options = given_options(plan)
    if plan.source_format == "csv":
        columns = declared or csv_files.names(spark, paths, options)
        problems = csv_files.problems(spark, paths, columns, options)
        if problems:
            raise bad_files(entry, problems, {})
        return [
            csv_files.read(spark, group, columns, options, trusted=trusted)
            for group in csv_files.groups(spark, paths, options)
        ]
    if plan.source_format == "json":
        columns = declared or json_files.inferred(spark, paths, options)
        groups = json_files.groups(paths, options)
        problems = [problem for group in groups for problem in json_files.problems(group, columns)]
        problems = problems or json_form.problems(
            spark, paths, columns, options, extra=plan.extra_columns == "ignore"
        )
        if problems:
            raise bad_files(entry, problems, json_form.HINTS)
        return [json_files.read(spark, group, columns, options) for group in groups]
    if plan.source_format == "text":
        return [text_files.read(spark, paths, options, declared.names[0] if declared else "value")]
    return _columnar(spark, plan, entry, declared)


def given_options(plan: Plan) -> dict[str, str]:
    """Give the user's options by their names in lower case, but for those that we set whatever they say."""
    named = {name.lower(): value for name, value in plan.source_options.items()}
    return {name: value for name, value in named.items() if name not in OURS}


def _columnar(
    spark: SparkSession, plan: Plan, entry: OffsetEntry, declared: T.StructType | None
) -> list[Records]:
    found = footers.read(spark, plan.source_format, [file.path for file in entry.files])
    if found.unreadable:
        path, cause = found.unreadable[0]
        raise unreadable(entry, path, cause)
    columns, problems = (declared, []) if declared else file_columns.merge(found.shapes)
    told = [(shape.paths[0], "; ".join(problems), None) for shape in found.shapes[:1] if problems]
    if declared:
        for shape in found.shapes:
            differences = file_columns.differences(
                shape,
                declared,
                extra=plan.extra_columns == "ignore",
                missing=plan.missing_columns == "null",
            )
            told += [(path, "; ".join(differences), None) for path in shape.paths if differences]
    if told:
        raise bad_files(entry, told, file_columns.HINTS)
    return columnar.read(spark, plan.source_format, found.shapes, columns, given_options(plan))


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
