"""What the files of a batch say of their own columns: the footers of parquet and ORC files."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from airflow_provider_scope.spark import files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

LOOKS_AT_ONCE = 16
_NANOSECONDS = re.compile(
    r"^ {2}\w+ int64 (.*) \(TIMESTAMP\(NANOS,(true|false)\)\)(?: = \d+)?;$", re.MULTILINE
)
"""A column of parquet's schema as text: its name, and whether it is an instant."""
_NESTED_NANOSECONDS = re.compile(r"^ {3,}\w+ int64 (.*) \(TIMESTAMP\(NANOS,(?:true|false)\)\)", re.MULTILINE)


_CALENDAR_UNKNOWN = "calendar unknown"


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns that some files have, all of them the same."""

    columns: T.StructType
    """As Spark reads them; nanoseconds are whole numbers."""
    nanoseconds: dict[str, bool]
    """Columns with timestamps in nanoseconds: whether they are instants (else wall-clock times)."""
    nested_nanoseconds: tuple[str, ...]
    """Such timestamps inside another column."""
    is_calendar_known: bool
    """Whether old dates are surely of the Gregorian calendar, as parquet wants it."""
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Footers:
    """What is known of the files of a batch."""

    shapes: tuple[Shape, ...]
    unreadable: tuple[tuple[str, Exception, bool], ...]
    """Path and cause, and whether the bytes of the file can be read."""


def read(spark: SparkSession, kind: str, paths: Sequence[str]) -> Footers:
    """Read the footers of parquet or ORC files, and group the files by their columns.

    One file of each group is shown to Spark; the others have the same text for a schema.
    """
    conf = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - no Python API
    look = (_parquet if kind == "parquet" else _orc)(spark, conf)
    groups: dict[str, list[str]] = {}
    unreadable = []
    with ThreadPoolExecutor(LOOKS_AT_ONCE, thread_name_prefix="scope-footer") as pool:
        found = pool.map(lambda path: _twice(lambda: look(path)), paths)
        for path, text in zip(paths, found, strict=True):
            if isinstance(text, Exception):
                unreadable.append((path, text, _opens(spark, path)))
            else:
                groups.setdefault(text, []).append(path)
    shapes = []
    for text, same in groups.items():
        # Alone, and so without looking for patterns: see `listing.load`.
        data = spark.read.format(kind).option("__globPaths__", "false").load(same[0])
        nanoseconds = {name: zone == "true" for name, zone in _NANOSECONDS.findall(text)}
        nested = tuple(_NESTED_NANOSECONDS.findall(text))
        is_known = not text.endswith(_CALENDAR_UNKNOWN)
        shapes.append(Shape(data.schema, nanoseconds, nested, is_known, tuple(same)))
    return Footers(tuple(shapes), tuple(unreadable))


def _twice(look: Callable[[], str | Exception]) -> str | Exception:
    """Look again if it failed: what passes is not the file's fault."""
    found = look()
    return look() if isinstance(found, Exception) else found


def _opens(spark: SparkSession, path: str) -> bool:
    try:
        return bool(files.read(spark, path, at_most=4))
    except (OSError, Py4JJavaError, PySparkException):
        return False


def _parquet(spark: SparkSession, conf: Any) -> Callable[[str], str | Exception]:
    jvm: Any = spark._jvm  # noqa: SLF001
    # Once: each name below `jvm` is a question to the JVM, and the default options read Hadoop's XML.
    to_path = jvm.org.apache.hadoop.fs.Path
    input_file = jvm.org.apache.parquet.hadoop.util.HadoopInputFile
    opened = jvm.org.apache.parquet.hadoop.ParquetFileReader
    no_row_groups = jvm.org.apache.parquet.format.converter.ParquetMetadataConverter.SKIP_ROW_GROUPS
    options = jvm.org.apache.parquet.HadoopReadOptions.builder(conf).withMetadataFilter(no_row_groups).build()

    def told(reader: Any) -> str:
        meta = reader.getFileMetaData()
        # The first line names the program that wrote it.
        columns = str(meta.getSchema().toString()).partition("\n")[2]
        return f"{columns}{_CALENDAR_UNKNOWN}" if _may_be_julian(meta) else columns

    return _looking(lambda path: opened.open(input_file.fromPath(to_path(path), conf), options), told)


def _may_be_julian(meta: Any) -> bool:
    """Tell whether old dates may be of the Julian calendar: Hive, Impala and Spark 2 wrote such."""
    if meta.getKeyValueMetaData().containsKey("org.apache.spark.version"):
        return False  # Spark looks at its own version
    return str(meta.getCreatedBy()).startswith(("parquet-mr", "impala"))


def _orc(spark: SparkSession, conf: Any) -> Callable[[str], str | Exception]:
    jvm: Any = spark._jvm  # noqa: SLF001
    to_path = jvm.org.apache.hadoop.fs.Path
    orc = jvm.org.apache.orc.OrcFile

    def told(reader: Any) -> str:
        columns = str(reader.getSchema().toString())
        return columns if reader.writerUsedProlepticGregorian() else f"{columns}{_CALENDAR_UNKNOWN}"

    # Options of its own for each: a reader puts the footer that it has read into them, and the next takes it.
    return _looking(lambda path: orc.createReader(to_path(path), orc.readerOptions(conf)), told)


def _looking(opened: Callable[[str], Any], told: Callable[[Any], str]) -> Callable[[str], str | Exception]:
    """Give what opens a file, lets it tell its columns, and closes it; or why that failed."""

    def look(path: str) -> str | Exception:
        reader = None
        try:
            reader = opened(path)
            return told(reader)
        except (Py4JJavaError, PySparkException) as err:
            return err
        finally:
            if reader is not None:
                reader.close()

    return look
