"""Taking over a table that dbt-scope has loaded, and noticing that it went on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_scope.checkpoint.dbt_scope import read_state
from airflow_provider_scope.core import takeover
from airflow_provider_scope.core.files import is_below
from airflow_provider_scope.core.history import History
from airflow_provider_scope.core.records import Pipeline
from airflow_provider_scope.core.takeover import Takeover
from airflow_provider_scope.exceptions import CheckpointError, InputError, ScopeProviderError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_scope.checkpoint.dbt_scope import LeftState
    from airflow_provider_scope.checkpoint.log import CheckpointLog
    from airflow_provider_scope.core.discovery import Tally
    from airflow_provider_scope.core.files import FileEntry
    from airflow_provider_scope.execution.view import LogView


def look(
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
        _look(log, view, roots, now_ms, history=history, is_void=is_void)
    except ScopeProviderError:
        if log.is_begun():
            return False
        raise
    return view.left is None or not log.is_begun()


def _look(
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
    view.left = state


def store_of(uri: str) -> str:
    """Give what stands before the path in a URI."""
    scheme, rest = uri.split("://", 1)
    return f"{scheme}://{rest.split('/', 1)[0]}"


def record_of(state: LeftState, store: str, now_ms: int) -> Takeover:
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
    if view.left is None:
        msg = "nothing was looked at"
        raise AssertionError(msg)
    lists = log.put_taken_files(view.left.files)
    mine = replace(
        view.takeovers[-1], pipeline=view.pipeline.pipeline if view.pipeline else new_id, lists=lists
    )
    there = _put(log, mine, any_pipeline=view.pipeline is None)
    if view.pipeline:
        return
    identity = view.table.identity
    log.put_pipeline(
        Pipeline(
            pipeline=there.pipeline,
            table=identity,
            table_version=view.table.version if identity else None,
            taken_over=there.number,
        )
    )


def _put(log: CheckpointLog, mine: Takeover, *, any_pipeline: bool = False) -> Takeover:
    """Create a record under the next number, unless the newest one says the same; give it."""
    there = log.newest_takeover()
    while there is None or not _is_same(there, mine, any_pipeline=any_pipeline):
        mine = replace(mine, number=there.number + 1 if there else 0)
        there = log.put_takeover(mine)
    return there


def _is_same(there: Takeover, mine: Takeover, *, any_pipeline: bool) -> bool:
    pipeline = mine.pipeline if any_pipeline else there.pipeline
    return replace(there, pipeline=pipeline, number=0, taken_at_ms=0) == replace(
        mine, number=0, taken_at_ms=0
    )


def check(log: CheckpointLog, view: LogView) -> None:
    """Refuse a checkpoint that dbt-scope advanced since the pipeline began.

    :raises WatermarkChangedError: As said.
    """
    takeover.check_watermark(view.watermark, view.takeovers, view.overwrite_start, log.location)


def replaced(log: CheckpointLog, view: LogView, now_ms: int) -> None:
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
    """Give the files that dbt-scope has not loaded; see ``core.takeover.not_loaded``."""
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
    known = view.seen.find([file.path for file in files])
    return takeover.not_loaded(files, taken, known, decision, tally, history=history)
