"""The log of a Delta table, and the transaction of a batch in it: when it is committed, and with what."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from delta import exceptions as delta_errors
from pyspark.errors import AnalysisException

from airflow_provider_scope.delta.commit import explaining_damage, parse, path_of, written_rows
from airflow_provider_scope.exceptions import BatchNotInTableError, SchemaMismatchError, UnknownRowsError
from airflow_provider_scope.protocol import recovery
from airflow_provider_scope.protocol.records import notes
from airflow_provider_scope.spark import settings, storage
from airflow_provider_scope.spark.session import DELTA_LOG, with_settings
from airflow_provider_scope.spark.shaping import naming_unfit_columns
from airflow_provider_scope.sql import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import Self

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.readwriter import DataFrameWriter

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.spark.held import Keys
    from airflow_provider_scope.spark.plan import Plan


# ---- the log ----

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
OF_OWN_TABLES = {"delta.columnMapping.mode": "none", "delta.enableDeletionVectors": "false"}
"""Of tables beside the target, whatever the defaults of a session: commands read their files as they are."""
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

    def beside(self, folder: str) -> Self:
        """Return the log of another table, in a folder of this one's."""
        return type(self)(self.spark, f"{self.table}/{folder}")

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
        self._load_transactions()
        act()
        committed = session.conf.get(_COMMITTED, None)
        return None if committed is None else int(committed)

    def alter(self, properties: Mapping[str, str]) -> None:
        pairs = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())
        self.spark.sql(f"ALTER TABLE delta.{quoted(self.table)} SET TBLPROPERTIES ({pairs})")

    def clustering(self) -> list[str]:
        """Find the columns that the table is clustered by, as SQL names them, such as ``struct.field``."""
        detail = self.spark.sql(f"DESCRIBE DETAIL delta.{quoted(self.table)}").select("clusteringColumns")
        return list(detail.head()[0])  # type: ignore[index]

    def cluster_by(self, columns: Sequence[str]) -> None:
        """Cluster the table by columns, as SQL names them; without any it stays as it is."""
        if columns:
            self.spark.sql(f"ALTER TABLE delta.{quoted(self.table)} CLUSTER BY ({', '.join(columns)})")

    def written_rows(self, version: int) -> int | None:
        """Read how many rows a commit wrote; None if it does not say."""
        return written_rows(self._metrics(version))

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
        jvm: Any = self.spark._jvm  # Delta's Python API has no way to a transaction
        # By their whole names: for each point in jvm.org.apache… Python would ask Java.
        delta_log, option = (getattr(jvm, name) for name in (DELTA_LOG, "scala.Option"))
        log = delta_log.forTable(self.spark._jsparkSession, self.table)
        absent = option.empty()
        return log.update(False, absent, absent)  # noqa: FBT003 - a Scala signature

    def _actions(self, version: int, kind: str) -> list[dict[str, Any]]:
        name = path_of(self.table, version)
        try:
            commit = storage.read(self.spark, name)
        except FileNotFoundError:
            return []
        with explaining_damage(name, "the table; what was committed stays"):
            return parse(version, commit, only=(kind,)).of(kind)


# ---- the transaction of a batch ----

TRIES = 10
"""How often a batch is tried when another writer's commit gets in between: each time one of them got on."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """The transaction of a batch whose turn it is: only ``commit_once`` makes one."""

    log: DeltaLog
    pipeline: str
    entry: OffsetEntry

    def commit(
        self, write: Write, batch: Batch, notes: Mapping[str, Any], *, abandoned: bool = False
    ) -> int | None:
        """Write, and check that it was committed with the batch's number.

        :param notes: What the commit says of the batch beside that, for its record.
        :return: The table's version, or None if Delta skipped the write because the batch is there.
        :raises BatchNotInTableError: Nothing was committed.
        :raises InputError: The table can have no columns of their names or types.
        :raises UnknownRowsError: The rows were, without the number.
        """
        commit_notes = {"abandoned": abandoned, "pipeline": self.pipeline, "seq": self.entry.seq, **notes}
        with naming_unfit_columns(batch.rows, self.log.table):
            version = write(batch, Commit(self.log, (self.pipeline, self.entry.seq), commit_notes))
        if self.is_committed():
            return version
        if version is not None:
            raise UnknownRowsError(
                f"Version {version} of {self.log.table} has the rows of batch {self.entry.seq} without its "
                "number: the next try would write them again.",
                kept="the log; the batch stays logged",
                do=f"report it. Remove the rows with a RESTORE to version {version - 1}; then run `airflow "
                f"scope accept-table`",
            )
        raise BatchNotInTableError(
            f"Delta accepted the write of batch {self.entry.seq} to {self.log.table} without an error, but "
            "did not commit it.",
            kept="the table and the log; the batch stays logged",
            do="the next try runs it again; if it happens again, report it with the table's history",
        )

    def is_committed(self) -> bool:
        """Check whether the batch, or a later one, is in the table."""
        newest = self.log.newest_transaction(self.pipeline)
        return newest is not None and newest >= self.entry.seq


def commit_once(
    plan: Plan, log: DeltaLog, entry: OffsetEntry, attempt: Callable[[Transaction], int | None]
) -> int | None:
    """Commit a batch unless it is in the table, and only after its predecessor.

    :param attempt: Reads the batch and commits it; called again if another writer commits in between.
    :return: The table's version, or None if the batch was there.
    :raises TableDivergedError: The predecessor is not in the table: committing now would make Delta
        skip the predecessor's rows silently, for good.
    :raises BatchNotInTableError: Another writer committed in between, too often.
    """
    transaction = Transaction(log, plan.pipeline, entry)
    for _ in range(TRIES):
        newest = log.newest_transaction(plan.pipeline)
        if newest is not None and newest >= entry.seq:
            return None
        if not plan.fence and not recovery.may_run(entry, newest, plan.first):
            raise recovery.out_of_order(newest, entry, plan.first)(
                f"Batch {entry.seq} cannot run: the table {plan.table} holds batch {newest} as its newest, "
                f"not {recovery.predecessor(entry, plan.first)}.",
                kept="the table, the log and all files",
                do="clear the task: it reads the log and the table again; if it happens again, run "
                "`airflow scope status`",
            )
        try:
            return attempt(transaction)
        except ConcurrentCommitError:
            continue  # look at the table again: it may have been this very batch
        except SchemaMismatchError:
            # Another run may have made the table with this very batch, and with columns that it inferred.
            if not transaction.is_committed():
                raise
            return None
    raise BatchNotInTableError(
        f"Batch {entry.seq} could not be committed to {plan.table}: another writer committed in between, "
        f"{TRIES} times.",
        kept="the table and the log; the batch stays logged",
        do="the next try runs it again; avoid ALTER, OPTIMIZE and other writes to the table while the task "
        "runs",
    )


# ---- how a write commits rows and number together ----

_IN_A_SESSION = {
    "txnAppId": "spark.databricks.delta.write.txnAppId",
    "txnVersion": "spark.databricks.delta.write.txnVersion",
    "userMetadata": "spark.databricks.delta.commitInfo.userMetadata",
}
"""Delta's options of a writer -> the settings of a session that a statement takes them from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The rows of a batch in the shape of the table that they go to."""

    rows: DataFrame
    overwrites: bool = False
    """Whether the rows replace what is in the table, or in the range of ``where``."""
    where: str | None = None
    """Predicate of the rows that an overwrite replaces; None is the whole table."""
    creates: bool = False
    """Whether there is no table yet: the commit makes it, or fails if somebody else has made it."""
    partition_by: Sequence[str] | None = None
    """The partitioning of a table that is made or changed by the commit, else None."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Delta's properties of a table that is made or changed by the commit."""
    brings_columns: bool = False
    """Whether the table gets columns or types of the rows in the same commit."""
    how: Mapping[str, Any] = field(default_factory=dict)
    """What the user says of the write beside its kind, such as key columns."""
    deleted: DataFrame | None = None
    """Keys of rows that are to go, for a write that has keys; their other columns do not matter."""
    keys: Keys | None = None
    """What is known of a key, if Spark holds the rows already and has one for each value of it."""
    partitions: Sequence[str] = ()
    """The columns that partition the table as it is."""
    chars: Collection[str] = ()
    """The columns of the table that are CHAR, in lower case: files cannot be told apart by their texts."""
    lacking: Sequence[str] = ()
    """Columns of the table that the rows do not have, and that the table does not compute."""

    def writer(self) -> DataFrameWriter:
        """Make a writer of the rows, without a mode."""
        writer = self.rows.write.format("delta")
        if self.partition_by is not None:
            writer = writer.options(**self.properties).partitionBy(*self.partition_by)
        return writer.option("mergeSchema", "true") if self.brings_columns else writer


@dataclass(frozen=True, slots=True)
class Commit:
    """The one commit of a batch that is about to be made; a write makes it by one of the methods, once.

    :param number: The pipeline, and the number of the batch.
    :param notes: What the commit says of the batch, for its record and for people.
    """

    log: DeltaLog
    number: tuple[str, int]
    notes: dict[str, Any]

    def note(self, **notes: Any) -> None:
        """Add notes to the commit, before it is made."""
        self.notes.update(notes)

    @property
    def carries(self) -> dict[str, str]:
        """The batch's number and the notes, as options of Delta's writer."""
        return {
            "txnAppId": self.number[0],
            "txnVersion": str(self.number[1]),
            # A statement takes it from a setting, and Spark puts others in place of ${…} in that.
            "userMetadata": json.dumps(self.notes).replace("$", "\\u0024"),
        }

    def save(self, writer: DataFrameWriter) -> int | None:
        """Write rows, and give the version; None if Delta did not commit."""
        return self.log.save(writer.options(**self.carries))

    def execute(self, statement: Callable[[SparkSession], object]) -> int | None:
        """Run a MERGE, and give the version; None if Delta did not commit.

        A statement has no options: it takes the batch's number from its session, as any other write there
        would. So it gets a session of its own, with the settings of the application's.

        :param statement: Takes the session. It reads the table in that, by ``DeltaTable.forPath``; the rows
            may be of another. An UPDATE or a DELETE is no statement for this: Delta commits nothing, and so
            no number, if no row is to be deleted. A MERGE without changes is committed.
        """
        session = self.log.spark.newSession()
        _settings(session).putAll(_settings(self.log.spark))
        # Spark may keep it as the active one of the thread: the number must not stay in it.
        with with_settings(session, {_IN_A_SESSION[name]: value for name, value in self.carries.items()}):
            return self.log.commit(lambda: statement(session), session)


def _settings(session: SparkSession) -> Any:
    """Get a session's settings as Java has them: one by one, hundreds would pass between Python and Java."""
    return session._jsparkSession.sessionState().conf().settings()


Write: TypeAlias = Callable[[Batch, Commit], int | None]
"""Commits a batch, and gives the table's version; None if Delta did not commit."""
