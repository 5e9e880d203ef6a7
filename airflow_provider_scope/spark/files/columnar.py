"""Parquet, ORC and Avro files to typed rows: what they say of their columns, and which a batch has."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.delta.schema import keeps_values
from airflow_provider_scope.spark.files import listing
from airflow_provider_scope.spark.files.formats import Check, Records, json_of, rescuing_columns, rules_inside
from airflow_provider_scope.spark.files.listing import Problem, bad_files
from airflow_provider_scope.spark.files.shapes import ClockOfUTC, Shape, read_shapes
from airflow_provider_scope.spark.session import in_utc
from airflow_provider_scope.spark.structs import (
    bare_type,
    is_nested,
    map_leaves,
    merge_types,
    type_text,
    without_lengths,
)
from airflow_provider_scope.sql import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.spark.files.formats import Source


def records(spark: SparkSession, entry: OffsetEntry, source: Source) -> list[Records]:
    """Read the records of all files, one value for all files that are read alike.

    A parquet or ORC file without columns has no records, whatever is declared.

    :return: Nothing if no file has columns, and none are declared.
    :raises BadFileError: A file has other columns than declared, or is not of the format.
    :raises SourceUnreadableError: A footer could not be read.
    """
    every = read_shapes(spark, source.format, entry)
    shapes = [shape for shape in every if shape.has_columns]
    columns = source.columns
    if columns is None:
        columns, clashes = _merged(shapes)
        if source.table and not clashes:
            columns = source.table.read_as(columns, _with_table, adds=False)
        elif not entry.overwrites_table:
            columns = cast("T.StructType", map_leaves(columns, _text_for_none))
        problems = _problems(shapes, _not_of_spark)
        if clashes and not problems:
            problems = [Problem(shapes[0].paths[0], "; ".join(clashes), hint=_NO_TYPE)]
    else:
        problems = _problems(shapes, partial(_differences, declared=columns, source=source))
    if problems:
        raise bad_files(entry, problems)
    return _read(spark, entry, shapes, columns, source)


def _text_for_none(kind: T.DataType) -> T.DataType:
    """Take a column without a type for text, as one of JSON that is always NULL: the table gets one by it."""
    return T.StringType() if isinstance(kind, T.NullType) else kind


def _with_table(files: T.DataType, table: T.DataType) -> T.DataType:
    """Treat the table as one file more. What it cannot hold is refused when the SELECT is fitted to it."""
    return _common(table, files) or files


def _problems(
    shapes: Sequence[Shape], differences: Callable[[Shape], list[tuple[str, str]]]
) -> list[Problem]:
    problems = []
    for shape in shapes:
        pairs = differences(shape)
        fault = "; ".join(fault for fault, _ in pairs)
        hint = next((hint for _, hint in pairs if hint), "")
        problems += [Problem(path, fault, hint=hint) for path in shape.paths if pairs]
    return problems


class _Scan(NamedTuple):
    """How files are read: together, if all of this is the same. See ``Footer`` and ``Shape``."""

    is_calendar_known: bool
    may_be_cut: bool
    reader_schema: str
    layout: str
    """The columns to ask Spark for, as text."""
    values: tuple[tuple[str, str], ...]
    """The columns of the source: name, SQL of the typed value."""
    rescued: tuple[str, ...]
    """The columns of the files whose values are rescued."""


def _read(
    spark: SparkSession, entry: OffsetEntry, shapes: Sequence[Shape], columns: T.StructType, source: Source
) -> list[Records]:
    if not shapes:
        return [_no_records(spark, columns)] if columns.fields else []
    scans: dict[_Scan, tuple[T.StructType, list[str]]] = {}
    nulls = {field.name: f"CAST(NULL AS {type_text(field.dataType)})" for field in columns}
    for shape in shapes:
        rescued = _rescued(shape, columns) if source.rescued_from else []
        taken = {field.name.lower() for field in rescued}
        fitting = T.StructType([field for field in columns if field.name.lower() not in taken])
        layout, sqls = _plan(shape, fitting)
        layout = T.StructType([*layout, *rescued])
        values = tuple((nulls | dict(zip(fitting.names, sqls, strict=True))).items())
        names, footer = tuple(field.name for field in rescued), shape.footer
        how = footer.is_calendar_known, footer.may_be_cut, shape.reader_schema
        scan = _Scan(*how, layout.simpleString(), values, names)
        scans.setdefault(scan, (layout, []))[1].extend(shape.paths)
    pieces, cut = [], list[Problem]()
    for scan, (layout, paths) in scans.items():
        columns_read = T.StructType(
            [layout[name] for name in (layout.names if scan.rescued else columns.names)]
        )
        calendar = _GREGORIAN if scan.is_calendar_known else {}
        options = {**calendar, **_ALWAYS, **source.options}
        if scan.reader_schema:
            options["avroSchema"] = scan.reader_schema
        rows = listing.load(spark, source.format, paths, options, layout)
        if source.format == "orc" and "timestamp" in columns_read.simpleString():
            rows = in_utc(rows)
        if scan.may_be_cut:
            # 35 digits: Spark would cut both sides to six to compare 38 with 38. `%` takes several times as
            # long.
            exact = rules_inside(columns_read, _TIMES, "CAST({0} AS decimal(35,6)) = {0}")
            if exact:
                digits = listing.load(spark, source.format, paths, options, _with_digits(layout))
                cut += _with_nanoseconds(digits, exact)
        pieces.append(_typed(rows, columns, columns_read, scan, source))
    if cut:
        raise bad_files(entry, cut)
    return pieces


def _no_records(spark: SparkSession, columns: T.StructType) -> Records:
    rows = spark.createDataFrame([], without_lengths(columns).add(listing.FILE, "string"))
    return Records(rows, [], "''", tuple((name, quoted(name)) for name in columns.names))


def _typed(
    rows: DataFrame, columns: T.StructType, columns_read: T.StructType, scan: _Scan, source: Source
) -> Records:
    """Add their checks to records, and SQL of their typed values."""
    taken = {name.lower() for name in scan.rescued}
    of_files = [(name, value) for name, value in scan.values if name.lower() not in taken]
    rules = _rules(columns, of_files, decimals=bool(scan.reader_schema))
    checks = [] if source.rescued_from else [*rules.values()]
    if source.format == "orc" and not scan.is_calendar_known:
        passes = rules_inside(columns_read, (T.DateType, *_TIMES), "{0} >= DATE'1582-10-15'")
        checks += [Check(f"{name} {_TOO_OLD}", sql, quoted(name)) for name, sql in passes]
    read = Records(rows, checks, json_of(*map(quoted, columns_read.names)), scan.values)
    if not source.rescued_from:
        return read
    fits = {name: rule.passes for name, rule in rules.items()} | dict.fromkeys(scan.rescued, "false")
    return rescuing_columns(read, columns_read, fits, columns.names)


def _rules(columns: T.StructType, values: Sequence[tuple[str, str]], *, decimals: bool) -> dict[str, Check]:
    """Make the rules for values of a type that fits: at most one for a column.

    :param values: Columns, and SQL of their typed values.
    :param decimals: Whether decimals may have more digits than their type has.
    """
    fine = {name: quoted(name) for name, value in values if value.startswith(_MICROS)}
    rules = {
        name: Check(f"{name} {_TOO_FINE}", f"({value} IS NULL OR {value} % 1000 = 0)", value)
        for name, value in fine.items()
    }
    if decimals:
        fields = T.StructType([columns[name] for name, _ in values])
        for name, sql in rules_inside(fields, (T.DecimalType,), "try_cast({0} AS {1}) IS NOT NULL"):
            rule = f"{name} is not {columns[name].dataType.simpleString()}"
            rules[name] = Check(rule, sql, quoted(name), _NO_TYPE)
    return rules


_TIMES = (T.TimestampType, T.TimestampNTZType)
_GREGORIAN = {"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"}
"""Take old dates as they are; the session's setting is to refuse them."""
_ALWAYS = {"parquet.page.verify-checksum.enabled": "true", "ignoreExtension": "true"}
"""Compare the pages of parquet files with their checksums, where they have them: Spark writes such. And read
Avro files whatever their names: a setting of Hadoop's leaves out those that are not named so."""
_MICROS = "CAST(timestamp_micros("
_TOO_FINE = "has nanoseconds that a timestamp cannot hold"
_TOO_OLD = "is before 1582-10-15, and the file does not say in which calendar"
"""Said of ORC files: Spark takes their calendar for the Julian one then."""


def _with_digits(layout: T.StructType) -> T.StructType:
    """Ask for times as decimals: Spark gives them with all digits then.

    That is no way to read the rows: it does not take days before 1582-10-15 out of ORC's calendar then.
    """
    digits = T.DecimalType(38, 9)
    exact = map_leaves(layout, lambda kind: digits if isinstance(kind, _TIMES) else kind)
    return cast("T.StructType", exact)


def _with_nanoseconds(rows: DataFrame, passes: Sequence[tuple[str, str]]) -> list[Problem]:
    """Find the ORC files with times that Spark would cut to microseconds.

    :param rows: With times as decimals.
    :param passes: Columns, and SQL that their times are not cut.
    """
    bad = rows.where(f"NOT ({' AND '.join(sql for _, sql in passes)})")
    names = ", ".join(f"if({sql}, NULL, {literal(name)})" for name, sql in passes)
    names_by_file = bad.selectExpr(listing.FILE, f"explode(array_compact(array({names}))) AS name").distinct()
    faults: dict[str, list[str]] = {}
    for file, name in sorted(names_by_file.collect()):
        faults.setdefault(file, []).append(f"{name} {_TOO_FINE}")
    hint = "write the times in microseconds; or as text, or as numbers"
    return [Problem(file, "; ".join(messages), hint=hint) for file, messages in faults.items()]


def _rescued(shape: Shape, columns: T.StructType) -> list[T.StructField]:
    """List the columns of some files that are not declared, or not of the declared type, as they are read."""
    declared = {field.name.lower(): field for field in columns}
    return [
        shape.columns[field.name]
        for field in shape.stored
        if field.name.lower() not in declared or not _holds(shape, declared[field.name.lower()], field)
    ]


def _plan(shape: Shape, columns: T.StructType) -> tuple[T.StructType, list[str]]:
    """Choose the columns to ask Spark for, and write SQL of each value.

    Spark's readers widen few types, fewer inside others: each is asked for as it is in the file, and cast.
    Where Spark takes columns by position, the layout has all columns of the file, in its order.
    """
    read = {field.name.lower(): field.dataType for field in shape.columns}
    no_types = {field.name.lower() for field in shape.stored if isinstance(field.dataType, T.NullType)}
    nanoseconds = {name.lower() for name in shape.nanoseconds}
    layout = T.StructType()
    values = []
    for field in columns:
        name, target = quoted(field.name), type_text(field.dataType)
        file_type = read.get(field.name.lower())
        if file_type is not None and field.name.lower() in nanoseconds:
            layout = layout.add(field.name, T.LongType())
            is_number = isinstance(field.dataType, T.LongType)
            values.append(name if is_number else f"{_MICROS}{name} DIV 1000) AS {target})")
            continue
        if file_type is None:
            kind = field.dataType
        elif is_nested(file_type):
            kind = cast("T.DataType", merge_types(field.dataType, file_type, lambda _, read: read))
        else:
            kind = file_type
        layout = layout.add(field.name, kind)
        is_same = type_text(kind) == target
        is_null = field.name.lower() in no_types  # Spark's number for it cannot become any type
        values.append(f"CAST({'NULL' if is_null else name} AS {target})" if is_null or not is_same else name)
    if not shape.positions:
        return layout, values
    remaining = {field.name.lower(): field for field in layout}
    in_file_order = [remaining.pop(field.name.lower(), field) for field in shape.positions]
    return T.StructType([*in_file_order, *remaining.values()]), values


# ---- which columns a batch has, whose files are not all of one shape, or not of the declared one ----

_DECLARE = (
    'declare it; or leave `columns` out and name the columns in the SELECT; or set extra_columns="ignore"'
)
_DECLARE_IT = "declare it as this: keys of JSON are texts, so it cannot be rescued"
_NO_KEY = re.compile(r"\bmap<(?!(?:string|boolean|(?:tiny|small|big)?int|float|double|decimal\([\d,]+\)),)")
"""A map in a type of Spark's as text, of whose keys Spark's JSON has other texts than they are, or none."""
_ALLOW = 'set missing_columns="null" if files may lack it; or leave `columns` out'
_NOT_OF_SPARK = (
    'declare the other columns in `columns`, and set extra_columns="ignore"; or write the files with another '
    "type, such as text"
)
_NO_UNION = "write the files without it: Spark reads no column of an ORC file that has a union"
_NO_TYPE = "declare a type that holds the values of all files; or leave `columns` out, and CAST in the SELECT"
"""What helps with files whose types cannot be held together."""
_NO_ZONE = (
    "its times without a zone were written in {zones}, and may not be those of UTC: declare them as "
    "timestamp_ntz; to_utc_timestamp(column, zone) in the SELECT makes instants of them"
)

_DECIMAL_DIGITS = 38


def _merged(shapes: Sequence[Shape]) -> tuple[T.StructType, list[str]]:
    """Find the columns that hold those of all files, and what cannot be held together.

    A type widens where no value changes. The problems name files and types.
    """
    merged: dict[str, T.StructField] = {}
    first: dict[str, str] = {}
    problems = []
    for shape in shapes:
        path = shape.paths[0]
        for field in shape.stored:
            key = field.name.lower()
            merged_field = merged.get(key)
            if merged_field is None:
                merged[key], first[key] = field, path
                continue
            kind = _common(merged_field.dataType, field.dataType)
            if kind is None:
                problems.append(
                    f"{field.name} is {merged_field.dataType.simpleString()} in {first[key]} and "
                    f"{field.dataType.simpleString()} in {path}"
                )
            else:
                merged[key] = T.StructField(merged_field.name, kind)

    def plain(kind: T.DataType) -> T.DataType:
        return T.TimestampNTZType() if isinstance(kind, ClockOfUTC) else kind

    return cast("T.StructType", map_leaves(T.StructType(list(merged.values())), plain)), problems


def _differences(shape: Shape, declared: T.StructType, source: Source) -> list[tuple[str, str]]:
    """Find what keeps the files of a shape from being read as the declared columns, and what may help."""
    rescues = source.rescued_from is not None
    file_fields = {field.name.lower(): field for field in shape.stored}
    declared_names = {field.name.lower() for field in declared}
    unknown = {name.lower() for name in shape.unknown}
    differences = _not_of_spark(shape, declared_names if source.ignores_extra else None)
    if rescues:
        differences += [
            (f"{field.name} is {field.dataType.simpleString()}, which rescued data cannot hold", _DECLARE_IT)
            for field in _rescued(shape, declared)
            if _NO_KEY.search(field.dataType.simpleString())
        ]
    if shape.has_union:
        return differences
    if not source.ignores_extra and not rescues:
        undeclared = [field.name for key, field in file_fields.items() if key not in declared_names]
        differences += [(f"it has the column {name}, which is not declared", _DECLARE) for name in undeclared]
    for field in declared:
        file_field = file_fields.get(field.name.lower())
        if file_field is None:
            if not source.allows_missing and field.name.lower() not in unknown:
                differences.append((f"it has no column {field.name}", _ALLOW))
        elif not rescues and not _holds(shape, field, file_field):
            own_kind, kind = file_field.dataType.simpleString(), field.dataType.simpleString()
            zones = ", ".join(sorted(shape.footer.writer_zones))
            hint = _NO_ZONE.format(zones=zones) if zones and "timestamp_ntz" in own_kind else _NO_TYPE
            differences.append((f"{field.name} is {own_kind}, declared is {kind}", hint))
    return differences


def _holds(shape: Shape, field: T.StructField, file_field: T.StructField) -> bool:
    """Return whether a declared column holds all values of a column of some files."""
    if file_field.name in shape.nanoseconds and isinstance(field.dataType, T.LongType):
        return True  # declared as the number that it is in the file
    return _common(field.dataType, file_field.dataType) == bare_type(field.dataType)


def _not_of_spark(shape: Shape, names: Collection[str] | None = None) -> list[tuple[str, str]]:
    """Find the columns of a type that Spark does not have, and what may help.

    :param names: The columns to look at, in lower case; None is all.
    """
    hint = _NO_UNION if shape.has_union else _NOT_OF_SPARK
    return [
        (f"{name} cannot be read: {why}", hint)
        for name, why in shape.unknown.items()
        if names is None or shape.has_union or name.lower() in names
    ]


def _common(first: T.DataType, second: T.DataType) -> T.DataType | None:
    """Find the type that holds all values of two types unchanged; None if there is none.

    Fields inside are in the order of the first: Spark's readers find them by their names.
    """
    return merge_types(bare_type(first), bare_type(second), _wider)


def _wider(first: T.DataType, second: T.DataType) -> T.DataType | None:
    if first == second:
        return first
    for clock, kind in ((first, second), (second, first)):
        if isinstance(clock, ClockOfUTC) and isinstance(kind, (T.TimestampType, T.TimestampNTZType)):
            return kind
    if keeps_values(first.simpleString(), second.simpleString()):
        return second
    if keeps_values(second.simpleString(), first.simpleString()):
        return first
    if isinstance(first, T.DecimalType) and isinstance(second, T.DecimalType):
        scale = max(first.scale, second.scale)
        precision = scale + max(first.precision - first.scale, second.precision - second.scale)
        return T.DecimalType(precision, scale) if precision <= _DECIMAL_DIGITS else None
    return None
