"""The commands that only look: nothing is written, no JVM is started."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.cli import scope_jobs, targets
from airflow_provider_scope.cli.entries import (
    blocking,
    facts,
    only_refresh,
    show,
    show_lag,
    span,
    state_text,
    when,
)
from airflow_provider_scope.cli.output import SHOWN_AT_MOST, command, counted, say
from airflow_provider_scope.cli.targets import engine_of, opened
from airflow_provider_scope.cli.tasks import of_task
from airflow_provider_scope.delta.quarantine import read_quarantine
from airflow_provider_scope.engines import assembly
from airflow_provider_scope.exceptions import BatchOutcomeUnknownError, mask
from airflow_provider_scope.hooks.stores import store_of
from airflow_provider_scope.protocol import bad_records, dbt_scope, dry_run, repair
from airflow_provider_scope.protocol import retention as audits
from airflow_provider_scope.protocol.intervals import IntervalLog
from airflow_provider_scope.protocol.report import told_changes
from airflow_provider_scope.protocol.view import check_table, pinned_columns, read_log
from airflow_provider_scope.sql import literal, quoted
from airflow_provider_scope.values import FileSlice, iso_time, printable

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from airflow_provider_scope.delta.quarantine import Aside
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import CommitRecord, OffsetEntry
    from airflow_provider_scope.protocol.report import RunReport
    from airflow_provider_scope.protocol.takeover import Takeover
    from airflow_provider_scope.protocol.view import LogView


BATCHES_LOOKED_AT = 50
"""Committed batches whose records are read for what they put aside."""


@command
def status(args: Namespace) -> None:
    """Show where a pipeline is; nothing is written, no JVM is started."""
    table, log, audit = opened(args)
    args.facts.update(table=table, checkpoint=log.location)
    if targets.shown_alone(args, table, log):
        return
    pipeline = repair.existing_pipeline(log)
    engine = engine_of(args, log)
    jobs = scope_jobs.describer(engine, log, pipeline.pipeline)
    try:
        view = read_log(log, audit, engine, table, history=False)
    except BatchOutcomeUnknownError:
        say(f"table       {table}")
        say(f"checkpoint  {log.location}")
        say("open")
        show(repair.open_entries(log), "            ", more=jobs)
        raise
    args.facts |= _facts(view, table, log)
    about_source = _show_progress(view, table, log, args.storage_conn_id)
    say(f"open        {counted(len(view.open), 'batch', 'batches') if view.open else 'nothing'}")
    show(view.open, "            ", view, lambda entry: [*jobs(entry), *_blocking(view, entry)])
    if args.interval is None:
        targets.show(args, table, log)
    check_table(view, table)
    dbt_scope.check(log, view)
    if view.outcomes(view.open).unclear:
        say("what next   run `airflow scope accept-table`: it is not known whether a batch was committed")
    elif about_source:
        say(f"what next   {about_source}")
    elif args.facts["blocked"]:
        say("what next   the next run fails: a file of an open batch is not as it was logged")
        oldest = view.open[0].seq
        say(f"            (restore it as it was, or abandon the batch: `airflow scope abandon {oldest}`)")
    elif view.open:
        say("what next   the table and the log fit together; the next run begins with the open batches")
        say("            (the task's log says why the last run left them open)")
    else:
        new = "rows" if view.newest and view.newest.slice.has_state else "files"
        say(f"what next   the table and the log fit together; the next run looks for new {new}")
        if about_source is None:
            say("            (the source was not looked at: `airflow scope plan DAG TASK` does that)")


def _facts(view: LogView, table: str, log: CheckpointLog) -> dict[str, Any]:
    """Give where a pipeline is, as JSON has it."""
    done = view.last_commit
    return {
        "table": table,
        "checkpoint": log.location,
        "pipeline": view.pipeline.pipeline if view.pipeline else None,
        "table_id": view.table.identity.table_id if view.table.identity else None,
        "table_version": view.table.version if view.table.identity else None,
        "newest_batch_in_table": view.table.txn,
        "logged": view.next_seq,
        "vacuumed_below": log.vacuumed_below(),
        "committed": None
        if done is None
        else {
            "batch": done.seq,
            "table_version": done.table_version,
            "files": done.files,
            "rows": done.rows,
            "is_abandoned": done.abandoned,
            "at": iso_time(done.committed_at_ms),
        },
        "state": view.state,
        "open": facts(view.open),
        "blocked": [line for entry in view.open for line in _blocking(view, entry)],
    }


_UNSHOWN = ", whose commit the table's log does not show"


def _blocking(view: LogView, entry: OffsetEntry) -> list[str]:
    """Name the files that keep a batch from being loaded; one that is in the table is not kept."""
    return [] if repair.settled(view, entry) else blocking(entry)


def _show_progress(view: LogView, table: str, log: CheckpointLog, storage_conn_id: str | None) -> str | None:
    """Say how far the table and the log have come.

    :return: What the next run makes of the source; see ``show_lag``.
    """
    found, done, last = view.table, view.last_commit, view.last_committed_entry
    say(f"table       {table}")
    if found.identity:
        say(f"            version {found.version}, id {found.identity.table_id}")
    is_unshown = any(entry.seq == found.txn for entry in view.outcomes(view.open).unclear)
    newest = f"newest batch {_or_none(found.txn)}{_UNSHOWN if is_unshown else ''}"
    say(f"            {newest if found.identity else 'does not exist'}")
    say(f"checkpoint  {log.location}")
    say(f"pipeline    {view.pipeline.pipeline if view.pipeline else None}")
    taken = view.taken
    if taken:
        say(f"taken over  from dbt-scope after its batch {taken.batch_id}; {when(taken.taken_at_ms)}")
        say(f"            {_taken(taken)}")
    say(f"logged      {span(range(view.next_seq))}")
    vacuumed = log.vacuumed_below()
    if vacuumed:
        say(f"vacuumed    the records below batch {vacuumed}")
    if done is None:
        say("committed   nothing")
    else:
        is_files = view.newest is None or isinstance(view.newest.slice, FileSlice)
        much = counted(done.files, "file") if is_files else counted(done.rows or 0, "row")
        what = "abandoned" if done.abandoned else f"{much}, version {done.table_version}"
        say(f"committed   batch {done.seq}: {what}; {when(done.committed_at_ms)}")
    _show_counts(log)
    pinned = pinned_columns(log, view)
    if pinned:
        say(f"columns     inferred: {pinned}")
    has_state = view.newest is not None and view.newest.slice.has_state
    if view.refresh_start is not None:
        is_open = view.refresh_start in {entry.seq for entry in view.open}
        what = "rows" if has_state else "files"
        new = f"batch {view.refresh_start} takes all {what} as new, and is open"
        say(f"refresh     {new if is_open else f'all {what} counted as new at batch {view.refresh_start}'}")
    if has_state:
        lost = f"not known; {only_refresh(log.location)}"
        say(f"state       {lost if view.is_state_lost else state_text(view.state, log.location)}")
        if view.is_state_lost and not view.open:
            return "the next run is refused: see `state`"
        return show_lag(view, table, log, storage_conn_id)
    highest = last.slice.highest if last else None
    mark = highest.modified_ms if highest else taken.floor_ms if taken else None
    say(f"watermark   {'none' if mark is None else when(mark)}")
    if (
        last
        and last.refresh_start == view.refresh_start
        and not isinstance(log, IntervalLog)
        and log.watermark() != audits.watermark(last, taken)
    ):
        say("            watermark.json is not up to date; the next run or `airflow scope rebuild` writes it")
    return None


def _show_counts(log: CheckpointLog) -> None:
    """Say what the newest batches changed row by row, and what they put aside."""
    newest = [log.commit(seq) for seq in log.committed()[-BATCHES_LOOKED_AT:]]
    changes: Counter[str] = Counter()
    for record in newest:
        changes.update(record.changes)
    if changes:
        say(f"changed     {told_changes(changes)}; {_of(newest)}")
    quarantined = bad_records.total(record.quarantined for record in newest)
    if not quarantined:
        return
    say(f"quarantined {bad_records.text(quarantined)} of {_of(newest)}")
    for line in bad_records.rule_lines(quarantined)[:SHOWN_AT_MOST]:
        say(f"            {line}")
    say("            `airflow scope quarantine` shows them")


def _of(newest: Sequence[CommitRecord]) -> str:
    return span([record.seq for record in newest])


def _taken(taken: Takeover) -> str:
    """Say which files count as loaded because dbt-scope loaded them."""
    named = "the files that sources/ names"
    until = f"all files up to {taken.modified_time}" if taken.floor_ms is not None else named
    if not taken.missing:
        return f"loaded there: {until}; {counted(taken.files, 'file')} by name"
    gaps = counted(taken.missing, "batch", "batches")
    return f"loaded there: {until}; {counted(taken.files, 'file')} by name; the files of {gaps} are not known"


def _or_none(value: int | None) -> str:
    return "none" if value is None else str(value)


@command
def plan(args: Namespace) -> None:
    """Show what a run of a task would do now; nothing is written, no JVM is started."""
    execution, request, _ = assembly.assemble(*of_task(args))
    found = dry_run.plan(execution, request)
    args.facts.update(
        table=request.table,
        checkpoint=execution.log.location,
        recorded=facts(found.recorded),
        superseded=facts(found.superseded),
        open=facts(found.opened),
        new=facts(found.new),
        blocked=facts(found.blocked),
        is_complete=found.is_complete,
        left_out=found.report.left_out.counts,
        pending_files=found.report.pending_files,
        lag=found.report.lag or None,
        warnings=[*dict.fromkeys(found.report.warnings.values())],
    )
    groups = (
        ("in the table already, only recorded", found.recorded),
        ("superseded by the full refresh, never run", found.superseded),
        ("open, run first", found.opened),
        ("new", found.new),
        ("not loaded, because the run fails", found.blocked),
    )
    for title, entries in groups:
        if entries:
            files = sum(len(entry.slice.audited) for entry in entries)
            much = f", {counted(files, 'file')}" if files else ""
            say(f"{title}: {counted(len(entries), 'batch', 'batches')}{much}")
            show(entries, "  ")
    if not found.is_complete:
        say("whether more batches follow, only the rows of the last one tell")
    if found.error and not any(entries for _, entries in groups):
        raise found.error
    if not any(entries for _, entries in groups):
        say(found.report.why_nothing())
    _show_rest(found.report)
    say("nothing was written")
    if found.error:
        raise found.error


def _show_rest(report: RunReport) -> None:
    """Say what a run leaves, and what it warns of."""
    for reason, count in sorted(report.left_out.counts.items()):
        say(f"not loaded: {counted(count, 'file')} {reason}{report.taken_from(reason)}")
        for path in report.left_out.names.get(reason, [])[:SHOWN_AT_MOST]:
            say(f"  {path}")
    if report.pending_files:
        say(f"left for the run after it (max_batches_per_run): {counted(report.pending_files, 'file')}")
    if report.lag:
        say(f"left for the run after it: {report.lag}")
    for text in dict.fromkeys(report.warnings.values()):
        say(f"warning: {text}")


# ---- quarantine ----

RAW_SHOWN = 200


@command
def quarantine(args: Namespace) -> None:
    """Show what was put aside."""
    _, log, _ = opened(args)
    targets.check_named(args, log)
    pipeline = repair.existing_pipeline(log)
    places = list(dict.fromkeys(log.quarantines()))
    everything = []
    for place in places:
        storage = store_of(place, args.storage_conn_id).storage
        everything += read_quarantine(place, storage, pipeline.pipeline)
    found = counting(log, everything)
    args.facts.update(
        pipeline=pipeline.pipeline,
        tables=places,
        quarantined=[
            {
                "batch": aside.batch,
                "file": aside.file and printable(aside.file),
                "whole_file": aside.whole,
                "records": aside.records,
                "rules": dict(aside.rules),
            }
            for aside in found
        ],
    )
    for place in places:
        say(f"quarantine  {place}")
    if not places:
        say('quarantine  none: no run had bad_records="quarantine"')
        return
    _show(found)
    if found:
        for place in places:
            sql = f"SELECT * FROM delta.{quoted(place)}"  # noqa: S608 - it is shown, not run
            mine = literal(pipeline.pipeline)
            say(f"all of them, with all their records: {sql} WHERE pipeline = {mine}")


def _show(found: list[Aside]) -> None:
    if not found:
        say("            is empty")
        return
    files = sum(1 for aside in found if aside.whole)
    rows = sum(aside.records for aside in found)
    say(f"            {counted(rows, 'record')}, and {counted(files, 'file')} as a whole")
    for aside in found[:SHOWN_AT_MOST]:
        say(f"batch {aside.batch}: {printable(aside.file or 'rows of the SELECT')}")
        if aside.whole:
            say(f"  the whole file: {aside.whole}")
        for rule, count in sorted(aside.rules.items(), key=lambda item: (-item[1], item[0])):
            say(f"  {counted(count, 'record')}: {rule}")
        if aside.raw is not None:
            place = f"record {aside.record:,}" if aside.record else "a row"
            such = (
                f"the first of its {aside.records:,} is" if aside.record and aside.records > 1 else "such as"
            )
            say(f"  {such} {place}: {mask(aside.raw)[:RAW_SHOWN]}")
    if len(found) > SHOWN_AT_MOST:
        say(f"and {counted(len(found) - SHOWN_AT_MOST, 'file')} more: the table has them all")


def counting(log: CheckpointLog, everything: Sequence[Aside]) -> list[Aside]:
    """Give what was put aside by batches that are in the table and not replaced by a full refresh."""
    committed = log.committed()
    start = (log.offset(committed[-1]).refresh_start or 0) if committed else 0
    batches = {aside.batch for aside in everything}
    done = {seq for seq in committed if seq in batches and not log.commit(seq).abandoned}
    done |= set(log.vacuumed().quarantined)
    return [aside for aside in everything if aside.batch in done and aside.batch >= start]
