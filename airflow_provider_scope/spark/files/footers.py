"""The footers of parquet and ORC files, and the headers of Avro files: what a file says of its columns."""

from __future__ import annotations

import math
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JJavaError

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.spark import storage
from airflow_provider_scope.spark.files import avro_schema
from airflow_provider_scope.spark.files.listing import AVRO_READER, KEPT
from airflow_provider_scope.spark.session import SPARK_ERRORS, compiler_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

_UTC = {"UTC", "GMT", "Etc/UTC", "Etc/GMT", "UCT", "Zulu", "Universal"}


class Footer(NamedTuple):
    """What a file says of its columns; files that say the same are read together."""

    columns: str
    """The schema as the format's own library writes it."""
    is_calendar_known: bool
    """Whether old dates are surely of the Gregorian calendar, as parquet and Avro want it."""
    timestamps: tuple[tuple[str, str], ...] = ()
    """Of an ORC file with timestamps: its columns and their types."""
    writer_zones: frozenset[str] = frozenset()
    """The zones other than UTC in which times without a zone were written, if the file names them."""
    may_be_cut: bool = False
    """Whether times may have digits that Spark's reader cuts: ORC has nanoseconds, Spark writes none."""
    of_spark: str = ""
    """The columns of a parquet file that Spark wrote, as Spark names them: it reads them as these."""


def read(spark: SparkSession, kind: str, conf: Any, paths: Sequence[str]) -> list[Footer | Exception]:
    """Read the footers of files, several at a time, in the order of the files; or why one cannot be read.

    Of Avro files, all blocks are looked at: their reader takes the place where a file is cut for its end.

    :param conf: Hadoop's configuration.
    """
    is_parquet = kind == "parquet"
    footers: Sequence[Footer | None] = [None] * len(paths)
    if is_parquet and len(paths) >= MANY:
        footers = _parquet_by_java(spark, conf, paths)
    # Those that Java could not read, for the cause.
    unread = [path for path, footer in zip(paths, footers, strict=True) if footer is None]
    reader_of = {"parquet": _parquet, "orc": _orc, "avro": _avro}[kind]
    read_footer = partial(_read_footer, reader_of(spark, conf)) if unread else None
    alone = iter(storage.at_once(read_footer, unread) if read_footer else ())
    return [next(alone) if footer is None else footer for footer in footers]


# ---- many parquet files by one call into Java: from Python, each takes sixteen ----

MANY = 50
"""Of so many files, it pays to make the class."""
_CLASS = "airflow_provider_scope.Footers"
_SOURCE = """
package airflow_provider_scope;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.HadoopReadOptions;
import org.apache.parquet.ParquetReadOptions;
import org.apache.parquet.format.converter.ParquetMetadataConverter;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.metadata.FileMetaData;
import org.apache.parquet.hadoop.util.HadoopInputFile;

public class Footers {
    /** For files that are alike: the metadata of the first, and the numbers of all of them. */
    public List read(String paths, Configuration conf) {
        ParquetReadOptions options = HadoopReadOptions.builder(conf)
            .withMetadataFilter(ParquetMetadataConverter.SKIP_ROW_GROUPS).build();
        Map groups = new LinkedHashMap();
        String[] files = paths.split("\\0");
        for (int number = 0; number < files.length; number++) {
            FileMetaData metadata;
            try {
                ParquetFileReader reader = ParquetFileReader.open(
                    HadoopInputFile.fromPath(new Path(files[number]), conf), options);
                try {
                    metadata = reader.getFileMetaData();
                } finally {
                    reader.close();
                }
            } catch (Throwable err) {
                continue;
            }
            Object key = Arrays.asList(new Object[] {
                metadata.getSchema().toString(),
                metadata.getCreatedBy(),
                metadata.getKeyValueMetaData().get("org.apache.spark.sql.parquet.row.metadata"),
                metadata.getKeyValueMetaData().keySet()
            });
            Object[] group = (Object[]) groups.get(key);
            if (group == null) {
                groups.put(key, new Object[] {metadata, String.valueOf(number)});
            } else {
                group[1] = group[1] + "," + number;
            }
        }
        return new ArrayList(groups.values());
    }
}
"""


def _parquet_by_java(spark: SparkSession, conf: Any, paths: Sequence[str]) -> list[Footer | None]:
    """Read the footers of parquet files; those that cannot be read are None."""
    loader = compiler_of(spark, _SOURCE).getClassLoader()
    footers = loader.loadClass(_CLASS).newInstance()

    def read_part(part: Sequence[str]) -> list[Footer | None]:
        values: list[Footer | None] = [None] * len(part)
        for metadata, numbers in footers.read("\0".join(part), conf):
            footer = _parquet_footer(metadata)
            for number in numbers.split(","):
                values[int(number)] = footer
        return values

    size = math.ceil(len(paths) / storage.LOOKS_AT_ONCE)
    parts = [paths[start : start + size] for start in range(0, len(paths), size)]
    return [value for part in storage.at_once(read_part, parts) for value in part]


# ---- one file after the other ----

_PATH = "org.apache.hadoop.fs.Path"
_OF_PARQUET = (
    _PATH,
    "org.apache.parquet.hadoop.util.HadoopInputFile",
    "org.apache.parquet.hadoop.ParquetFileReader",
    "org.apache.parquet.format.converter.ParquetMetadataConverter",
    "org.apache.parquet.HadoopReadOptions",
)


def _parquet(spark: SparkSession, conf: Any) -> Callable[[str], Footer]:
    metadata_of = _parquet_metadata(spark, conf)
    return lambda path: _parquet_footer(metadata_of(path))


def _parquet_metadata(spark: SparkSession, conf: Any) -> Callable[[str], Any]:
    """Return what reads the metadata of a parquet file, but for those of its row groups."""
    jvm: Any = spark._jvm
    # Once, and by their whole names: for each part of one that is no class, Java looks through all jars. And
    # the default options read Hadoop's XML.
    to_path, input_file, opened, converter, options = (getattr(jvm, name) for name in _OF_PARQUET)
    options = options.builder(conf).withMetadataFilter(converter.SKIP_ROW_GROUPS).build()

    def metadata_of(path: str) -> Any:
        with closing(opened.open(input_file.fromPath(to_path(path), conf), options)) as reader:
            return reader.getFileMetaData()

    return metadata_of


def _parquet_footer(meta: Any) -> Footer:
    # The first line names the program that wrote it.
    columns = str(meta.getSchema().toString()).partition("\n")[2]
    of_spark = meta.getKeyValueMetaData().get("org.apache.spark.sql.parquet.row.metadata")
    return Footer(columns, is_calendar_known=not _may_be_julian(meta), of_spark=of_spark or "")


def _may_be_julian(meta: Any) -> bool:
    """Check whether old dates may be of the Julian calendar: Hive, Impala and Spark 2 wrote such."""
    if meta.getKeyValueMetaData().containsKey("org.apache.spark.version"):
        return False  # Spark looks at its own version
    return str(meta.getCreatedBy()).startswith(("parquet-mr", "impala"))


_SPARK_PARQUET = "org.apache.spark.sql.execution.datasources.parquet"


def parquet_schema(spark: SparkSession, conf: Any, path: str) -> Any:
    """Read the columns of a parquet file, as Java has them: Spark itself would start a job for that."""
    jvm: Any = spark._jvm
    hadoop = "org.apache.parquet.hadoop"
    names = (_PATH, f"{hadoop}.Footer", f"{hadoop}.metadata.ParquetMetadata", "java.util.ArrayList")
    to_path, footer, metadata, no_row_groups = (getattr(jvm, name) for name in names)
    whole = metadata(_parquet_metadata(spark, conf)(path), no_row_groups())
    spark_format = getattr(jvm, f"{_SPARK_PARQUET}.ParquetFileFormat")
    return spark_format.readSchemaFromFooter(footer(to_path(path), whole), _converter(spark))


def parquet_columns(spark: SparkSession, conf: Any, path: str) -> list[tuple[str, Callable[[], Any]]]:
    """List the names of a parquet file's columns, and what converts each to Spark's type."""
    jvm: Any = spark._jvm
    schema, converter = _parquet_metadata(spark, conf)(path).getSchema(), _converter(spark)
    message = jvm.org.apache.parquet.schema.MessageType

    def column(field: Any) -> Any:
        fields = jvm.java.util.ArrayList()
        fields.add(field)
        return converter.convert(message(schema.getName(), fields))

    return [(str(field.getName()), partial(column, field)) for field in schema.getFields()]


def _converter(spark: SparkSession) -> Any:
    """Make what converts parquet's types to those of Spark, by the session's settings."""
    converter: Any = getattr(spark._jvm, f"{_SPARK_PARQUET}.ParquetToSparkSchemaConverter")
    return converter(spark._jsparkSession.sessionState().conf())


def _orc(spark: SparkSession, conf: Any) -> Callable[[str], Footer]:
    jvm: Any = spark._jvm
    to_path, orc = (getattr(jvm, name) for name in (_PATH, "org.apache.orc.OrcFile"))

    def footer_of(path: str) -> Footer:
        # Options of its own for each: a reader puts the footer that it has read into them, and the next takes
        # it.
        with closing(orc.createReader(to_path(path), orc.readerOptions(conf))) as reader:
            return footer_by(reader)

    def footer_by(reader: Any) -> Footer:
        schema, is_known = reader.getSchema(), bool(reader.writerUsedProlepticGregorian())
        columns = str(schema.toString())
        if "timestamp" not in columns:
            return Footer(columns, is_known)
        kinds = [str(kind.toString()) for kind in schema.getChildren()]
        timestamps = tuple(zip(schema.getFieldNames(), kinds, strict=True))
        may_be_cut = not reader.hasMetadataValue("org.apache.spark.version")
        return Footer(columns, is_known, timestamps, _writer_zones(reader), may_be_cut)

    return footer_of


def _writer_zones(reader: Any) -> frozenset[str]:
    with closing(reader.rows(reader.options().range(0, 0))) as rows:  # without stripes: no row is read
        zones = {str(rows.readStripeFooter(stripe).getWriterTimezone()) for stripe in reader.getStripes()}
    return frozenset(zone or "a zone that the file does not name" for zone in zones - _UTC)


def _read_footer(read_one: Callable[[str], Footer], path: str, tries: int = 2) -> Footer | Exception:
    try:
        return read_one(path)
    except (*SPARK_ERRORS, ValueError) as err:
        # What passes is not the file's fault.
        return _read_footer(read_one, path, tries - 1) if tries > 1 else err


# ---- Avro: Java's reader ends without an error where a block of a file is cut, or has no row ----

_AVRO_CLASS = "airflow_provider_scope.AvroFile"
_AVRO_SOURCE = """
package airflow_provider_scope;

import java.io.IOException;
import java.util.Arrays;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

public class AvroFile {
    private static final byte[] MAGIC = {79, 98, 106, 1};

    /** The schema of a file, and the other names in its header, by lines; fails if a block is not whole. */
    public String[] read(String file, Configuration conf) throws IOException {
        Path path = new Path(file);
        FileSystem store = path.getFileSystem(conf);
        long length = store.getFileStatus(path).getLen();
        FSDataInputStream in = store.open(path);
        try {
            byte[] magic = new byte[4];
            if (length >= 4) {
                in.readFully(magic);
            }
            if (!Arrays.equals(magic, MAGIC)) {
                throw new IOException("not an Avro file: it does not begin like one");
            }
            String schema = null;
            StringBuilder names = new StringBuilder();
            for (long count = number(in); count != 0; count = number(in)) {
                if (count < 0) {
                    count = -count;
                    number(in);
                }
                for (; count > 0; count--) {
                    String name = text(in, length);
                    String value = text(in, length);
                    if (name.equals("avro.schema")) {
                        schema = value;
                    } else {
                        names.append(name).append("\\n");
                    }
                }
            }
            check(in, length);
            return new String[] {schema, names.toString()};
        } finally {
            in.close();
        }
    }

    private static void check(FSDataInputStream in, long length) throws IOException {
        byte[] mark = new byte[16];
        byte[] end = new byte[16];
        byte[] part = new byte[1 << 16];
        if (length - in.getPos() < 16) {
            throw cut();
        }
        in.readFully(mark);
        boolean wasEmpty = false;
        while (in.getPos() < length) {
            long rows = number(in);
            long size = number(in);
            if (rows > 0 && wasEmpty) {
                throw new IOException("an empty block of the Avro file, after which rows may be lost");
            }
            wasEmpty = rows == 0;
            if (rows < 0 || size < 0) {
                throw new IOException("a block of the Avro file is damaged");
            }
            if (size > length - in.getPos() - 16) {
                throw cut();
            }
            // Not by a seek: a client of a remote store may begin a request of its own then.
            for (; size > 0; size -= Math.min(size, part.length)) {
                in.readFully(part, 0, (int) Math.min(size, part.length));
            }
            in.readFully(end);
            if (!Arrays.equals(mark, end)) {
                throw new IOException("a block of the Avro file is damaged");
            }
        }
    }

    private static String text(FSDataInputStream in, long length) throws IOException {
        long size = number(in);
        if (size < 0 || size > length - in.getPos()) {
            throw cut();
        }
        byte[] bytes = new byte[(int) size];
        in.readFully(bytes);
        return new String(bytes, "UTF-8");
    }

    private static long number(FSDataInputStream in) throws IOException {
        long value = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            int part = in.read();
            if (part < 0) {
                throw cut();
            }
            value |= ((long) (part & 0x7f)) << shift;
            if ((part & 0x80) == 0) {
                return (value >>> 1) ^ -(value & 1);
            }
        }
        throw new IOException("a block of the Avro file is damaged");
    }

    private static IOException cut() {
        return new IOException("the Avro file ends inside a block");
    }
}
"""


def _avro(spark: SparkSession, conf: Any) -> Callable[[str], Footer]:
    """Return what reads the header of a file.

    :raises InputError: Spark lacks its reader of Avro files.
    """
    loader = compiler_of(spark, _AVRO_SOURCE).getClassLoader()
    try:
        loader.loadClass(AVRO_READER)
    except Py4JJavaError as err:
        raise InputError(
            "This Spark has no reader of Avro files: before 4.2 that is a jar of its own.",
            kept=KEPT,
            do=f"add org.apache.spark:spark-avro_2.13:{spark.version} to `packages`, or its jar to `jars`",
        ) from err
    reader = loader.loadClass(_AVRO_CLASS).newInstance()

    def footer_of(path: str) -> Footer:
        schema, names = reader.read(path, conf)
        columns = avro_schema.canonical(schema)
        return Footer(columns, avro_schema.is_calendar_known(columns, names.splitlines()))

    return footer_of
