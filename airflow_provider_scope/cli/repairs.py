"""The commands that repair, take over or vacuum: they say what they would do, and do it with ``--yes``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.cli import targets
from airflow_provider_scope.cli.output import (
    SHOWN_AT_MOST,
    address_of,
    command,
    is_confirmed,
    only_refresh,
    say,
    set_address,
    show,
    show_batches,
    span,
    state_text,
)
from airflow_provider_scope.cli.targets import Target, open_pipeline
from airflow_provider_scope.delta.log import read_table
from airflow_provider_scope.delta.write_rules import TOMBSTONES
from airflow_provider_scope.engines import assembly, clock
from airflow_provider_scope.exceptions import InputError, TableError
from airflow_provider_scope.protocol import acceptance, dbt_scope, first_run, recovery, repair
from airflow_provider_scope.protocol import vacuum as vacuums
from airflow_provider_scope.protocol.retention import RECORDS, WHY_KEPT
from airflow_provider_scope.protocol.takeover import Decision
from airflow_provider_scope.protocol.view import read_log
from airflow_provider_scope.scope.engine import ScopeRunner
from airflow_provider_scope.scope.jobs import TAG_LIMIT
from airflow_provider_scope.scope.submission import is_ours
from airflow_provider_scope.sql import literal, quoted
from airflow_provider_scope.values import RowSlice, counted, some_names, window_of_log

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from airflow_provider_scope.hooks.scope import ScopeHook
    from airflow_provider_scope.protocol.acceptance import Consequences
    from airflow_provider_scope.protocol.dbt_scope import DbtScopeState
    from airflow_provider_scope.protocol.engine import Engine
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.retention import Group
    from airflow_provider_scope.protocol.vacuum import Purge
    from airflow_provider_scope.protocol.view import LogView
    from airflow_provider_scope.waiting import Job


_ALL_FILES = "run the task once with full_refresh=True, which loads all files again"


@command
def rebuild(args: Namespace) -> None:
    target, _ = open_pipeline(args)
    log = target.log
    files = f"watermark.json and sources/ in {log.location}"
    if not is_confirmed(args, f"{files} would be written again from the log"):
        return
    last = repair.rebuild(log, target.audit_files())
    if last is None:
        say("nothing is committed yet, so there is nothing to write")
    else:
        say(f"{files} are written again, up to batch {last.seq}")


@command
def abandon(args: Namespace) -> None:
    target, _ = open_pipeline(args)
    table, log, engine = target.table, target.log, target.engine()
    view = read_log(log, engine, table)
    view.check()
    entry = repair.open_entry(view, args.seq, log.location)
    if not args.yes:
        show_batches([entry], "batch ", view)
    if not is_confirmed(args, *_abandoning_lines(entry, view, engine)):
        return
    record = repair.abandon(log, target.audit_files(), engine, table, args.seq, now_ms=clock.now_ms)
    if record.abandoned:
        say(f"batch {args.seq} is abandoned; {_next_text(entry)}")
    else:
        version = record.table_version
        say(f"batch {args.seq} was already in the table, as version {version}; this is now recorded")


def _next_text(entry: OffsetEntry) -> str:
    """Say what loads what an abandoned batch was to load."""
    if isinstance(entry.slice, RowSlice):
        return "only the caller of its load has its rows, and can load them again"
    if entry.slice.needs_record:
        return "only a run of the same range loads its rows"
    if entry.slice.has_state:
        return "the next run begins where it began"
    return "the next run loads those of its files that still exist"


def _abandoning_lines(entry: OffsetEntry, view: LogView, engine: Engine) -> list[str]:
    if repair.settled(view, entry):
        return ["it would be recorded, not abandoned"]
    if isinstance(engine, ScopeRunner):
        how = "its job is cancelled if it has one, and no other is submitted"
    elif view.table.identity is None:
        how = "there is no table yet, so only a record says so. Make sure that no run is in progress"
    else:
        how = "an empty transaction takes its place in the table"
    lines = [f"it would be abandoned for good: {how}"]
    if entry.mode == "overwrite":
        lines.append(f"the rows that it replaces ({entry.where}) are removed")
    if entry.slice.needs_record:
        return [*lines, _next_text(entry)]
    if entry.slice.has_state:
        state = state_text(entry.slice.before, view.checkpoint)
        return [*lines, f"the next batch begins where this one began: {state}"]
    lines.append(
        "its files count as new again; the next run loads those that still exist (with "
        'late_files="skip" only those after the newest file that was logged)'
    )
    if len(view.open) > 1:
        lines.append(
            f"batch {view.open[1].seq}, which is open, is loaded before them: if rows replace "
            "each other by key, abandon the later open batches as well, and the next run loads "
            "all of these files in their order"
        )
    return lines


@command
def accept_table(args: Namespace) -> None:
    """Accept a table that diverged, for one pipeline or for all intervals."""
    for arguments in targets.each_pipeline(args):
        set_address(address_of(arguments))
        _accept(arguments)


def _accept(args: Namespace) -> None:
    target = Target.of(args)
    targets.check_interval_named(args, target)
    table, log, engine = target.table, target.log, target.engine()
    # Records of dbt-scope beside a table say which files are in it: the next run takes the table over.
    table_of_others = first_run.table_of_others(log, engine, table) if log.watermark() is None else None
    if table_of_others:
        say(f"The table {table} holds rows, and {log.location} has no record of where they came from.")
        version, next_run = table_of_others.version, "adds its source"
        lines = [
            "the rows stay, and the next run adds all of its source: all files, or all rows or changes",
            "what of it is among the rows already is loaded again",
        ]
    else:
        repair.existing_pipeline(log)
        try:
            target.checked_view(engine)
        except TableError as err:
            why = err.what
        else:
            say(f"{table} and its log fit together: there is nothing to accept")
            return
        consequences = acceptance.consequences_of(
            log, engine, table, reload_undecidable=args.reload_undecidable
        )
        say(why)
        version, next_run = consequences.table.version, "goes on from here"
        lines = [*_consequence_lines(consequences, log), *_deletes_that_stay(target, consequences)]
    say(f"The table is at version {version}. To accept it as it is means:")
    for line in lines:
        say(f"- {line}")
    if not is_confirmed(args):
        return
    if table_of_others:
        record = first_run.accept(log, engine, table, new_id=assembly.new_id)
    else:
        record = acceptance.accept_table(log, engine, table, reload_undecidable=args.reload_undecidable)
    say(f"accepted, as {log.location}/accepted/{record.number:020}; the next run {next_run}")


def _deletes_that_stay(target: Target, consequences: Consequences) -> list[str]:
    """Say which deletes still keep rows away, though a RESTORE undid them, and how to remove them."""
    place = f"{target.table}/{TOMBSTONES}"
    lost = {record.seq for record in consequences.rolled_back}
    parts = read_table(place, target.storage_of(place), ["pipeline", "batch"]) if lost else ()
    rows = [row for part in parts for row in part.to_pylist()]
    pipeline = repair.existing_pipeline(target.log).pipeline
    batches = sorted(lost & {row["batch"] for row in rows if row["pipeline"] == pipeline})
    if not batches:
        return []
    condition = f"pipeline = {literal(pipeline)} AND batch IN ({', '.join(map(str, batches))})"
    statement = f"DELETE FROM delta.{quoted(place)} WHERE {condition}"  # noqa: S608 - for people
    why = "deletes of these batches still keep older rows away. Before the next run, remove them with Spark"
    return [f"{why}: {statement}"]


def _consequence_lines(consequences: Consequences, log: CheckpointLog) -> list[str]:
    begins, newest, checkpoint = consequences.begins, log.newest_offset(), log.location
    batches = span([record.seq for record in consequences.rolled_back])
    if newest and isinstance(newest.slice, RowSlice):
        lost = [f"the rows of {batches} are no longer in the table; whoever has them can load them again"]
        return [*(lost if consequences.rolled_back else ()), "the state is that of the table's rows"]
    if begins is None:
        return _consequences_for_files(consequences, batches, checkpoint)
    lines = []
    if consequences.rolled_back:
        lines.append(f"the rows of {batches} are no longer in the table")
        if window_of_log(checkpoint):
            lines += [
                'with write="append", the interval counts as loaded',
                f"to get these rows back, {recovery.load_again(checkpoint)}",
            ]
    lines += [f"the open batch {seq} is abandoned" for seq in consequences.open_rolled_back]
    if begins.problem:
        lines.append(f"it is not known where the next batch would begin: {only_refresh(checkpoint)}")
    else:
        lines.append(
            f"the next batch begins at the state of the table's rows: {state_text(begins.state, checkpoint)}"
        )
    lines.append("an empty transaction in the table closes the numbers of the batches up to now")
    return lines


def _consequences_for_files(consequences: Consequences, rolled_back: str, checkpoint: str) -> list[str]:
    """Say what it means that files count as loaded by the log alone.

    :param rolled_back: The batches whose rows are no longer in the table, as people name them.
    """
    lines = []
    if consequences.undone is not None:
        lines.append(
            f"the full refresh that began with batch {consequences.undone} is undone: the old rows are back"
        )
    if consequences.doubled:
        names = some_names(consequences.doubled, SHOWN_AT_MOST)
        lines.append(
            f"of these rows, the files that the refresh has not loaded ({len(consequences.doubled):,}) count "
            f"as new, and are loaded once more if they are in the source: {names}"
        )
    if consequences.rolled_back and consequences.lost != 0:
        files = sum(record.files for record in consequences.rolled_back)
        lost_files = f"{rolled_back} ({counted(files, 'file')})"
        if consequences.lost is not None:
            lost_files = f"{counted(consequences.lost, 'file')} of {rolled_back}"
        lines += [
            f"the rows of {lost_files} are no longer in the table: the files count as loaded",
            f"to get these rows back, {recovery.load_again(checkpoint, _ALL_FILES)}",
        ]
    if consequences.vacuumed:
        lines.append(
            f"rows of the batches below {consequences.vacuumed} may be missing, too: a vacuum purged "
            "their records, and their files count as loaded"
        )
    restores = consequences.table.restores
    if restores and max(restores, key=lambda restore: restore.version).to_version is None:
        lines.append(
            "the RESTORE was to a time, or is a clone: it is unknown which committed batches lost their rows"
        )
    for seq in consequences.open_rolled_back:
        lines.append(f"the files of the open batch {seq} count as new: the next run loads them")
    lines += [
        (
            f"the rows of batch {seq}, which was abandoned, stay unless somebody has deleted them; its files "
            "are loaded again"
        )
        for seq in consequences.abandoned_in_table
    ]
    if consequences.needs_transaction:
        lines.append(
            f"an empty transaction records in the table that batch {consequences.newest_commit} is its newest"
        )
    return lines or ["no batch lost its rows, and no file is loaded again"]


# ---- take-over ----


@command
def take_over(args: Namespace) -> None:
    """Show the state that dbt-scope left, or its runs since; with ``--yes`` go on from there."""
    log = Target.of(args).log
    if args.at_watermark:
        _decide(args, log)
        return
    if dbt_scope.is_first(log):
        _show_dbt_scope(dbt_scope.existing_state(log))
        say("the next run of the task takes the table over; there is nothing to do here")
        return
    later_runs = dbt_scope.continuation(log, clock.now_ms())
    if later_runs is None:
        say(f"dbt-scope has not run on {log.location} since it was taken over: there is nothing to do")
        return
    takeover, state = later_runs
    _show_dbt_scope(state)
    say("files up to this watermark count as loaded, as sources/ lists them")
    say(f"batch {takeover.seq} of this pipeline will be batch {takeover.batch_id + 1} in dbt-scope's count")
    if not is_confirmed(args):
        return
    record = dbt_scope.write(log, takeover, state)
    say(f"taken over, as {log.location}/taken_over/{record.number:020}; the next run goes on from here")


def _show_dbt_scope(state: DbtScopeState) -> None:
    time = state.modified_time or "has no time"
    say(f"dbt-scope's newest batch is {state.batch_id}, its watermark {time}")
    say(
        f"sources/ lists {counted(len(state.files), 'file')}, from {len(state.batches):,} of "
        f"{counted(state.batch_id + 1, 'batch', 'batches')}"
    )
    if state.batch_id not in state.batches:
        say(f"it says nothing about the newest batch, {state.batch_id}")


def _decide(args: Namespace, log: CheckpointLog) -> None:
    loaded = args.at_watermark == "loaded"
    watermark = dbt_scope.undecided_watermark(log)
    meaning = "loaded: their rows are in the table" if loaded else "new: the next run loads them"
    say(f"files with exactly the time of dbt-scope's watermark that no record names count as {meaning}")
    if not is_confirmed(args, "A wrong decision loses rows, or duplicates them; it cannot be undone."):
        return
    stored = log.put(Decision(watermark=watermark, loaded=loaded))
    if stored.loaded != loaded:
        raise InputError(
            f"It was decided earlier that they count as {'loaded' if stored.loaded else 'new'}.",
            kept="everything; nothing was written",
            do="to load everything again, run the task once with full_refresh=True",
        )
    say(f"decided, as {log.location}/taken_over/{watermark}.decided")


# ---- vacuum ----

_NAMES = {
    "offsets": "entries",
    "commits": "commit records",
    "vacuumed": "notes of earlier vacuums",
    "plans": "plans of runs that died",
    "temporary files": "temporary files of runs that died",
}


@command
def vacuum(args: Namespace) -> None:
    vacuums.check_retain(args.retain_batches)
    target, _ = open_pipeline(args)
    log, retain, now_ms = target.log, args.retain_batches, clock.now_ms()
    purge = vacuums.purge_of(
        log, target.audit_files(), target.engine(), target.table, retain=retain, now_ms=now_ms
    )
    say(f"checkpoint  {log.location}")
    deleted = [_group_text(_NAMES.get(group.kind, group.kind), group) for group in purge.groups]
    show("deletes", deleted or ["nothing"])
    show("keeps", _kept_lines(purge))
    if not purge.groups:
        return
    if purge.record.below > purge.vacuumed_before:
        say(
            "After that, a table that was restored to a version before the oldest remaining record can no "
            "longer be accepted as it is: see `airflow scope accept-table`."
        )
    if not is_confirmed(args):
        return
    vacuums.run(log, purge)
    count = sum(len(group.files) for group in purge.groups)
    say(f"{counted(count, 'file')} deleted")


def _kept_lines(purge: Purge) -> Iterator[str]:
    for group in purge.kept:
        if group.kind in RECORDS:
            yield f"{_group_text(_NAMES[group.kind], group)}; {purge.why}"
        elif group.kind in WHY_KEPT:
            yield f"{_group_text(f'{group.kind}/', group)}; {WHY_KEPT[group.kind]}"


def _group_text(name: str, group: Group) -> str:
    batches = f" of {span(group.numbers)}" if group.numbers else ""
    return f"{name}{batches}: {counted(len(group.files), 'file')}, {counted(group.size_bytes, 'byte')}"


# ---- SCOPE jobs ----


@command
def settle(args: Namespace) -> None:
    if args.committed == args.not_committed:
        raise InputError(
            "Exactly one of --committed and --not-committed is required.",
            kept="everything; nothing was read or written",
            do="look at the table first: --committed if the rows of the batch are in it",
        )
    target, pipeline = open_pipeline(args)
    table, log, engine = target.table, target.log, target.scope_runner()
    attempt = engine.in_doubt(table, args.seq)
    say(f"batch {args.seq}, {targets.attempt_text(engine, pipeline.pipeline, attempt)}")
    next_run = "records the batch" if args.committed else "submits the batch again"
    say(f"{targets.decision_text(committed=args.committed)}: the next run {next_run}")
    warning = "A wrong decision loses the rows of the batch, or duplicates them; it cannot be undone."
    if not is_confirmed(args, warning):
        return
    settlement = engine.settle(table, args.seq, committed=args.committed)
    if settlement.committed != args.committed:
        raise InputError(
            f"Somebody else settled batch {args.seq} just now: "
            f"{targets.decision_text(committed=settlement.committed)}.",
            kept="that decision",
            do="look at the table again before the next run",
        )
    say(f"settled, as {log.location}/attempts/{settlement.seq:020}.{settlement.number}.settled")


@command
def cancel_jobs(args: Namespace) -> None:
    hook = targets.scope_hook(args.scope_conn_id)
    jobs = _own_jobs(hook, args.tag)
    if not jobs:
        say(f"no job of this package whose name begins with {args.tag}_ is queued or running")
        return
    for job in jobs:
        say(f"{job.job_id}  {job.state:<11}  {job.name}  {job.submitter or ''}".rstrip())
    if not is_confirmed(args, f"{counted(len(jobs), 'job')} would be cancelled"):
        return
    for job in jobs:
        hook.cancel_job(job.job_id)
    say(
        f"cancellation of {counted(len(jobs), 'job')} requested; runs that wait for them fail and submit "
        "them again"
    )


def _own_jobs(hook: ScopeHook, tag: str) -> list[Job]:
    if not tag.strip("_ "):
        raise InputError(
            f"--tag={tag!r} is not valid: expected text that is not empty.",
            kept="everything; no job was cancelled",
            do="give the job_tag of the task, or its task_id if it has none",
        )
    start = tag[:TAG_LIMIT]
    quoted = start.replace("'", "''")
    candidates = hook.list_jobs(f"startswith(name,'{quoted}') and state ne 'Ended'", orderby="submitTime asc")
    starts = (f"{tag}_", f"{start}_")
    with_tag = [job for job in candidates if job.name == tag or job.name.startswith(starts)]
    # A service that leaves the pipeline out of lists still gives it for a single job.
    jobs = [job if job.pipeline_id else hook.get_job(job.job_id) for job in with_tag]
    return [job for job in jobs if job and is_ours(job)]
