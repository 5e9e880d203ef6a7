"""The command that goes on where dbt-scope has come to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.cli.output import ADD_YES, command, counted, say
from airflow_provider_scope.core.takeover import Decision
from airflow_provider_scope.engines import assembly, clock
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.execution import dbt_scope as steps
from airflow_provider_scope.specs import Checkpoint

if TYPE_CHECKING:
    from argparse import Namespace

    from airflow_provider_scope.checkpoint.dbt_scope import LeftState
    from airflow_provider_scope.checkpoint.log import CheckpointLog
    from airflow_provider_scope.core.records import Pipeline


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
