"""The commands that only read: nothing is written, and a JVM is started by `plan --read` alone."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from airflow_provider_scope import expectations
from airflow_provider_scope.cli import targets
from airflow_provider_scope.cli.output import (
    SHOWN_AT_MOST,
    command,
    facts_of,
    only_refresh,
    say,
    set_batch,
    show_batches,
    show_error,
    span,
    state_text,
)
from airflow_provider_scope.cli.targets import Target, open_pipeline
from airflow_provider_scope.cli.tasks import ingest_of_task
from airflow_provider_scope.columns import change_text
from airflow_provider_scope.delta.log import read_table
from airflow_provider_scope.engines import assembly, clock
from airflow_provider_scope.exceptions import (
    BatchOutcomeUnknownError,
    ChangeFeedError,
    ScopeProviderError,
    mask,
)
from airflow_provider_scope.hooks.stores import store_of
from airflow_provider_scope.protocol import bad_records, dry_run, repair, takeover
from airflow_provider_scope.protocol.intervals import IntervalLog
from airflow_provider_scope.protocol.report import changes_text, rescued_text
from airflow_provider_scope.protocol.view import pinned_columns, read_log
from airflow_provider_scope.sources.feed.source import ChangeRows
from airflow_provider_scope.sources.feed.spec import CdfSource
from airflow_provider_scope.sql import literal, quoted
from airflow_provider_scope.stores.kinds import place_of
from airflow_provider_scope.stores.local import SCHEME, local_path
from airflow_provider_scope.stores.protocol import canonical_uri
from airflow_provider_scope.values import (
    FileSlice,
    RowSlice,
    VersionSlice,
    counted,
    duration_text,
    iso_time,
    printable,
)

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from airflow_provider_scope.engines.assembly import RunContext
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import CommitRecord, OffsetEntry
    from airflow_provider_scope.protocol.report import RunReport
    from airflow_provider_scope.protocol.run import MicroBatchExecution
    from airflow_provider_scope.protocol.takeover import Takeover
    from airflow_provider_scope.protocol.view import LogView
    from airflow_provider_scope.specs.ingest import Ingest
    from airflow_provider_scope.stores.protocol import Storage
    from airflow_provider_scope.values import FileEntry


BATCHES_READ = 50
"""The newest committed batches whose records are read for changed and quarantined rows."""


@command
def status(args: Namespace) -> None:
    """Show how far a pipeline has come; nothing is written, no JVM is started."""
    target = Target.of(args)
    table, log = target.table, target.log
    args.facts.update(table=table, checkpoint=log.location)
    if targets.show_intervals_alone(args, target):
        return
    pipeline = repair.existing_pipeline(log)
    engine = target.engine()
    jobs = partial(targets.job_lines, engine, pipeline.pipeline)
    try:
        view = read_log(log, engine, table)
    except BatchOutcomeUnknownError:
        say(f"table       {table}")
        say(f"checkpoint  {log.location}")
        say("open")
        show_batches(log.open_entries(), "            ", details=jobs)
        raise
    args.facts |= _status_facts(view, target)
    source_problem = _show_progress(view, target)
    say(f"open        {counted(len(view.open), 'batch', 'batches') if view.open else 'nothing'}")
    show_batches(view.open, "            ", view, lambda entry: [*jobs(entry), *_blocking(view, entry)])
    if args.interval is None:
        targets.show_intervals(args, target)
    view.check()
    if view.outcomes(view.open).unclear:
        say("what next   run `airflow scope accept-table`: it is not known whether a batch was committed")
    elif source_problem:
        say(f"what next   {source_problem}")
    elif view.newest and isinstance(view.newest.slice, RowSlice):
        opened = "abandons the open batches, whose rows only their callers have"
        next_load = opened if view.open else "writes what it is given"
        say(f"what next   the table and the log fit together; the next load {next_load}")
    elif args.facts["blocked"]:
        say("what next   the next run fails: a file of an open batch is not as it was logged")
        oldest = view.open[0].seq
        say(f"            (restore it as it was, or abandon the batch: `airflow scope abandon {oldest}`)")
    elif view.open:
        say("what next   the table and the log fit together; the next run begins with the open batches")
        say("            (the task's log says why the last run left them open)")
    else:
        new = "rows" if view.has_state else "files"
        say(f"what next   the table and the log fit together; the next run looks for new {new}")
        if source_problem is None:
            say("            (the source was not looked at: `airflow scope plan DAG TASK` does that)")


def _status_facts(view: LogView, target: Target) -> dict[str, Any]:
    """Collect the state of a pipeline as it appears in the JSON output."""
    commit = view.last_commit
    return {
        "pipeline": view.pipeline.pipeline if view.pipeline else None,
        "table_id": view.table.table_id,
        "table_version": view.table.version if view.table.identity else None,
        "newest_batch_in_table": view.table.txn,
        "logged": view.next_seq,
        "vacuumed_below": target.log.vacuumed_below(),
        "committed": None
        if commit is None
        else {
            "batch": commit.seq,
            "table_version": commit.table_version,
            "files": commit.files,
            "rows": commit.rows,
            "is_abandoned": commit.abandoned,
            "at": iso_time(commit.committed_at_ms),
        },
        "state": view.state,
        "open": _batch_facts(view.open),
        "blocked": [line for entry in view.open for line in _blocking(view, entry)],
    }


def _show_progress(view: LogView, target: Target) -> str | None:
    """Print how far the table and the log have come.

    :return: Why the next run cannot read the source; see ``show_lag``.
    """
    table_state, commit, last_entry, log = view.table, view.last_commit, view.last_committed_entry, target.log
    say(f"table       {target.table}")
    if table_state.identity:
        say(f"            version {table_state.version}, id {table_state.identity.table_id}")
        newest = "none" if table_state.txn is None else table_state.txn
        is_unshown = any(entry.seq == table_state.txn for entry in view.outcomes(view.open).unclear)
        why = ", whose commit the table's log does not show" if is_unshown else ""
        say(f"            newest batch {newest}{why}")
    else:
        say("            does not exist")
    say(f"checkpoint  {log.location}")
    say(f"pipeline    {view.pipeline.pipeline if view.pipeline else None}")
    taken = view.epoch.taken
    if taken:
        taken_at = _time_text(taken.taken_at_ms)
        say(f"taken over  from dbt-scope after its batch {taken.batch_id}; {taken_at}")
        say(f"            {_takeover_text(taken)}")
    say(f"logged      {span(range(view.next_seq))}")
    vacuumed = log.vacuumed_below()
    if vacuumed:
        say(f"vacuumed    the records below batch {vacuumed}")
    if commit is None:
        say("committed   nothing")
    else:
        is_files = view.newest is None or isinstance(view.newest.slice, FileSlice)
        amount = counted(commit.files, "file") if is_files else counted(commit.rows or 0, "row")
        outcome = "abandoned" if commit.abandoned else f"{amount}, version {commit.table_version}"
        say(f"committed   batch {commit.seq}: {outcome}; {_time_text(commit.committed_at_ms)}")
    _show_counts(log)
    pinned = pinned_columns(log, view)
    if pinned:
        say(f"columns     inferred: {pinned}")
        _show_schemas(log)
    if view.refresh_start is not None:
        is_open = view.refresh_start in {entry.seq for entry in view.open}
        items = "rows" if view.has_state else "files"
        new = f"batch {view.refresh_start} takes all {items} as new, and is open"
        say(f"refresh     {new if is_open else f'all {items} counted as new at batch {view.refresh_start}'}")
    if view.has_state:
        lost = f"not known; {only_refresh(log.location)}"
        say(f"state       {lost if view.is_state_lost else state_text(view.state, log.location)}")
        if view.is_state_lost and not view.open:
            return "the next run is refused: see `state`"
        return _show_lag(view, target)
    highest = last_entry.slice.highest if last_entry else None
    watermark_ms = highest.modified_ms if highest else taken.floor_ms if taken else None
    say(f"watermark   {'none' if watermark_ms is None else _time_text(watermark_ms)}")
    if (
        last_entry
        and last_entry.refresh_start == view.refresh_start
        and not isinstance(log, IntervalLog)
        and log.watermark() != takeover.watermark(last_entry, view.epoch.batch_id(last_entry.seq))
    ):
        say("            watermark.json is not up to date; the next run or `airflow scope rebuild` writes it")
    return None


def _show_schemas(log: CheckpointLog) -> None:
    """Print what changed in the inferred columns, and from which batch on."""
    schemas = log.schemas()
    for before, after in pairwise(schemas):
        say(f"            since batch {after.seq}: {change_text(before.columns, after.columns)}")


def _show_counts(log: CheckpointLog) -> None:
    """Print how many rows the newest batches changed and quarantined."""
    newest = [log.commit(seq) for seq in log.committed()[-BATCHES_READ:]]
    changes: Counter[str] = Counter()
    for record in newest:
        changes.update(record.changes)
    if changes:
        say(f"changed     {changes_text(changes)}; {_batches_text(newest)}")
    for line in expectations.lines(expectations.total(record.warned for record in newest)):
        say(f"warned      {line}; {_batches_text(newest)}")
    rescued: Counter[str] = Counter()
    for record in newest:
        rescued.update(record.rescued)
    if rescued:
        say(f"{'rescued':12}{rescued_text(rescued).partition(' ')[2]}; {_batches_text(newest)}")
    quarantined = bad_records.total(record.quarantined for record in newest)
    if not quarantined:
        return
    say(f"quarantined {bad_records.text(quarantined)} of {_batches_text(newest)}")
    for line in bad_records.rule_lines(quarantined)[:SHOWN_AT_MOST]:
        say(f"            {line}")
    say("            `airflow scope quarantine` shows them")


def _batches_text(newest: Sequence[CommitRecord]) -> str:
    return span([record.seq for record in newest])


def _takeover_text(taken: Takeover) -> str:
    """Say which files count as loaded because dbt-scope has loaded them."""
    listed_files = "the files that sources/ names"
    until = f"all files up to {taken.modified_time}" if taken.floor_ms is not None else listed_files
    if not taken.missing:
        return f"loaded there: {until}; {counted(taken.files, 'file')} by name"
    gaps = counted(taken.missing, "batch", "batches")
    return f"loaded there: {until}; {counted(taken.files, 'file')} by name; the files of {gaps} are not known"


def _time_text(milliseconds: int) -> str:
    """Describe a time, and how long ago it was in its two largest units."""
    ago = duration_text(clock.now_ms() - milliseconds)
    return f"{iso_time(milliseconds)[:19]}Z ({ago} ago)"


def _blocking(view: LogView, entry: OffsetEntry) -> list[str]:
    """Name the files that keep a batch from being loaded, because they have changed since it was logged.

    Only files on a disk are checked: other stores would have to be listed.
    """
    if repair.settled(view, entry):
        return []
    lines = [line for line in map(_blocking_text, entry.slice.audited) if line]
    more = [f"and {len(lines) - SHOWN_AT_MOST:,} more"] if len(lines) > SHOWN_AT_MOST else []
    return [*lines[:SHOWN_AT_MOST], *more]


def _blocking_text(file: FileEntry) -> str:
    if not file.path.startswith(SCHEME):
        return ""
    try:
        status = os.stat(local_path(file.path))  # noqa: PTH116 - a name may be no valid text
    except FileNotFoundError:
        return f"blocked: {printable(file.path)} is missing"
    except OSError as err:
        return f"blocked: {printable(file.path)} could not be checked: {err.strerror}"
    if file.is_still(status.st_mtime_ns // 1_000_000, status.st_size):
        return ""
    return f"blocked: {printable(file.path)} has changed since it was logged"


def _show_lag(view: LogView, target: Target) -> str | None:
    """Print how far a table is behind its change feed; nothing for other sources.

    :return: Why the next run cannot read the source, empty if it can; None if the source was not checked.
    """
    newest = view.newest.slice if view.newest else None
    if not isinstance(newest, VersionSlice) or view.is_state_lost:
        return None
    try:
        source = canonical_uri(newest.location)
        if place_of(source) not in (place_of(target.table), place_of(target.log.location)):
            # The record is not trusted: it must not send credentials to a host that nobody named.
            say(f"behind      not checked: {source} is on another store; `airflow scope list` checks it")
            return None
        spec = CdfSource(table=source)
        storage = store_of(source, target.storage_conn_id).storage
        rows = ChangeRows(spec=spec, place=target.log.location, storage=storage)
        lag, warnings = rows.unread(view, clock.now_ms())
    except ScopeProviderError as err:
        say(f"behind      not known: {err.what}")
        say(f"            do: {err.do}")
        if isinstance(err, ChangeFeedError):
            return "the next run will refuse the source: see `behind`"
        return "the source could not be read, and the next run fails if that stays so: see `behind`"
    if view.state is None:
        say(f"behind      everything: nothing of {source} is loaded")
        return ""
    if lag is None:
        say(f"behind      nothing: version {rows.source_log.newest} of {source} is loaded")
        return ""
    say(f"behind      {counted(lag.commits, 'commit')} of {source}, {counted(lag.size_bytes, 'byte')}")
    oldest = "its time is not known" if lag.oldest_ms is None else _time_text(lag.oldest_ms)
    say(f"            the oldest is version {lag.version}: {oldest}")
    for warning in warnings:
        say(f"            warning: {warning}")
    return ""


# ---- plan ----


@command
def plan(args: Namespace) -> None:
    """Show what a run of a task would do now; nothing is written, and a JVM is started for --read alone."""
    show_plan(args, *ingest_of_task(args))


def show_plan(args: Namespace, ingest: Ingest, context: RunContext) -> None:
    execution, request, engine = assembly.assemble(ingest, context)
    preview = dry_run.preview(execution, request)
    report = preview.report
    groups = {
        "recorded": ("in the table already, only recorded", preview.recorded),
        "superseded": ("superseded by the full refresh, never run", preview.superseded),
        "open": ("open, run first", preview.opened),
        "new": ("new", preview.new),
        "blocked": ("not loaded, because the run fails", preview.blocked),
    }
    args.facts.update(
        table=request.table,
        checkpoint=execution.log.location,
        **{name: _batch_facts(entries) for name, (_, entries) in groups.items()},
        is_complete=preview.is_complete,
        left_out=report.left_out.counts,
        pending_files=report.pending_files,
        lag=report.lag or None,
        warnings=report.warning_texts,
    )
    shown = [(title, entries) for title, entries in groups.values() if entries]
    for title, entries in shown:
        files = sum(len(entry.slice.audited) for entry in entries)
        size = f", {counted(files, 'file')}" if files else ""
        say(f"{title}: {counted(len(entries), 'batch', 'batches')}{size}")
        show_batches(entries, "  ")
    if not preview.is_complete:
        say("whether more batches follow, only the rows of the last one tell")
    if not shown and preview.error:
        raise preview.error
    if not shown:
        say(report.why_nothing())
    _show_remainder(report)
    batches = (*preview.opened, *preview.new)
    if preview.opened:
        set_batch(preview.opened[0].seq)
    if args.read and batches:
        execution.engine = engine  # in place of the one that only looks
        _read(args, execution, batches[0], context)
    say("nothing was written")
    if preview.error:
        raise preview.error


def _read(args: Namespace, execution: MicroBatchExecution, entry: OffsetEntry, context: RunContext) -> None:
    """Read a batch by Spark, and show all that a run would refuse.

    :raises ScopeProviderError: The last of these; the others are written before it.
    """
    say(f"reading batch {entry.seq}. Spark's log: {context.log_file}")
    findings = assembly.rehearse(execution, entry, context)
    args.facts.update(
        rows=findings.rows,
        bad=findings.bad,
        warned=findings.warned,
        refusals=[facts_of(error) for error in findings.refusals],
    )
    if not findings.refusals:
        rows = "" if findings.rows is None else f": {counted(findings.rows, 'row')}"
        say(f"batch {entry.seq} can be loaded{rows}")
    else:
        say(f"batch {entry.seq} cannot be loaded: {counted(len(findings.refusals), 'reason')}, see below")
    sections = {"quarantined": findings.bad, "loaded with a warning": findings.warned}
    if findings.refusals:
        sections = {"bad in it": (*findings.bad, *findings.warned)}
    for title, lines in sections.items():
        if lines:
            say(title)
        for line in lines:
            say(f"  {line}")
    if findings.refusals:
        say("nothing was written")
        *earlier, last = findings.refusals
        for error in earlier:
            show_error(error)
        raise last


def _batch_facts(entries: Sequence[OffsetEntry]) -> list[dict[str, Any]]:
    """Return batches as they appear in the JSON output."""
    return [
        {
            "batch": entry.seq,
            "mode": entry.mode,
            "where": entry.where,
            "reads": entry.slice.text(),
            "files": [printable(file.path) for file in entry.slice.audited],
            "bytes": entry.slice.size_bytes,
        }
        for entry in entries
    ]


def _show_remainder(report: RunReport) -> None:
    """Print which files a run would leave out or leave for later, and its warnings."""
    for reason, count in sorted(report.left_out.counts.items()):
        say(f"not loaded: {counted(count, 'file')} {reason}{report.taken_from(reason)}")
        for path in report.left_out.names.get(reason, [])[:SHOWN_AT_MOST]:
            say(f"  {path}")
    if report.pending_files:
        say(f"left for the run after it (max_batches_per_run): {counted(report.pending_files, 'file')}")
    if report.lag:
        say(f"left for the run after it: {report.lag}")
    for text in report.warning_texts:
        say(f"warning: {text}")


# ---- quarantine ----

RAW_SHOWN = 200


@command
def quarantine(args: Namespace) -> None:
    target, pipeline = open_pipeline(args)
    log = target.log
    used = [table for table in log.quarantines() if place_of(table) == place_of(target.table)]
    tables = list(dict.fromkeys(used))
    asides = []
    for table in tables:
        storage = store_of(table, target.storage_conn_id).storage
        asides += read_quarantine(table, storage, pipeline.pipeline)
    effective = in_effect(log, asides)
    args.facts.update(
        pipeline=pipeline.pipeline,
        tables=tables,
        quarantined=[
            {
                "batch": aside.batch,
                "file": aside.file and printable(aside.file),
                "whole_file": aside.whole,
                "records": aside.records,
                "rules": dict(aside.rules),
            }
            for aside in effective
        ],
    )
    for table in tables:
        say(f"quarantine  {table}")
    if not tables:
        say('quarantine  none: no run with the table in this store had bad_records="quarantine"')
        return
    _show_quarantined(effective)
    if effective:
        for table in tables:
            sql = f"SELECT * FROM delta.{quoted(table)}"  # noqa: S608 - it is shown, not run
            name = literal(pipeline.pipeline)
            say(f"all of them, with all their records: {sql} WHERE pipeline = {name}")


def _show_quarantined(asides: list[QuarantinedFile]) -> None:
    if not asides:
        say("            is empty")
        return
    files = sum(1 for aside in asides if aside.whole)
    rows = sum(aside.records for aside in asides)
    say(f"            {counted(rows, 'record')}, and {counted(files, 'file')} as a whole")
    for aside in asides[:SHOWN_AT_MOST]:
        say(f"batch {aside.batch}: {printable(aside.file or 'rows of the SELECT')}")
        if aside.whole:
            say(f"  the whole file: {aside.whole}")
        for rule, count in sorted(aside.rules.items(), key=lambda item: (-item[1], item[0])):
            say(f"  {counted(count, 'record')}: {rule}")
        if aside.raw is not None:
            place = f"record {aside.record:,}" if aside.record else "a row"
            label = (
                f"the first of its {aside.records:,} is" if aside.record and aside.records > 1 else "such as"
            )
            say(f"  {label} {place}: {mask(aside.raw)[:RAW_SHOWN]}")
    if len(asides) > SHOWN_AT_MOST:
        say(f"and {counted(len(asides) - SHOWN_AT_MOST, 'file')} more: the table has them all")


def in_effect(log: CheckpointLog, asides: Sequence[QuarantinedFile]) -> list[QuarantinedFile]:
    """Collect what was quarantined by batches that are in the table and that no full refresh has replaced."""
    committed = log.committed()
    start = (log.offset(committed[-1]).refresh_start or 0) if committed else 0
    batches = {aside.batch for aside in asides}
    in_table = {seq for seq in committed if seq in batches and not log.commit(seq).abandoned}
    in_table |= set(log.vacuumed().quarantined)
    return [aside for aside in asides if aside.batch in in_table and aside.batch >= start]


# ---- the records and files in the quarantine ----


_COLUMNS = ["pipeline", "batch", "file", "record", "rule", "raw"]


@dataclass(slots=True)
class QuarantinedFile:
    """The part of one file, in one batch, that is in the quarantine."""

    batch: int
    file: str | None
    """None where the SELECT did not tell the file of a row."""
    whole: str | None = None
    """Why the whole file could not be loaded; None if only records of it were quarantined."""
    rules: dict[str, int] = field(default_factory=dict)
    """Rule -> records or rows that broke it."""
    record: int | None = None
    """The number of the first such record in the file."""
    raw: str | None = None
    """Its text."""

    @property
    def records(self) -> int:
        """How many records or rows of the file are quarantined."""
        return sum(self.rules.values())


def read_quarantine(location: str, storage: Storage, pipeline: str) -> list[QuarantinedFile]:
    """Read what a pipeline has in its quarantine, by batch and file; empty if there is no such table.

    :param location: Canonical URI of the quarantine.
    :param storage: Where it is.
    :raises TableUnreadableError: It could not be read.
    """
    files: dict[tuple[int, str | None], QuarantinedFile] = {}
    for part in read_table(location, storage, _COLUMNS):
        rows_of_pipeline = part.filter(pc.equal(part["pipeline"], pipeline))
        for row in rows_of_pipeline.to_pylist():
            _add(files, row)
    return sorted(files.values(), key=lambda quarantined: (quarantined.batch, quarantined.file or ""))


def _add(files: dict[tuple[int, str | None], QuarantinedFile], row: dict[str, object]) -> None:
    batch, file, record = row["batch"], row["file"], row["record"]
    quarantined = files.setdefault((batch, file), QuarantinedFile(batch, file))  # type: ignore[arg-type] # as its columns are
    if record is None and row["raw"] is None:
        quarantined.whole = str(row["rule"])
        return
    rule = str(row["rule"])
    quarantined.rules[rule] = quarantined.rules.get(rule, 0) + 1
    if quarantined.raw is None or (isinstance(record, int) and record < (quarantined.record or record + 1)):
        quarantined.record, quarantined.raw = record, str(row["raw"])  # type: ignore[assignment] # a number or None
