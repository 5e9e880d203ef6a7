"""JSON files to typed rows: what Spark's parser would drop or change is read as text, or looked for first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.core.sql import literal, quoted
from airflow_provider_scope.spark import alike, candidates, checks, json_form, listing
from airflow_provider_scope.spark.checks import RECORD, Check, Records
from airflow_provider_scope.spark.problems import Problem, bad_files, with_lines
from airflow_provider_scope.spark.structs import type_text
from airflow_provider_scope.spark.values import Converted, convert

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_scope.core.records import OffsetEntry
    from airflow_provider_scope.spark.source import Source

_STRICT = {"mode": "PERMISSIVE", "columnnameofcorruptrecord": RECORD}

_AS_TEXT = (T.FloatType, T.DoubleType, T.DecimalType, T.DateType, T.TimestampType, T.TimestampNTZType)
"""What Spark's parser changes: it rounds decimals, makes infinity of large numbers, and takes a number in a
time for seconds. It gives the text of a number as it stands in the file."""


_NOT_JSON = "it is not JSON, or no object"
_NOT_TYPED = "it is not JSON with values of the declared types"
_NOT_JSON_HINT = "correct `format` if the file holds no JSON; declare a key as string if it holds other types"
_COMPRESSED = (".gz", ".gzip", ".bz2", ".deflate")
_EXACT_INFERRED = (T.IntegralType, T.BooleanType, T.StringType)
_EXACT = (*_EXACT_INFERRED, T.FloatType, T.DoubleType)


@dataclass(frozen=True, slots=True)
class _Group:
    """Files that are read in the same way."""

    paths: tuple[str, ...]
    is_rounded: bool = False
    """Compressed and read as a whole: of a number that is read as text, Spark gives the double's digits."""


def records(spark: SparkSession, entry: OffsetEntry, source: Source) -> list[Records]:
    """Give the records of all files, one value for all files that are read with the same options.

    :raises BadFileError: A file has a text of which Spark's parser would drop or change something.
    """
    paths = [file.path for file in entry.files]
    columns = source.columns or columns_of(spark, entry, source.options)
    groups = _groups(paths, source)
    problems = [problem for group in groups for problem in _rounded(group, columns, source)]
    if problems:
        raise bad_files(entry, problems)
    problems = json_form.problems(spark, paths, columns, source)
    if problems:
        has_lines = source.is_utf8 and not source.is_multi_line
        raise bad_files(entry, with_lines(spark, entry, problems) if has_lines else problems)
    return [_read(spark, group, columns, source) for group in groups]


def _groups(paths: Sequence[str], source: Source) -> list[_Group]:
    """Group files by whether their numbers can be read exactly as text."""
    if not source.is_multi_line:
        return [_Group(tuple(paths))]
    rounded = tuple(path for path in paths if path.lower().endswith(_COMPRESSED))
    plain = tuple(path for path in paths if path not in set(rounded))
    return [group for group in (_Group(plain), _Group(rounded, is_rounded=True)) if group.paths]


def _rounded(group: _Group, columns: T.StructType, source: Source) -> list[Problem]:
    """Give the files in which a number could be rounded before it is seen."""
    # Who declares a double wants the nearest one; who does not, wants to know of digits that it has not.
    exact = _EXACT_INFERRED if source.inferred else _EXACT
    if not group.is_rounded or all(isinstance(field.dataType, exact) for field in columns):
        return []
    what = "it is compressed and read with multiLine: its decimals would be rounded"
    return [Problem(path, what, hint="decompress it, or write a value on a line") for path in group.paths]


def _unrounded(field: T.StructField) -> list[Check]:
    """Check that a text of a rounded file is no number, and a number no infinity."""
    name = quoted(field.name)
    rule = f"{field.name} may be a number that was rounded, in a compressed multiLine file"
    if isinstance(field.dataType, T.StringType):
        number = f"try_cast({name} AS double) IS NULL OR NOT {name} RLIKE '[.eE]'"
        nested = f"left({name}, 1) IN ('{{', '[')"
        return [Check(rule, f"({name} IS NULL OR (({number}) AND NOT {nested}))", name)]
    if isinstance(field.dataType, (T.FloatType, T.DoubleType)):
        return [Check(rule, f"NOT coalesce({name} LIKE '%Infinity', false)", name)]
    return []


def columns_of(spark: SparkSession, entry: OffsetEntry, options: Mapping[str, str]) -> T.StructType:
    """Give the columns that Spark finds in the files; one that is always NULL is text.

    :raises BadFileError: Keys differ in letter case alone.
    """
    given = {**_STRICT, **options}
    paths = listing.for_inference([file.path for file in entry.files])
    try:
        found = spark.read.format("json").options(**given).load(paths).schema
    except AnalysisException as err:
        told = alike.json_keys(spark, entry, given) if err.getCondition() == alike.CLASH else None
        if told is None:
            raise
        raise told from None
    return T.StructType(
        [
            T.StructField(f.name, T.StringType() if isinstance(f.dataType, T.NullType) else f.dataType)
            for f in found
            if f.name != RECORD
        ]
    )


def rows_of(
    spark: SparkSession, paths: Sequence[str], columns: T.StructType, options: Mapping[str, str]
) -> DataFrame:
    """Read files with text in place of the types that Spark's parser changes, and with ``RECORD``."""
    texts = T.StructType([T.StructField(field.name, _read_as(field.dataType)) for field in columns])
    wanted = texts.add(RECORD, T.StringType())
    return listing.load(
        lambda: spark.read.format("json").options(**{**_STRICT, **options}).schema(wanted), paths
    )


def _read(spark: SparkSession, group: _Group, columns: T.StructType, source: Source) -> Records:
    """Give the records of all files, and what makes them typed values; ``json_form`` has seen their bytes."""
    rows = rows_of(spark, group.paths, columns, source.options)
    found = [checks.parsed(_NOT_TYPED, _NOT_JSON_HINT, told=_why_not_parsed(columns, source))]
    values = []
    for field in columns:
        name = quoted(field.name)
        converted = _convert(name, field.dataType, field.name, source, depth=0)
        if converted.is_exact:
            found.append(checks.exact(field, name, converted.is_exact))
        if group.is_rounded:
            found += _unrounded(field)
        values.append((field.name, converted.value))
    return Records(rows, found, checks.record_of(columns.names), values)


def _why_not_parsed(columns: T.StructType, source: Source) -> str:
    """Give SQL that says why Spark could not parse a record: it parses it again, with one key at a time."""
    # Of a text it takes any value.
    typed = [field for field in columns if not isinstance(_read_as(field.dataType), T.StringType)]
    if len(typed) > json_form.MOST_KEYS:
        return ""
    lax = json_form.lax(source.options)

    def fails(name: str, kind: str) -> str:
        wanted = f"{quoted(name)} {kind}, {RECORD} string"
        return f"{json_form.parse(RECORD, wanted, lax, bad=RECORD)}.{RECORD} IS NOT NULL"

    # Of an array it would see the first value alone.
    cases = [f"WHEN ltrim({RECORD}) LIKE '[%' THEN {literal(_NOT_TYPED)}"]
    cases.append(f"WHEN {fails('_scope_none', 'int')} THEN {literal(_NOT_JSON)}")
    for field in typed:
        told = literal(f"{field.name} is not {field.dataType.simpleString()}")
        cases.append(f"WHEN {fails(field.name, type_text(_read_as(field.dataType)))} THEN {told}")
    return checks.not_compiled(f"CASE {' '.join(cases)} ELSE {literal(_NOT_TYPED)} END")


def _read_as(kind: T.DataType) -> T.DataType:
    if isinstance(kind, (*_AS_TEXT, T.VarcharType, T.CharType)):
        return T.StringType()
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(field.name, _read_as(field.dataType)) for field in kind])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_read_as(kind.elementType))
    if isinstance(kind, T.MapType):
        return T.MapType(T.StringType(), _read_as(kind.valueType))
    return kind


def _convert(value: str, kind: T.DataType, column: str, source: Source, *, depth: int) -> Converted:
    """Give the typed value of what was read: what holds no text that is converted stays as it is."""
    one = f"x{depth}"
    if isinstance(kind, T.StructType):
        inner = [
            (f.name, _convert(f"{value}.{quoted(f.name)}", f.dataType, column, source, depth=depth))
            for f in kind
        ]
        if not any(c.is_exact for _, c in inner):
            return Converted(value, None)
        fields = ", ".join(f"{literal(name)}, {c.value}" for name, c in inner)
        exact = [
            f"({value}.{quoted(name)} IS NULL OR coalesce({c.is_exact}, false))"
            for name, c in inner
            if c.is_exact
        ]
        return Converted(f"if({value} IS NULL, NULL, named_struct({fields}))", f"({' AND '.join(exact)})")
    if isinstance(kind, T.ArrayType):
        item = _convert(one, kind.elementType, column, source, depth=depth + 1)
        return _each(item, value, f"transform({value}, {one} -> {item.value})", one)
    if isinstance(kind, T.MapType):
        item = _convert(one, kind.valueType, column, source, depth=depth + 1)
        changed = f"transform_values({value}, (k{depth}, {one}) -> {item.value})"
        return _each(item, value, changed, one, of=f"map_values({value})")
    if isinstance(kind, (*_AS_TEXT, T.VarcharType, T.CharType)):
        conversion = candidates.strict if source.inferred else convert
        return conversion(value, kind, column, source.options)
    return Converted(value, None)


def _each(item: Converted, value: str, changed: str, one: str, of: str = "") -> Converted:
    """Give an array or a map whose items are converted.

    :param changed: SQL of it, converted.
    :param one: The name of an item in the SQL of ``item``.
    :param of: SQL of the items; the value itself if empty.
    """
    if not item.is_exact:
        return Converted(value, None)
    is_exact = f"{one} IS NULL OR coalesce({item.is_exact}, false)"
    return Converted(changed, f"forall({of or value}, {one} -> {is_exact})")
