"""One commit at a time to a table on a local disk, across processes."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from airflow_provider_scope.spark.files import LOCAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

NAME = "_airflow_provider_scope.lock"
"""In the table's folder; Delta and VACUUM leave names alone that begin with an underscore."""
_LOOK_SECONDS = 0.2
_TOLD_AFTER_SECONDS = 10


@contextmanager
def one_commit_at_a_time(spark: SparkSession, table: str) -> Iterator[None]:
    """Keep other applications of ours from committing to a table on a local disk; others need no lock.

    On a disk the rename that makes a commit is two steps: it looks whether the version is there, and renames.
    It replaces what another process puts there in between; so Delta locks it, in one JVM (``HDFSLogStore`` of
    Delta 4.4). Here the JVM holds the lock, and not this process: it lives on for a moment when this process
    is killed, and may commit in it.
    """
    if not table.startswith(LOCAL):
        yield
        return
    folder = Path(table.removeprefix(LOCAL))
    folder.mkdir(parents=True, exist_ok=True)
    jvm: Any = spark._jvm  # noqa: SLF001 - no Python API; and a lock of Python's would end with Python
    file = jvm.java.io.RandomAccessFile(str(folder / NAME), "rw")
    try:
        _take(file.getChannel(), table)
        yield
    finally:
        file.close()  # and with it the lock


def _take(channel: Any, table: str) -> None:
    began, told = time.monotonic(), False
    while not _is_taken(channel):
        if not told and time.monotonic() - began > _TOLD_AFTER_SECONDS:
            sys.stdout.write(f"another process is committing to {table}; waiting for it\n")
            sys.stdout.flush()
            told = True
        time.sleep(_LOOK_SECONDS)


def _is_taken(channel: Any) -> bool:
    try:
        return channel.tryLock() is not None
    except Py4JJavaError as err:
        if "OverlappingFileLockException" in str(err.java_exception.getClass().getName()):
            return False  # by another thread of this JVM
        raise
