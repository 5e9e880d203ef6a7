"""CSV files to typed rows: every field is read as text, counted, and converted strictly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.core.sql import quoted
from airflow_provider_scope.spark import alike, candidates, checks, listing, suspicions, text_form
from airflow_provider_scope.spark.checks import RECORD, Check, Records
from airflow_provider_scope.spark.problems import Problem, bad_files, path_of
from airflow_provider_scope.spark.values import convert

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from airflow_provider_scope.core.records import OffsetEntry
    from airflow_provider_scope.spark.source import Source

_NO_TEXT = "\0\1"
"""What an empty field counts as, so that a quoted empty text is told from it."""

_STRICT = {
    "mode": "PERMISSIVE",  # a record that does not parse is given as text, and checked
    "columnnameofcorruptrecord": RECORD,
    "columnpruning": "false",  # it would count only the fields that the SELECT needs
    "enforceschema": "false",  # true takes columns by position, whatever the header says
    "nullvalue": _NO_TEXT,
    "escape": '"',  # RFC 4180; Spark's backslash reads doubled quotes as two
    "unescapedquotehandling": "RAISE_ERROR",  # else `"a" b` is a value with quotes in it
}
_FIELDS_HINT = (
    "fields are separated by `sep`; a quote in a quoted field is doubled, unless `escape` says otherwise; "
    "fields that hold line breaks need multiLine=true"
)


@dataclass(frozen=True, slots=True)
class _Group:
    """Files that are read with the same options."""

    paths: tuple[str, ...]
    line_sep: str | None = None
    """None leaves it to the reader."""
    is_open: bool = False
    """A quote is left open at the end: the last field of the last record would hold the rest of the file."""


def records(spark: SparkSession, entry: OffsetEntry, source: Source) -> list[Records]:
    """Give the records of all files, one value for all files that are read with the same options.

    :raises BadFileError: A file has lines that the parser would not take for the records that they are.
    """
    paths = [file.path for file in entry.files]
    columns = source.columns or names(spark, entry, source.options)
    groups = _groups(spark, entry, source)
    if len(columns) == 1 and not source.is_multi_line:
        blank = text_form.blank_lines(spark, paths)
        if blank:
            raise bad_files(entry, [Problem(file, _BLANK, hint=_BLANK_HINT) for file in blank])
    return [_read(spark, group, columns, source) for group in groups]


_BLANK = "it has a line of blanks, which the parser leaves out"
_BLANK_HINT = "read it with format='text'"
_MIXED = "some of its records end with a carriage return, and others do not"


def _groups(spark: SparkSession, entry: OffsetEntry, source: Source) -> list[_Group]:
    r"""Group files by what has to be known before a field may hold line breaks (``multiLine``).

    The parser makes ``\n`` of each ``\r\n`` in a field, unless it is told how lines end; and it takes all
    that follows an open quote for one field.
    """
    paths = [file.path for file in entry.files]
    if not source.is_multi_line or "linesep" in source.options or source.is_wide:
        return [_Group(tuple(paths))]
    quote = source.options.get("quote", '"')
    is_doubled = source.options.get("escape", '"') == quote
    ends = text_form.line_ends(spark, paths, quote if is_doubled else "")
    mixed = [file for file, end in ends.items() if end.with_crlf and end.with_lf]
    if mixed:
        raise bad_files(entry, [Problem(file, _MIXED, hint="set lineSep") for file in mixed])
    by_path = {path_of(entry, file): end for file, end in ends.items()}
    found: dict[text_form.LineEnds | None, list[str]] = {}
    for path in paths:
        found.setdefault(by_path.get(path), []).append(path)
    return [
        _Group(
            tuple(same), line_sep="\r\n" if end and end.with_crlf else "\n", is_open=bool(end and end.is_open)
        )
        for end, same in found.items()
    ]


def names(spark: SparkSession, entry: OffsetEntry, options: Mapping[str, str]) -> T.StructType:
    """Give the columns of one file: those of its header, all text; or what ``inferSchema`` finds.

    :raises BadFileError: The header has a name twice, or an empty one.
    """
    given = {**_STRICT, **options}
    paths = listing.for_inference([file.path for file in entry.files])
    found = spark.read.format("csv").options(**given).load(paths).schema
    alike.check_header(spark, entry, given, found.names)
    return found


def _read(spark: SparkSession, group: _Group, columns: T.StructType, source: Source) -> Records:
    """Give the fields of all records as text, and what makes them typed values."""
    options = source.options
    given = {**_STRICT, **options}
    if group.line_sep:
        given["linesep"] = group.line_sep
    # Spark's own column is the last: a header is compared with those before it.
    texts = T.StructType([T.StructField(name, T.StringType()) for name in [*columns.names, RECORD]])
    rows = listing.load(lambda: spark.read.format("csv").options(**given).schema(texts), group.paths)
    fields = f"the {len(columns)} field{'' if len(columns) == 1 else 's'}"
    what = f"it has not {fields} of the columns {', '.join(columns.names)}"
    found = [checks.parsed(what, _FIELDS_HINT)]
    if group.is_open:
        last = quoted(columns.names[-1])
        found.append(Check("a quote is not closed", f"NOT coalesce(contains({last}, '\n'), false)", last))
    values = []
    # Only where fields hold no line breaks, and a quote in a field is doubled, its lines tell of a stray one.
    is_plain = not source.is_multi_line and given["escape"] == options.get("quote", '"')
    quote = given["escape"] if is_plain else ""
    for field in columns:
        text = quoted(field.name)
        if not isinstance(field.dataType, T.StringType):
            # Only a text can be empty and not NULL.
            text = f"nullif({text}, '')"
        conversion = candidates.strict if source.inferred else convert
        converted = conversion(text, field.dataType, field.name, options)
        if converted.is_exact:
            found.append(checks.exact(field, text, converted.is_exact))
        else:
            odd = suspicions.checks(field.name, quote)
            found += [check for check in odd if check.rule not in source.trusted]
        values.append((field.name, converted.value))
    return Records(rows, found, checks.record_of(columns.names), values)
