"""The footers of parquet and ORC files: which columns they have, and what Spark would not say of them."""

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

from airflow_provider_scope.spark import storage
from airflow_provider_scope.spark.files.listing import unreadable_footers
from airflow_provider_scope.spark.session import SPARK_ERRORS, short_cause
from airflow_provider_scope.spark.structs import map_leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from airflow_provider_scope.protocol.records import OffsetEntry

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
_UNION = "Spark has no unions"
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


class ClockOfUTC(T.TimestampNTZType):
    """A time without a zone of which it is known that it was written in UTC: it may become an instant."""


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

    @property
    def has_union(self) -> bool:
        """Whether Spark reads no column of the files, because of one."""
        return _UNION in self.unknown.values()


def read_shapes(spark: SparkSession, kind: str, entry: OffsetEntry) -> list[Shape]:
    """Read the footers of parquet or ORC files, and group the files by their columns.

    One file of each group is shown to Spark; the others have the same text for a schema.

    :raises BadFileError: A file is not of the format.
    :raises SourceUnreadableError: A footer could not be read.
    """
    paths = [file.path for file in entry.files]
    conf = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - no Python API
    read_footer = (_parquet if kind == "parquet" else _orc)(spark, conf)
    groups: dict[_Footer, list[str]] = {}
    unreadable = []
    for path, footer in zip(paths, storage.at_once(read_footer, paths), strict=True):
        if isinstance(footer, Exception):
            # What Java does not see may be there: its machine has another disk, or locale.
            unreadable.append((path, footer, not storage.is_missing(footer) and _opens(spark, path)))
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
        is_unnamed = (
            kind == "orc" and len(columns) > 0 and all(name.startswith("_col") for name in columns.names)
        )
        shapes.append(
            Shape(
                columns=columns,
                own=_own_orc(columns, footer) if footer.timestamps else _own(columns, nanoseconds),
                nanoseconds=nanoseconds,
                unknown=unknown,
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

    Spark refuses a file with such a column as a whole. So each column of parquet is converted alone then; of
    an ORC file with a union, Spark reads no column at all.
    """
    try:
        # Alone, and so without looking for patterns: see `listing.load`.
        return spark.read.format(kind).option("__globPaths__", "false").load(path).schema, {}
    except PySparkException as err:
        if kind == "orc":
            unions = _unions(spark, conf, path)
            if not unions:
                raise err from None
            return T.StructType(), dict.fromkeys(unions, _UNION)
        columns, unknown = T.StructType(), {}
        for name, column in _parquet_columns(spark, conf, path):
            try:
                text = column().json()
            except SPARK_ERRORS as cause:
                unknown[name] = _CONDITION.sub("", short_cause(cause)).rstrip(".")
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


def _unions(spark: SparkSession, conf: Any, path: str) -> list[str]:
    """Give the columns of an ORC file with a union at any depth."""
    jvm: Any = spark._jvm  # noqa: SLF001
    orc = jvm.org.apache.orc.OrcFile
    with closing(orc.createReader(jvm.org.apache.hadoop.fs.Path(path), orc.readerOptions(conf))) as reader:
        schema = reader.getSchema()
    columns = zip(schema.getFieldNames(), schema.getChildren(), strict=True)
    return [str(name) for name, kind in columns if "uniontype<" in _ORC_NAME.sub("", str(kind.toString()))]


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
    clock = T.TimestampNTZType() if footer.writer_zones else ClockOfUTC()

    def own(kind: T.DataType) -> T.DataType:
        return kind if not isinstance(kind, T.TimestampType) or next(instants, "") else clock

    return cast("T.StructType", map_leaves(columns, own))


def _opens(spark: SparkSession, path: str) -> bool:
    try:
        return bool(storage.read(spark, path, at_most=4))
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

    def footer_of(reader: Any) -> _Footer:
        meta = reader.getFileMetaData()
        # The first line names the program that wrote it.
        columns = str(meta.getSchema().toString()).partition("\n")[2]
        return _Footer(columns, is_calendar_known=not _may_be_julian(meta))

    return _footer_reader(
        lambda path: opened.open(input_file.fromPath(to_path(path), conf), options), footer_of
    )


def _may_be_julian(meta: Any) -> bool:
    """Tell whether old dates may be of the Julian calendar: Hive, Impala and Spark 2 wrote such."""
    if meta.getKeyValueMetaData().containsKey("org.apache.spark.version"):
        return False  # Spark looks at its own version
    return str(meta.getCreatedBy()).startswith(("parquet-mr", "impala"))


def _orc(spark: SparkSession, conf: Any) -> Callable[[str], _Footer | Exception]:
    jvm: Any = spark._jvm  # noqa: SLF001
    to_path = jvm.org.apache.hadoop.fs.Path
    orc = jvm.org.apache.orc.OrcFile

    def footer_of(reader: Any) -> _Footer:
        schema, is_known = reader.getSchema(), bool(reader.writerUsedProlepticGregorian())
        columns = str(schema.toString())
        if "timestamp" not in columns:
            return _Footer(columns, is_known)
        kinds = [str(kind.toString()) for kind in schema.getChildren()]
        timestamps = tuple(zip(schema.getFieldNames(), kinds, strict=True))
        may_be_cut = not reader.hasMetadataValue("org.apache.spark.version")
        return _Footer(columns, is_known, timestamps, _writer_zones(reader), may_be_cut)

    # Options of its own for each: a reader puts the footer that it has read into them, and the next takes it.
    return _footer_reader(lambda path: orc.createReader(to_path(path), orc.readerOptions(conf)), footer_of)


def _writer_zones(reader: Any) -> frozenset[str]:
    """Give the zones other than UTC in which the stripes of an ORC file were written."""
    with closing(reader.rows(reader.options().range(0, 0))) as rows:  # without stripes: no row is read
        zones = {str(rows.readStripeFooter(stripe).getWriterTimezone()) for stripe in reader.getStripes()}
    return frozenset(zone or "a zone that the file does not name" for zone in zones - _UTC)


def _footer_reader(
    open_file: Callable[[str], Any], footer_of: Callable[[Any], _Footer]
) -> Callable[[str], _Footer | Exception]:
    """Give a function that reads the footer of a file; it gives the error if that fails twice."""

    def read_footer(path: str, tries: int = 2) -> _Footer | Exception:
        try:
            with closing(open_file(path)) as reader:
                return footer_of(reader)
        except SPARK_ERRORS as err:
            # What passes is not the file's fault.
            return read_footer(path, tries - 1) if tries > 1 else err

    return read_footer
