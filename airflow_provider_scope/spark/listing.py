"""The files of a batch as Spark is told about them, and proof that it reads those and no others."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, SourceMismatchError
from airflow_provider_scope.spark.session import with_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.readwriter import DataFrameReader

_PATTERN = re.compile(r"[\\\[\]{}*?]")
FILE = "_scope_file"
"""The column with the file of a record, as Spark spells it."""
START = "_scope_start"
"""The column with the place in the file where the part begins that a record was read with."""
_IN_ORDER = {
    "spark.sql.files.maxPartitionBytes": str(1 << 50),
    "spark.sql.files.openCostInBytes": str(1 << 50),
}
NAMED = 5
"""Files that an error names."""


def as_pattern(uri: str) -> str:
    r"""Give a path that, taken for a glob, means that file alone: ``w_[x].csv`` -> ``w_\[x\].csv``.

    The option that switches globbing off (``__globPaths__=false``) is worse: in Spark 4.2 each path that
    looks like a glob then adds the whole list once more (SPARK-58518).
    """
    return _PATTERN.sub(r"\\\g<0>", uri)


def same_key(uri: str) -> str:
    """Give one spelling of a local URI: Java writes ``file:/x``, others ``file:///x``."""
    return re.sub("^file:/+", "file:///", uri)


def load(
    reader: Callable[[], DataFrameReader], paths: Sequence[str], *, with_start: bool = False
) -> DataFrame:
    """Read exactly these files: their columns, and ``FILE``.

    :param reader: Gives a reader with format, schema and options.
    :param with_start: Whether ``START`` is wanted, too.
    :raises SourceMismatchError: Spark would read other files.
    """
    alone = [path for path in paths if _is_alone(path)]
    together = [path for path in paths if not _is_alone(path)]
    frames = []
    if together:
        data = reader().load([as_pattern(path) for path in together])
        frames.append(_with_file(data, together, with_start=with_start))
    literally = [reader().option("__globPaths__", "false").load([path]) for path in alone]
    frames += [
        _with_file(data, [path], with_start=with_start) for data, path in zip(literally, alone, strict=True)
    ]
    return union(frames)


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """Give the rows of frames with the same columns."""
    rows = frames[0]
    for frame in frames[1:]:
        rows = rows.unionByName(frame)
    return rows


def for_inference(paths: Sequence[str]) -> list[str]:
    """Give paths from which columns are inferred: all but those that ``load`` has to read alone."""
    together = [as_pattern(path) for path in paths if not _is_alone(path)]
    return together or [*paths[:1]]


def _is_alone(path: str) -> bool:
    # Hadoop takes a folder such as 10:30 for a URI once it looks for patterns: such a file is read alone.
    return bool(_PATTERN.search(path)) and ":" in path.partition("://")[2]


def _with_file(data: DataFrame, paths: Sequence[str], *, with_start: bool) -> DataFrame:
    check_listed(data, paths)
    about = data.metadataColumn("_metadata")
    more = [about.getField("file_block_start").alias(START)] if with_start else []
    return data.select("*", about.getField("file_path").alias(FILE), *more)


@contextmanager
def in_order(spark: SparkSession) -> Iterator[None]:
    """Let each file be one partition, in which its rows have their order and can be numbered."""
    with with_settings(spark, _IN_ORDER):
        yield


def number_in_file() -> Column:
    """Give the number of a row in its file, from 1; only with ``in_order``, and before any filter."""
    return (F.monotonically_increasing_id() % (1 << 33)) + 1


def check_listed(data: DataFrame, paths: Sequence[str]) -> None:
    """Compare the files that a scan is going to read with those it was given, each as often as it is there.

    :param data: What ``spark.read`` gave, before anything was done with it.
    :raises SourceMismatchError: Spark would read a file twice, not at all, or another one.
    """
    leaves = data._jdf.queryExecution().analyzed().collectLeaves()  # noqa: SLF001 - no Python API
    names = leaves.apply(0).relation().location().inputFiles()
    found = Counter(same_key(unquote(name)) for name in names)
    wanted = Counter(same_key(path) for path in paths)
    if found == wanted:
        return
    more, fewer = found - wanted, wanted - found
    told = [f"{name} {found[name]} times instead of {wanted[name]}" for name in [*more, *fewer]]
    raise SourceMismatchError(
        f"Spark would read other files than the batch has: {'; '.join(told[:NAMED])}"
        + (f"; and {len(told) - NAMED} more." if len(told) > NAMED else "."),
        kept=NO_ROW_WRITTEN,
        do="report it with the names of the files and the version of Spark; renaming them is a workaround",
    )
