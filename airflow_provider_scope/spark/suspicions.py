"""What a parser may have made of something else, and a good record may hold as well: its bytes decide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.core.sql import literal, quoted
from airflow_provider_scope.spark import text_form
from airflow_provider_scope.spark.checks import Check
from airflow_provider_scope.spark.problems import Problem, bad_files, with_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from airflow_provider_scope.core.records import OffsetEntry
    from airflow_provider_scope.spark.source import Source

_NOT_UTF8 = "encoding"
_STRAY_QUOTE = "quote"
SUSPICIONS = frozenset({_NOT_UTF8, _STRAY_QUOTE})
"""Rules that a good record may break."""
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_ENCODING = "name the encoding of the file: options={'encoding': 'ISO-8859-1'}"
_QUOTES = (
    "if a quoted field holds line breaks, set multiLine=true; if quotes have no meaning in the file, set "
    "quote=''"
)


def checks(name: str, quote: str) -> list[Check]:
    """Check that a text holds nothing that a parser may have made of something else.

    A decoder writes a replacement character for bytes that it cannot read. And a quote inside of a field that
    is not quoted may be the other half of one that was left open on the line before.

    :param quote: Empty if quotes tell nothing.
    """
    found = [
        Check(_NOT_UTF8, f"NOT coalesce(contains({quoted(name)}, '{_REPLACEMENT}'), false)", quoted(name))
    ]
    if quote:
        text = f"NOT coalesce(contains({quoted(name)}, {literal(quote)}), false)"
        found.append(Check(_STRAY_QUOTE, text, quoted(name)))
    return found


def look(spark: SparkSession, entry: OffsetEntry, source: Source, rule: str, seen_in: Sequence[str]) -> None:
    """Look at the bytes of the files: they may hold a replacement character or a quote as such.

    :param rule: One of ``SUSPICIONS``.
    :param seen_in: Files, as Spark spells them, with a record that breaks it.
    :raises BadFileError: A file has bytes that its encoding does not know, or a quote that is not closed.
    """
    paths = [file.path for file in entry.files]
    if rule == _STRAY_QUOTE:
        odd = text_form.odd_quotes(spark, paths, source.options.get("quote", '"'))
        what = "it has a line with an odd number of quotes"
        problems = [Problem(file, what, line, _QUOTES) for file, line in odd]
    elif source.is_utf8:
        wrong = text_form.not_utf8(spark, paths)
        problems = [Problem(file, "it has bytes that are not UTF-8", line, _ENCODING) for file, line in wrong]
    else:
        # What is not UTF-8 cannot be looked at by lines: a replacement character of its own is very rare.
        what = f"it has bytes that are not {source.encoding}"
        problems = [Problem(file, what, hint=_ENCODING) for file in seen_in]
    if problems:
        raise bad_files(entry, problems if source.is_multi_line else with_lines(spark, entry, problems))
