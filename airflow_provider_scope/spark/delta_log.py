"""The log of a Delta table: what it says of our transactions, and one commit to it at a time."""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta import exceptions as delta_errors
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException

from airflow_provider_scope.delta.commit import explaining_damage, parse, path_of
from airflow_provider_scope.exceptions import BatchNotInTableError
from airflow_provider_scope.protocol.records import notes
from airflow_provider_scope.spark import settings, storage
from airflow_provider_scope.spark.session import with_settings
from airflow_provider_scope.spark.storage import LOCAL
from airflow_provider_scope.sql import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.readwriter import DataFrameWriter


_LOCK = "_airflow_provider_scope.lock"
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
    file = jvm.java.io.RandomAccessFile(str(folder / _LOCK), "rw")
    try:
        _take(file.getChannel(), table)
        yield
    finally:
        file.close()  # and with it the lock


def _take(channel: Any, table: str) -> None:
    began, is_reported = time.monotonic(), False
    while not _is_taken(channel):
        if not is_reported and time.monotonic() - began > _TOLD_AFTER_SECONDS:
            sys.stdout.write(f"another process is committing to {table}; waiting for it\n")
            sys.stdout.flush()
            is_reported = True
        time.sleep(_LOOK_SECONDS)


def _is_taken(channel: Any) -> bool:
    try:
        return channel.tryLock() is not None
    except Py4JJavaError as err:
        if "OverlappingFileLockException" in str(err.java_exception.getClass().getName()):
            return False  # by another thread of this JVM
        raise


_COMMITTED = "spark.databricks.delta.lastCommitVersionInSession"
_CONFLICTS = (  # Delta's Python has them side by side: none is below DeltaConcurrentModificationException
    delta_errors.ConcurrentAppendException,
    delta_errors.ConcurrentDeleteDeleteException,
    delta_errors.ConcurrentDeleteReadException,
    delta_errors.ConcurrentTransactionException,
    delta_errors.ConcurrentWriteException,
    delta_errors.DeltaConcurrentModificationException,
    delta_errors.MetadataChangedException,
    delta_errors.ProtocolChangedException,
)
_LOOK_BACK = 20
"""How many commits are searched for the newest transaction before Delta reconstructs the table's state."""


class ConcurrentCommitError(Exception):
    """Another commit got in between: the table has to be read again before anything else."""


@contextmanager
def conflicts() -> Iterator[None]:
    """Turn Delta's conflict errors, which do not tell whether the batch was committed, into ours."""
    try:
        yield
    except _CONFLICTS as err:
        raise ConcurrentCommitError(str(err)) from err
    except AnalysisException as err:
        if err.getCondition() != "DELTA_PATH_EXISTS":
            raise
        raise ConcurrentCommitError("another writer created the table") from err


class DeltaLog:
    """The log of one table, which need not exist.

    :param table: Canonical URI.
    """

    def __init__(self, spark: SparkSession, table: str) -> None:
        self.spark = spark
        self.table = table

    def metadata(self) -> dict[str, Any] | None:
        """Read the table's metadata as the log has it; None if there is no table."""
        snapshot = self._snapshot()
        if int(snapshot.version()) < 0:
            return None
        return dict(json.loads(snapshot.metadata().json())["metaData"])

    def protocol(self) -> dict[str, Any]:
        """Read the protocol of a table that exists, as the log has it."""
        return dict(json.loads(self._snapshot().protocol().json())["protocol"])

    def newest_transaction(self, app_id: str) -> int | None:
        """Find the newest ``txnVersion`` of an application in the table.

        Nearly always it is in one of the last commits, which are small to read; else Delta
        reconstructs the table's state, which takes a second.
        """
        snapshot = self._snapshot()
        version = int(snapshot.version())
        for number in range(version, max(-1, version - _LOOK_BACK), -1):
            for action in self._actions(number, "txn"):
                if action["appId"] == app_id:
                    return int(action["version"])
        if version < 0:
            return None
        transaction = snapshot.transactions().get(app_id)
        return int(transaction.get()) if transaction.isDefined() else None

    def inferred_columns(self, app_id: str, since: int) -> str | None:
        """Find the columns that were inferred for a batch of an application, as its commit says.

        :param since: The oldest batch that counts; this one, or a later one, is in the table.
        :return: None if the batches were abandoned, or no columns were inferred for them.
        :raises BatchNotInTableError: The commits cannot be found.
        """
        for number in range(int(self._snapshot().version()), -1, -1):
            for info in self._actions(number, "commitInfo"):
                commit_notes = notes(info.get("userMetadata"))
                if commit_notes.get("pipeline") != app_id:
                    continue
                if not commit_notes["abandoned"]:
                    columns = commit_notes.get("columns")
                    return None if columns is None else str(columns)
                if commit_notes["seq"] <= since:
                    return None
        raise BatchNotInTableError(
            f"The log of {self.table} does not show the commit of batch {since}, which was made just now.",
            kept="the table and the log; the batches after it stay logged",
            do="the next try reads the table and the checkpoint again",
        )

    def save(self, writer: DataFrameWriter) -> int | None:
        """Write, and give the version that was committed; None if Delta skipped the transaction."""
        return self.commit(lambda: writer.save(self.table), self.spark)

    def commit(self, act: Callable[[], object], session: SparkSession) -> int | None:
        """Run a function that commits to the table, and give the version; None if Delta committed nothing.

        :param session: The session that the function uses.
        """
        session.conf.unset(_COMMITTED)
        with one_commit_at_a_time(self.spark, self.table):
            self._load_transactions()
            act()
        committed = session.conf.get(_COMMITTED, None)
        return None if committed is None else int(committed)

    def alter(self, properties: Mapping[str, str]) -> None:
        """Set properties of the table."""
        pairs = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())
        with one_commit_at_a_time(self.spark, self.table):
            self.spark.sql(f"ALTER TABLE delta.{quoted(self.table)} SET TBLPROPERTIES ({pairs})")

    def clustering(self) -> list[str]:
        """Find the columns that the table is clustered by, as SQL names them, such as ``struct.field``."""
        detail = self.spark.sql(f"DESCRIBE DETAIL delta.{quoted(self.table)}").select("clusteringColumns")
        return list(detail.head()[0])  # type: ignore[index]

    def cluster_by(self, columns: Sequence[str]) -> None:
        """Cluster the table by columns, as SQL names them; without any it stays as it is."""
        if columns:
            with one_commit_at_a_time(self.spark, self.table):
                self.spark.sql(f"ALTER TABLE delta.{quoted(self.table)} CLUSTER BY ({', '.join(columns)})")

    def written_rows(self, version: int) -> int | None:
        """Read how many rows a commit wrote; None if it does not say."""
        rows = self._metrics(version).get("numOutputRows")
        return None if rows is None else int(rows)

    def growth(self, version: int) -> int | None:
        """Compute by how many rows a MERGE, or the table's first commit, made it larger; None of others."""
        metrics = self._metrics(version)
        if "numTargetRowsInserted" in metrics:
            return int(metrics["numTargetRowsInserted"]) - int(metrics["numTargetRowsDeleted"])
        return self.written_rows(version) if version == 0 else None

    def _metrics(self, version: int) -> dict[str, Any]:
        return next((info.get("operationMetrics") or {} for info in self._actions(version, "commitInfo")), {})

    def size_bytes(self) -> int | None:
        """Read the bytes of all files of the table, if its newest commit tells; nothing is computed."""
        # Not sizeInBytesIfKnown(): what Delta does not know, that computes.
        checksum = self._snapshot().checksumOpt()
        return int(checksum.get().tableSizeBytes()) if checksum.isDefined() else None

    def _load_transactions(self) -> None:
        """Let Delta reconstruct the state of a table of few files in one task.

        It does so for each commit with a number, to see whether that is there, and by itself in three jobs.
        """
        snapshot = self._snapshot()
        checksum = snapshot.checksumOpt()
        if checksum.isDefined() and settings.is_small_log(int(checksum.get().numFiles())):
            # Delta takes the settings from the thread's session, which may be the one of the last MERGE.
            with with_settings(type(self.spark).active(), settings.OF_SMALL):
                snapshot.transactions()

    def _snapshot(self) -> Any:
        jvm: Any = self.spark._jvm  # noqa: SLF001 - Delta's Python API has no way to a transaction
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self.spark._jsparkSession, self.table)  # noqa: SLF001
        none = jvm.scala.Option.empty()
        return log.update(False, none, none)  # noqa: FBT003 - a Scala signature

    def _actions(self, version: int, kind: str) -> list[dict[str, Any]]:
        name = path_of(self.table, version)
        try:
            commit = storage.read(self.spark, name)
        except FileNotFoundError:
            return []
        with explaining_damage(name, "the table; what was committed stays"):
            return parse(version, commit, only=(kind,)).of(kind)
