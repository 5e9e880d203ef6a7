"""What the commands do that repair a pipeline. Each looks first, and writes only when it is told to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import BatchOutcomeUnknownError, InputError
from airflow_provider_scope.protocol.engine import Work
from airflow_provider_scope.protocol.recovery import CommittedBatch
from airflow_provider_scope.protocol.takeover import Epoch
from airflow_provider_scope.protocol.view import LogView, read_log, record_commit

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_scope.protocol.derived import AuditFiles
    from airflow_provider_scope.protocol.engine import Engine
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import CommitRecord, OffsetEntry, Pipeline


def existing_pipeline(log: CheckpointLog) -> Pipeline:
    """Read the pipeline of a checkpoint.

    :raises InputError: There is none.
    """
    pipeline = log.pipeline()
    if pipeline is None:
        raise InputError(
            f"There is no pipeline in {log.location}: no batch has been logged there.",
            kept="everything; nothing was written",
            do="check the location; if the checkpoint is outside the table, add --checkpoint",
        )
    return pipeline


def rebuild(log: CheckpointLog, audit: AuditFiles) -> OffsetEntry | None:
    """Write ``watermark.json`` and ``sources/`` again from the log.

    :return: The newest committed entry, or None if there is none since the last refresh.
    """
    existing_pipeline(log)
    newest = log.newest_offset()
    takeover = log.takeover(newest)
    epoch = Epoch.of(newest, takeover)
    committed = [seq for seq in log.committed() if seq >= epoch.start]
    if not committed:
        return None
    last = log.offset(committed[-1])
    audit.bring_up_to_date(last, takeover, everything=True)
    return last


def abandon(
    log: CheckpointLog,
    audit: AuditFiles,
    engine: Engine,
    table: str,
    seq: int,
    *,
    now_ms: Callable[[], int],
) -> CommitRecord:
    """Commit an empty transaction in place of an open batch, and record the batch as abandoned.

    Its files count as not seen, so the next run takes those that are there then.

    :return: The record: ``abandoned`` is False if the batch turned out to be in the table after all.
    :raises InputError: The batch is not open, or an older one is, or it is the first of a full refresh.
    """
    pipeline = existing_pipeline(log)
    view = read_log(log, engine, table)
    view.check()
    entry = open_entry(view, seq, log.location)
    committed = settled(view, entry)
    if committed is None and (view.table.identity or engine.fences_without_table):
        engine.fence(Work(pipeline.pipeline, table, log.location), entry)
        view.table = engine.probe(table, pipeline.pipeline, view.baseline)
        committed = settled(view, entry)
    elif committed is None:
        # The record alone says so: there is no table that could.
        committed = CommittedBatch(-1, 0, 0, abandoned=True)
    recorded = log.find_commit(seq) if committed is None else None
    if recorded:
        return recorded  # another run recorded it in the meantime
    if committed is None:
        raise BatchOutcomeUnknownError(
            f"The empty transaction for batch {seq} does not appear in the log of {table}.",
            kept="the table, the log and all files",
            do="run the command again",
        )
    record = record_commit(log, view, entry, committed, committed_at_ms=now_ms())
    if record.table is None:
        view.table = engine.probe(table, pipeline.pipeline, view.baseline)
        view.check()
    audit.bring_up_to_date(entry, view.takeover)
    return record


def open_entry(view: LogView, seq: int, checkpoint: str) -> OffsetEntry:
    """Find the batch that may be abandoned: the oldest open one.

    :raises InputError: ``seq`` is another one.
    """
    numbers = [entry.seq for entry in view.open]
    if not numbers or seq != numbers[0]:
        raise InputError(
            f"Batch {seq} of {checkpoint} cannot be abandoned: "
            + (f"the oldest open batch is {numbers[0]}." if numbers else "no batch is open."),
            kept="everything; nothing was written",
            do="batches are settled in order: look at `airflow scope status`, and name the oldest open one",
        )
    if view.open[0].overwrites_table:
        # The earlier files count as not loaded since this entry, and their rows would stay.
        raise InputError(
            f"Batch {seq} of {checkpoint} cannot be abandoned: it is the one that replaces the table's rows.",
            kept="everything; nothing was written",
            do="run the task with full_refresh=True: a new refresh, with what the source holds then, takes "
            "its place",
        )
    return view.open[0]


def settled(view: LogView, entry: OffsetEntry) -> CommittedBatch | None:
    """Find the commit of an open batch that is in the table after all."""
    result = view.outcomes([entry])
    return result.committed[0][1] if result.committed else None
