"""CSV files to typed rows: every field is read as text, counted, and converted strictly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.spark import listing, records, text_form
from airflow_provider_scope.spark.records import RECORD, Check, Records, quoted
from airflow_provider_scope.spark.values import convert

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

_NO_TEXT = "\0\1"
"""What an empty field counts as, so that a quoted empty text is told from it."""

STRICT = {
    "mode": "PERMISSIVE",  # a record that does not parse is given as text, and checked
    "columnnameofcorruptrecord": RECORD,
    "columnpruning": "false",  # it would count only the fields that the SELECT needs
    "enforceschema": "false",  # true takes columns by position, whatever the header says
    "nullvalue": _NO_TEXT,
    "escape": '"',  # RFC 4180; Spark's backslash reads doubled quotes as two
    "unescapedquotehandling": "RAISE_ERROR",  # else `"a" b` is a value with quotes in it
}


@dataclass(frozen=True, slots=True)
class Group:
    """Files that are read with the same options."""

    paths: tuple[str, ...]
    line_sep: str | None = None
    """None leaves it to the reader."""
    is_open: bool = False
    """A quote is left open at the end: the last field of the last record would hold the rest of the file."""


def groups(spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]) -> list[Group]:
    r"""Group files by what has to be known before a field may hold line breaks (``multiLine``).

    The parser makes ``\n`` of each ``\r\n`` in a field, unless it is told how lines end; and it takes all
    that follows an open quote for one field.
    """
    if not _needs_line_ends(options):
        return [Group(tuple(paths))]
    found: dict[text_form.LineEnds, list[str]] = {}
    ends = _line_ends(spark, paths, options)
    for path in paths:
        found.setdefault(ends.get(listing.same_key(path), _NO_LINE), []).append(path)
    return [
        Group(tuple(same), line_sep="\r\n" if end.with_crlf else "\n", is_open=end.is_open)
        for end, same in found.items()
    ]


_NO_LINE = text_form.LineEnds(with_crlf=False, with_lf=False, is_open=False)


def _needs_line_ends(options: Mapping[str, str]) -> bool:
    encoding = options.get("encoding", options.get("charset", "")).upper()
    return (
        options.get("multiline", "false").lower() == "true"
        and "linesep" not in options
        and not encoding.startswith(("UTF-16", "UTF-32"))
    )


def _line_ends(
    spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]
) -> dict[str, text_form.LineEnds]:
    quote = options.get("quote", '"')
    is_doubled = options.get("escape", '"') == quote
    ends = text_form.line_ends(spark, paths, quote if is_doubled else "")
    return {listing.same_key(unquote(file)): end for file, end in ends.items()}


def problems(
    spark: SparkSession, paths: Sequence[str], columns: T.StructType, options: Mapping[str, str]
) -> list[tuple[str, str, str | None]]:
    """Give the files whose records the parser would not find: for the ends of their lines, or for blanks."""
    if _needs_line_ends(options):
        ends = _line_ends(spark, paths, options)
        what = "some of its records end with a carriage return, and others do not: set lineSep"
        mixed = [file for file, end in ends.items() if end.with_crlf and end.with_lf]
        return [(file, what, None) for file in mixed]
    if len(columns) > 1 or options.get("multiline", "false").lower() == "true":
        return []
    what = "it has a line of blanks, which is not read as a record: read it with format='text'"
    return [(file, what, None) for file in text_form.blank_lines(spark, paths)]


def names(spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]) -> T.StructType:
    """Give the columns of the first file: those of its header, all text; or what ``inferSchema`` finds."""
    reader = spark.read.format("csv").options(**{**STRICT, **options})
    return reader.load(listing.for_inference(paths)).schema


def read(
    spark: SparkSession,
    group: Group,
    columns: T.StructType,
    options: Mapping[str, str],
    *,
    trusted: frozenset[str],
) -> Records:
    """Give the fields of all records as text, and what makes them typed values.

    :param options: The user's, by names in lower case; they win.
    :param trusted: Rules that are not checked again: what they suspected was looked at in the bytes.
    """
    given = {**STRICT, **options}
    if group.line_sep:
        given["linesep"] = group.line_sep
    # Spark's own column is the last: a header is compared with those before it.
    texts = T.StructType([T.StructField(name, T.StringType()) for name in [*columns.names, RECORD]])
    rows = listing.load(lambda: spark.read.format("csv").options(**given).schema(texts), group.paths)
    fields = f"the {len(columns)} field{'' if len(columns) == 1 else 's'}"
    checks = [records.parsed(f"it has not {fields} of the columns {', '.join(columns.names)}")]
    if group.is_open:
        last = quoted(columns.names[-1])
        checks.append(Check("a quote is not closed", f"NOT coalesce(contains({last}, '\n'), false)", last))
    values = []
    # Only where fields hold no line breaks, and a quote in a field is doubled, its lines tell of a stray one.
    is_plain = options.get("multiline", "false").lower() != "true" and given["escape"] == options.get(
        "quote", '"'
    )
    quote = given["escape"] if is_plain else ""
    for field in columns:
        text = quoted(field.name)
        if not isinstance(field.dataType, T.StringType):
            # Only a text can be empty and not NULL.
            text = f"nullif({text}, '')"
        converted = convert(text, field.dataType, field.name, options)
        if converted.is_exact:
            rule = f"{field.name} is not {field.dataType.simpleString()}"
            checks.append(Check(rule, f"({text} IS NULL OR {converted.is_exact})", quoted(field.name)))
        else:
            checks += [check for check in records.suspicions(field.name, quote) if check.rule not in trusted]
        values.append((field.name, converted.value))
    record = f"coalesce({RECORD}, to_json(struct({', '.join(quoted(n) for n in columns.names)})))"
    return Records(rows, checks, record, values)
