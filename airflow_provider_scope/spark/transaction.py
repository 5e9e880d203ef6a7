"""The transaction of a batch: when it may be made, what it carries, and whether it was made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.core import recovery
from airflow_provider_scope.exceptions import BatchNotInTableError, SchemaMismatchError, UnknownRowsError
from airflow_provider_scope.spark.commit import Commit
from airflow_provider_scope.spark.delta_log import ConcurrentCommitError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_scope.core.plan import Plan
    from airflow_provider_scope.core.records import OffsetEntry
    from airflow_provider_scope.spark.commit import Batch, Write
    from airflow_provider_scope.spark.delta_log import DeltaLog

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
        """Write, and see that it was committed with the batch's number.

        :param notes: What the commit says of the batch beside that, for its record.
        :return: The table's version, or None if Delta skipped the write because the batch is there.
        :raises BatchNotInTableError: Nothing was committed.
        :raises UnknownRowsError: The rows were, without the number.
        """
        ours = {"abandoned": abandoned, "pipeline": self.pipeline, "seq": self.entry.seq, **notes}
        version = write(batch, Commit(self.log, (self.pipeline, self.entry.seq), ours))
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
        """Tell whether the batch, or a later one, is in the table."""
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
