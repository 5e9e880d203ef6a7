"""The columns of CSV and JSON files, inferred from all values of a batch; no type changes one of them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, cast

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql import types as T  # noqa: N812

from airflow_provider_scope.columns import with_hints
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.spark import storage, structs, values
from airflow_provider_scope.spark.files import csv_files, json_files
from airflow_provider_scope.spark.files.formats import NUMBER, RECORD
from airflow_provider_scope.spark.files.listing import KEPT, NAMED, in_order, union
from airflow_provider_scope.spark.files.quarantine import read_good_files
from airflow_provider_scope.spark.files.reading import naming_faults, source_for
from airflow_provider_scope.spark.files.table_types import type_of_texts
from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.spark.commit import DeltaLog
    from airflow_provider_scope.spark.files.formats import Source
    from airflow_provider_scope.spark.plan import Plan

_NUMBERS = (T.DoubleType, T.DecimalType)
"""What Spark takes JSON numbers for that are no bigint."""


def pinned(plan: Plan, log: DeltaLog) -> Plan:
    """Take the columns that the first batches of a plan have in the table.

    If another run committed them, later batches have its columns, too.
    """
    columns = log.inferred_columns(plan.pipeline, plan.batches[0])
    return replace(plan, inferred_columns=structs.from_text(columns)) if columns else plan


def columns_text(plan: Plan) -> str:
    return structs.to_text(structs.to_struct(plan.file_columns or {}))


def inferred(spark: SparkSession, plan: Plan, entry: OffsetEntry) -> Plan:
    """Add the columns of the files of a batch to a plan; columns that the plan has already come first.

    Where batches add columns, these are texts, so that no type depends on which files are in one batch.
    With ``bad_records="quarantine"``, files that cannot be read do not count; records that do not parse never
    do.

    :raises BadFileError: Files cannot be read, or all of them, if bad ones are put aside.
    :raises InputError: The files have no column.
    """
    source = source_for(spark, replace(plan, inferred_columns=None), entry)
    is_json = source.format == "json"
    untyped = replace(source, table=None)
    prepare = partial(_checked, spark, has_header=not plan.extends_columns)
    infer = partial(_infer_json if is_json else _infer_csv, spark)
    if plan.extends_columns:
        infer = partial(_infer_texts, spark, structs.to_struct(plan.file_columns or plan.hints))
    readable = entry
    if plan.files.bad_records == "quarantine":
        good = read_good_files(spark, entry, replace(untyped, quarantines=True), infer, prepare)
        if good.result is None and good.error and plan.has_to_infer:
            raise good.error
        new, readable = good.result or T.StructType(), good.entry
    else:
        with naming_faults(spark, entry):
            new = infer(entry, prepare(entry, untyped))
    earlier = plan.inferred_columns or {}
    if earlier and not new.fields:
        return plan
    columns = structs.to_struct(with_hints({**earlier, **structs.to_mapping(new)}, plan.hints))
    if source.table:
        columns = source.table.read_as(columns, type_of_texts, adds=is_json and not earlier)
    # Only columns that are new have the table's types.
    types = structs.to_mapping(columns) | earlier | plan.hints
    columns = structs.to_struct(types)
    text = structs.to_text(columns)
    problem = ""
    if not types:
        problem = (
            f"The files of batch {entry.seq} have no columns, so none can be inferred. They may not be "
            f"{plan.files.format}: {', '.join(readable.paths[:NAMED])}."
        )
    elif T.StructType.fromDDL(text) != columns:
        problem = f"The columns of batch {entry.seq} have names that cannot be kept: {text}."
    if problem:
        raise InputError(problem, kept=KEPT, do="check the `format`, or declare `columns`")
    return replace(plan, inferred_columns=structs.to_mapping(columns))


def _checked(spark: SparkSession, entry: OffsetEntry, source: Source, *, has_header: bool) -> Source:
    """Complete a source of CSV files by their columns.

    :param has_header: Whether they all have those of one of them.
    """
    storage.check_bzip2(spark, entry)
    if source.format != "csv" or not has_header:
        return source
    names = csv_files.columns_in_files(spark, entry, source.options).names  # all files have the header of one
    return replace(source, columns=T.StructType([T.StructField(name, T.StringType()) for name in names]))


def _infer_texts(
    spark: SparkSession, known: T.StructType, entry: OffsetEntry, source: Source
) -> T.StructType:
    """Find the columns that are not known yet, all text: in the order of the files, and of each file.

    Of names that differ in letter case alone, the first one counts: a file with another has a bad header,
    or bad records.
    """
    if source.format == "json":
        names = json_files.keys_of(spark, entry, source, known)
    else:
        names = csv_files.headers_of(spark, entry, source)
    seen = {name.lower() for name in ["", *known.names]}
    columns = T.StructType()
    for name in chain.from_iterable(names.get(path, ()) for path in entry.paths):
        if name.lower() not in seen:
            seen.add(name.lower())
            columns = columns.add(name, T.StringType())
    return columns


def _infer_csv(spark: SparkSession, entry: OffsetEntry, source: Source) -> T.StructType:
    names = source.columns.names if source.columns else []
    if not names:
        return T.StructType()
    kinds = values.types_of_texts(source.options)
    texts = ", ".join(f"nullif({quoted(name)}, '')" for name in names)
    records = csv_files.records(spark, entry, source)
    pieces = [
        piece.rows.where(f"{RECORD} IS NULL").selectExpr(f"posexplode(array({texts})) AS (place, text)")
        for piece in records
    ]
    is_numbered = any(NUMBER in piece.rows.columns for piece in records)
    with in_order(spark) if is_numbered else nullcontext():
        bits = _type_bits(union(pieces), kinds, source.options)
    return T.StructType(
        [
            T.StructField(name, values.narrowest(bits.get(place, values.ANY), kinds))
            for place, name in enumerate(names)
        ]
    )


def _infer_json(spark: SparkSession, entry: OffsetEntry, source: Source) -> T.StructType:
    """Take the columns that Spark finds, with types of numbers that hold each digit."""
    columns = json_files.columns_in_files(spark, entry, source.options)
    numbers = [number for field in columns for number in _numbers(quoted(field.name), field.dataType)]
    if not numbers:
        return columns
    rows = json_files.rows_of(spark, entry.paths, columns, source).where(f"{RECORD} IS NULL")
    lists = rows.selectExpr(f"posexplode(array({', '.join(numbers)})) AS (place, texts)")
    bits = _type_bits(lists.selectExpr("place", "explode(texts) AS text"), values.NUMBERS, source.options)
    all_bits = iter([bits.get(place, values.ANY) for place in range(len(numbers))])

    def narrowed(kind: T.DataType) -> T.DataType:
        """Put types in the places of numbers, which come in the order of ``_numbers``."""
        return values.narrowest(next(all_bits), values.NUMBERS) if isinstance(kind, _NUMBERS) else kind

    return cast("T.StructType", structs.map_leaves(columns, narrowed))


def _type_bits(texts: DataFrame, kinds: tuple[T.DataType, ...], options: Mapping[str, str]) -> dict[int, int]:
    """Find for each place the bits of the types that all of its texts may be of, in one pass.

    :param texts: The columns ``place`` and ``text``. That all places have one column keeps Spark's code
        small: it has a limit, and an expression for each of ten columns is beyond it.
    """
    together = F.expr(f"bit_and({values.type_bits('text', kinds, options)})")
    return {row["place"]: row["bits"] for row in texts.groupBy("place").agg(together.alias("bits")).collect()}


def _numbers(value: str, kind: T.DataType, depth: int = 0) -> Iterator[str]:
    """Write SQL of an array of texts for each place in a type with numbers that may have been rounded."""
    if isinstance(kind, T.StructType):
        for field in kind:
            yield from _numbers(f"{value}.{quoted(field.name)}", field.dataType, depth)
    elif isinstance(kind, T.ArrayType):
        for inner in _numbers(f"x{depth}", kind.elementType, depth + 1):
            yield f"flatten(transform(coalesce({value}, array()), x{depth} -> {inner}))"
    elif isinstance(kind, _NUMBERS):
        yield f"array({value})"
