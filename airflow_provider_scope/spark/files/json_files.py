"""JSON files to typed rows: what Spark's parser would drop or change is read as text, or looked for first."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql import types as T  # noqa: N812

from airflow_provider_scope.exceptions import BadFileError
from airflow_provider_scope.spark import storage
from airflow_provider_scope.spark.files import formats, listing
from airflow_provider_scope.spark.files.formats import NUMBER, RECORD, Check, Records, not_compiled
from airflow_provider_scope.spark.files.listing import (
    FILE,
    KEPT,
    SHOWN,
    UNDECLARED,
    Problem,
    bad_files,
    file_paths,
    with_lines,
)
from airflow_provider_scope.spark.files.table_types import type_of_texts
from airflow_provider_scope.spark.structs import is_nested, map_leaves, paths_of, repeated_names, type_text
from airflow_provider_scope.spark.values import Converted, convert_inside
from airflow_provider_scope.sql import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.spark.files.formats import Source

_TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType)
_AS_TEXT = (T.ByteType, T.FloatType, T.DoubleType, T.DecimalType, *_TIMES)
"""What Spark's parser changes: it makes -56 of a tinyint 200, rounds decimals, makes infinity of large
numbers, and takes a number in a time for seconds. It gives the text of a number as it stands in the file."""
_TEXTS = (*_AS_TEXT, T.VarcharType, T.CharType)

_PARSED, _TEXT, _WRONG = "_scope_parsed", "_scope_text", "_scope_wrong"
_NOT_JSON = "it is not JSON, or no object"
_NOT_TYPED = "it is not JSON with values of the declared types"
_NOT_JSON_HINT = "correct `format` if the file holds no JSON; declare a key as string if it holds other types"
_ROUNDED = "it is compressed and read with multiLine: its decimals would be rounded"
_ROUNDED_HINT = "decompress it, or write a value on a line"
_CLASH = "COLUMN_ALREADY_EXISTS"
"""Spark's condition for two names that differ in case alone; it stops there without the file."""
_KEYS_HINT = (
    "write the key in one way; or declare one spelling in `columns`, and leave the other out with "
    'extra_columns="ignore"'
)
_COMPRESSED = r"(?i)\.(gz|gzip|bz2|deflate)$"
"""With ``multiLine``, of a number in such a file that is read as text, Spark gives the double's digits."""
_EXACT_INFERRED = (T.IntegralType, T.BooleanType, T.StringType)
_EXACT = (*_EXACT_INFERRED, T.FloatType, T.DoubleType)


def records(spark: SparkSession, entry: OffsetEntry, source: Source) -> list[Records]:
    """Read the records of all files, one value for all files that are read with the same options.

    :raises BadFileError: A file has a text of which Spark's parser would drop or change something.
    """
    paths = entry.paths
    columns = source.columns
    if columns is None:
        columns = columns_in_files(spark, entry, source.options)
        if source.table:
            typed = partial(type_of_texts, widens=source.table.widens)
            columns = source.table.read_as(columns, typed, adds=True)
    formats.check_keys(columns)
    rounded = [path for path in paths if source.is_multi_line and re.search(_COMPRESSED, path)]
    # Who declares a double wants the nearest one; who does not, wants to know of digits that it has not.
    exact = _EXACT_INFERRED if source.infers_columns else _EXACT
    if rounded and not _has_only(columns, exact):
        raise bad_files(entry, [Problem(path, _ROUNDED, hint=_ROUNDED_HINT) for path in rounded])
    problems = _problems(spark, entry, columns, source)
    with_bad_lines = _files_by_lines(spark, entry, problems, source) if source.quarantines else set()
    problems = [problem for problem in problems if problem.file not in with_bad_lines]
    if problems:
        has_lines = source.is_utf8 and not source.is_multi_line
        raise bad_files(entry, with_lines(spark, entry, problems) if has_lines else problems)
    pieces = [_read_lines(spark, sorted(with_bad_lines), columns, source)] if with_bad_lines else []
    if whole := [path for path in paths if path not in with_bad_lines]:
        rows = rows_of(spark, whole, columns, source)
        pieces.append(_typed(rows, columns, source, has_rounded=bool(rounded)))
    return pieces


def _has_only(kind: T.DataType, leaves: tuple[type[T.DataType], ...]) -> bool:
    """Return whether all that a type holds, at every depth, is of some types."""
    changed = map_leaves(kind, lambda leaf: leaf if isinstance(leaf, leaves) else T.NullType())
    return changed.simpleString() == kind.simpleString()


def _rounding_checks(field: T.StructField) -> list[Check]:
    """Check that a text of a rounded file is no number, and a number no infinity, at every depth."""
    name = quoted(field.name)
    is_unrounded = convert_inside(name, field.dataType, _unrounded).is_exact
    if is_unrounded is None:
        return []
    rule = f"{field.name} may be a number that was rounded, in a compressed multiLine file"
    is_other_file = f"NOT ({FILE} RLIKE {literal(_COMPRESSED)})"
    return [Check(rule, f"({is_other_file} OR {name} IS NULL OR coalesce({is_unrounded}, false))", name)]


def _unrounded(value: str, kind: T.DataType) -> Converted:
    if isinstance(kind, T.StringType):
        number = f"try_cast({value} AS double) IS NOT NULL AND {value} RLIKE '[.eE]'"
        return Converted(value, f"NOT (({number}) OR left({value}, 1) IN ('{{', '['))")
    is_number = isinstance(kind, (T.FloatType, T.DoubleType))
    return Converted(value, f"{value} NOT LIKE '%Infinity'" if is_number else None)


def columns_in_files(spark: SparkSession, entry: OffsetEntry, options: Mapping[str, str]) -> T.StructType:
    """Ask Spark for the columns of the files; one that is always NULL is text.

    :raises BadFileError: Keys differ in letter case alone.
    """
    reader_options = {**options, **formats.PERMISSIVE}
    try:
        columns = listing.for_inference(spark, "json", entry.paths, reader_options).schema
    except AnalysisException as err:
        error = _clashing_keys(spark, entry, reader_options) if err.getCondition() == _CLASH else None
        if error is None:
            raise
        raise error from None
    return T.StructType(
        [
            T.StructField(f.name, T.StringType() if isinstance(f.dataType, T.NullType) else f.dataType)
            for f in columns
            if f.name != RECORD
        ]
    )


def keys_of(
    spark: SparkSession, entry: OffsetEntry, source: Source, known: T.StructType
) -> dict[str, list[str]]:
    """Find the keys of each file that are not known, in the order in which an object has them.

    Texts that are no JSON have none.
    """
    lines, text = _value_texts(spark, entry.paths, source)
    if "value" in lines.columns:
        lines = lines.where("is_valid_utf8(value)")
    keys = _TextCheck(_lax(source.options), extra=False).keys(text)
    named = (
        lines.where(f"NOT {_is_plain(known, text, source.options)}")
        .select("file", F.expr(f"posexplode({keys}) AS (place, name)"))
        .where(~F.col("name").isin(known.names))
        .groupBy("file", "name")
        .agg(F.min("place").alias("place"))
    )
    rows = sorted(named.collect(), key=lambda row: (row.place, row.name))
    paths = file_paths(entry, [row.file for row in rows])
    names: dict[str, list[str]] = {}
    for row in rows:
        names.setdefault(paths[row.file], []).append(row.name)
    return names


def _clashing_keys(
    spark: SparkSession, entry: OffsetEntry, options: Mapping[str, str]
) -> BadFileError | None:
    """Make the error for files with keys that differ in letter case alone; they are read once more.

    :return: None if there are no such keys.
    """
    # Of its own, so that nothing else that runs now sees the setting.
    session = spark.newSession()
    session.conf.set("spark.sql.caseSensitive", "true")

    def keys(path: str) -> list[str]:
        columns = listing.for_inference(session, "json", [path], options).schema
        return [".".join(path) for path in paths_of(columns)]

    paths = entry.paths
    keys_of = dict(zip(paths, storage.at_once(keys, paths, storage.READS_AT_ONCE), strict=True))
    problems = [
        Problem(path, f"it has keys that differ in letter case alone: {', '.join(alike)}", hint=_KEYS_HINT)
        for path, names in keys_of.items()
        if (alike := repeated_names(names))
    ]
    if problems:
        return bad_files(entry, problems)
    first: dict[str, str] = {}
    for path, names in keys_of.items():
        for name in names:
            first.setdefault(name, path)
    alike = repeated_names([*first])
    if not alike:
        return None
    # No file is at fault alone, so that none of them is put aside.
    keys_with_files = "; ".join(f"{name} in {first[name]}" for name in alike)
    return BadFileError(
        f"The files of batch {entry.seq} have keys that differ in letter case alone: {keys_with_files}.",
        kept=KEPT,
        do=_KEYS_HINT,
    )


def rows_of(spark: SparkSession, paths: Sequence[str], columns: T.StructType, source: Source) -> DataFrame:
    """Read files with text in place of the types that Spark's parser changes, by ``formats.read_records``."""
    texts = T.StructType([T.StructField(field.name, _read_as(field.dataType)) for field in columns])
    return formats.read_records(spark, "json", paths, source.options, texts, fails_fast=source.fails_fast)


def _typed(rows: DataFrame, columns: T.StructType, source: Source, *, has_rounded: bool = False) -> Records:
    checks = [formats.parse_check(_NOT_TYPED, _NOT_JSON_HINT, rule_sql=_why_not_parsed(columns, source))]
    values = []
    for field in columns:
        name = quoted(field.name)
        converted = convert_inside(name, field.dataType, partial(_leaf, source, field.name))
        if converted.is_exact:
            checks.append(formats.type_check(field, name, converted.is_exact))
        if has_rounded:
            checks += _rounding_checks(field)
        values.append((field.name, converted.value))
    return Records(rows, checks, formats.record_of(columns.names), values)


def _leaf(source: Source, column: str, value: str, kind: T.DataType) -> Converted:
    return source.convert(value, kind, column) if isinstance(kind, _TEXTS) else Converted(value, None)


def _read_lines(spark: SparkSession, paths: Sequence[str], columns: T.StructType, source: Source) -> Records:
    """Read the records of files with an object on each line, with what is wrong with each line.

    The values are those of ``rows_of``: what parses a text in SQL would round numbers. So the lines are read
    beside them, and joined by their numbers; the session must read files ``in_order``.
    """
    number = listing.number_in_file().alias(NUMBER)
    rows = rows_of(spark, paths, columns, source).select("*", number, F.lit(1).alias(_PARSED))
    texts, text = _value_texts(spark, paths, source)
    ignores_extra = source.ignores_extra or bool(source.rescued_from)
    wrong = F.expr(_problem_sql(columns, text, replace(source, ignores_extra=ignores_extra))).alias(_WRONG)
    lines = texts.where(f"NOT {_is_blank(text)}")
    lines = lines.select(F.col("file").alias(FILE), F.expr(text).alias(_TEXT), number, wrong)
    joined = rows.join(lines, [FILE, NUMBER], "full")
    differ = literal("a file has not as many JSON records as lines: report it")
    checked = f"if({_PARSED} IS NULL OR {_TEXT} IS NULL, CAST(raise_error({differ}) AS string), {_WRONG})"
    words = f"substring_index({_WRONG}, ': ', 1)"
    names = f"if({_WRONG} = {words}, {_TEXT}, substr({_WRONG}, length({words}) + 3))"
    check = Check("its text is odd", f"{_WRONG} IS NULL", names, rule_sql=words)
    joined = joined.withColumn(_WRONG, F.expr(checked))
    typed = (_rescuing if source.rescued_from else _typed)(joined, columns, source)
    return replace(typed, checks=[check, *typed.checks], record=_TEXT)


# ---- what does not fit is rescued: from the text of the record, which has all of it ----

_ALL = "_scope_all"
"""The column with all keys of a record and the texts of their values; NULL if it cannot be parsed."""
_IS_NUMBER = "airflow_provider_scope_number:"
"""Stands before a number that was made a text, because what parses a text in SQL would round it."""
_NUMBER = r"-?[0-9][-+.0-9eE]*+"
_NEXT_NUMBER = rf'(?s)\G((?:[^"0-9-]++|-(?![0-9])|"(?:[^"\\]++|\\.)*+")*+)({_NUMBER})'
"""The next number of a JSON text that is in no string, and what stands before it."""
_NOT_ALL = "not all of its values were read: report it"
_IN_MAP = "a value in a map is not of the declared type"


def _rescuing(rows: DataFrame, columns: T.StructType, source: Source) -> Records:
    """Read what fits, and rescue the rest of each record; a column has its whole value, or none of it.

    :param rows: As ``_read_lines`` joins them.
    """
    as_text = literal('$1"' + _IS_NUMBER + '$2"')
    marked = f"regexp_replace({_TEXT}, {literal(_NEXT_NUMBER)}, {as_text})"
    texts = f"from_json({marked}, 'map<string,string>')"
    number = literal(f'"?{_IS_NUMBER}({_NUMBER})"?')
    unmarked = f"transform_values({texts}, (k, v) -> regexp_replace(v, {number}, {literal('$1')}))"
    # A key that comes twice would make it fail.
    rows = rows.withColumn(_ALL, F.expr(f"CASE WHEN {_WRONG} IS NULL THEN {unmarked} END"))
    fits, values, fails, fails_in_map = dict[str, str](), [], ["false"], ["false"]
    for field in columns:
        name, read_as = quoted(field.name), _read_as(field.dataType)
        converted = convert_inside(name, field.dataType, partial(_leaf, source, field.name))
        values.append((field.name, converted.value))
        fit = []
        if not isinstance(read_as, T.StringType):
            failed = _fails(field.name, type_text(read_as), source)
            (fails_in_map if "map<" in read_as.simpleString() else fails).append(failed)
            fit.append(f"({RECORD} IS NULL OR NOT {failed})")
        if converted.is_exact:
            fit.append(f"({name} IS NULL OR coalesce({converted.is_exact}, false))")
        if is_nested(field.dataType):
            wrong = _TextCheck({}, extra=False).keys_of_column(field, _TEXT)
            fit.append(f"{formats.not_compiled(wrong)} IS NULL")
        if fit:
            fits[field.name] = f"({' AND '.join(fit)})"
    declared = formats.rescuing(Records(rows, [], _TEXT, values), _ALL, fits, columns.names)
    is_all_read = " AND ".join(
        f"({formats.is_fit(name, 'true')} IS NULL"
        f" OR (try_element_at({_ALL}, {literal(name)}) IS NULL) = ({quoted(name)} IS NULL))"
        for name in columns.names
    )
    any_fails, any_fails_in_map = " OR ".join(fails), " OR ".join(fails_in_map)
    checks = [
        Check(
            _NOT_TYPED,
            f"({_ALL} IS NOT NULL AND ({RECORD} IS NULL OR {any_fails} OR {any_fails_in_map}))",
            _TEXT,
            _NOT_JSON_HINT,
            _why_not_parsed(columns, source),
        ),
        # Spark goes on after such a value as if it had been the end of the map.
        Check(_IN_MAP, f"({RECORD} IS NULL OR NOT ({any_fails_in_map}))", _TEXT),
        Check(_NOT_ALL, f"({is_all_read})", _TEXT),
    ]
    return replace(declared, checks=checks)


def _why_not_parsed(columns: T.StructType, source: Source) -> str:
    """Write SQL that says why Spark could not parse a record: it parses it again, with one key at a time."""
    # Of a text it takes any value.
    typed = [field for field in columns if not isinstance(_read_as(field.dataType), T.StringType)]
    if len(typed) > _MOST_KEYS:
        return ""
    fails = partial(_fails, source=source)
    # Of an array it would see the first value alone.
    cases = [f"WHEN ltrim({RECORD}) LIKE '[%' THEN {literal(_NOT_TYPED)}"]
    cases.append(f"WHEN {fails('_scope_none', 'int')} THEN {literal(_NOT_JSON)}")
    for field in typed:
        rule = literal(f"{field.name} is not {field.dataType.simpleString()}")
        cases.append(f"WHEN {fails(field.name, type_text(_read_as(field.dataType)))} THEN {rule}")
    return formats.not_compiled(f"CASE {' '.join(cases)} ELSE {literal(_NOT_TYPED)} END")


def _fails(name: str, kind: str, source: Source) -> str:
    """Write SQL for whether Spark cannot parse the text of a record because of one of its keys."""
    schema = f"{quoted(name)} {kind}, {RECORD} string"
    return f"{_parse(RECORD, schema, _lax(source.options), bad=RECORD)}.{RECORD} IS NOT NULL"


def _read_as(kind: T.DataType) -> T.DataType:
    return map_leaves(kind, lambda k: T.StringType() if isinstance(k, _TEXTS) else k, keys=T.StringType())


# ---- the text of the files: what Spark's parser drops without a word ----
# It stops after the first value of a line, or of a file with ``multiLine``. It leaves out keys that are not
# declared, also those that differ only in case. Of a key that comes twice it takes the last.

_OTHER_ENDS = (" :", "\t:", "\r:", "\n:", "':")
"""How a key may end beside ``":``: before a blank, or in single quotes, which Spark takes as well."""
_HIGH, _LOW = r"\\ud[89ab][0-9a-f]{2}", r"\\ud[c-f][0-9a-f]{2}"
_HALF = rf"(?i)(?<!\\)(?:\\\\)*(?:{_HIGH}(?!{_LOW})|(?<!{_HIGH}){_LOW})"
"""``\\ud800`` without the other half; a parser makes a question mark of it."""
_MOST_KEYS = 60
"""With more columns than these, to look for each key costs more than the close look."""
_BAD = "_scope_bad"
"""Where Spark puts a text that it cannot parse: a key may be called anything else."""
_SENTINEL = "airflow_provider_scope_end"
_NOT_UTF8 = "it has bytes that are not UTF-8"
_LONE_SURROGATE = "it has an escape for half of a character"
_SECOND_VALUE = "it has something after its first JSON value"
_NO_NUMBER = "it has NaN or Infinity, which are no JSON"
_ARRAY = r"^\s*\["
_BLANKS = " \t\r\n"
_NAMED = r"[:,\[]\s*[-+]?(?:NaN|INF|Infinity)\s*[,\]}]"
_HINTS = {
    _NOT_UTF8: "name its encoding: options={'encoding': 'ISO-8859-1'}",
    _SECOND_VALUE: "one line holds one value; with multiLine, one file holds one value or one array",
    _NO_NUMBER: "options={'allowNonNumericNumbers': 'true'} takes them as numbers; a key that occurs twice "
    "is then not detected",
    UNDECLARED: "declare them in `columns` (as string they hold their JSON text), or set "
    'extra_columns="ignore"; keys are compared exactly, letter case included',
    "it has a key twice": "leave one of them out: only the last value would be loaded",
}
"""Beginning of a problem -> what may help."""
_NOT_INFERRED = (
    'declare `columns` (a string column holds the JSON text), or set extra_columns="ignore". A key that '
    "holds nothing but {} in the files that columns are inferred from gets no column. Keys are compared "
    "exactly, letter case included"
)


def _problems(
    spark: SparkSession, entry: OffsetEntry, columns: T.StructType, source: Source
) -> list[Problem]:
    """Find the files with such a text.

    :param columns: Keys beside these, at any depth, are a problem, unless the source leaves them out.
    """
    lines, text = _value_texts(spark, entry.paths, source)
    is_utf8 = "value" in lines.columns
    quick = f"({_is_plain(columns, text, source.options)} OR {_is_blank(text)})"
    odd = f"CASE WHEN {quick} THEN NULL ELSE {_problem_sql(columns, text, source)} END"
    if is_utf8:
        odd = f"CASE WHEN NOT is_valid_utf8(value) THEN {literal(_NOT_UTF8)} ELSE {odd} END"
    # What is wrong with a whole file goes before what is wrong with a record.
    of_file = F.col("wrong").isin(_NOT_UTF8, _SECOND_VALUE)
    rows = (
        lines.select("file", F.expr(odd).alias("wrong"), F.expr(f"left({text}, {SHOWN})").alias("line"))
        .where("wrong IS NOT NULL")
        .groupBy("file")
        .agg(F.max_by(F.struct("wrong", "line"), of_file).alias("first"))
        .select("file", "first.wrong", "first.line")
        .collect()
    )
    hints = (
        {**_HINTS, UNDECLARED: _NOT_INFERRED} if source.infers_columns or source.columns is None else _HINTS
    )
    paths = file_paths(entry, [row.file for row in rows])
    return [
        Problem(paths[file], wrong, line, next((hints[h] for h in hints if wrong.startswith(h)), ""))
        for file, wrong, line in rows
    ]


def _files_by_lines(
    spark: SparkSession, entry: OffsetEntry, problems: Sequence[Problem], source: Source
) -> set[str]:
    """Find the files of which only records are wrong and each line is one record.

    Of files without problems, what does not fit may be rescued: then they are among them.
    """
    files = {*entry.paths} if source.rescued_from else {problem.file for problem in problems}
    files -= {problem.file for problem in problems if problem.fault in (_NOT_UTF8, _SECOND_VALUE)}
    if not files or source.is_multi_line or not source.is_utf8 or _lax(source.options):
        return set()
    lines, text = _value_texts(spark, sorted(files), source)
    arrays = lines.where(f"{text} RLIKE {literal(_ARRAY)}").select("file").distinct()
    return files - {*file_paths(entry, [row.file for row in arrays.collect()]).values()}


def _problem_sql(columns: T.StructType, text: str, source: Source) -> str:
    """Write SQL of what is wrong with the text of a value; NULL if nothing is, or if the reader tells it."""
    return not_compiled(_TextCheck(_lax(source.options), extra=source.ignores_extra).wrong(columns, text))


def _is_blank(text: str) -> str:
    """Write SQL for whether a text holds no value, and is no record."""
    return f"trim(BOTH {literal(_BLANKS)} FROM {text}) = ''"


def _lax(options: Mapping[str, str]) -> dict[str, str]:
    """Pick the options of a reader that allow more than JSON, such as ``allowComments``."""
    return {name: options[name] for name in sorted(options) if name.startswith("allow")}


def _parse(text: str, schema: str, lax: Mapping[str, str], *, bad: str) -> str:
    """Write SQL that parses a text as Spark's reader does.

    :param schema: The columns that are wanted, as text.
    :param bad: The one that gets the text if it cannot be parsed.
    """
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": bad, **lax}
    pairs = ", ".join(f"{literal(name)}, {literal(value)}" for name, value in options.items())
    return f"from_json({text}, {literal(schema)}, map({pairs}))"


def _value_texts(spark: SparkSession, paths: Sequence[str], source: Source) -> tuple[DataFrame, str]:
    """Read the texts that hold a value each, with their file; and SQL of the text.

    :return: The texts are bytes in a column ``value`` if they are UTF-8, else decoded in ``text``.
    """
    line_sep = source.options.get("linesep")
    reader_options = {"wholetext": str(source.is_multi_line or source.is_wide).lower()}
    if line_sep is not None and not source.is_wide:
        reader_options["lineSep"] = line_sep
    files = listing.load(spark, "text", paths, reader_options)
    files = files.select("value", F.col(listing.FILE).alias("file"))
    if source.is_utf8:
        return files, "ltrim('\ufeff', value)" if source.is_multi_line else "value"
    decoded = f"decode(CAST(value AS binary), {literal(source.encoding)})"
    if source.is_wide and not source.is_multi_line:
        ends = literal("\n" if line_sep is None else line_sep)
        lines = f"explode(split({decoded}, {ends}))"
        return files.select("file", F.expr(lines).alias("text")), "ltrim('\ufeff', text)"
    return files.select("file", F.expr(decoded).alias("text")), "text"


def _is_plain(columns: T.StructType, text: str, options: Mapping[str, str]) -> str:
    r"""Write SQL for a quick look that most lines pass: one flat object with declared keys, each once.

    The first brace that closes is at the end. Each ``":`` ends a key, or stands inside a text as ``\":``;
    and as many as there are of them are declared keys that the line has. No key ends in another way.

    :param options: Those of the reader: with some of them, keys need no quotes, or have comments.
    """
    is_flat = not any(isinstance(f.dataType, (T.StructType, T.MapType, T.VariantType)) for f in columns)
    if not is_flat or len(columns) > _MOST_KEYS or _lax(options):
        return "false"
    keys = [name for name in columns.names if '"' not in name and "\\" not in name]
    named = [literal('"' + name + '":') for name in keys]
    declared_count = " + ".join(f"CAST(contains({text}, {key}) AS int)" for key in named) or "0"
    ends = f"""(octet_length({text}) - octet_length(replace({text}, '":', ''))) DIV 2"""
    # By bytes: to count characters costs as much as the rest of the look.
    before = f"octet_length(substring_index({text}, '}}', 1))"
    closes = f"{before} = octet_length(rtrim({text})) - 1"
    usual = " AND ".join(f"NOT contains({text}, {literal(end)})" for end in _OTHER_ENDS)
    # An escape may be half of a character. Most lines have none: then one look is enough.
    escape, *halves = (f"contains({text}, {literal(part)})" for part in ("\\u", "\\ud", "\\uD"))
    usual += f" AND NOT ({escape} AND ({' OR '.join(halves)}))"
    opens = f"ltrim({text}) LIKE '{{%'"
    return f"({opens} AND {closes} AND {ends} = {declared_count} AND {usual})"


@dataclass(frozen=True, slots=True)
class _TextCheck:
    """A close look at one text."""

    lax: Mapping[str, str]
    """The user's options that allow more than JSON."""
    extra: bool
    """Whether keys that are not declared are no problem."""

    def wrong(self, columns: T.StructType, text: str) -> str:
        """Write SQL of what is wrong with a text; NULL if nothing is, or if the reader tells it."""
        lone = f"{text} RLIKE {literal(_HALF)}"
        array = f"ltrim({text}) LIKE '[%'"
        items = self._parse(text, "array<string>")
        in_array = self._first(f"transform({items}, e -> {self._keys(columns, 'e')})")
        broken = f"if({array}, {items} IS NULL, {self._parse(text, f'{_BAD} string')}.{_BAD} IS NOT NULL)"
        return (
            f"CASE WHEN {lone} THEN {literal(_LONE_SURROGATE)} "
            f"WHEN {self._is_single(text)} THEN if({array}, {in_array}, {self._keys(columns, text)}) "
            f"WHEN {text} RLIKE {literal(_NAMED)} AND {self._is_closed(text)} THEN {literal(_NO_NUMBER)} "
            f"WHEN {broken} THEN NULL ELSE {literal(_SECOND_VALUE)} END"
        )

    def keys(self, text: str) -> str:
        """Write SQL of the keys of the objects that a text holds."""
        items, of_item = self._parse(text, "array<string>"), f"coalesce({self._names('e')}, array())"
        in_array = f"flatten(transform({items}, e -> {of_item}))"
        return f"if(ltrim({text}) LIKE '[%', {in_array}, {self._names(text)})"

    def _parse(self, text: str, schema: str) -> str:
        return _parse(text, schema, self.lax, bad=_BAD)

    def _is_single(self, text: str) -> str:
        """Write SQL for whether a text is one JSON value and nothing else; children are skipped, not read."""
        closed = self._is_closed(text)
        if self.lax:
            return f"({closed})"
        return f"({closed} AND json_array_length(concat('[', {text}, ']')) <=> 1)"

    def _is_closed(self, text: str) -> str:
        """Write SQL for the same of a text in which Spark's reader takes more than JSON has."""
        put = f"""concat('{{"v":', {text}, ',"{_SENTINEL}":1}}')"""
        ends = self._parse(put, f"{_SENTINEL} int, {_BAD} string")
        return f"{ends}.{_SENTINEL} <=> 1 AND {ends}.{_BAD} IS NULL"

    def _names(self, text: str) -> str:
        if self.lax:  # the function takes no options; a key that comes twice is not seen then
            return f"map_keys({self._parse(text, 'map<string,string>')})"
        return f"json_object_keys({text})"

    def _keys(self, kind: T.DataType, text: str, depth: int = 0) -> str:
        """Write SQL of the first key that is repeated or not declared in a value's text; NULL if none."""
        element = f"e{depth}"
        if isinstance(kind, T.StructType):
            return self._keys_of_struct(kind, text, depth)
        if isinstance(kind, T.ArrayType) and is_nested(kind.elementType):
            inner = self._keys(kind.elementType, element, depth + 1)
            return self._first(f"transform({self._parse(text, 'array<string>')}, {element} -> {inner})")
        if isinstance(kind, T.MapType):
            inner = "CAST(NULL AS string)"
            if is_nested(kind.valueType):
                values = f"map_values({self._parse(text, 'map<string,string>')})"
                of_value = self._keys(kind.valueType, element, depth + 1)
                inner = self._first(f"transform({values}, {element} -> {of_value})")
            return f"CASE {self._twice(text)} ELSE {inner} END"
        return "CAST(NULL AS string)"

    def _keys_of_struct(self, kind: T.StructType, text: str, depth: int) -> str:
        names = self._names(text)
        declared = ", ".join(literal(name) for name in kind.names)
        unknown = f"array_except({names}, array({declared}))"
        message = f"concat('it has keys that are not declared: ', array_join({unknown}, ', '))"
        undeclared_case = "" if self.extra else f"WHEN size({unknown}) > 0 THEN {message}"
        nested = [self.keys_of_column(f, text, depth) for f in kind if is_nested(f.dataType)]
        deeper = f"coalesce({', '.join(nested)})" if nested else "CAST(NULL AS string)"
        return f"CASE {self._twice(text)} {undeclared_case} ELSE {deeper} END"

    def keys_of_column(self, field: T.StructField, text: str, depth: int = 0) -> str:
        """Write SQL of the first such key in the value of a column, of an object's text; NULL if none."""
        inner = f"{self._parse(text, f'{quoted(field.name)} string')}.{quoted(field.name)}"
        return self._keys(field.dataType, inner, depth + 1)

    def _twice(self, text: str) -> str:
        names = self._names(text)
        message = f"concat('it has a key twice: ', array_join({names}, ', '))"
        is_repeated = f"size({names}) > size(array_distinct({names}))"
        return f"WHEN {names} IS NULL THEN NULL WHEN {is_repeated} THEN {message}"

    def _first(self, array: str) -> str:
        return f"try_element_at(filter({array}, p -> p IS NOT NULL), 1)"
