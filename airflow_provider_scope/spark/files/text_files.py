"""Text files, one row for each line; and what the bytes of other text files say of their encoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.spark.files import listing
from airflow_provider_scope.spark.files.formats import Check, Records
from airflow_provider_scope.spark.files.listing import FILE, Problem, bad_files, with_lines
from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.spark.files.formats import Source

SHOWN = 300
"""Characters of a line that are shown."""
UNDECODED = "encoding"
"""The rule that a record breaks with a replacement character: a decoder writes it for bytes that it does not
know. A good record may have one as well, so the bytes of the files decide."""
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_ENCODING = "name the encoding of the file: options={'encoding': 'ISO-8859-1'}"


def records(spark: SparkSession, entry: OffsetEntry, source: Source) -> list[Records]:
    """Give the lines of all files; Spark hands their bytes on as they are, so they are checked here."""
    # Not by `text`, whose arguments have defaults that win over the options.
    paths = [file.path for file in entry.files]
    rows = listing.load(lambda: spark.read.format("text").options(**source.options), paths)
    valid = Check("it has bytes that are not UTF-8", "is_valid_utf8(value)", "make_valid_utf8(value)")
    name = source.columns.names[0] if source.columns else "value"
    return [Records(rows, [valid], "make_valid_utf8(value)", [(name, "value")])]


def lines_of(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Give the lines of files as their bytes are: ``value``, ``FILE`` and ``START``."""
    return listing.load(lambda: spark.read.format("text").option("lineSep", "\n"), paths, with_start=True)


def decoded(name: str) -> Check:
    """Check that a text holds nothing that a decoder may have put in the place of bytes."""
    passes = f"NOT coalesce(contains({quoted(name)}, '{_REPLACEMENT}'), false)"
    return Check(UNDECODED, passes, quoted(name))


def check_bytes(spark: SparkSession, entry: OffsetEntry, source: Source, seen_in: Sequence[str]) -> None:
    """Look at the bytes of the files: they may hold a replacement character as such.

    :param seen_in: Files, as Spark spells them, with a suspected record.
    :raises BadFileError: A file has bytes that its encoding does not know.
    """
    if source.is_utf8:
        line = F.first(F.expr(f"left(make_valid_utf8(value), {SHOWN})")).alias("line")
        wrong = lines_of(spark, [file.path for file in entry.files]).where("NOT is_valid_utf8(value)")
        problems = [
            Problem(row[FILE], "it has bytes that are not UTF-8", row.line, _ENCODING)
            for row in wrong.groupBy(FILE).agg(line).collect()
        ]
    else:
        # What is not UTF-8 cannot be looked at by lines: a replacement character of its own is very rare.
        what = f"it has bytes that are not {source.encoding}"
        problems = [Problem(file, what, hint=_ENCODING) for file in seen_in]
    if problems:
        raise bad_files(entry, problems if source.is_multi_line else with_lines(spark, entry, problems))
