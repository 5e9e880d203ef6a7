"""The commands that only read: nothing is written, and a JVM is started by `plan --read` alone."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from airflow_provider_scope import expectations
from airflow_provider_scope.cli import targets
from airflow_provider_scope.cli.output import (
    SHOWN_AT_MOST,
    command,
    facts_of,
    first_of,
    only_refresh,
    say,
    set_batch,
    show,
    show_batches,
    show_error,
    span,
    state_text,
)
from airflow_provider_scope.cli.targets import Target
from airflow_provider_scope.cli.tasks import ingest_of_task
from airflow_provider_scope.columns import change_text
from airflow_provider_scope.engines import assembly, clock
from airflow_provider_scope.exceptions import (
    BatchOutcomeUnknownError,
    ChangeFeedError,
    ScopeProviderError,
)
from airflow_provider_scope.protocol import bad_records, dry_run, repair, takeover
from airflow_provider_scope.protocol.intervals import IntervalLog
from airflow_provider_scope.protocol.report import changes_text, rescued_text
from airflow_provider_scope.protocol.view import pinned_columns, read_log
from airflow_provider_scope.sources.feed.source import ChangeRows
from airflow_provider_scope.sources.feed.spec import CdfSource
from airflow_provider_scope.stores.kinds import place_of
from airflow_provider_scope.stores.local import SCHEME, local_path
from airflow_provider_scope.stores.protocol import canonical_uri
from airflow_provider_scope.values import (
    FileSlice,
    RowSlice,
    VersionSlice,
    counted,
    duration_text,
    encodable,
    iso_time,
    printable,
)

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

    from airflow_provider_scope.engines.assembly import RunContext
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import CommitRecord, OffsetEntry
    from airflow_provider_scope.protocol.report import RunReport
    from airflow_provider_scope.protocol.run import MicroBatchExecution
    from airflow_provider_scope.protocol.takeover import Takeover
    from airflow_provider_scope.protocol.view import LogView
    from airflow_provider_scope.specs.ingest import Ingest
    from airflow_provider_scope.values import FileEntry


BATCHES_READ = 50
"""The newest committed batches whose records are read for changed and quarantined rows."""


@dataclass(frozen=True, slots=True)
class SourceCheck:
    """What a look at the source of a pipeline has shown."""

    lines: Sequence[str] = ()
    """How far the table is behind it."""
    is_done: bool = False
    """Whether the source was looked at."""
    problem: str = ""
    """Why the next run cannot read it."""


@command
def status(args: Namespace) -> None:
    """Show how far a pipeline has come; nothing is written, no JVM is started."""
    target = Target.of(args)
    table, log = target.table, target.log
    args.facts.update(table=table, checkpoint=log.location)
    if target.windows_alone():
        show("table", [table])
        show("checkpoint", [log.location])
        targets.show_intervals(args, target)
        return
    pipeline = repair.existing_pipeline(log)
    engine = target.engine()
    jobs = partial(targets.job_lines, engine, pipeline.pipeline)
    try:
        view = read_log(log, engine, table)
    except BatchOutcomeUnknownError:
        show("table", [table])
        show("checkpoint", [log.location])
        say("open")
        show_batches(log.open_entries(), "            ", details=jobs)
        raise
    blocked = {entry.seq: _blocking(view, entry) for entry in view.open}
    args.facts |= _status_facts(view, target, blocked)
    _show_progress(view, target)
    source = _check_source(view, target)
    show("behind", source.lines)
    say(f"open        {counted(len(view.open), 'batch', 'batches') if view.open else 'nothing'}")
    show_batches(view.open, "            ", view, lambda entry: [*jobs(entry), *blocked[entry.seq]])
    if args.interval is None:
        targets.show_intervals(args, target)
    view.check()
    show("what next", _what_next(view, source, blocked))


def _status_facts(view: LogView, target: Target, blocked: Mapping[int, list[str]]) -> dict[str, Any]:
    """Collect the state of a pipeline as it appears in the JSON output.

    :param blocked: Open batch -> what keeps it from being loaded.
    """
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
        "blocked": [line for lines in blocked.values() for line in lines],
    }


def _show_progress(view: LogView, target: Target) -> None:
    """Print how far the table and the log have come."""
    log, taken = target.log, view.epoch.taken
    show("table", _table_lines(view, target.table))
    show("checkpoint", [log.location])
    show("pipeline", [str(view.pipeline.pipeline if view.pipeline else None)])
    if taken:
        after = f"from dbt-scope after its batch {taken.batch_id}; {_time_text(taken.taken_at_ms)}"
        show("taken over", [after, _takeover_text(taken)])
    show("logged", [span(range(view.next_seq))])
    if vacuumed := log.vacuumed_below():
        show("vacuumed", [f"the records below batch {vacuumed}"])
    show("committed", [_committed_text(view)])
    _show_counts([log.commit(seq) for seq in log.committed()[-BATCHES_READ:]])
    if pinned := pinned_columns(log, view):
        changes = (
            f"since batch {after.seq}: {change_text(before.columns, after.columns)}"
            for before, after in pairwise(log.schemas())
        )
        show("columns", [f"inferred: {pinned}", *changes])
    if view.refresh_start is not None:
        show("refresh", [_refresh_text(view, view.refresh_start)])
    if view.has_state:
        lost = f"not known; {only_refresh(log.location)}"
        show("state", [lost if view.is_state_lost else state_text(view.state, log.location)])
    else:
        show("watermark", _watermark_lines(view, log))


def _table_lines(view: LogView, table: str) -> list[str]:
    """Describe the table as it is now."""
    table_state = view.table
    if table_state.identity is None:
        return [table, "does not exist"]
    newest = "none" if table_state.txn is None else table_state.txn
    is_unshown = any(entry.seq == table_state.txn for entry in view.outcomes(view.open).unclear)
    why = ", whose commit the table's log does not show" if is_unshown else ""
    version = f"version {table_state.version}, id {table_state.identity.table_id}"
    return [table, version, f"newest batch {newest}{why}"]


def _committed_text(view: LogView) -> str:
    """Describe the newest batch that has a commit record."""
    commit = view.last_commit
    if commit is None:
        return "nothing"
    is_files = view.newest is None or isinstance(view.newest.slice, FileSlice)
    amount = counted(commit.files, "file") if is_files else counted(commit.rows or 0, "row")
    outcome = "abandoned" if commit.abandoned else f"{amount}, version {commit.table_version}"
    return f"batch {commit.seq}: {outcome}; {_time_text(commit.committed_at_ms)}"


def _refresh_text(view: LogView, start: int) -> str:
    """Say from which batch on everything counted as new."""
    items = "rows" if view.has_state else "files"
    if start in {entry.seq for entry in view.open}:
        return f"batch {start} takes all {items} as new, and is open"
    return f"all {items} counted as new at batch {start}"


def _watermark_lines(view: LogView, log: CheckpointLog) -> list[str]:
    """Say up to when files are loaded, and whether ``watermark.json`` says the same."""
    last_entry, taken = view.last_committed_entry, view.epoch.taken
    highest = last_entry.slice.highest if last_entry else None
    watermark_ms = highest.modified_ms if highest else taken.floor_ms if taken else None
    lines = ["none" if watermark_ms is None else _time_text(watermark_ms)]
    if (
        last_entry
        and last_entry.refresh_start == view.refresh_start
        and not isinstance(log, IntervalLog)
        and log.watermark() != takeover.watermark(last_entry, view.epoch.batch_id(last_entry.seq))
    ):
        lines.append("watermark.json is not up to date; the next run or `airflow scope rebuild` writes it")
    return lines


def _show_counts(newest: Sequence[CommitRecord]) -> None:
    """Print how many rows the newest batches changed, warned of, rescued and quarantined."""
    batches = span([record.seq for record in newest])
    changes: Counter[str] = Counter()
    rescued: Counter[str] = Counter()
    for record in newest:
        changes.update(record.changes)
        rescued.update(record.rescued)
    if changes:
        show("changed", [f"{changes_text(changes)}; {batches}"])
    for line in expectations.lines(expectations.total(record.warned for record in newest)):
        show("warned", [f"{line}; {batches}"])
    if rescued:
        show("rescued", [f"{rescued_text(rescued)}; {batches}"])
    quarantined = bad_records.total(record.quarantined for record in newest)
    if quarantined:
        rules = bad_records.rule_lines(quarantined)[:SHOWN_AT_MOST]
        show("quarantined", [f"{bad_records.text(quarantined)} of {batches}", *rules])
        show("", ["`airflow scope quarantine` shows them"])


def _what_next(view: LogView, source: SourceCheck, blocked: Mapping[int, list[str]]) -> list[str]:
    """Say what the next run does, or what has to be done before it.

    :param blocked: Open batch -> what keeps it from being loaded.
    """
    if view.outcomes(view.open).unclear:
        return ["run `airflow scope accept-table`: it is not known whether a batch was committed"]
    if view.has_state and view.is_state_lost and not view.open:
        return ["the next run is refused: see `state`"]
    if source.problem:
        return [source.problem]
    fits = "the table and the log fit together"
    if view.newest and isinstance(view.newest.slice, RowSlice):
        opened = "abandons the open batches, whose rows only their callers have"
        return [f"{fits}; the next load {opened if view.open else 'writes what it is given'}"]
    for entry in view.open:
        if blocked[entry.seq]:
            return [
                "the next run fails: a file of an open batch is not as it was logged",
                f"(restore it as it was{_instead_of(entry, view.open[0])})",
            ]
    if view.open:
        return [
            f"{fits}; the next run begins with the open batches",
            "(the task's log says why the last run left them open)",
        ]
    looks = f"{fits}; the next run looks for new {'rows' if view.has_state else 'files'}"
    if source.is_done:
        return [looks]
    return [looks, "(the source was not looked at: `airflow scope plan DAG TASK` does that)"]


def _instead_of(blocked: OffsetEntry, oldest: OffsetEntry) -> str:
    """Say what loads the rows of a batch in another way: only the oldest open one can be abandoned."""
    if blocked.overwrites_table:
        return "; or run the task with full_refresh=True, which loads the files that are there then"
    abandon = f"`airflow scope abandon {blocked.seq}`"
    if blocked == oldest:
        return f", or abandon the batch: {abandon}"
    return f"; or let the task run, which loads the batches before it, and then abandon the batch: {abandon}"


def _takeover_text(taken: Takeover) -> str:
    """Say which files count as loaded because dbt-scope has loaded them."""
    has_time = taken.floor_ms is not None
    until = f"all files up to {taken.modified_time}" if has_time else "the files that sources/ names"
    gaps = counted(taken.missing, "batch", "batches")
    unknown = f"; the files of {gaps} are not known" if taken.missing else ""
    return f"loaded there: {until}; {counted(taken.files, 'file')} by name{unknown}"


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
    states = ((file.path, _state_on_disk(file)) for file in entry.slice.audited)
    return first_of([f"blocked: {printable(path)} {state}" for path, state in states if state])


def _state_on_disk(file: FileEntry) -> str:
    """Say how a file differs from what was logged; empty if it does not."""
    if not file.path.startswith(SCHEME):
        return ""
    try:
        status = os.stat(local_path(file.path))  # noqa: PTH116 - a name may be no valid text
    except FileNotFoundError:
        return "is missing"
    except OSError as err:
        return f"could not be checked: {err.strerror}"
    is_still = file.is_still(status.st_mtime_ns // 1_000_000, status.st_size)
    return "" if is_still else "has changed since it was logged"


def _check_source(view: LogView, target: Target) -> SourceCheck:
    """Look how far a table is behind its change feed; other sources are not looked at."""
    newest = view.newest.slice if view.newest else None
    if not isinstance(newest, VersionSlice) or view.is_state_lost:
        return SourceCheck()
    try:
        source = canonical_uri(newest.location)
        if place_of(source) not in (place_of(target.table), place_of(target.log.location)):
            # The record is not trusted: it must not send credentials to a host that nobody named.
            return SourceCheck([f"not checked: {source} is on another store; `airflow scope list` checks it"])
        spec = CdfSource(table=source)
        rows = ChangeRows(spec=spec, place=target.log.location, storage=target.storage_of(source))
        lag, warnings = rows.unread(view, clock.now_ms())
    except ScopeProviderError as err:
        problem = "the source could not be read, and the next run fails if that stays so: see `behind`"
        if isinstance(err, ChangeFeedError):
            problem = "the next run will refuse the source: see `behind`"
        return SourceCheck([f"not known: {err.what}", f"do: {err.do}"], is_done=True, problem=problem)
    if view.state is None:
        lines = [f"everything: nothing of {source} is loaded"]
    elif lag is None:
        lines = [f"nothing: version {rows.source_log.newest} of {source} is loaded"]
    else:
        oldest = "its time is not known" if lag.oldest_ms is None else _time_text(lag.oldest_ms)
        lines = [
            f"{counted(lag.commits, 'commit')} of {source}, {counted(lag.size_bytes, 'byte')}",
            f"the oldest is version {lag.version}: {oldest}",
            *(f"warning: {warning}" for warning in warnings),
        ]
    return SourceCheck(lines, is_done=True)


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
    if findings.refusals:
        say(f"batch {entry.seq} cannot be loaded: {counted(len(findings.refusals), 'reason')}, see below")
        groups = {"bad in it": (*findings.bad, *findings.warned)}
    else:
        rows = "" if findings.rows is None else f": {counted(findings.rows, 'row')}"
        say(f"batch {entry.seq} can be loaded{rows}")
        groups = {"quarantined": findings.bad, "loaded with a warning": findings.warned}
    for title, lines in groups.items():
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
            "files": [encodable(file.path) for file in entry.slice.audited],
            "bytes": entry.slice.size_bytes,
        }
        for entry in entries
    ]


def _show_remainder(report: RunReport) -> None:
    """Print which files a run would leave out or leave for later, and its warnings."""
    for reason, count in sorted(report.left_out.counts.items()):
        say(f"not loaded: {counted(count, 'file')} {reason}{report.taken_from(reason)}")
        for path in report.left_out.names.get(reason, [])[:SHOWN_AT_MOST]:
            say(f"  {printable(path)}")
    if report.pending_files:
        say(f"left for the run after it (max_batches_per_run): {counted(report.pending_files, 'file')}")
    if report.lag:
        say(f"left for the run after it: {report.lag}")
    for text in report.warning_texts:
        say(f"warning: {text}")
