"""The columns that parquet, ORC and Avro files have, and as what Spark reads them, by their footers."""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.spark import storage
from airflow_provider_scope.spark.files import avro_schema, footers
from airflow_provider_scope.spark.files.listing import Problem, bad_files, unreadable_footers
from airflow_provider_scope.spark.session import SPARK_ERRORS, short_cause
from airflow_provider_scope.spark.structs import map_leaves

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.spark.files.footers import Footer

_NANOSECONDS = re.compile(
    r"^ {2}\w+ int64 ((.*) \(TIMESTAMP\(NANOS,(true|false)\)\))(?: = \d+)?;$", re.MULTILINE
)
"""A column of parquet's schema as text: what may be a longer name, its name, and whether it is an instant."""
_NO_TYPE_YET = re.compile(r"^ {2}\w+ \S+ ((.*) \(UNKNOWN\))(?: = \d+)?;$", re.MULTILINE)
"""The same of a column that is NULL in all rows, as pandas writes it: what may be a longer name, its name."""
_COLUMN = re.compile(r"^ {2}\w+ (?:group|\S+) (.*?)(?: \([A-Z_]+(?:\(.*\))?\))?(?: = \d+)?(?:;| \{)$")
"""A column of parquet's schema as text: its name."""
_NESTED_NANOSECONDS = re.compile(r"^ {3,}\w+ int64 .* \(TIMESTAMP\(NANOS,(?:true|false)\)\)")

_NO_COLUMN = ("}\n", "struct<>")
"""The columns of a parquet or ORC file that has none: so pandas and Arrow write a frame of no data."""
_CONDITION = re.compile(r"^\[[\w.]+\] | SQLSTATE: \w+")
"""What Spark puts around its words."""
_TIME = re.compile(r'"(?:t|elementT|keyT|valueT)ype":"time\(')
"""A time of day in the JSON of a type of Spark's."""
_ORC_NAME = re.compile("`(?:[^`]|``)*`")
_ORC_TIMESTAMP = re.compile("(?:^|[:<,])timestamp( with local time zone)?(?=[,>]|$)")
"""A timestamp in a type of ORC as text without quoted names: whether it is an instant."""
_UNION = "Spark has no unions"
_ALIKE = "it has columns that differ in letter case alone"
_ALIKE_HINT = "write the file with other names: Spark does not tell them apart"


class ClockOfUTC(T.TimestampNTZType):
    """A time without a zone of which it is known that it was written in UTC: it may become an instant."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns that some files have, all of them the same."""

    footer: Footer
    paths: tuple[str, ...]
    columns: T.StructType
    """As Spark reads them; nanoseconds are whole numbers."""
    stored: T.StructType
    """As the files have them."""
    nanoseconds: dict[str, bool]
    """Columns with timestamps in nanoseconds: whether they are instants (else wall-clock times)."""
    unknown: dict[str, str]
    """Columns that Spark cannot read, or not exactly, and why; they are not in ``columns``."""
    positions: tuple[T.StructField, ...]
    """All columns in the file's order, if Spark takes them by their place: it does with ORC files whose names
    all begin with ``_col``, as Hive's before 2.0 do (``OrcUtils.requestedColumnIds``)."""
    reader_schema: str = ""
    """The schema to read Avro files with; empty: their own."""

    @property
    def has_columns(self) -> bool:
        """Whether the files have any, whatever Spark makes of them."""
        return self.footer.columns not in _NO_COLUMN

    @property
    def has_union(self) -> bool:
        """Whether Spark reads no column of the files, because of one."""
        return _UNION in self.unknown.values()


def read_shapes(spark: SparkSession, kind: str, entry: OffsetEntry) -> list[Shape]:
    """Read the footers of parquet, ORC or Avro files, and group the files by their columns.

    One file of each group is shown to Spark; the others have the same text for a schema.

    :raises BadFileError: A file is not of the format.
    :raises SourceUnreadableError: A footer could not be read.
    """
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    groups: dict[Footer, list[str]] = {}
    unreadable = []
    for path, footer in zip(entry.paths, footers.read(spark, kind, conf, entry.paths), strict=True):
        if isinstance(footer, Exception):
            # What Java does not see may be there: its machine has another disk, or locale.
            unreadable.append((path, footer, not storage.is_missing(footer) and _opens(spark, path)))
        else:
            groups.setdefault(footer, []).append(path)
    if unreadable:
        raise unreadable_footers(entry, unreadable)
    shapes, clashes = [], list[Problem]()
    for footer, paths in groups.items():
        if kind == "avro":
            shapes.append(_avro_shape(footer, tuple(paths)))
            continue
        try:
            has_none = footer.columns in _NO_COLUMN
            columns, unknown = (T.StructType(), {}) if has_none else _columns(spark, kind, conf, paths[0])
        except AnalysisException as err:
            if err.getCondition() != "COLUMN_ALREADY_EXISTS":
                raise
            fault = f"{_ALIKE}: {(err.getMessageParameters() or {}).get('columnName', '').strip('`')}"
            clashes += [Problem(path, fault, hint=_ALIKE_HINT) for path in paths]
        else:
            shapes.append(_shape(kind, footer, tuple(paths), columns, unknown))
    if clashes:
        raise bad_files(entry, clashes)
    return shapes


def _shape(
    kind: str, footer: Footer, paths: tuple[str, ...], columns: T.StructType, unknown: dict[str, str]
) -> Shape:
    """Describe parquet or ORC files by what Spark says of one of them.

    :param columns: As ``_columns`` finds them; ``unknown``, too.
    """
    names = {*columns.names, *unknown}  # one may look like a type: `x (UNKNOWN)` beside `x`
    fine = [column for column in _NANOSECONDS.findall(footer.columns) if column[0] not in names]
    nanoseconds = {name: zone == "true" for _, name, zone in fine}
    no_types = [name for whole, name in _NO_TYPE_YET.findall(footer.columns) if whole not in names]
    nested = _with_nested_nanoseconds(footer.columns)
    unknown |= dict.fromkeys(nested, "nanoseconds inside another column")
    columns = T.StructType([field for field in columns if field.name not in unknown])
    is_unnamed = kind == "orc" and all(name.startswith("_col") for name in columns.names)
    return Shape(
        footer=footer,
        paths=paths,
        columns=columns,
        stored=_own_orc(columns, footer) if footer.timestamps else _own(columns, nanoseconds, no_types),
        nanoseconds=nanoseconds,
        unknown=unknown,
        positions=tuple(columns) if is_unnamed else (),
    )


def _avro_shape(footer: Footer, paths: tuple[str, ...]) -> Shape:
    columns = avro_schema.columns_of(footer.columns)
    return Shape(
        footer=footer,
        paths=paths,
        columns=columns.as_read,
        stored=_own(columns.stored, columns.nanoseconds),
        nanoseconds=columns.nanoseconds,
        unknown=columns.unknown,
        positions=(),
        reader_schema=columns.reader_schema,
    )


def _with_nested_nanoseconds(text: str) -> list[str]:
    """Find the columns of a parquet file with timestamps in nanoseconds inside."""
    names, name = [], ""
    for line in text.split("\n"):  # not splitlines(): a name may hold what it takes for line ends
        column = _COLUMN.match(line)
        name = column[1] if column else name
        if _NESTED_NANOSECONDS.match(line):
            names.append(name)
    return names


def _columns(spark: SparkSession, kind: str, conf: Any, path: str) -> tuple[T.StructType, dict[str, str]]:
    """Ask Spark for the columns of a file as it reads them, and for those of a type that it does not have.

    Spark refuses a file with such a column as a whole. So each column of parquet is converted alone then; of
    an ORC file with a union, Spark reads no column at all.
    """
    try:
        # Alone, and so without looking for patterns: see `listing.load`.
        reader = spark.read.format(kind).option("__globPaths__", "false")
        if kind == "parquet":
            reader._jreader.schema(footers.parquet_schema(spark, conf, path))  # as Java has it
        return reader.load(path).schema, {}
    except PySparkException as err:
        if kind == "orc":
            unions = _unions(spark, conf, path)
            if not unions:
                raise err from None
            return T.StructType(), dict.fromkeys(unions, _UNION)
        columns, unknown = T.StructType(), {}
        for name, column in footers.parquet_columns(spark, conf, path):
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


def _unions(spark: SparkSession, conf: Any, path: str) -> list[str]:
    """Find the columns of an ORC file with a union at any depth."""
    jvm: Any = spark._jvm
    orc = jvm.org.apache.orc.OrcFile
    with closing(orc.createReader(jvm.org.apache.hadoop.fs.Path(path), orc.readerOptions(conf))) as reader:
        schema = reader.getSchema()
    columns = zip(schema.getFieldNames(), schema.getChildren(), strict=True)
    return [str(name) for name, kind in columns if "uniontype<" in _ORC_NAME.sub("", str(kind.toString()))]


def _own(
    columns: T.StructType, nanoseconds: Mapping[str, bool], no_types: Sequence[str] = ()
) -> T.StructType:
    """Take nanoseconds for the timestamps that they are, and what has no type for what it is, too."""
    kinds: dict[str, T.DataType] = dict.fromkeys(no_types, T.NullType())
    kinds |= {name: T.TimestampType() if zone else T.TimestampNTZType() for name, zone in nanoseconds.items()}
    return T.StructType([T.StructField(f.name, kinds.get(f.name, f.dataType)) for f in columns])


def _own_orc(columns: T.StructType, footer: Footer) -> T.StructType:
    """Take times without a zone as such: Spark takes them for instants."""
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
    except (OSError, *SPARK_ERRORS):
        return False
