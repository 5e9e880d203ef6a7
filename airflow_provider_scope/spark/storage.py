"""Control files and source files as the application reaches them: a disk, or what Hadoop reads."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from airflow_provider_scope.exceptions import SourceFileChangedError, SourceUnreadableError
from airflow_provider_scope.failures import is_refusal
from airflow_provider_scope.spark.files.listing import KEPT, Problem, bad_files
from airflow_provider_scope.spark.session import SPARK_ERRORS
from airflow_provider_scope.values import check_as_logged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.values import FileEntry

LOCAL = "file://"
READS_AT_ONCE = 4
"""Files that are read together, each by jobs of its own."""
LOOKS_AT_ONCE = 16
"""Files of a remote store that are looked at together: each is a request."""

_BZIP2 = re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)")
"""The first ten bytes of bzip2: its name, the size of a block, and how the first block or the end begins."""
_ERRORS = (OSError, *SPARK_ERRORS)
_A = TypeVar("_A")
_B = TypeVar("_B")


def read(spark: SparkSession, uri: str, at_most: int | None = None) -> bytes:
    """Read a file.

    :param at_most: Bytes of its beginning; None is all of it.
    :raises FileNotFoundError: There is none.
    """
    if uri.startswith(LOCAL):
        with Path(uri.removeprefix(LOCAL)).open("rb") as file:
            return file.read(at_most)
    try:
        with closing(_filesystem(spark, uri).open(_path(spark, uri))) as stream:
            return bytes(stream.readAllBytes() if at_most is None else stream.readNBytes(at_most))
    except SPARK_ERRORS as err:
        if is_missing(err):
            raise FileNotFoundError(uri) from err
        raise


def replace(spark: SparkSession, uri: str, data: bytes) -> None:
    """Create or replace a file; whoever reads it meanwhile may see the beginning of it alone."""
    if uri.startswith(LOCAL):
        Path(uri.removeprefix(LOCAL)).write_bytes(data)
        return
    overwrite = True
    with closing(_filesystem(spark, uri).create(_path(spark, uri), overwrite)) as stream:
        stream.write(data)


def at_once(act: Callable[[_A], _B], files: Sequence[_A], most: int = LOOKS_AT_ONCE) -> list[_B]:
    """Run a function for each file, several at a time; the results are in the order of the files."""
    with ThreadPoolExecutor(most, thread_name_prefix="scope-files") as pool:
        return [*pool.map(act, files)]


def check_unchanged(spark: SparkSession, entry: OffsetEntry) -> None:
    """Check that every file of a batch is as it was logged, just before it is read.

    :raises SourceFileGoneError: One is missing.
    :raises SourceFileChangedError: One has another time or length than its entry says.
    :raises SourceUnreadableError: The status of one could not be read.
    """
    checked_files = _read_statuses(spark, entry)
    for file, status in checked_files:
        if isinstance(status, Exception) and not isinstance(status, FileNotFoundError):
            cause = _cause(status)
            helps = "give Spark read access to it" if is_refusal(cause) else "check the file and its store"
            raise SourceUnreadableError(
                f"The file {file.path} of batch {entry.seq} could not be checked: {cause}.",
                kept="the batches before it; this one stays logged",
                do=f"{helps}; the next try reads it again",
            ) from status
    statuses = ((file, status if isinstance(status, tuple) else None) for file, status in checked_files)
    check_as_logged(entry.seq, statuses, kept=KEPT)


def check_was_unchanged(spark: SparkSession, entry: OffsetEntry, version: int) -> None:
    """Check that every file of a batch is as it was logged, just after its rows were committed.

    A file that is gone was read to its end, or Spark would have failed. A file that cannot be checked is
    passed over; the listing of the next run sees a change.

    :param version: The table's version that has the rows.
    :raises SourceFileChangedError: One has another time or length than its entry says.
    """
    for file, status in _read_statuses(spark, entry):
        if not isinstance(status, Exception) and not file.is_still(*status):
            raise SourceFileChangedError(
                f"The file {file.path} of batch {entry.seq} was changed while it was read "
                f"({_change_text(file, status)}).",
                kept=f"version {version} of the table, with the rows of the batch: those of this file may "
                "come from the old content, from the new one, or from both",
                do="compare the rows of this file (`source_file_uri`) with the file and correct them, or "
                "reload everything with full_refresh=True; the next run goes on. Let writers rename "
                "complete files into the folder, or raise `safety_buffer_seconds`",
            )


def check_bzip2(spark: SparkSession, entry: OffsetEntry) -> None:
    """Check that files named as bzip2 begin like it: Spark would read no row of others, without an error.

    :raises BadFileError: One does not.
    """
    paths = [path for path in entry.paths if path.lower().endswith(".bz2")]
    heads = at_once(lambda path: read(spark, path, at_most=10), paths)
    odd = [path for path, head in zip(paths, heads, strict=True) if not _BZIP2.fullmatch(head)]
    if odd:
        reason = "it has a name of bzip2 and does not begin like it: Spark would read no row of it"
        hint = "give it a name that shows its compression"
        raise bad_files(entry, [Problem(path, reason, hint=hint) for path in odd])


def has_more_after_gzip(spark: SparkSession, uri: str) -> bool:
    """Return whether a gzip file is whole, so that what could not be read of it lies after that.

    Java's reader stops at the end of the compressed data, Hadoop's takes what follows for more of it.

    :param uri: A file; one that is not named so is none.
    """
    if not uri.lower().endswith((".gz", ".gzip")):
        return False
    java: Any = spark._jvm.java  # type: ignore[union-attr]
    nowhere = java.io.OutputStream.nullOutputStream()
    try:
        with closing(_filesystem(spark, uri).open(_path(spark, uri))) as stream:
            java.util.zip.GZIPInputStream(stream, 1 << 16).transferTo(nowhere)
    except _ERRORS:
        return False
    return True


def _change_text(file: FileEntry, status: tuple[int, int]) -> str:
    modified_ms, size = status
    return f"{file.size_bytes:,} bytes at {file.modified_ms} ms, now {size:,} bytes at {modified_ms} ms"


def _read_statuses(
    spark: SparkSession, entry: OffsetEntry
) -> list[tuple[FileEntry, tuple[int, int] | Exception]]:
    """Read each file's modification time and length, or why they are not known."""
    paths = entry.paths
    most = 1 if all(path.startswith(LOCAL) for path in paths) else LOOKS_AT_ONCE
    statuses = at_once(lambda path: _read_status(spark, path), paths, most)
    return [*zip(entry.files, statuses, strict=True)]


def _read_status(spark: SparkSession, uri: str) -> tuple[int, int] | Exception:
    try:
        if uri.startswith(LOCAL):
            local = Path(uri.removeprefix(LOCAL)).stat()
            return local.st_mtime_ns // 1_000_000, local.st_size
        status = _filesystem(spark, uri).getFileStatus(_path(spark, uri))
        return int(status.getModificationTime()), int(status.getLen())
    except _ERRORS as err:
        return FileNotFoundError(uri) if is_missing(err) else err


def _path(spark: SparkSession, uri: str) -> Any:
    """Return Hadoop's path of an unencoded URI; it decodes nothing."""
    # By its whole name: for each point in jvm.org.apache… Java looks through all jars.
    return getattr(spark._jvm, "org.apache.hadoop.fs.Path")(uri)


def _filesystem(spark: SparkSession, uri: str) -> Any:
    return _path(spark, uri).getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())


def is_missing(err: Exception) -> bool:
    """Return whether Java does not see the file."""
    if isinstance(err, Py4JJavaError):
        return str(err.java_exception.getClass().getName()) == "java.io.FileNotFoundException"
    if isinstance(err, PySparkException):  # Spark's Python makes errors of its own of some of Java's
        return "java.io.FileNotFoundException" in str(err)
    return isinstance(err, FileNotFoundError)


def _cause(err: Exception) -> str:
    if isinstance(err, Py4JJavaError):
        return str(err.java_exception.toString())[:400].splitlines()[0]
    return str(err)[:400]
