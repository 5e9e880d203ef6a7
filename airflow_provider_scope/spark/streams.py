"""From the files of an EXTRACT to rows: parquet or csv content, whatever the names."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.core.sql import quoted
from airflow_provider_scope.core.streams import VIRTUAL
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.spark.listing import FILE, load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from airflow_provider_scope.core.streams import Extraction, Stream, StreamColumn

_FILE = "struct<part string, uri string, length bigint, modified bigint>"


def read_streams(spark: SparkSession, extraction: Extraction) -> DataFrame:
    """Give the rows of an EXTRACT, as a lazy DataFrame.

    :raises InputError: The files do not have one of the columns.
    """
    pieces = [_read(spark, extraction, kind, parts) for kind, parts in extraction.groups]
    if not pieces:
        kinds = {column.name: column.spark for column in extraction.columns}
        kinds |= {name: VIRTUAL[function][2] for name, function in extraction.virtual}
        fields = ", ".join(f"{quoted(name)} {kind}" for name, kind in kinds.items())
        return spark.createDataFrame([], fields)
    rows = pieces[0]
    for piece in pieces[1:]:
        rows = rows.unionAll(piece)
    return rows


def checked(value: Column, column: StreamColumn | None, name: str) -> Column:
    """Give a value under a name; it fails on a null where the column's type has none."""
    if column is None or column.nullable:
        return value.alias(name)
    failure = F.raise_error(F.lit(f"Column {name} of type {column.type} cannot hold null."))
    return F.when(value.isNull(), failure.cast(column.spark)).otherwise(value).alias(name)


def _read(spark: SparkSession, extraction: Extraction, kind: str, parts: Sequence[str]) -> DataFrame:
    reader = spark.read.format(kind)
    if kind == "csv":
        reader = reader.option("header", "true")
    data = load(lambda: reader, [f"file://{part}" for part in parts])
    missing = [column.name for column in extraction.columns if column.name not in data.columns]
    if missing:
        names = ", ".join(stream.uri for stream in extraction.streams if {*stream.parts} & {*parts})
        raise InputError(f"{names}: there is no column {missing[0]}.")
    picked = [checked(F.col(quoted(c.name)).cast(c.spark), c, c.name) for c in extraction.columns]
    if not extraction.virtual:
        return data.select(picked)
    key = F.regexp_replace(F.col(FILE), "^file:/+", "file:///")
    keyed = data.select(*picked, key.alias("scope part"))
    known = F.broadcast(_known(spark, extraction.streams))
    joined = keyed.join(known, F.col("scope part") == F.col("part"), "left")
    named = [F.col(quoted(column.name)) for column in extraction.columns]
    for name, function in extraction.virtual:
        _, source, kind_of = VIRTUAL[function]
        value = {
            "created": F.lit(None),  # no disk tells it everywhere: unknown rather than guessed
            "modified": F.timestamp_millis("scope_file.modified"),
        }.get(source, F.col(f"scope_file.{source}"))
        named.append(value.cast(kind_of).alias(name))
    return joined.select(named)


def _known(spark: SparkSession, streams: Sequence[Stream]) -> DataFrame:
    """Give the parts of all files as a table."""
    path = spark._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr]  # noqa: SLF001 - as Spark encodes it
    rows = [
        {
            "part": re.sub("^file:/+", "file:///", path(f"file://{part}").toUri().toString()),
            "uri": stream.uri,
            "length": stream.size_bytes,
            "modified": stream.modified_ms,
        }
        for stream in streams
        for part in stream.parts
    ]
    # As a literal: a list of Python rows would start a Python worker.
    table = F.from_json(F.lit(json.dumps(rows)), f"array<{_FILE}>")
    exploded = spark.range(1).select(F.explode(table).alias("scope_file"))
    return exploded.select("scope_file", F.col("scope_file.part").alias("part"))
