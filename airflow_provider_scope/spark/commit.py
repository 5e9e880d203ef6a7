"""The transaction of a batch: when it may be committed, and how its rows and its number are committed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow_provider_scope.exceptions import BatchNotInTableError, SchemaMismatchError, UnknownRowsError
from airflow_provider_scope.protocol import recovery
from airflow_provider_scope.spark.delta_log import ConcurrentCommitError
from airflow_provider_scope.spark.session import with_settings

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.readwriter import DataFrameWriter

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.spark.delta_log import DeltaLog
    from airflow_provider_scope.spark.held import Keys
    from airflow_provider_scope.spark.plan import Plan


TRIES = 3
"""How often a batch is tried when another writer's commit gets in between."""


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
        :raises UnknownRowsError: The rows were, without the number.
        """
        commit_notes = {"abandoned": abandoned, "pipeline": self.pipeline, "seq": self.entry.seq, **notes}
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
    return session._jsparkSession.sessionState().conf().settings()  # noqa: SLF001


Write: TypeAlias = Callable[[Batch, Commit], int | None]
"""Commits a batch, and gives the table's version; None if Delta did not commit."""
