"""CSV files to typed rows: every field is read as text, counted, and converted strictly."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.sources.files.spec import CSV_OPTIONS, is_true
from airflow_provider_scope.spark import storage
from airflow_provider_scope.spark.files import csv_edges, formats, listing, text_files
from airflow_provider_scope.spark.files.formats import NUMBER, RECORD, Check, Records
from airflow_provider_scope.spark.files.listing import (
    FILE,
    SHOWN,
    START,
    Problem,
    bad_files,
    file_paths,
    in_order,
    number_in_file,
    place_of,
)
from airflow_provider_scope.spark.structs import repeated_names
from airflow_provider_scope.sql import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

    from airflow_provider_scope.exceptions import BadRecordError
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.spark.files.formats import Source


_NO_TEXT = "\0\1"
"""What an empty field counts as, so that a quoted empty text differs from it."""

_STRICT = {
    "columnpruning": "false",  # it would count only the fields that the SELECT needs
    "enforceschema": "false",  # true takes columns by position, whatever the header says
    "nullvalue": _NO_TEXT,
    "unescapedquotehandling": "RAISE_ERROR",  # else `"a" b` is a value with quotes in it
    "maxcolumns": "200000",  # a record with more than Spark's 20,480 fields would fail its whole file
}
_FIELDS_HINT = (
    "correct `columns` or `options`: fields are separated by `sep`; a quote in a quoted field is doubled, "
    "unless `escape` says otherwise; "
    "fields that hold line breaks need multiLine=true"
)
_NOT_CLOSED = "a quote is not closed"
_OR_BREAKS = "a quoted field has a line break, or its quote is not closed"
_NO_QUOTES = "if quotes have no meaning in the file, set quote=''"
_BREAKS_HINT = f"if a quoted field holds line breaks, set multiLine=true; {_NO_QUOTES}"
_MAX_OPEN_RECORDS = 1_000
"""Records with an open quote that are put aside one by one; a file with more is read by wrong rules."""
_BLANK = "it has a line of blanks, which the parser leaves out"
_BLANK_HINT = "read it with format='text'"
_BLANK_RECORD = "it has a line of separators alone, which are blanks: the parser leaves it out"
_HEADER_HINT = "give each column of the file a name of its own"
_OTHER_NAMES = "its CSV header has columns that differ in letter case from those that are known"
_NO_NAMES = "its CSV header has none of the columns"
_OTHER_NAMES_HINT = "write each column in one way"
_MIXED = "some of its records end with a carriage return, and others do not"
_CR_ALONE = "its lines may end with a carriage return alone"
_CR_HINT = r"set lineSep: '\r' if they do, and '\n' if a field holds it"
_OPEN = "_scope_open"
"""The column with the text of a record in which a quote is not closed, else NULL."""
_BLANKS = "".join(map(chr, range(0x21)))
_MULTI_LINE = {"multiline": "true"}
_UNUSED = "\uffff"
"""A character that no text has: as separator and quote it leaves each line one field, as it stands."""
_FIELD_OPTIONS = (
    "delimiter",
    "chartoescapequoteescaping",
    "unescapedquotehandling",
    "emptyvalue",
    "inferschema",
    "ignoreleadingwhitespace",
    "ignoretrailingwhitespace",
    "maxcharspercolumn",
)


def _reader_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return all options of Spark's reader, those of the user among them.

    For a role that no character is to have, Spark takes U+0000, which a text may hold. So one was dropped
    from a field with a doubled quote (``charToEscapeQuoteEscaping``), or was a quote where there are none.
    """
    not_of_spark = {name.lower() for name in CSV_OPTIONS}
    of_spark = {name: value for name, value in options.items() if name not in not_of_spark}
    # RFC 4180: a quote is doubled. Spark's backslash reads two of them as two.
    reader_options = {**_STRICT, "escape": options.get("quote", '"'), **of_spark}
    if csv_edges.has_edges(options):
        reader_options["header"] = "false"  # it is not the first line, or is looked for with the others
    if reader_options["escape"] == reader_options.get("quote", '"'):
        reader_options.setdefault("chartoescapequoteescaping", "")
    roles = ("quote", "escape", "chartoescapequoteescaping")
    return reader_options | {role: _UNUSED for role in roles if reader_options.get(role) in ("", "\0")}


def records(spark: SparkSession, entry: OffsetEntry, source: Source) -> list[Records]:
    """Read the records of all files, one value for all files that are read with the same options.

    :raises BadFileError: A file has lines that the parser would not take for the records that they are.
    :raises BadRecordError: A quote is not closed, and bad records are not put aside.
    """
    rescues_by_header = source.rescued_from and is_true(source.options.get("header"))
    if source.columns and (source.has_own_headers or rescues_by_header):
        return _records_by_header(spark, entry, source, source.columns)
    return _records_of_one_header(spark, entry, source)


def _records_of_one_header(spark: SparkSession, entry: OffsetEntry, source: Source) -> list[Records]:
    """Read files that all have the same header, or none."""
    options = _reader_options(source.options)
    columns = source.columns or columns_in_files(spark, entry, source.options)
    if source.is_multi_line:
        return _multi_line_records(spark, entry, source, columns, options)
    unclosed = _records_with_open_quote(spark, entry, source, options)
    blank = _with_blank_records(spark, entry, source, options, is_alone=len(columns) == 1)
    if blank and len(columns) == 1:
        raise bad_files(entry, [Problem(file, _BLANK, hint=_BLANK_HINT) for file in blank])
    unsure = sorted(file for file, has_cr in blank.items() if has_cr or file in unclosed)
    if unsure:
        hint = f"set lineSep if its lines end with a carriage return alone; {_NO_QUOTES}"
        raise bad_files(entry, [Problem(file, _BLANK_RECORD, hint=hint) for file in unsure])
    # The parser of whole files leaves none of their lines out.
    whole = {*file_paths(entry, blank).values()}
    pieces = []
    if whole:
        files = entry.with_files(whole)
        pieces += _multi_line_records(spark, files, source, columns, options | _MULTI_LINE)
    if by_line := [path for path in entry.paths if path not in whole]:
        rows = _texts(spark, entry.with_files(by_line), source, columns, options)
        pieces.append(_typed(rows, columns, source, unclosed, _OPEN))
    return pieces


def _records_by_header(
    spark: SparkSession, entry: OffsetEntry, source: Source, columns: T.StructType
) -> list[Records]:
    """Read files that have some of the columns, in any order: NULL for the others.

    Other columns are texts, of which what is not empty is rescued; whether a name has capitals does not count
    then, as in a header of all columns.
    """
    headers = headers_of(spark, entry, source)
    declared = {field.name: field for field in columns}
    if source.rescued_from:
        declared = {name.lower(): field for name, field in declared.items()}
    problems = []
    groups: dict[tuple[str, ...], list[str]] = {}
    for path in entry.paths:
        header = headers.get(path, columns.names)
        groups.setdefault(tuple(header), []).append(path)
        undeclared = [name for name in header if name not in columns.names]
        if source.rescued_from and not declared.keys() & {name.lower() for name in header}:
            problems.append(Problem(path, _NO_NAMES, ",".join(header), listing.HEADER_HINT, line=1))
        elif undeclared and not source.rescued_from:
            problems.append(Problem(path, f"{_OTHER_NAMES}: {', '.join(undeclared)}", hint=_OTHER_NAMES_HINT))
    if problems:
        raise bad_files(entry, problems)
    pieces = []
    for names, paths in groups.items():
        keys = [name.lower() if source.rescued_from else name for name in names]
        texts = [T.StructField(name, T.StringType()) for name in names]
        columns_read = T.StructType([declared.get(key, text) for key, text in zip(keys, texts, strict=True)])
        alike = replace(source, columns=columns_read)
        for piece in _records_of_one_header(spark, entry.with_files(paths), alike):
            nulls = {field.name: f"CAST(NULL AS {field.dataType.simpleString()})" for field in columns}
            pieces.append(replace(piece, values=[*(nulls | dict(piece.values)).items()]))
    return pieces


def headers_of(spark: SparkSession, entry: OffsetEntry, source: Source) -> dict[str, list[str]]:
    """Find the names in the header of each file; files without a line are left out.

    :raises BadFileError: A header has a name twice, or an empty one.
    """
    options = {**_reader_options(source.options), "header": "false"}
    lines = _raw_lines(spark, entry.paths, options).where(f"{START} = 0")
    lines = lines.select(FILE, "value", F.monotonically_increasing_id().alias("place"))
    rows = lines.groupBy(FILE).agg(F.min_by("value", "place").alias("header")).collect()
    paths_of_files = file_paths(entry, [row[FILE] for row in rows])
    paths: dict[str, list[str]] = {}
    for row in rows:
        paths.setdefault(row.header, []).append(paths_of_files[row[FILE]])

    def names(alike: Sequence[str]) -> list[str]:
        return columns_in_files(spark, entry.with_files(alike[:1]), source.options).names

    headers = storage.at_once(names, [*paths.values()], storage.READS_AT_ONCE)
    return {path: header for alike, header in zip(paths.values(), headers, strict=True) for path in alike}


def _with_blank_records(
    spark: SparkSession, entry: OffsetEntry, source: Source, options: dict[str, str], *, is_alone: bool
) -> dict[str, bool]:
    r"""Find files with lines that are records, and that Spark leaves out since it takes them for empty.

    It leaves out each line whose characters are all at most U+0020, as Java's ``trim`` does: where tabs or
    Hive's ``\x01`` separate the fields, that is a row of NULLs.

    :param is_alone: Whether the files have one column: then each such line that has a character is a record.
    :return: File -> whether the line has a carriage return inside, where it may end, too.
    """
    separator = _separator(spark, options)
    if not is_alone and separator.strip(_BLANKS):
        return {}
    end = options.get("linesep", "\r")
    blanks = f"[{''.join(_verbatim(char) for char in _BLANKS if char not in end)}]"
    record = f"{blanks}+" if is_alone else f"{blanks}*{_verbatim(separator)}{blanks}*"
    # A wide character has a byte 0, which no line of bytes shows as what it is.
    lines = (
        _raw_lines(spark, entry.paths, options | _MULTI_LINE)
        if source.is_wide
        else text_files.lines_of(spark, entry.paths)
    )
    pattern = rf"(?:^|{_verbatim(end)}){record}(?:\z|{_verbatim(end)})"
    has_cr = "bool_or(value RLIKE '\\r[^\\r]')" if "linesep" not in options else "false"
    files = lines.where(f"value RLIKE {literal(pattern)}").groupBy(FILE).agg(F.expr(has_cr).alias("has_cr"))
    return {row[FILE]: bool(row["has_cr"]) for row in files.collect()}


def _records_with_open_quote(
    spark: SparkSession, entry: OffsetEntry, source: Source, options: Mapping[str, str]
) -> dict[str, dict[int, str]]:
    """Find records that end inside a quoted field, in files with one on each line: the parser takes them.

    :return: File -> number of the record -> its line.
    """
    quotes = quotes_of(spark, options)
    if quotes is None:
        return {}
    if source.is_utf8:
        # The same lines, with header and comments, for a fraction of the cost; in most files none is open.
        line_sep = {"lineSep": options["linesep"]} if "linesep" in options else {}
        lines = listing.load(spark, "text", entry.paths, line_sep)
    else:
        lines = _raw_lines(spark, entry.paths, options)
    files = [row[FILE] for row in lines.where(quotes.leaves_open("value")).select(FILE).distinct().collect()]
    if not files:
        return {}
    before = csv_edges.lines_before_records(source.options)
    in_file = Window.partitionBy(FILE).orderBy(NUMBER)
    with in_order(spark):
        lines = _raw_lines(spark, [*file_paths(entry, files).values()], options)
        lines = lines.select(FILE, "value", (number_in_file() - before).alias(NUMBER)).where(f"{NUMBER} > 0")
        lines = lines.where(f"contains(value, {literal(quotes.quote)})")
        lines = lines.withColumn("after", F.lead("value").over(in_file)).where(quotes.leaves_open("value"))
        continues = F.expr(f"coalesce({quotes.continues('after')}, false)").alias("continues")
        open_lines = lines.select(
            FILE, NUMBER, "value", continues, F.row_number().over(in_file).alias("place")
        )
        at_most = _MAX_OPEN_RECORDS + 1 if source.quarantines else 1
        rows = sorted(open_lines.where(f"place <= {at_most}").collect())
    if not rows:
        return {}
    if not source.quarantines:
        raise _not_closed(entry, rows[0][FILE], rows[0][NUMBER], rows[0].value, _BREAKS_HINT)
    unclosed: dict[str, dict[int, str]] = {}
    for row in rows:
        unclosed.setdefault(row[FILE], {})[row[NUMBER]] = row.value
    broken = {row[FILE] for row in rows if row.continues}
    problems = [
        Problem(file, _OR_BREAKS, next(iter(records.values())), _BREAKS_HINT)
        if file in broken
        else Problem(
            file, f"in more than {_MAX_OPEN_RECORDS:,} of its records {_NOT_CLOSED}", hint=_NO_QUOTES
        )
        for file, records in unclosed.items()
        if file in broken or len(records) > _MAX_OPEN_RECORDS
    ]
    if problems:
        raise bad_files(entry, problems)
    return unclosed


def _multi_line_records(
    spark: SparkSession,
    entry: OffsetEntry,
    source: Source,
    columns: T.StructType,
    options: Mapping[str, str],
) -> list[Records]:
    r"""Read the records of files whose fields may hold line breaks (``multiLine``).

    The parser makes ``\n`` of each ``\r\n`` in a field, unless it is told how lines end; and it takes all
    that follows an open quote for one field.
    """
    is_plain = "linesep" not in options and not source.is_wide
    lines = text_files.lines_of(spark, entry.paths) if is_plain else _raw_lines(spark, entry.paths, options)
    ends = _line_ends(lines, quotes_of(spark, options), options.get("comment", ""))
    if mixed := [file for file, end in ends.items() if is_plain and end.crlf and end.lf]:
        raise bad_files(entry, [Problem(file, _MIXED, hint="set lineSep") for file in mixed])
    if by_cr := [file for file, end in ends.items() if is_plain and end.cr]:
        raise bad_files(entry, [Problem(file, _CR_ALONE, hint=_CR_HINT) for file in by_cr])
    paths = file_paths(entry, ends)
    with_crlf = {paths[file] for file, end in ends.items() if is_plain and end.crlf}
    with_open_end = {paths[file] for file, end in ends.items() if end.open}
    pieces = []
    for line_end, alike in (("\r\n", with_crlf), ("\n", {*entry.paths} - with_crlf)):
        part = entry.with_files(alike)
        if not part.files:
            continue
        reader_options = {**options, "linesep": line_end} if is_plain else options
        unclosed = {}
        open_part = part.with_files(with_open_end)
        if open_part.files:
            texts = _texts(spark, open_part, source, columns, reader_options)
            unclosed = _last_records_with_open_quote(open_part, source, columns, texts)
        rows = _texts(spark, part, source, columns, reader_options)
        pieces.append(_typed(rows, columns, source, unclosed, formats.record_of(columns.names)))
    return pieces


def _last_records_with_open_quote(
    entry: OffsetEntry, source: Source, columns: T.StructType, rows: DataFrame
) -> dict[str, dict[int, str]]:
    """Find the last records of files at whose ends a quote is open: they hold all that follows the quote.

    :raises BadRecordError: Bad records are not put aside.
    :raises BadFileError: It is the header.
    """
    text = F.expr(f"left({formats.record_of(columns.names)}, {SHOWN})").alias("text")
    last = F.max(F.struct(NUMBER, "text")).alias("last")
    with in_order(rows.sparkSession):
        texts = formats.numbered(rows).select(FILE, NUMBER, text)
        last_records = sorted(texts.groupBy(FILE).agg(last).select(FILE, "last.*").collect())
    with_open_header = {*entry.paths} - {*file_paths(entry, [row[FILE] for row in last_records]).values()}
    if with_open_header:
        fault = f"{_NOT_CLOSED} in its header"
        raise bad_files(entry, [Problem(path, fault, hint=_NO_QUOTES) for path in sorted(with_open_header)])
    if not source.quarantines:
        first = last_records[0]
        raise _not_closed(entry, first[FILE], first[NUMBER], first.text, _NO_QUOTES)
    return {row[FILE]: {row[NUMBER]: row.text} for row in last_records}


def _not_closed(entry: OffsetEntry, file: str, number: int, record: str | None, hint: str) -> BadRecordError:
    bad = formats.BadRecord(file, _NOT_CLOSED, None, record and record[:SHOWN], hint, number)
    return bad.error(place_of(entry, file))


def columns_in_files(spark: SparkSession, entry: OffsetEntry, options: Mapping[str, str]) -> T.StructType:
    """Ask Spark for the columns of one file: those of its header, all text; or what ``inferSchema`` finds.

    :raises BadFileError: The header has a name twice, or an empty one.
    """
    reader_options = _reader_options(options)
    columns = listing.for_inference(spark, "csv", entry.paths, reader_options).schema
    _check_header(spark, entry, reader_options, columns.names)
    return columns


def _check_header(
    spark: SparkSession, entry: OffsetEntry, options: Mapping[str, str], names: Sequence[str]
) -> None:
    """Refuse a CSV header with a name twice, or an empty one.

    :param options: In lower case, as Spark's reader gets them.
    :param names: The columns that Spark took from the header of one of the files.
    :raises BadFileError: As said.
    """
    made_up = any(name.endswith(str(place)) for place, name in enumerate(names))
    if options.get("header", "false").lower() != "true" or not made_up:
        return
    plain = {**options, "header": "false", "inferschema": "false"}
    for file in entry.files:
        first = listing.for_inference(spark, "csv", [file.path], plain).first()
        header = [name or "" for name in first or ()]
        if header == [*names]:
            return
        repeated = repeated_names(header)
        if repeated or "" in header:
            empty = [str(place) for place, name in enumerate(header, start=1) if not name]
            parts = [f"a name more than once: {', '.join(repeated)}"] if repeated else []
            parts += [f"no name for column {', '.join(empty)}"] if empty else []
            fault = f"its CSV header has {' and '.join(parts)}"
            raise bad_files(entry, [Problem(file.path, fault, ",".join(header), _HEADER_HINT, line=1)])


def _texts(
    spark: SparkSession,
    entry: OffsetEntry,
    source: Source,
    columns: T.StructType,
    options: Mapping[str, str],
) -> DataFrame:
    """Read the fields of all records as text, as ``formats.read_records`` does."""
    texts = T.StructType([T.StructField(name, T.StringType()) for name in columns.names])
    has_edges = csv_edges.has_edges(source.options)
    fails_fast = source.fails_fast and not has_edges  # what lies at the edges need not parse
    rows = formats.read_records(spark, "csv", entry.paths, options, texts, fails_fast=fails_fast)
    if not has_edges:
        return rows
    return csv_edges.without_edges(entry, rows, columns.names, source.options, _separator(spark, options))


def _typed(
    rows: DataFrame,
    columns: T.StructType,
    source: Source,
    unclosed: Mapping[str, Mapping[int, str]],
    shown: str,
) -> Records:
    """Add their checks to records, and SQL of the typed values of their fields.

    :param unclosed: Those that are bad since a quote is not closed: file and number.
    :param shown: SQL of the text of such a record.
    """
    fields = f"the {len(columns)} field{'' if len(columns) == 1 else 's'}"
    rule = f"it has not {fields} of the columns {', '.join(columns.names)}"
    checks = [formats.parse_check(rule, _FIELDS_HINT)]
    record = formats.record_of(columns.names)
    if unclosed:
        # As a literal: it needs no join.
        open_lines = F.from_json(F.lit(json.dumps(unclosed)), "map<string,map<string,string>>")
        rows = formats.numbered(rows)
        rows = rows.select("*", open_lines[F.col(FILE)][F.col(NUMBER).cast("string")].alias(_OPEN))
        rows = rows.withColumn(RECORD, F.expr(f"if({_OPEN} IS NULL, {RECORD}, {shown})"))
        checks.insert(0, Check(_NOT_CLOSED, f"{_OPEN} IS NULL", RECORD, _BREAKS_HINT))
    values, fits, texts = [], dict[str, str](), list[str]()
    for field in columns:
        texts += [literal(field.name), quoted(field.name)]
        text = quoted(field.name)
        is_text = isinstance(field.dataType, (T.StringType, T.VarcharType, T.CharType))
        if not is_text:
            # Only a text can be empty and not NULL.
            text = f"nullif({text}, '')"
        converted = source.convert(text, field.dataType, field.name)
        if converted.is_exact and source.rescued_from:
            fits[field.name] = f"({text} IS NULL OR coalesce({converted.is_exact}, false))"
        elif converted.is_exact:
            checks.append(formats.type_check(field, text, converted.is_exact))
        if not source.has_checked_bytes and (source.rescued_from or is_text or not converted.is_exact):
            checks.append(text_files.encoding_check(field.name))
        values.append((field.name, converted.value))
    read = Records(rows, checks, record, values)
    if source.rescued_from is None:
        return read
    return formats.rescuing(read, f"map({', '.join(texts)})", fits, source.rescued_from.names)


@dataclass(frozen=True, slots=True)
class Quotes:
    """What quotes mean in CSV files. The patterns are Java's, and possessive: a long line needs no stack."""

    quote: str
    is_open: str
    """Of a line that begins with a record: at its end a quoted field is not closed."""
    is_closed_first: str
    """Of a line that begins with a quoted field: it is closed, and nothing follows its closing quote."""
    separator: str = ""
    """What separates fields, if a quote in one is doubled and blanks before one are kept; else empty."""

    def leaves_open(self, line: str) -> str:
        """Write SQL for whether a line, which begins with a record, ends inside a quoted field."""
        may_be_open = f"contains({line}, {literal(self.quote)})"
        if self.separator:
            may_be_open += f" AND NOT {self._has_one_quoted_field(line)}"
        return f"({may_be_open} AND {line} RLIKE {literal(self.is_open)})"

    def _has_one_quoted_field(self, line: str) -> str:
        """Write SQL for whether a line has one quoted field, and that is closed: a pattern is slower."""
        quote, separator = literal(self.quote), literal(self.separator)
        # A doubled quote leaves each field as open as it was.
        single = f"replace({line}, {literal(self.quote * 2)}, '')"
        before, after = (f"substring_index({single}, {quote}, {place})" for place in (1, -1))
        count = f"octet_length({single}) - octet_length(replace({single}, {quote}, ''))"
        return (
            f"({count} = octet_length({quote}) * 2"
            f" AND ({before} = '' OR endswith({before}, {separator}))"
            f" AND ({after} = '' OR startswith({after}, {separator})))"
        )

    def stays_open(self, line: str) -> str:
        """Write SQL for whether a line, which begins inside a quoted field, ends inside one, too."""
        is_open_after = f"concat({literal(self.quote)}, {line}) RLIKE {literal(self.is_open)}"
        return f"(NOT contains({line}, {literal(self.quote)}) OR {is_open_after})"

    def continues(self, line: str) -> str:
        """Write SQL for whether a line may be the next one of a quoted field that is open before it."""
        closes = f"concat({literal(self.quote)}, {line}) RLIKE {literal(self.is_closed_first)}"
        return f"({closes} OR {self.stays_open(line)})"


def quotes_of(spark: SparkSession, options: Mapping[str, str]) -> Quotes | None:
    """Say what quotes mean; None if they mean nothing.

    :param options: All that the reader gets, their names in lower case.
    """
    quote = options.get("quote", '"')
    if quote == _UNUSED:
        return None
    escape = options["escape"]
    # The parser's own default: an escape character is written twice, unless it is the quote.
    twice = options.get("chartoescapequoteescaping", escape)
    delimiter = _separator(spark, options)
    separator = _verbatim(delimiter)
    q, e, c = map(_verbatim, (quote, escape, twice))
    escaped = [c + e, e + q] if c and e else [e + q] if e else []
    inside = f"(?:{'|'.join([f'[^{q}{e}{c}]++', *escaped, *sorted({c, e} - {q, ''})])})*+"
    is_trimmed = options.get("ignoreleadingwhitespace", "false").lower() == "true"
    begin = rf"(?:(?!{separator})[\x00-\x20])*+{q}" if is_trimmed else q
    rest = f"(?:(?!{separator}).)*+" if len(delimiter) > 1 else f"[^{separator}]*+"
    field = f"(?:{begin}{inside}{q}(?!{q}){rest}|(?!{begin}){rest})"
    opened = rf"{begin}{inside}(?:\z|{q}{q})"
    if len(delimiter) > 1:
        # The parser adds a quote to a last field that is not quoted and ends with one: x" is read as x"".
        opened = rf"(?:{opened}|(?!{begin}){rest}(?<={q})\z)"
    return Quotes(
        quote,
        rf"(?s)^(?:{field}{separator})*+{opened}",
        rf"(?s)^{q}{inside}{q}[\x00-\x20]*+(?:{separator}|\z)",
        delimiter if (escape, twice, len(delimiter)) == (quote, _UNUSED, 1) and not is_trimmed else "",
    )


def _separator(spark: SparkSession, options: Mapping[str, str]) -> str:
    java = getattr(spark._jvm, "org.apache.spark.sql.catalyst.csv.CSVExprUtils")
    return str(java.toDelimiterStr(options.get("sep", options.get("delimiter", ","))))


def _verbatim(text: str) -> str:
    return "".join(rf"\x{{{ord(char):x}}}" for char in text)


def _raw_lines(spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]) -> DataFrame:
    """Read the lines that the parser takes for records, as they are: ``value``, ``FILE``, ``START``.

    With ``multiLine`` a record may have several of them.
    """
    kept = {name: value for name, value in options.items() if name not in _FIELD_OPTIONS}
    reader_options = {**kept, "sep": _UNUSED, "quote": _UNUSED, "escape": _UNUSED}
    reader_options |= {"nullvalue": _UNUSED * 2, "enforceschema": "true"}
    if options.get("multiline", "false").lower() == "true":
        # A header, and what looks like a comment, may be a part of a field.
        reader_options["header"] = "false"
        reader_options.pop("comment", None)
    return listing.load(spark, "csv", paths, reader_options, T.StructType().add("value", "string"))


def _line_ends(lines: DataFrame, quotes: Quotes | None, comment: str = "") -> dict[str, Row]:
    r"""Find out how the lines of each file end that are outside of quotes.

    :param lines: ``value``, ``FILE`` and ``START``, each line as it stands in the file.
    :param quotes: None if they mean nothing.
    :param comment: How a comment begins: a line that is no record, and whose quotes mean nothing.
    :return: File -> whether records end with ``crlf`` and with ``lf``, whether a file of one line has ``cr``
        inside it, and if a quote is left ``open`` at its end; files without a line are left out.
    """
    # From outside, from inside: a line that leads to the same from both sets the state, one that leads to
    # the other from both turns it, and all others keep it.
    outside, inside = "false", "true"
    if quotes:
        outside, inside = quotes.leaves_open("value"), quotes.stays_open("value")
    if comment:
        outside = f"(NOT startswith(value, {literal(comment)}) AND {outside})"
    is_open = quotes.leaves_open(r"substring_index(value, '\r', 1)") if quotes else "false"
    cr = rf"value RLIKE '\r[^\r]' AND NOT {is_open}"
    in_file = Window.partitionBy(FILE).orderBy(START, "line")
    states = (
        lines.select(
            FILE,
            START,
            F.monotonically_increasing_id().alias("line"),
            F.expr(r"endswith(value, '\r')").alias("crlf"),
            F.expr(cr).alias("cr"),
            F.expr(outside).alias("outside"),
            F.expr(inside).alias("inside"),
        )
        .withColumn("turns", F.sum(F.expr("int(outside AND NOT inside)")).over(in_file) % 2)
        .withColumn("set", F.expr("if(outside = inside, int(outside) ^ turns, NULL)"))
        .select(
            FILE,
            "crlf",
            "cr",
            "turns",
            F.coalesce(F.last("set", ignorenulls=True).over(in_file), F.lit(0)).alias("base"),
            F.lead("line").over(in_file).isNull().alias("last"),
        )
        .select(FILE, "crlf", "cr", "last", F.expr("(base ^ turns) = 1").alias("inside"))
    )
    ends = states.groupBy(FILE).agg(
        F.expr("bool_or(crlf AND NOT inside)").alias("crlf"),
        F.expr("bool_or(NOT crlf AND NOT inside AND NOT last)").alias("lf"),
        F.expr("bool_or(cr) AND count(*) = 1").alias("cr"),
        F.expr("bool_or(inside AND last)").alias("open"),
    )
    return {row[FILE]: row for row in ends.collect()}
