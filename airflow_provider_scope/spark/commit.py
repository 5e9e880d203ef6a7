"""How a write commits the rows of a batch together with the batch's number."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow_provider_scope.spark.session import with_settings

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.readwriter import DataFrameWriter

    from airflow_provider_scope.spark.delta_log import DeltaLog
    from airflow_provider_scope.spark.held import Keys

_IN_A_SESSION = {
    "txnAppId": "spark.databricks.delta.write.txnAppId",
    "txnVersion": "spark.databricks.delta.write.txnVersion",
    "userMetadata": "spark.databricks.delta.commitInfo.userMetadata",
}
"""Delta's options of a writer, and the settings by which a statement has them."""


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
        """Give a writer of the rows, without a mode."""
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
        """Let the commit say more of the batch; before it is made."""
        self.notes.update(notes)

    @property
    def carries(self) -> dict[str, str]:
        """What goes with the rows, as options of Delta's writer."""
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
    """Give a session's settings as Java has them: one by one, hundreds would pass between Python and Java."""
    return session._jsparkSession.sessionState().conf().settings()  # noqa: SLF001


Write: TypeAlias = Callable[[Batch, Commit], int | None]
"""Commits a batch, and gives the table's version; None if Delta did not commit."""
