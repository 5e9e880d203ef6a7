"""Text files, one row for each line; and checks of the encoding of all files that hold text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.spark.files import listing
from airflow_provider_scope.spark.files.formats import Check, Records, by_options
from airflow_provider_scope.spark.files.listing import FILE, SHOWN, Problem, bad_files, file_paths, with_lines
from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.spark.files.formats import Source

UNDECODED = "encoding"
"""The rule that a record with a replacement character breaks. A decoder writes one for bytes that it does not
know; but a good record may have one as well, so that ``check_bytes`` decides."""
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_ENCODING_HINT = "name the encoding of the file: options={'encoding': 'ISO-8859-1'}"


def records(spark: SparkSession, entry: OffsetEntry, source: Source) -> list[Records]:
    """Read the lines of all files. Spark does not decode them: a check finds bytes that are not UTF-8."""
    rows = listing.load(spark, "text", entry.paths, source.options)
    is_utf8 = Check("it has bytes that are not UTF-8", "is_valid_utf8(value)", "make_valid_utf8(value)")
    name = source.columns.names[0] if source.columns else "value"
    return [Records(rows, [is_utf8], "make_valid_utf8(value)", [(name, "value")])]


def lines_of(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Read the lines of files with their bytes as they are: ``value``, ``FILE`` and ``START``."""
    return listing.load(spark, "text", paths, {"lineSep": "\n"})


def encoding_check(name: str) -> Check:
    """Check that a column's text has no character that a decoder writes for bytes that it does not know."""
    passes = f"NOT coalesce(contains({quoted(name)}, '{_REPLACEMENT}'), false)"
    return Check(UNDECODED, passes, quoted(name))


def check_bytes(spark: SparkSession, entry: OffsetEntry, source: Source, suspects: Sequence[str]) -> None:
    """Check that the bytes of the files are of their encoding: they may hold a replacement character as such.

    :param suspects: Files with a record that breaks the rule ``UNDECODED``.
    :raises BadFileError: A file has bytes that its encoding does not know.
    """
    for part, alike in by_options(entry, source):
        if alike.is_utf8:
            line = F.first(F.expr(f"left(make_valid_utf8(value), {SHOWN})")).alias("line")
            bad_lines = lines_of(spark, part.paths).where("NOT is_valid_utf8(value)")
            problems = [
                Problem(row[FILE], "it has bytes that are not UTF-8", row.line, _ENCODING_HINT)
                for row in bad_lines.groupBy(FILE).agg(line).collect()
            ]
        else:
            # Other encodings cannot be read by lines here; in them, a replacement character as such is rare.
            fault = f"it has bytes that are not {alike.encoding}"
            files = part.with_files(file_paths(entry, suspects).values()).paths
            problems = [Problem(file, fault, hint=_ENCODING_HINT) for file in files]
        if problems:
            raise bad_files(part, problems if alike.is_multi_line else with_lines(spark, part, problems))
