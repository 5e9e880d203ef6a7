"""Parquet and ORC files to typed rows: their footers say what Spark would drop, fill in or reinterpret."""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.core.schema import keeps_values
from airflow_provider_scope.core.sql import literal, quoted
from airflow_provider_scope.spark import files, listing
from airflow_provider_scope.spark.formats import Check, Records, json_of
from airflow_provider_scope.spark.problems import Problem, bad_files, unreadable_footers
from airflow_provider_scope.spark.session import SPARK_ERRORS, in_utc, short_cause
from airflow_provider_scope.spark.structs import bare, mapped, type_text, zipped

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.readwriter import DataFrameReader

    from airflow_provider_scope.core.records import OffsetEntry
    from airflow_provider_scope.spark.formats import Source


def records(spark: SparkSession, entry: OffsetEntry, source: Source) -> list[Records]:
    """Give the records of all files, one value for all files that are read alike.

    :raises BadFileError: A file has other columns than declared, or is not of the format.
    :raises SourceUnreadableError: A footer could not be read.
    """
    shapes = _shapes(spark, source.format, entry)
    columns = source.columns
    if columns is None:
        columns, clashes = _merged(shapes)
        if source.table and not clashes:
            columns = source.table.read_as(columns, _with_table, adds=False)
        told = [Problem(shapes[0].paths[0], "; ".join(clashes), hint=_NO_TYPE)]
        problems = _problems(shapes, _not_of_spark) or (told if clashes else [])
    else:
        differences = partial(_differences, declared=columns, extra=source.extra, missing=source.missing)
        problems = _problems(shapes, differences)
    if problems:
        raise bad_files(entry, problems)
    return _read(spark, entry, shapes, columns, source)


def _with_table(files: T.DataType, table: T.DataType) -> T.DataType:
    """Take the table for one file more; what it cannot hold is told when the SELECT is fitted to it."""
    return _common(table, files) or files


def _problems(
    shapes: Sequence[Shape], differences: Callable[[Shape], list[tuple[str, str]]]
) -> list[Problem]:
    problems = []
    for shape in shapes:
        found = differences(shape)
        what = "; ".join(what for what, _ in found)
        hint = next((hint for _, hint in found if hint), "")
        problems += [Problem(path, what, hint=hint) for path in shape.paths if found]
    return problems


def _read(
    spark: SparkSession, entry: OffsetEntry, shapes: Sequence[Shape], columns: T.StructType, source: Source
) -> list[Records]:
    scans: dict[tuple[bool, bool, str, tuple[str, ...]], tuple[T.StructType, list[str]]] = {}
    for shape in shapes:
        layout, wanted = _plan(shape, columns)
        key = (shape.is_calendar_known, shape.may_be_cut, layout.simpleString(), tuple(wanted))
        scans.setdefault(key, (layout, []))[1].extend(shape.paths)
    found, cut = [], list[Problem]()
    for (is_calendar_known, may_be_cut, _, values), (layout, paths) in scans.items():
        asked = T.StructType([layout[name] for name in columns.names])
        calendar = _GREGORIAN if is_calendar_known else {}
        reader = partial(_reader, spark, source.format, {**calendar, **_CHECKED, **source.options})
        rows = listing.load(partial(reader, layout), paths)
        if source.format == "orc" and "timestamp" in asked.simpleString():
            rows = in_utc(rows)
        if may_be_cut:
            cut += _with_nanoseconds(partial(reader, _with_digits(layout)), asked, paths)
        checks = [
            Check(
                f"{name} {_TOO_FINE}",
                f"({quoted(name)} % 1000 <=> 0 OR {quoted(name)} IS NULL)",
                quoted(name),
            )
            for name, value in zip(columns.names, values, strict=True)
            if value.startswith(_MICROS)
        ]
        if source.format == "orc" and not is_calendar_known:
            passes = _each(asked, (T.DateType, *_TIMES), "{0} >= DATE'1582-10-15'")
            checks += [Check(f"{name} {_TOO_OLD}", sql, quoted(name)) for name, sql in passes]
        record = json_of("struct(" + ", ".join(map(quoted, asked.names)) + ")")
        found.append(Records(rows, checks, record, list(zip(columns.names, values, strict=True))))
    if cut:
        raise bad_files(entry, cut)
    return found


_TIMES = (T.TimestampType, T.TimestampNTZType)
_GREGORIAN = {"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"}
"""Take old dates as they are; the session's setting is to refuse them."""
_CHECKED = {"parquet.page.verify-checksum.enabled": "true"}
"""Compare the pages of parquet files with their checksums, where they have them: Spark writes such."""
_MICROS = "CAST(timestamp_micros("
_TOO_FINE = "has nanoseconds that a timestamp cannot hold"
_TOO_OLD = "is before 1582-10-15, and the file does not say in which calendar"
"""Said of ORC files: Spark takes their calendar for the Julian one then."""


def _with_digits(layout: T.StructType) -> T.StructType:
    """Ask for times as decimals: Spark gives them with all digits then.

    That is no way to read the rows: it does not take days before 1582-10-15 out of ORC's calendar then.
    """
    digits = T.DecimalType(38, 9)
    exact = mapped(layout, lambda kind: digits if isinstance(kind, _TIMES) else kind)
    return cast("T.StructType", exact)


def _with_nanoseconds(
    reader: Callable[[], DataFrameReader], asked: T.StructType, paths: Sequence[str]
) -> list[Problem]:
    """Give the ORC files with times that Spark would cut to microseconds.

    :param reader: Gives times as decimals.
    """
    # 35 digits: Spark would cut both sides to six to compare 38 with 38. `%` takes several times as long.
    passes = _each(asked, _TIMES, "CAST({0} AS decimal(35,6)) = {0}")
    if not passes:
        return []
    rows = listing.load(reader, paths)
    bad = rows.where(f"NOT ({' AND '.join(sql for _, sql in passes)})")
    names = ", ".join(f"if({sql}, NULL, {literal(name)})" for name, sql in passes)
    found = bad.selectExpr(listing.FILE, f"explode(array_compact(array({names}))) AS name").distinct()
    told: dict[str, list[str]] = {}
    for file, name in sorted(found.collect()):
        told.setdefault(file, []).append(f"{name} {_TOO_FINE}")
    hint = "write the times in microseconds; or as text, or as numbers"
    return [Problem(file, "; ".join(what), hint=hint) for file, what in told.items()]


def _each(columns: T.StructType, kinds: tuple[type[T.DataType], ...], rule: str) -> list[tuple[str, str]]:
    """Give the columns with values of some types at any depth, and SQL that all of these pass a rule.

    :param rule: SQL with ``{0}`` for the value. NULL passes.
    """
    passes = [(field.name, _all(quoted(field.name), field.dataType, kinds, rule)) for field in columns]
    return [(name, sql) for name, sql in passes if sql]


def _all(value: str, kind: T.DataType, kinds: tuple[type[T.DataType], ...], rule: str, depth: int = 0) -> str:
    if isinstance(kind, kinds):
        return f"coalesce({rule.format(value)}, true)"
    if isinstance(kind, T.StructType):
        fields = [_all(f"{value}.{quoted(f.name)}", f.dataType, kinds, rule, depth) for f in kind]
        return " AND ".join(sql for sql in fields if sql)
    if isinstance(kind, T.MapType):
        lists = {"map_keys": T.ArrayType(kind.keyType), "map_values": T.ArrayType(kind.valueType)}
        parts = [_all(f"{function}({value})", array, kinds, rule, depth) for function, array in lists.items()]
        return " AND ".join(sql for sql in parts if sql)
    if isinstance(kind, T.ArrayType):
        element = _all(f"x{depth}", kind.elementType, kinds, rule, depth + 1)
        return f"coalesce(forall({value}, x{depth} -> {element}), true)" if element else ""
    return ""


def _reader(
    spark: SparkSession, kind: str, options: Mapping[str, str], columns: T.StructType
) -> DataFrameReader:
    return spark.read.format(kind).options(**options).schema(columns)


def _plan(shape: Shape, columns: T.StructType) -> tuple[T.StructType, list[str]]:
    """Give the columns to ask Spark for, and SQL of each value.

    Where Spark takes columns by their position, all of the file's are asked for, in the file's order.
    """
    read = {field.name.lower(): field.dataType for field in shape.columns}
    nanoseconds = {name.lower() for name in shape.nanoseconds}
    asked = T.StructType()
    values = []
    for field in columns:
        name, target = quoted(field.name), type_text(field.dataType)
        there = read.get(field.name.lower())
        if there is not None and field.name.lower() in nanoseconds:
            asked = asked.add(field.name, T.LongType())
            is_number = isinstance(field.dataType, T.LongType)
            values.append(name if is_number else f"{_MICROS}{name} DIV 1000) AS {target})")
            continue
        if there is None:
            kind = field.dataType
        elif isinstance(there, (T.StructType, T.ArrayType, T.MapType)):
            kind = cast("T.DataType", zipped(field.dataType, there, _as_read))
        else:
            kind = there
        asked = asked.add(field.name, kind)
        values.append(name if type_text(kind) == target else f"CAST({name} AS {target})")
    if not shape.positions:
        return asked, values
    further = {field.name.lower(): field for field in asked}
    placed = [further.pop(field.name.lower(), field) for field in shape.positions]
    return T.StructType([*placed, *further.values()]), values


_NANOSECONDS = re.compile(
    r"^ {2}\w+ int64 (.*) \(TIMESTAMP\(NANOS,(true|false)\)\)(?: = \d+)?;$", re.MULTILINE
)
"""A column of parquet's schema as text: its name, and whether it is an instant."""
_COLUMN = re.compile(r"^ {2}\w+ (?:group|\S+) (.*?)(?: \([A-Z_]+(?:\(.*\))?\))?(?: = \d+)?(?:;| \{)$")
"""A column of parquet's schema as text: its name."""
_NESTED_NANOSECONDS = re.compile(r"^ {3,}\w+ int64 .* \(TIMESTAMP\(NANOS,(?:true|false)\)\)")


_CONDITION = re.compile(r"^\[[\w.]+\] | SQLSTATE: \w+")
"""What Spark puts around its words."""
_TIME = re.compile(r'"(?:t|elementT|keyT|valueT)ype":"time\(')
"""A time of day in the JSON of a type of Spark's."""
_ORC_NAME = re.compile("`(?:[^`]|``)*`")
_ORC_TIMESTAMP = re.compile("(?:^|[:<,])timestamp( with local time zone)?(?=[,>]|$)")
"""A timestamp in a type of ORC as text without quoted names: whether it is an instant."""
_UTC = {"UTC", "GMT", "Etc/UTC", "Etc/GMT", "UCT", "Zulu", "Universal"}


class _Footer(NamedTuple):
    """What a file says of its columns; files that say the same are read together."""

    columns: str
    """The schema as the format's own library writes it."""
    is_calendar_known: bool
    timestamps: tuple[tuple[str, str], ...] = ()
    """Of an ORC file with timestamps: its columns and their types."""
    writer_zones: frozenset[str] = frozenset()
    may_be_cut: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns that some files have, all of them the same."""

    columns: T.StructType
    """As Spark reads them; nanoseconds are whole numbers."""
    own: T.StructType
    """As the files have them."""
    nanoseconds: dict[str, bool]
    """Columns with timestamps in nanoseconds: whether they are instants (else wall-clock times)."""
    unknown: dict[str, str]
    """Columns that Spark cannot read, or not exactly, and why; they are not in ``columns``."""
    is_unreadable: bool
    """Whether Spark reads no column at all because of these: so it is with ORC."""
    is_calendar_known: bool
    """Whether old dates are surely of the Gregorian calendar, as parquet wants it."""
    paths: tuple[str, ...]
    writer_zones: frozenset[str] = frozenset()
    """The zones other than UTC in which times without a zone were written, if the files name them."""
    positions: tuple[T.StructField, ...] = ()
    """All columns in the file's order, if Spark takes them by their place: it does with ORC files whose names
    all begin with ``_col``, as Hive's before 2.0 do (``OrcUtils.requestedColumnIds``)."""
    may_be_cut: bool = False
    """Whether times may have digits that Spark's reader cuts: ORC has nanoseconds, Spark writes none."""


def _shapes(spark: SparkSession, kind: str, entry: OffsetEntry) -> list[Shape]:
    """Read the footers of parquet or ORC files, and group the files by their columns.

    One file of each group is shown to Spark; the others have the same text for a schema.

    :raises BadFileError: A file is not of the format.
    :raises SourceUnreadableError: A footer could not be read.
    """
    paths = [file.path for file in entry.files]
    conf = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - no Python API
    look = (_parquet if kind == "parquet" else _orc)(spark, conf)
    groups: dict[_Footer, list[str]] = {}
    unreadable = []
    for path, footer in zip(paths, files.at_once(look, paths), strict=True):
        if isinstance(footer, Exception):
            # What Java does not see may be there: its machine has another disk, or locale.
            unreadable.append((path, footer, not files.is_missing(footer) and _opens(spark, path)))
        else:
            groups.setdefault(footer, []).append(path)
    if unreadable:
        raise unreadable_footers(entry, unreadable)
    shapes = []
    for footer, same in groups.items():
        columns, unknown = _columns(spark, kind, conf, same[0])
        nanoseconds = {name: zone == "true" for name, zone in _NANOSECONDS.findall(footer.columns)}
        unknown |= dict.fromkeys(
            _with_nested_nanoseconds(footer.columns), "nanoseconds inside another column"
        )
        columns = T.StructType([field for field in columns if field.name not in unknown])
        is_unnamed = kind == "orc" and all(name.startswith("_col") for name in columns.names)
        shapes.append(
            Shape(
                columns=columns,
                own=_own_orc(columns, footer) if footer.timestamps else _own(columns, nanoseconds),
                nanoseconds=nanoseconds,
                unknown=unknown,
                is_unreadable=bool(unknown) and kind == "orc",
                is_calendar_known=footer.is_calendar_known,
                paths=tuple(same),
                writer_zones=footer.writer_zones,
                positions=tuple(columns) if is_unnamed else (),
                may_be_cut=footer.may_be_cut,
            )
        )
    return shapes


def _with_nested_nanoseconds(text: str) -> list[str]:
    """Give the columns of a parquet file with timestamps in nanoseconds inside."""
    names, name = [], ""
    for line in text.splitlines():
        column = _COLUMN.match(line)
        name = column[1] if column else name
        if _NESTED_NANOSECONDS.match(line):
            names.append(name)
    return names


def _columns(spark: SparkSession, kind: str, conf: Any, path: str) -> tuple[T.StructType, dict[str, str]]:
    """Give the columns of a file as Spark reads them, and those of a type that it does not have.

    Spark refuses a file with such a column as a whole. So each column is converted alone then.
    """
    try:
        # Alone, and so without looking for patterns: see `listing.load`.
        return spark.read.format(kind).option("__globPaths__", "false").load(path).schema, {}
    except PySparkException as err:
        convert = (_parquet_columns if kind == "parquet" else _orc_columns)(spark, conf, path)
        columns, unknown = T.StructType(), {}
        for name, column in convert:
            try:
                text = column().json()
            except SPARK_ERRORS as cause:
                why = _CONDITION.sub("", short_cause(cause)).rstrip(".")
                unknown[name] = "Spark has no unions" if "uniontype<" in str(cause) else why
            else:
                # Spark 4.1 and later know it, and refuse it unless they are told to try.
                if _TIME.search(text):
                    unknown[name] = "a time of day"
                else:
                    columns = T.StructType([*columns, *T.StructType.fromJson(json.loads(text))])
        if not unknown:
            raise err from None
        return columns, unknown


def _parquet_columns(spark: SparkSession, conf: Any, path: str) -> list[tuple[str, Callable[[], Any]]]:
    """Give the names of a file's columns, and what converts each to Spark's type."""
    jvm: Any = spark._jvm  # noqa: SLF001
    parquet = jvm.org.apache.spark.sql.execution.datasources.parquet.ParquetToSparkSchemaConverter
    converter = parquet(spark._jsparkSession.sessionState().conf())  # noqa: SLF001
    place = jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(
        jvm.org.apache.hadoop.fs.Path(path), conf
    )
    with closing(jvm.org.apache.parquet.hadoop.ParquetFileReader.open(place)) as reader:
        schema = reader.getFileMetaData().getSchema()
    message = jvm.org.apache.parquet.schema.MessageType

    def column(field: Any) -> Any:
        fields = jvm.java.util.ArrayList()
        fields.add(field)
        return converter.convert(message(schema.getName(), fields))

    return [(str(field.getName()), partial(column, field)) for field in schema.getFields()]


def _orc_columns(spark: SparkSession, conf: Any, path: str) -> list[tuple[str, Callable[[], Any]]]:
    """Give the names of a file's columns, and what converts each to Spark's type."""
    jvm: Any = spark._jvm  # noqa: SLF001
    orc = jvm.org.apache.orc
    options = orc.OrcFile.readerOptions(conf)
    with closing(orc.OrcFile.createReader(jvm.org.apache.hadoop.fs.Path(path), options)) as reader:
        schema = reader.getSchema()
    to_spark = jvm.org.apache.spark.sql.execution.datasources.orc.OrcUtils.toCatalystSchema

    def column(name: str, kind: Any) -> Any:
        return to_spark(orc.TypeDescription.createStruct().addField(name, kind.clone()))

    pairs = zip(schema.getFieldNames(), schema.getChildren(), strict=True)
    return [(str(name), partial(column, name, kind)) for name, kind in pairs]


def _own(columns: T.StructType, nanoseconds: Mapping[str, bool]) -> T.StructType:
    """Give nanoseconds as the timestamps that they are."""
    kinds = {name: T.TimestampType() if zone else T.TimestampNTZType() for name, zone in nanoseconds.items()}
    return T.StructType([T.StructField(f.name, kinds.get(f.name, f.dataType)) for f in columns])


def _own_orc(columns: T.StructType, footer: _Footer) -> T.StructType:
    """Give times without a zone as such: Spark takes them for instants."""
    texts = dict(footer.timestamps)
    instants = (
        text for f in columns for text in _ORC_TIMESTAMP.findall(_ORC_NAME.sub("", texts.get(f.name, "")))
    )
    clock = T.TimestampNTZType() if footer.writer_zones else _ClockOfUTC()

    def own(kind: T.DataType) -> T.DataType:
        return kind if not isinstance(kind, T.TimestampType) or next(instants, "") else clock

    return cast("T.StructType", mapped(columns, own))


def _opens(spark: SparkSession, path: str) -> bool:
    try:
        return bool(files.read(spark, path, at_most=4))
    except (OSError, Py4JJavaError, PySparkException):
        return False


def _parquet(spark: SparkSession, conf: Any) -> Callable[[str], _Footer | Exception]:
    jvm: Any = spark._jvm  # noqa: SLF001
    # Once: each name below `jvm` is a question to the JVM, and the default options read Hadoop's XML.
    to_path = jvm.org.apache.hadoop.fs.Path
    input_file = jvm.org.apache.parquet.hadoop.util.HadoopInputFile
    opened = jvm.org.apache.parquet.hadoop.ParquetFileReader
    no_row_groups = jvm.org.apache.parquet.format.converter.ParquetMetadataConverter.SKIP_ROW_GROUPS
    options = jvm.org.apache.parquet.HadoopReadOptions.builder(conf).withMetadataFilter(no_row_groups).build()

    def told(reader: Any) -> _Footer:
        meta = reader.getFileMetaData()
        # The first line names the program that wrote it.
        columns = str(meta.getSchema().toString()).partition("\n")[2]
        return _Footer(columns, is_calendar_known=not _may_be_julian(meta))

    return _looking(lambda path: opened.open(input_file.fromPath(to_path(path), conf), options), told)


def _may_be_julian(meta: Any) -> bool:
    """Tell whether old dates may be of the Julian calendar: Hive, Impala and Spark 2 wrote such."""
    if meta.getKeyValueMetaData().containsKey("org.apache.spark.version"):
        return False  # Spark looks at its own version
    return str(meta.getCreatedBy()).startswith(("parquet-mr", "impala"))


def _orc(spark: SparkSession, conf: Any) -> Callable[[str], _Footer | Exception]:
    jvm: Any = spark._jvm  # noqa: SLF001
    to_path = jvm.org.apache.hadoop.fs.Path
    orc = jvm.org.apache.orc.OrcFile

    def told(reader: Any) -> _Footer:
        schema, is_known = reader.getSchema(), bool(reader.writerUsedProlepticGregorian())
        columns = str(schema.toString())
        if "timestamp" not in columns:
            return _Footer(columns, is_known)
        kinds = [str(kind.toString()) for kind in schema.getChildren()]
        timestamps = tuple(zip(schema.getFieldNames(), kinds, strict=True))
        may_be_cut = not reader.hasMetadataValue("org.apache.spark.version")
        return _Footer(columns, is_known, timestamps, _writer_zones(reader), may_be_cut)

    # Options of its own for each: a reader puts the footer that it has read into them, and the next takes it.
    return _looking(lambda path: orc.createReader(to_path(path), orc.readerOptions(conf)), told)


def _writer_zones(reader: Any) -> frozenset[str]:
    """Give the zones other than UTC in which the stripes of an ORC file were written."""
    with closing(reader.rows(reader.options().range(0, 0))) as rows:  # without stripes: no row is read
        zones = {str(rows.readStripeFooter(stripe).getWriterTimezone()) for stripe in reader.getStripes()}
    return frozenset(zone or "a zone that the file does not name" for zone in zones - _UTC)


def _looking(
    opened: Callable[[str], Any], told: Callable[[Any], _Footer]
) -> Callable[[str], _Footer | Exception]:
    """Give what opens a file, lets it tell its columns, and closes it; or why that failed twice."""

    def look(path: str, tries: int = 2) -> _Footer | Exception:
        try:
            with closing(opened(path)) as reader:
                return told(reader)
        except SPARK_ERRORS as err:
            # What passes is not the file's fault.
            return look(path, tries - 1) if tries > 1 else err

    return look


# ---- which columns a batch has, whose files are not all of one shape, or not of the declared one ----

_DECLARE = (
    'declare it; or leave `columns` out and name the columns in the SELECT; or set extra_columns="ignore"'
)
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

_MOST_DIGITS = 38
"""Of a decimal."""


class _ClockOfUTC(T.TimestampNTZType):
    """A time without a zone of which it is known that it was written in UTC: it may become an instant."""


def _merged(shapes: Sequence[Shape]) -> tuple[T.StructType, list[str]]:
    """Give the columns that hold those of all files, and what cannot be held together.

    A type widens where no value changes. The problems name files and types.
    """
    merged: dict[str, T.StructField] = {}
    first: dict[str, str] = {}
    problems = []
    for shape in shapes:
        path = shape.paths[0]
        for field in shape.own:
            key = field.name.lower()
            known = merged.get(key)
            if known is None:
                merged[key], first[key] = field, path
                continue
            kind = _common(known.dataType, field.dataType)
            if kind is None:
                problems.append(
                    f"{field.name} is {known.dataType.simpleString()} in {first[key]} and "
                    f"{field.dataType.simpleString()} in {path}"
                )
            else:
                merged[key] = T.StructField(known.name, kind)
    columns = mapped(T.StructType(list(merged.values())), _without_zone)
    return cast("T.StructType", columns), problems


def _without_zone(kind: T.DataType) -> T.DataType:
    return T.TimestampNTZType() if isinstance(kind, _ClockOfUTC) else kind


def _differences(
    shape: Shape, declared: T.StructType, *, extra: bool = False, missing: bool = False
) -> list[tuple[str, str]]:
    """Give what keeps the files of a shape from being read as the declared columns, and what may help.

    :param extra: Whether columns that are not declared are left out.
    :param missing: Whether declared columns that the files lack are NULL.
    """
    own = {field.name.lower(): field for field in shape.own}
    wanted = {field.name.lower() for field in declared}
    unknown = {name.lower() for name in shape.unknown}
    found = _not_of_spark(shape, wanted if extra else None)
    if not extra:
        further = [field.name for key, field in own.items() if key not in wanted]
        found += [(f"it has the column {name}, which is not declared", _DECLARE) for name in further]
    for field in declared:
        there = own.get(field.name.lower())
        if there is None:
            if not missing and field.name.lower() not in unknown:
                found.append((f"it has no column {field.name}", _ALLOW))
        elif field.name in shape.nanoseconds and isinstance(field.dataType, T.LongType):
            continue  # declared as the number that it is in the file
        elif not _holds(there.dataType, field.dataType):
            own_kind, kind = there.dataType.simpleString(), field.dataType.simpleString()
            zones = ", ".join(sorted(shape.writer_zones))
            hint = _NO_ZONE.format(zones=zones) if zones and "timestamp_ntz" in own_kind else _NO_TYPE
            found.append((f"{field.name} is {own_kind}, declared is {kind}", hint))
    return found


def _not_of_spark(shape: Shape, wanted: Collection[str] | None = None) -> list[tuple[str, str]]:
    """Give the columns of a type that Spark does not have, and what may help.

    :param wanted: Their names in lower case; None is all.
    """
    hint = _NO_UNION if shape.is_unreadable else _NOT_OF_SPARK
    return [
        (f"{name} cannot be read: {why}", hint)
        for name, why in shape.unknown.items()
        if wanted is None or shape.is_unreadable or name.lower() in wanted
    ]


def _holds(kind: T.DataType, wanted: T.DataType) -> bool:
    return _common(kind, wanted) == bare(wanted)


def _common(one: T.DataType, other: T.DataType) -> T.DataType | None:
    """Give the type that holds all values of two types unchanged; None if there is none."""
    return zipped(bare(one), bare(other), _wider)


def _wider(one: T.DataType, other: T.DataType) -> T.DataType | None:
    if one == other:
        return one
    if keeps_values(one.simpleString(), other.simpleString()):
        return other
    if keeps_values(other.simpleString(), one.simpleString()):
        return one
    for clock, kind in ((one, other), (other, one)):
        if isinstance(clock, _ClockOfUTC) and isinstance(kind, (T.TimestampType, T.TimestampNTZType)):
            return kind
    if isinstance(one, T.DecimalType) and isinstance(other, T.DecimalType):
        scale = max(one.scale, other.scale)
        precision = scale + max(one.precision - one.scale, other.precision - other.scale)
        return T.DecimalType(precision, scale) if precision <= _MOST_DIGITS else None
    return None


def _as_read(kind: T.DataType, read: T.DataType) -> T.DataType:
    """Give the type for which Spark can be asked where a type is declared: it gives ORC's times as instants.

    :param read: As Spark reads the file by itself.
    """
    is_clock = isinstance(read, T.TimestampType) and isinstance(kind, T.TimestampNTZType)
    return read if is_clock else kind
