"""The commands that repair, take over or vacuum: they look, say, and with ``--yes`` write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.cli import scope_jobs, targets
from airflow_provider_scope.cli.entries import only_refresh, show, span, state_text
from airflow_provider_scope.cli.output import ADD_YES, SHOWN_AT_MOST, about, address_of, command, counted, say
from airflow_provider_scope.cli.targets import engine_of, opened
from airflow_provider_scope.engines import assembly, clock
from airflow_provider_scope.exceptions import InputError, TableError
from airflow_provider_scope.protocol import acceptance, first_run, recovery, repair
from airflow_provider_scope.protocol import dbt_scope as steps
from airflow_provider_scope.protocol import vacuum as vacuums
from airflow_provider_scope.protocol.intervals import known_intervals
from airflow_provider_scope.protocol.retention import RECORDS, WHY_KEPT
from airflow_provider_scope.protocol.takeover import Decision
from airflow_provider_scope.protocol.view import check_decided, check_table, read_log
from airflow_provider_scope.specs import Checkpoint
from airflow_provider_scope.stores.opening import canonical_uri
from airflow_provider_scope.values import some_names, window_of_log

if TYPE_CHECKING:
    from argparse import Namespace

    from airflow_provider_scope.engines.spark import SparkRunner
    from airflow_provider_scope.protocol.acceptance import Consequences
    from airflow_provider_scope.protocol.dbt_scope_files import LeftState
    from airflow_provider_scope.protocol.derived import AuditFiles
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import Pipeline
    from airflow_provider_scope.protocol.recovery import Behind, TableState
    from airflow_provider_scope.protocol.retention import Group
    from airflow_provider_scope.protocol.vacuum import Plan
    from airflow_provider_scope.protocol.view import LogView
    from airflow_provider_scope.scope.engine import ScopeRunner


_ALL_FILES = "run the task once with full_refresh=True, which loads all files again"


@command
def rebuild(args: Namespace) -> None:
    """Write the derived files again."""
    _, log, audit = opened(args)
    repair.existing_pipeline(log)
    if not args.yes:
        say(f"watermark.json and sources/ in {log.location} would be written again from the log")
        say(ADD_YES)
        return
    last = repair.rebuild(log, audit)
    if last is None:
        say("nothing is committed yet, so there is nothing to write")
    else:
        say(f"watermark.json and sources/ in {log.location} are written again, up to batch {last.seq}")


@command
def abandon(args: Namespace) -> None:
    """Give an open batch up."""
    table, log, audit = opened(args)
    targets.check_named(args, log)
    repair.existing_pipeline(log)
    engine = engine_of(args, log)
    view = read_log(log, audit, engine, table, history=False)
    check_table(view, table)
    entry = repair.open_entry(view, args.seq, log.location)
    if not args.yes:
        show([entry], "batch ", view)
        if repair.settled(view, entry):
            say("it would be recorded, not abandoned")
        else:
            say(f"it would be abandoned for good: {_how_it_is_closed(engine, view)}")
            if entry.mode == "overwrite":
                say(f"the rows that it replaces ({entry.where}) are removed")
            if entry.slice.has_state:
                say(
                    "the next batch begins where this one began: "
                    f"{state_text(entry.slice.before, log.location)}"
                )
            else:
                say(
                    "its files count as new again; the next run loads those that still exist (with "
                    'late_files="skip" only those after the newest file that was logged)'
                )
                if len(view.open) > 1:
                    say(
                        f"batch {view.open[1].seq}, which is open, is loaded before them: if rows replace "
                        "each other by key, abandon the later open batches as well, and the next run loads "
                        "all of these files in their order"
                    )
        say(ADD_YES)
        return
    record = repair.abandon(log, audit, engine, table, args.seq, now_ms=clock.now_ms)
    if record.abandoned and entry.slice.has_state:
        say(f"batch {args.seq} is abandoned; the next run begins where it began")
    elif record.abandoned:
        say(f"batch {args.seq} is abandoned; the next run loads those of its files that still exist")
    else:
        say(
            f"batch {args.seq} was already in the table, as version {record.table_version}; this is now "
            "recorded"
        )


def _how_it_is_closed(engine: SparkRunner | ScopeRunner, view: LogView) -> str:
    if scope_jobs.is_scope(engine):
        return "its job is cancelled if it has one, and no other is submitted"
    if view.table.identity is None:
        return "there is no table yet, so only a record says so. Make sure that no run is in progress"
    return "an empty transaction takes its place in the table"


@command
def accept_table(args: Namespace) -> None:
    """Accept a table that diverged, for one pipeline or for all intervals."""
    for one in targets.each(args, opened(args)[1]):
        about(address_of(one))
        _accept(one)


def _accept(args: Namespace) -> None:
    table, log, audit = opened(args)
    targets.check_named(args, log)
    engine = engine_of(args, log)
    # What dbt-scope left beside a table says which files are in it: the next run takes that over.
    if log.watermark() is None and (others := first_run.table_of_others(log, engine, table)):
        _accept_rows(args, log, engine, others)
        return
    repair.existing_pipeline(log)
    why = _divergence(log, audit, engine, table)
    if why is None:
        say(f"{table} and its log fit together: there is nothing to accept")
        return
    seen = acceptance.look_at_table(log, engine, table, reload_undecidable=args.reload_undecidable)
    say(why)
    say(f"The table is at version {seen.table.version}. To accept it as it is means:")
    where = log.location
    for line in _going_on(seen, seen.begins, where) if seen.begins else _consequences(seen, where):
        say(f"- {line}")
    if not args.yes:
        say(ADD_YES)
        return
    record = acceptance.accept_table(log, engine, table, reload_undecidable=args.reload_undecidable)
    say(f"accepted, as {log.location}/accepted/{record.number:020}; the next run goes on from here")


def _accept_rows(
    args: Namespace, log: CheckpointLog, engine: SparkRunner | ScopeRunner, others: TableState
) -> None:
    """Accept rows that no record tells of, before the first run."""
    table = canonical_uri(args.delta_location)
    say(f"The table {table} holds rows, and {log.location} has no record of where they came from.")
    say(f"The table is at version {others.version}. To accept it as it is means:")
    say("- the rows stay, and the next run adds all of its source: all files, or all rows or changes")
    say("- what of it is among the rows already is loaded again")
    if not args.yes:
        say(ADD_YES)
        return
    record = first_run.accept(log, engine, table, new_id=assembly.new_id)
    say(f"accepted, as {log.location}/accepted/{record.number:020}; the next run adds its source")


def _divergence(
    log: CheckpointLog, audit: AuditFiles, engine: SparkRunner | ScopeRunner, table: str
) -> str | None:
    """Say what is wrong with the table; None if a run would go on with it."""
    try:
        view = read_log(log, audit, engine, table, history=False)
        check_table(view, table)
        check_decided(view, table)
    except TableError as err:
        return err.what
    return None


def _going_on(seen: Consequences, begins: Behind, where: str) -> list[str]:
    """Say what accepting a table means whose source has a state."""
    lines = []
    if seen.rolled_back:
        lines.append(f"the rows of {span([r.seq for r in seen.rolled_back])} are no longer in the table")
        if window_of_log(where):
            lines += [
                'with write="append", the interval counts as loaded',
                f"to get these rows back, {recovery.load_again(where)}",
            ]
    lines += [f"the open batch {seq} is abandoned" for seq in seen.gone]
    if begins.problem:
        lines.append(f"it is not known where the next batch would begin: {only_refresh(where)}")
    else:
        lines.append(
            f"the next batch begins at the state of the table's rows: {state_text(begins.state, where)}"
        )
    lines.append("an empty transaction in the table closes the numbers of the batches up to now")
    return lines


def _consequences(seen: Consequences, where: str) -> list[str]:
    lines = []
    if seen.undone is not None:
        lines.append(f"the full refresh that began with batch {seen.undone} is undone: the old rows are back")
    if seen.doubled:
        names = some_names(seen.doubled, SHOWN_AT_MOST)
        lines.append(
            f"of these rows, the files that the refresh has not loaded ({len(seen.doubled):,}) count as new, "
            f"and are loaded once more if they are in the source: {names}"
        )
    if seen.rolled_back and seen.lost != 0:
        batches = span([record.seq for record in seen.rolled_back])
        files = sum(record.files for record in seen.rolled_back)
        those = f"{batches} ({counted(files, 'file')})"
        if seen.lost is not None:
            those = f"{counted(seen.lost, 'file')} of {batches}"
        lines += [
            f"the rows of {those} are no longer in the table: the files count as loaded",
            f"to get these rows back, {recovery.load_again(where, _ALL_FILES)}",
        ]
    if seen.vacuumed:
        lines.append(
            f"rows of the batches below {seen.vacuumed} may be missing, too: a vacuum purged "
            "their records, and their files count as loaded"
        )
    restores = seen.table.restores
    if restores and max(restores, key=lambda restore: restore.version).to_version is None:
        lines.append("the RESTORE was to a time: it is not known which committed batches lost their rows")
    for seq in seen.gone:
        lines.append(f"the files of the open batch {seq} count as new: the next run loads them")
    lines += [
        (
            f"the rows of batch {seq}, which was abandoned, stay unless somebody has deleted them; its files "
            "are loaded again"
        )
        for seq in seen.back
    ]
    if seen.needs_transaction:
        lines.append(
            f"an empty transaction records in the table that batch {seen.newest_commit} is its newest"
        )
    return lines or ["no batch lost its rows, and no file is loaded again"]


# ---- take-over ----


@command
def take_over(args: Namespace) -> None:
    """Say what dbt-scope left or did; with ``--yes`` go on from there."""
    checkpoint = Checkpoint(location=args.checkpoint)
    log = assembly.open_log(args.delta_location, checkpoint, storage_conn_id=args.storage_conn_id)
    pipeline = log.pipeline()
    if args.at_watermark:
        _decide(log, pipeline, loaded=args.at_watermark == "loaded", yes=args.yes)
        return
    if pipeline is None:
        _show(steps.left_behind(log))
        say("the next run of the task takes the table over; there is nothing to do here")
        return
    found = steps.went_on(log, pipeline, clock.now_ms())
    if found is None:
        say(f"dbt-scope has not run on {log.location} since it was taken over: there is nothing to do")
        return
    taken, state = found
    _show(state)
    say("files up to this watermark count as loaded, as sources/ lists them")
    say(f"batch {taken.seq} of this pipeline will be batch {taken.next_batch_id} in dbt-scope's count")
    if not args.yes:
        say(ADD_YES)
        return
    there = steps.write(log, taken, state)
    say(f"taken over, as {log.location}/taken_over/{there.number:020}; the next run goes on from here")


def _show(state: LeftState) -> None:
    found = state.watermark
    say(f"dbt-scope's newest batch is {found.batch_id}, its watermark {found.modified_time or 'has no time'}")
    known = found.batch_id + 1 - len(state.missing)
    say(
        f"sources/ lists {counted(len(state.files), 'file')}, from {known:,} of "
        f"{counted(found.batch_id + 1, 'batch', 'batches')}"
    )
    if found.batch_id not in state.batches:
        say(f"it says nothing about the newest batch, {found.batch_id}")


def _decide(log: CheckpointLog, pipeline: Pipeline | None, *, loaded: bool, yes: bool) -> None:
    watermark = steps.undecided(log, pipeline)
    what = "loaded: their rows are in the table" if loaded else "new: the next run loads them"
    say(f"files with exactly the time of dbt-scope's watermark that no record names count as {what}")
    if not yes:
        say("A wrong decision loses rows, or duplicates them; it cannot be undone.")
        say(ADD_YES)
        return
    there = log.put_decision(Decision(watermark=watermark, loaded=loaded))
    if there.loaded != loaded:
        raise InputError(
            f"It was decided earlier that they count as {'loaded' if there.loaded else 'new'}.",
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
    """Purge a checkpoint."""
    vacuums.check_retain(args.retain_batches)
    table, log, audit = opened(args)
    _check_not_intervals_alone(log)
    repair.existing_pipeline(log)
    engine = engine_of(args, log)
    plan = vacuums.look(log, audit, engine, table, retain=args.retain_batches, now_ms=clock.now_ms())
    say(f"checkpoint  {log.location}")
    _show_deleted(plan)
    _show_kept(plan)
    if not plan.groups:
        return
    if plan.record.below > plan.was:
        say(
            "After that, a table that was restored to a version before the oldest remaining record can no "
            "longer be accepted as it is: see `airflow scope accept-table`."
        )
    if not args.yes:
        say(ADD_YES)
        return
    vacuums.run(log, plan)
    count = sum(len(group.files) for group in plan.groups)
    say(f"{counted(count, 'file')} deleted")


def _check_not_intervals_alone(log: CheckpointLog) -> None:
    known = known_intervals(log.storage, log.location)
    if known and log.pipeline() is None:
        raise InputError(
            f"{log.location} has {counted(len(known), 'interval')}, and no other pipeline.",
            kept="everything; nothing was deleted",
            do="nothing: an interval keeps all of its records, because only they show which files it loaded",
        )


def _show_deleted(plan: Plan) -> None:
    if not plan.groups:
        say("deletes     nothing")
    for number, group in enumerate(plan.groups):
        name = _NAMES.get(group.kind, group.kind)
        say(f"{'            ' if number else 'deletes     '}{name}{_span(group)}: {_size(group)}")


def _show_kept(plan: Plan) -> None:
    shown = [group for group in plan.kept if group.kind in RECORDS or group.kind in WHY_KEPT]
    for number, group in enumerate(shown):
        what = f"{_NAMES[group.kind]}{_span(group)}" if group.kind in RECORDS else f"{group.kind}/"
        why = plan.why if group.kind in RECORDS else WHY_KEPT[group.kind]
        say(f"{'            ' if number else 'keeps       '}{what}: {_size(group)}; {why}")


def _span(group: Group) -> str:
    if group.first is None:
        return ""
    return (
        f" of batch {group.first}"
        if group.first == group.last
        else f" of batches {group.first} to {group.last}"
    )


def _size(group: Group) -> str:
    return f"{counted(len(group.files), 'file')}, {counted(group.size_bytes, 'byte')}"
