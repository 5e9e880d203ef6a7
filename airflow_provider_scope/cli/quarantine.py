"""The command that shows what could not be loaded, and gives files back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.cli import intervals
from airflow_provider_scope.cli.output import ADD_YES, SHOWN_AT_MOST, command, counted, say
from airflow_provider_scope.cli.targets import opened
from airflow_provider_scope.core.files import printable
from airflow_provider_scope.core.masking import mask
from airflow_provider_scope.execution import repair, returning
from airflow_provider_scope.hooks.stores import store_of
from airflow_provider_scope.storage.opening import canonical_uri
from airflow_provider_scope.table.quarantine import read_quarantine

if TYPE_CHECKING:
    from argparse import Namespace

    from airflow_provider_scope.table.quarantine import Aside

RAW_SHOWN = 200


@command
def quarantine(args: Namespace) -> None:
    """Show what was put aside; with ``--give-back`` let the next run load files again."""
    _, log, _ = opened(args)
    intervals.check_named(args, log)
    pipeline = repair.existing_pipeline(log)
    places = list(dict.fromkeys(log.quarantines()))
    everything = []
    for place in places:
        storage = store_of(place, args.storage_conn_id).storage
        everything += read_quarantine(place, storage, pipeline.pipeline)
    found = returning.counting(log, everything)
    whole = [aside.file for aside in found if aside.whole and aside.file]
    files = whole if args.give_back_all else [canonical_uri_of(name) for name in args.give_back or ()]
    if not files:
        for place in places:
            say(f"quarantine  {place}")
        if not places:
            say('quarantine  none: no run had bad_records="quarantine"')
            return
        _show(found)
        if whole:
            say("when files are mended: --give-back FILE, or --give-back-all; the next run loads them")
        return
    returning.check(files, found)
    for file in files[:SHOWN_AT_MOST]:
        say(f"  {printable(file)}")
    if len(files) > SHOWN_AT_MOST:
        say(f"  and {len(files) - SHOWN_AT_MOST:,} more")
    if not args.yes:
        say(f"{counted(len(files), 'file')} would count as new; the next run loads what is there then")
        say(ADD_YES)
        return
    record = returning.give_back(log, files, found)
    say(f"given back, as {log.location}/returned/{record.number:020}; the next run loads what is there then")


def canonical_uri_of(name: str) -> str:
    """Give the URI of a file that may be named by its path."""
    return canonical_uri(name) if name.startswith("/") else name


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
            say(f"  such as {place}: {mask(aside.raw)[:RAW_SHOWN]}")
    if len(found) > SHOWN_AT_MOST:
        say(f"and {counted(len(found) - SHOWN_AT_MOST, 'file')} more: the table has them all")
