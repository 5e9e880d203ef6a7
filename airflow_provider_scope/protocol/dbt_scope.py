"""Taking over a table that dbt-scope has loaded, and noticing that it went on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import (
    CheckpointError,
    InputError,
    ScopeProviderError,
    WatermarkChangedError,
)
from airflow_provider_scope.protocol import repair, retention, takeover
from airflow_provider_scope.protocol.dbt_scope_files import read_state
from airflow_provider_scope.protocol.records import Pipeline
from airflow_provider_scope.protocol.takeover import Takeover
from airflow_provider_scope.sources.files.discovery import History
from airflow_provider_scope.values import is_below

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_scope.protocol.dbt_scope_files import DbtScopeState
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.view import LogView
    from airflow_provider_scope.sources.files.discovery import Tally
    from airflow_provider_scope.values import FileEntry


def read_into_view(
    log: CheckpointLog,
    view: LogView,
    roots: Sequence[str],
    now_ms: int,
    *,
    history: bool = True,
    is_void: bool = False,
) -> bool:
    """Put into the view of a pipeline without an entry what it would take over; nothing is written.

    :param history: False if the files that were seen do not matter (``late_files="skip"``).
    :param is_void: What dbt-scope loaded is about to be replaced, so it need not be known.
    :return: False if another run has logged a batch meanwhile: what is there may be its own work, and the
        log has to be read again.
    :raises CheckpointError: What dbt-scope has loaded is not known; see ``read_state``.
    :raises InputError: The roots are on several stores, and dbt-scope notes paths alone.
    """
    try:
        _read_into_view(log, view, roots, now_ms, history=history, is_void=is_void)
    except ScopeProviderError:
        if log.is_begun():
            return False
        raise
    return view.dbt_scope_state is None or not log.is_begun()


def _read_into_view(
    log: CheckpointLog, view: LogView, roots: Sequence[str], now_ms: int, *, history: bool, is_void: bool
) -> None:
    stores = sorted({store_of(root) for root in roots})
    try:
        state = read_state(log.storage, log.location, stores[0])
    except CheckpointError:
        if is_void:
            return  # whatever dbt-scope loaded goes; ``replaced`` notes that
        raise
    if state is None or is_void:
        return
    if len(stores) > 1:
        raise InputError(
            f"The roots are on several stores ({', '.join(stores)}), and dbt-scope's records do not say on "
            "which of them a file is.",
            kept="the table, the checkpoint and all files; nothing was written",
            do="until the table is taken over, name only the roots that dbt-scope had",
        )
    if state.files and not any(is_below(file.path, tuple(roots)) for file in state.files):
        raise InputError(
            f"None of the {len(state.files):,} files that dbt-scope loaded, such as {state.files[0].path}, "
            f"is below the roots ({', '.join(roots)}).",
            kept="the table, the checkpoint and all files; nothing was written",
            do="name the roots that dbt-scope had. If its files were moved, they have other paths and "
            "times now, and would all be loaded again: use a separate checkpoint location, and "
            "starting_timestamp",
        )
    view.takeovers = [*view.takeovers, record_of(state, stores[0], now_ms)]
    if history:
        view.seen = History.of_dbt_scope(state.files)
    view.dbt_scope_state = state


def store_of(uri: str) -> str:
    """Give what stands before the path in a URI."""
    scheme, rest = uri.split("://", 1)
    return f"{scheme}://{rest.split('/', 1)[0]}"


def record_of(state: DbtScopeState, store: str, now_ms: int) -> Takeover:
    """Give the record of what dbt-scope left, for a pipeline that is still to be named."""
    floor = state.watermark.modified_ms
    return Takeover(
        number=0,
        pipeline="",
        seq=0,
        watermark=state.watermark_digest,
        batch_id=state.watermark.batch_id,
        modified_time=state.watermark.modified_time,
        floor_ms=floor,
        is_recorded=state.watermark.batch_id in state.batches,
        missing=len(state.missing),
        # dbt-scope cuts a float of milliseconds off, which can make it one less.
        at_floor=tuple(
            sorted(f.path for f in state.files if floor is not None and floor - f.modified_ms in (0, 1))
        ),
        files=len(state.files),
        lists=(),
        store=store,
        taken_at_ms=now_ms,
    )


def adopt(log: CheckpointLog, view: LogView, new_id: str) -> None:
    """Write down what is taken over, then ``pipeline.json`` if there is none, which makes it count.

    A run that died in between may have left a record, of this state of dbt-scope's checkpoint or of an
    older one. The record of this state is used again, so that runs at the same time make one pipeline.
    A full refresh that died before its first entry leaves a pipeline that has taken over nothing.
    """
    if view.dbt_scope_state is None:
        msg = "nothing was looked at"
        raise AssertionError(msg)
    lists = log.put_taken_files(view.dbt_scope_state.files)
    record = replace(
        view.takeovers[-1], pipeline=view.pipeline.pipeline if view.pipeline else new_id, lists=lists
    )
    stored = _put(log, record, any_pipeline=view.pipeline is None)
    if view.pipeline:
        return
    identity = view.table.identity
    log.put_pipeline(
        Pipeline(
            pipeline=stored.pipeline,
            table=identity,
            table_version=view.table.version if identity else None,
            taken_over=stored.number,
        )
    )


def _put(log: CheckpointLog, record: Takeover, *, any_pipeline: bool = False) -> Takeover:
    """Create a record under the next number, unless the newest one says the same; give it."""
    stored = log.newest_takeover()
    while stored is None or not _is_same(stored, record, any_pipeline=any_pipeline):
        record = replace(record, number=stored.number + 1 if stored else 0)
        stored = log.put_takeover(record)
    return stored


def _is_same(stored: Takeover, record: Takeover, *, any_pipeline: bool) -> bool:
    pipeline = record.pipeline if any_pipeline else stored.pipeline
    return replace(stored, pipeline=pipeline, number=0, taken_at_ms=0) == replace(
        record, number=0, taken_at_ms=0
    )


def check(log: CheckpointLog, view: LogView) -> None:
    """Refuse a checkpoint that dbt-scope advanced since the pipeline began.

    :raises WatermarkChangedError: As said.
    """
    takeover.check_watermark(view.watermark, view.takeovers, view.overwrite_start, log.location)


def note_replaced(log: CheckpointLog, view: LogView, now_ms: int) -> None:
    """Note, before a full refresh is logged, the state of dbt-scope's checkpoint that it makes void.

    The note counts only together with the entry that replaces the table.
    """
    watermark = log.watermark()
    if view.pipeline is None or not takeover.was_written_around(
        watermark, view.takeovers, view.overwrite_start
    ):
        return
    note = Takeover(
        number=0,
        pipeline=view.pipeline.pipeline,
        seq=view.next_seq,
        watermark=None if watermark is None else takeover.digest(watermark),
        batch_id=None,
        modified_time="",
        floor_ms=None,
        is_recorded=False,
        missing=0,
        at_floor=(),
        files=0,
        lists=(),
        store="",
        taken_at_ms=now_ms,
    )
    _put(log, note)
    view.takeovers = log.takeovers(view.pipeline)


def not_loaded(
    log: CheckpointLog, view: LogView, files: Sequence[FileEntry], tally: Tally, *, history: bool = True
) -> Sequence[FileEntry]:
    """Give the files that dbt-scope has not loaded; see ``protocol.takeover.not_loaded``."""
    taken = view.taken
    if taken is None:
        return files
    decision = log.decision(taken.watermark) if taken.watermark and not taken.is_recorded else None
    if taken.floor_ms is None and not history:
        raise InputError(
            "late_files='skip' reads no history, and dbt-scope's watermark has no time: it is not known "
            "which files are loaded.",
            kept="the table, the checkpoint and all files; nothing was written",
            do="use late_files='ingest'",
        )
    statuses = view.seen.find([file.path for file in files])
    return takeover.not_loaded(files, taken, statuses, decision, tally, history=history)


_REFRESH = "run the task once with full_refresh=True, which replaces the table's rows with those of all files"


def existing_state(log: CheckpointLog) -> DbtScopeState:
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


def undecided_watermark(log: CheckpointLog, pipeline: Pipeline | None) -> str:
    """Give the digest of the watermark whose newest batch has no record.

    :raises InputError: There is no such batch.
    """
    if pipeline is None:
        state = existing_state(log)
        watermark = None if state.watermark.batch_id in state.batches else state.watermark_digest
    else:
        logged = log.logged()
        refresh_start = log.offset(logged[-1]).refresh_start if logged else None
        taken = takeover.counting(log.takeovers(pipeline), refresh_start)
        watermark = taken.watermark if taken and not taken.is_recorded else None
    if watermark is None:
        raise InputError(
            f"There is nothing to decide in {log.location}: the files of dbt-scope's newest batch are known.",
            kept="everything; nothing was written",
            do="leave --at-watermark out",
        )
    return watermark


def continuation(
    log: CheckpointLog, pipeline: Pipeline, now_ms: int
) -> tuple[Takeover, DbtScopeState] | None:
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
    _check_continues(state, takeovers, newest, log.location)
    newest_record = log.newest_takeover()
    taken = replace(
        record_of(state, store, now_ms),
        number=newest_record.number + 1 if newest_record else 0,
        pipeline=pipeline.pipeline,
        seq=newest.seq + 1 if newest else 0,
    )
    return taken, state


def _store(takeovers: list[Takeover], newest: OffsetEntry | None) -> str:
    if newest and newest.slice.audited:
        return store_of(newest.slice.audited[0].path)
    return next((taken.store for taken in reversed(takeovers) if taken.store), "")


def _check_continues(
    state: DbtScopeState, takeovers: list[Takeover], newest: OffsetEntry | None, checkpoint: str
) -> None:
    """Refuse a watermark that does not follow on the newest batch: dbt-scope started over, or went back."""
    refresh_start = newest.refresh_start if newest else None
    taken = takeover.counting(takeovers, refresh_start)
    seq = newest.seq if newest else -1
    last = retention.batch_id(seq, refresh_start, taken)
    highest = newest.slice.highest if newest else None
    floor = highest.modified_ms if highest else 0
    watermark = state.watermark
    if watermark.batch_id > last and watermark.modified_ms is not None and watermark.modified_ms >= floor:
        return
    raise WatermarkChangedError(
        f"dbt-scope's watermark in {checkpoint} (batch {watermark.batch_id}, "
        f"{watermark.modified_time or 'no time'}) does not follow from batch {last} of the log: dbt-scope "
        "has started over, or from an older state.",
        kept="the table, the log and all files; nothing was written",
        do=_REFRESH,
    )


def write(log: CheckpointLog, taken: Takeover, state: DbtScopeState) -> Takeover:
    """Put the record of a takeover, and before it the files that it names."""
    return log.put_takeover(replace(taken, lists=log.put_taken_files(state.files)))
