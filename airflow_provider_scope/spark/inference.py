"""The columns of CSV and JSON files, inferred from all values of a batch; no type changes one of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql import types as T  # noqa: N812

from airflow_provider_scope.core.sql import quoted
from airflow_provider_scope.exceptions import BadFileError, InputError
from airflow_provider_scope.spark import candidates, csv_files, json_files, structs
from airflow_provider_scope.spark.checks import RECORD
from airflow_provider_scope.spark.listing import NAMED
from airflow_provider_scope.spark.problems import KEPT
from airflow_provider_scope.spark.reading import union
from airflow_provider_scope.spark.sorting import faults
from airflow_provider_scope.spark.source import source_of
from airflow_provider_scope.spark.strict import naming_faults

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_scope.core.plan import Plan
    from airflow_provider_scope.core.records import OffsetEntry
    from airflow_provider_scope.spark.delta_log import DeltaLog
    from airflow_provider_scope.spark.source import Source

_NUMBERS = (T.DoubleType, T.DecimalType)
"""What Spark takes JSON numbers for that are no bigint."""


def pinned(plan: Plan, log: DeltaLog) -> Plan:
    """Give a plan with the columns that its first batches have in the table.

    Whoever committed them: if it was another run, its columns are those of the batches behind, too.
    """
    found = log.inferred_columns(plan.pipeline, plan.batches[0])
    return _with_columns(plan, found) if found else plan


def _with_columns(plan: Plan, text: str) -> Plan:
    return replace(plan, source=replace(plan.files, columns=structs.from_text(text)))


def columns_of(plan: Plan) -> str:
    """Give the columns of a plan's files as text."""
    return structs.to_text(structs.to_struct(plan.files.columns or {}))


def inferred(spark: SparkSession, plan: Plan, entry: OffsetEntry) -> Plan:
    """Give a plan with the columns of the files of a batch.

    With ``bad_records="quarantine"``, files that cannot be read do not count; records that do not parse never
    do.

    :raises BadFileError: Files cannot be read, or all of them, if bad ones are put aside.
    :raises InputError: The files have no column.
    """
    source = source_of(plan)
    left = entry
    while True:
        try:
            found = _columns(spark, left, source, all_faults=plan.files.bad_records == "quarantine")
            break
        except BadFileError as err:
            rest = tuple(file for file in left.files if file.path not in err.files)
            if plan.files.bad_records != "quarantine" or not rest or rest == left.files:
                raise
            left = left.with_files(rest)
    text = structs.to_text(found)
    if not found.fields or T.StructType.fromDDL(text) != found:
        raise InputError(
            f"The files of batch {entry.seq} have no columns, so none can be inferred. They may not be "
            f"{plan.files.format}: {', '.join(file.path for file in left.files[:NAMED])}."
            if not found.fields
            else f"The columns of batch {entry.seq} have names that cannot be kept: {text}.",
            kept=KEPT,
            do="check the `format`, or declare `columns`",
        )
    return _with_columns(plan, text)


def _columns(spark: SparkSession, entry: OffsetEntry, source: Source, *, all_faults: bool) -> T.StructType:
    """Give the columns of files.

    :param all_faults: Whether an error has to name all files that cannot be read.
    """
    try:
        with naming_faults(spark, entry):
            if source.format == "json":
                return _of_json(spark, entry, source.options)
            names = csv_files.names(spark, entry, source.options).names
            texts = [T.StructField(name, T.StringType()) for name in names]
            source = replace(source, columns=T.StructType(texts))
            return _of_csv(spark, entry, source) if names else T.StructType()
    except BadFileError as err:
        if all_faults and err.__cause__ is not None:
            err.files = faults(spark, entry, source)
            if not err.files:
                raise err.__cause__ from None  # no file fails alone: it may pass
        raise


def _of_csv(spark: SparkSession, entry: OffsetEntry, source: Source) -> T.StructType:
    """Give the types of columns that are read as text."""
    names = source.columns.names if source.columns else []
    kinds = tuple(candidates.candidates(source.options))
    texts = ", ".join(f"nullif({quoted(name)}, '')" for name in names)
    pieces = [
        piece.rows.where(f"{RECORD} IS NULL").selectExpr(f"posexplode(array({texts})) AS (place, text)")
        for piece in csv_files.records(spark, entry, source)
    ]
    bits = _possible(union(pieces), kinds, source.options)
    return T.StructType(
        [
            T.StructField(name, candidates.narrowest(bits.get(place, candidates.ANY), kinds))
            for place, name in enumerate(names)
        ]
    )


def _of_json(spark: SparkSession, entry: OffsetEntry, options: Mapping[str, str]) -> T.StructType:
    """Give the columns that Spark finds, with types of numbers that hold each digit."""
    found = json_files.columns_of(spark, entry, options)
    numbers = [one for field in found for one in _numbers(quoted(field.name), field.dataType)]
    if not numbers:
        return found
    paths = [file.path for file in entry.files]
    rows = json_files.rows_of(spark, paths, found, options).where(f"{RECORD} IS NULL")
    lists = rows.selectExpr(f"posexplode(array({', '.join(numbers)})) AS (place, texts)")
    bits = _possible(lists.selectExpr("place", "explode(texts) AS text"), candidates.NUMBERS, options)
    of_places = iter([bits.get(place, candidates.ANY) for place in range(len(numbers))])
    return T.StructType([T.StructField(f.name, _narrowed(f.dataType, of_places)) for f in found])


def _possible(texts: DataFrame, kinds: tuple[T.DataType, ...], options: Mapping[str, str]) -> dict[int, int]:
    """Give what the texts of each place may be of, in one pass.

    :param texts: The columns ``place`` and ``text``. That all places have one column keeps Spark's code
        small: it has a limit, and an expression for each of ten columns is beyond it.
    """
    together = F.expr(f"bit_and({candidates.possible('text', kinds, options)})")
    return {row["place"]: row["bits"] for row in texts.groupBy("place").agg(together.alias("bits")).collect()}


def _numbers(value: str, kind: T.DataType, depth: int = 0) -> Iterator[str]:
    """Give SQL of a list of texts for each place of a type that has numbers which may be rounded."""
    if isinstance(kind, T.StructType):
        for field in kind:
            yield from _numbers(f"{value}.{quoted(field.name)}", field.dataType, depth)
    elif isinstance(kind, T.ArrayType):
        for inner in _numbers(f"x{depth}", kind.elementType, depth + 1):
            yield f"flatten(transform(coalesce({value}, array()), x{depth} -> {inner}))"
    elif isinstance(kind, _NUMBERS):
        yield f"array({value})"


def _narrowed(kind: T.DataType, bits: Iterator[int]) -> T.DataType:
    """Put types for the places of numbers, in the order of ``_numbers``."""
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(f.name, _narrowed(f.dataType, bits)) for f in kind])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_narrowed(kind.elementType, bits))
    if isinstance(kind, _NUMBERS):
        return candidates.narrowest(next(bits), candidates.NUMBERS)
    return kind
