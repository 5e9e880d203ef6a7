"""Parquet and ORC files to typed rows: their footers say what Spark would drop, fill in or reinterpret."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.core.sql import quoted
from airflow_provider_scope.spark import file_columns, footers, listing
from airflow_provider_scope.spark.checks import Check, Records, json_of
from airflow_provider_scope.spark.file_columns import own_columns
from airflow_provider_scope.spark.problems import Problem, bad_files, unreadable_footers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.readwriter import DataFrameReader

    from airflow_provider_scope.core.records import OffsetEntry
    from airflow_provider_scope.spark.footers import Shape
    from airflow_provider_scope.spark.source import Source


def records(spark: SparkSession, entry: OffsetEntry, source: Source) -> list[Records]:
    """Give the records of all files, one value for all files that are read alike.

    :raises BadFileError: A file has other columns than declared, or is not of the format.
    :raises SourceUnreadableError: A footer could not be read.
    """
    found = footers.read(spark, source.format, [file.path for file in entry.files])
    if found.unreadable:
        raise unreadable_footers(entry, found.unreadable)
    columns = source.columns
    if columns is None:
        columns, clashes = file_columns.merge(found.shapes)
        told = [Problem(found.shapes[0].paths[0], "; ".join(clashes), hint=file_columns.NO_TYPE)]
        problems = told if clashes else []
    else:
        problems = _differences(found.shapes, columns, source)
    if problems:
        raise bad_files(entry, problems)
    return _read(spark, found.shapes, columns, source)


def _differences(shapes: Sequence[Shape], columns: T.StructType, source: Source) -> list[Problem]:
    problems = []
    for shape in shapes:
        found = file_columns.differences(shape, columns, extra=source.extra, missing=source.missing)
        what = "; ".join(what for what, _ in found)
        hint = next((hint for _, hint in found if hint), "")
        problems += [Problem(path, what, hint=hint) for path in shape.paths if found]
    return problems


def _read(
    spark: SparkSession, shapes: Sequence[Shape], columns: T.StructType, source: Source
) -> list[Records]:
    scans: dict[tuple[str, ...], tuple[T.StructType, list[str], list[str]]] = {}
    for shape in shapes:
        asked, values = _plan(shape, columns)
        key = (asked.simpleString(), *values, str(shape.is_calendar_known))
        scans.setdefault(key, (asked, values, []))[2].extend(shape.paths)
    found = []
    for key, (asked, values, paths) in scans.items():
        calendar = _GREGORIAN if key[-1] == "True" else {}
        given = {**calendar, **_CHECKED, **source.options}
        rows = listing.load(functools.partial(_reader, spark, source.format, given, asked), paths)
        checks = [
            Check(
                f"{name} has nanoseconds that a timestamp cannot hold",
                f"({quoted(name)} % 1000 <=> 0 OR {quoted(name)} IS NULL)",
                quoted(name),
            )
            for name, value in zip(columns.names, values, strict=True)
            if value.startswith(_MICROS)
        ]
        if source.format == "orc" and key[-1] != "True":
            checks += [_after_1582(f) for f in asked if isinstance(f.dataType, _DAYS)]
        record = json_of("struct(" + ", ".join(map(quoted, asked.names)) + ")")
        found.append(Records(rows, checks, record, list(zip(columns.names, values, strict=True))))
    return found


_DAYS = (T.DateType, T.TimestampType, T.TimestampNTZType)
_GREGORIAN = {"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"}
"""Take old dates as they are; the session's setting is to refuse them."""
_CHECKED = {"parquet.page.verify-checksum.enabled": "true"}
"""Compare the pages of parquet files with their checksums, where they have them: Spark writes such."""
_MICROS = "CAST(timestamp_micros("


def _after_1582(field: T.StructField) -> Check:
    """Refuse old dates of ORC files that do not name their calendar: Spark takes it for the Julian one."""
    name = quoted(field.name)
    return Check(
        f"{field.name} is before 1582-10-15, and the file does not say in which calendar",
        f"({name} IS NULL OR {name} >= DATE'1582-10-15')",
        name,
    )


def _reader(
    spark: SparkSession, kind: str, options: Mapping[str, str], columns: T.StructType
) -> DataFrameReader:
    return spark.read.format(kind).options(**options).schema(columns)


def _plan(shape: Shape, columns: T.StructType) -> tuple[T.StructType, list[str]]:
    """Give the columns to ask Spark for, and SQL of each value."""
    own = {field.name.lower(): field for field in own_columns(shape)}
    nanoseconds = {name.lower() for name in shape.nanoseconds}
    asked = T.StructType()
    values = []
    for field in columns:
        name, target = quoted(field.name), field.dataType.simpleString()
        there = own.get(field.name.lower())
        if there is not None and field.name.lower() in nanoseconds:
            asked = asked.add(field.name, T.LongType())
            is_number = isinstance(field.dataType, T.LongType)
            values.append(name if is_number else f"{_MICROS}{name} DIV 1000) AS {target})")
        elif there is None or isinstance(there.dataType, (T.StructType, T.ArrayType, T.MapType)):
            asked = asked.add(field.name, field.dataType)
            values.append(name)
        else:
            same = there.dataType.simpleString() == target
            asked = asked.add(field.name, there.dataType)
            values.append(name if same else f"CAST({name} AS {target})")
    return asked, values
