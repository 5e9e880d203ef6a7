"""What ``airflow scope take-over`` does: look first, and write only when it is told to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_scope.checkpoint.dbt_scope import read_state
from airflow_provider_scope.core import audit as audits
from airflow_provider_scope.core import takeover
from airflow_provider_scope.exceptions import InputError, WatermarkChangedError
from airflow_provider_scope.execution import dbt_scope, repair

if TYPE_CHECKING:
    from airflow_provider_scope.checkpoint.dbt_scope import LeftState
    from airflow_provider_scope.checkpoint.log import CheckpointLog
    from airflow_provider_scope.core.records import OffsetEntry, Pipeline
    from airflow_provider_scope.core.takeover import Takeover

_REFRESH = "run the task once with full_refresh=True, which replaces the table's rows with those of all files"


def left_behind(log: CheckpointLog) -> LeftState:
    """Read what dbt-scope left for a pipeline that does not exist yet.

    :raises InputError: It left nothing.
    """
    state = read_state(log.storage, log.location, "")
    if state is None:
        raise InputError(
            f"There is nothing of dbt-scope in {log.location}.",
            kept="everything; nothing was written",
            do="check the location; if the checkpoint is outside the table, add --checkpoint",
        )
    return state


def undecided(log: CheckpointLog, pipeline: Pipeline | None) -> str:
    """Give the digest of the watermark whose newest batch has no record.

    :raises InputError: There is no such batch.
    """
    if pipeline is None:
        state = left_behind(log)
        found = None if state.watermark.batch_id in state.batches else state.watermark_digest
    else:
        logged = log.logged()
        refresh_start = log.offset(logged[-1]).refresh_start if logged else None
        taken = takeover.counting(log.takeovers(pipeline), refresh_start)
        found = taken.watermark if taken and not taken.is_recorded else None
    if found is None:
        raise InputError(
            f"There is nothing to decide in {log.location}: the files of dbt-scope's newest batch are known.",
            kept="everything; nothing was written",
            do="leave --at-watermark out",
        )
    return found


def went_on(log: CheckpointLog, pipeline: Pipeline, now_ms: int) -> tuple[Takeover, LeftState] | None:
    """Give what is to be taken over because dbt-scope loaded batches of its own; None if it did not.

    :raises InputError: Batches are open, which dbt-scope may have loaded.
    :raises WatermarkChangedError: What dbt-scope did cannot be added to what the log says.
    """
    takeovers = log.takeovers(pipeline)
    logged = log.logged()
    newest = log.offset(logged[-1]) if logged else None
    overwrite_start = newest.overwrite_start if newest else None
    if not takeover.was_written_around(log.watermark(), takeovers, overwrite_start):
        return None
    still_open = [entry.seq for entry in repair.open_entries(log)]
    if still_open:
        raise InputError(
            f"Batch {still_open[0]} of {log.location} is open, and dbt-scope has run since it was logged: it "
            "may have loaded the same files.",
            kept="everything; nothing was written",
            do=_REFRESH,
        )
    store = _store(takeovers, newest)
    state = read_state(log.storage, log.location, store)
    if state is None:
        takeover.check_watermark(None, takeovers, overwrite_start, log.location)
        return None
    _check_it_goes_on(state, takeovers, newest, log.location)
    there = log.newest_takeover()
    taken = replace(
        dbt_scope.record_of(state, store, now_ms),
        number=there.number + 1 if there else 0,
        pipeline=pipeline.pipeline,
        seq=newest.seq + 1 if newest else 0,
    )
    return taken, state


def _store(takeovers: list[Takeover], newest: OffsetEntry | None) -> str:
    if newest and newest.slice.audited:
        return dbt_scope.store_of(newest.slice.audited[0].path)
    return next((taken.store for taken in reversed(takeovers) if taken.store), "")


def _check_it_goes_on(
    state: LeftState, takeovers: list[Takeover], newest: OffsetEntry | None, checkpoint: str
) -> None:
    """Refuse a watermark that does not follow on the newest batch: dbt-scope started over, or went back."""
    refresh_start = newest.refresh_start if newest else None
    taken = takeover.counting(takeovers, refresh_start)
    seq = newest.seq if newest else -1
    last = audits.batch_id(seq, refresh_start, taken)
    highest = newest.slice.highest if newest else None
    floor = highest.modified_ms if highest else 0
    found = state.watermark
    if found.batch_id > last and found.modified_ms is not None and found.modified_ms >= floor:
        return
    raise WatermarkChangedError(
        f"dbt-scope's watermark in {checkpoint} (batch {found.batch_id}, "
        f"{found.modified_time or 'no time'}) does not follow from batch {last} of the log: dbt-scope has "
        "started over, or from an older state.",
        kept="the table, the log and all files; nothing was written",
        do=_REFRESH,
    )


def write(log: CheckpointLog, taken: Takeover, state: LeftState) -> Takeover:
    """Put the record of a takeover, and before it the files that it names."""
    return log.put_takeover(replace(taken, lists=log.put_taken_files(state.files)))
