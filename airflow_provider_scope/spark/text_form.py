"""Look at the bytes of text files: their encoding, their line ends, their quotes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.core.sql import literal
from airflow_provider_scope.spark import listing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

SHOWN = 300


def not_utf8(spark: SparkSession, paths: Sequence[str]) -> list[tuple[str, str]]:
    """Give the files that are not UTF-8, as Spark spells them, each with one of its lines."""
    found = (
        _lines(spark, paths)
        .where("NOT is_valid_utf8(value)")
        .groupBy("file")
        .agg(F.first(F.expr(f"left(make_valid_utf8(value), {SHOWN})")).alias("line"))
    )
    return [(row.file, row.line) for row in found.collect()]


@dataclass(frozen=True, slots=True)
class LineEnds:
    """How the records of a file end."""

    with_crlf: bool
    with_lf: bool
    is_open: bool
    """A quote is left open at the end of the file."""


def line_ends(spark: SparkSession, paths: Sequence[str], quote: str) -> dict[str, LineEnds]:
    r"""Tell how the lines of each file end that are outside of quotes.

    :param quote: The quote character, one byte in the files' encoding; empty if quotes tell nothing.
    :return: By file, as Spark spells it; files without a line are left out.
    """
    quotes = f"length(value) - length(replace(value, {literal(quote)}, ''))" if quote else "0"
    in_file = Window.partitionBy("file").orderBy("start", "line")
    lines = (
        _lines(spark, paths)
        .select(
            "file",
            "start",
            F.monotonically_increasing_id().alias("line"),
            F.expr(r"endswith(value, '\r')").alias("crlf"),
            F.expr(quotes).alias("quotes"),
        )
        .select(
            "file",
            "crlf",
            (F.sum("quotes").over(in_file) % 2 == 1).alias("inside"),
            F.lead("line").over(in_file).isNull().alias("last"),
        )
    )
    found = lines.groupBy("file").agg(
        F.expr("bool_or(crlf AND NOT inside)").alias("crlf"),
        F.expr("bool_or(NOT crlf AND NOT inside AND NOT last)").alias("lf"),
        F.expr("bool_or(inside AND last)").alias("open"),
    )
    return {row.file: LineEnds(row.crlf, row.lf, row.open) for row in found.collect()}


def blank_lines(spark: SparkSession, paths: Sequence[str]) -> list[str]:
    """Give the files with a line that has characters, and all of them blanks."""
    blank = r"value NOT IN ('', '\r') AND trim(BOTH ' \t\r' FROM value) = ''"
    return [row.file for row in _lines(spark, paths).where(blank).select("file").distinct().collect()]


def odd_quotes(spark: SparkSession, paths: Sequence[str], quote: str) -> list[tuple[str, str]]:
    """Give the files with a line that has an odd number of quotes, each with such a line."""
    odd = f"(length(value) - length(replace(value, {literal(quote)}, ''))) % 2 = 1"
    found = (
        _lines(spark, paths)
        .where(odd)
        .groupBy("file")
        .agg(F.first(F.expr(f"left(value, {SHOWN})")).alias("line"))
    )
    return [(row.file, row.line) for row in found.collect()]


def _lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    rows = listing.load(lambda: spark.read.format("text").option("lineSep", "\n"), paths, with_start=True)
    return rows.select("value", F.col(listing.FILE).alias("file"), F.col(listing.START).alias("start"))
