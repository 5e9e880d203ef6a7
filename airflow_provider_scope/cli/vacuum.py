"""``airflow scope vacuum``: delete what no run needs any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.checkpoint.intervals import known_intervals
from airflow_provider_scope.cli.output import ADD_YES, command, counted, say
from airflow_provider_scope.cli.targets import engine_of, opened
from airflow_provider_scope.core.purge import RECORDS, WHY_KEPT
from airflow_provider_scope.engines import clock
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.execution import repair
from airflow_provider_scope.execution import vacuum as vacuums

if TYPE_CHECKING:
    from argparse import Namespace

    from airflow_provider_scope.checkpoint.log import CheckpointLog
    from airflow_provider_scope.core.purge import Group
    from airflow_provider_scope.execution.vacuum import Plan

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
