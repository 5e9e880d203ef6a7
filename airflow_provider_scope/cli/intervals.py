"""What the commands say of intervals, and how one is named."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from airflow_provider_scope.checkpoint.intervals import IntervalLog, known_intervals
from airflow_provider_scope.cli.output import SHOWN_AT_MOST, counted, say
from airflow_provider_scope.core.audit import iso_time
from airflow_provider_scope.core.interval import Window, window_of
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.execution import repair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_scope.checkpoint.log import CheckpointLog


def named(args: Namespace) -> Window | None:
    """Give the interval that a command names, if it does.

    :raises InputError: The name is not one of an interval.
    """
    name = getattr(args, "interval", None)
    window = window_of(name) if name else None
    if name and window is None:
        raise InputError(
            f"--interval={name} is not valid: expected <start>_<end>, such as "
            "20260101T000000000Z_20260102T000000000Z.",
            kept="everything; nothing was read or written",
            do="copy the name from `airflow scope status` or from the task's log",
        )
    return window


def check_named(args: Namespace, log: CheckpointLog) -> None:
    """Refuse to look for one pipeline where there are intervals only.

    :raises InputError: The command has to name an interval.
    """
    if not hasattr(args, "interval") or isinstance(log, IntervalLog) or log.pipeline():
        return
    known = known_intervals(log.storage, log.location)
    if known:
        raise InputError(
            f"{log.location} has {counted(len(known), 'interval')}, and no other pipeline.",
            kept="everything; nothing was written",
            do=f"name one, such as --interval {known[-1].name}: `airflow scope status` shows those with open "
            "batches",
        )


def each(args: Namespace, log: CheckpointLog) -> Iterator[Namespace]:
    """Give the arguments for each pipeline that a command means, and say which it is.

    :raises InputError: Both one interval and all of them are named.
    """
    if not args.all_intervals:
        yield args
        return
    if args.interval is not None:
        raise InputError(
            "Only one of --interval and --all-intervals can be given.",
            kept="everything; nothing was written",
            do="leave one of them out",
        )
    for window in known_intervals(log.storage, log.location):
        if IntervalLog(log.storage, log.location, window).pipeline():
            say(f"interval {window.name}:")
            yield Namespace(**{**vars(args), "interval": window.name})


def shown_alone(args: Namespace, table: str, log: CheckpointLog) -> bool:
    """Show the intervals of a table if there is no pipeline beside them; tell whether that is so."""
    if args.interval is not None or log.pipeline() or not known_intervals(log.storage, log.location):
        return False
    say(f"table       {table}")
    say(f"checkpoint  {log.location}")
    show(log)
    return True


def show(log: CheckpointLog) -> None:
    """Say how many intervals there are, and name those with open batches."""
    known = known_intervals(log.storage, log.location)
    if not known:
        return
    first, last = iso_time(known[0].start_ms)[:19], iso_time(known[-1].end_ms)[:19]
    say(f"intervals   {len(known):,}, from {first}Z to {last}Z")
    still_open = {}
    for window in known:
        entries = repair.open_entries(IntervalLog(log.storage, log.location, window))
        if entries:
            still_open[window.name] = len(entries)
    for name, batches in list(still_open.items())[:SHOWN_AT_MOST]:
        say(f"            {name}: {counted(batches, 'open batch', 'open batches')}")
    if len(still_open) > SHOWN_AT_MOST:
        say(f"            and {len(still_open) - SHOWN_AT_MOST:,} more with open batches")
    if not still_open:
        say("            all batches are committed")
