"""The command that shows what could not be loaded, and gives files back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_scope.cli import intervals
from airflow_provider_scope.cli.output import ADD_YES, SHOWN_AT_MOST, command, counted, say
from airflow_provider_scope.cli.targets import opened
from airflow_provider_scope.core.files import base_name, printable
from airflow_provider_scope.core.masking import mask
from airflow_provider_scope.core.sql import literal, quoted
from airflow_provider_scope.exceptions import ScopeProviderError
from airflow_provider_scope.execution import repair, returning
from airflow_provider_scope.hooks.stores import store_of
from airflow_provider_scope.storage.opening import canonical_uri
from airflow_provider_scope.table.quarantine import read_quarantine

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

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
    if args.give_back_all and not whole:
        say("there is no file to give back")
        return
    files = whole if args.give_back_all else [canonical_uri_of(name) for name in args.give_back or ()]
    if not files:
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
        if whole:
            say("when files are repaired: --give-back FILE, or --give-back-all; the next run loads them")
        return
    returning.check(log, files, found)
    _name(files)
    _name_gone(files, args.storage_conn_id)
    if not args.yes:
        say(f"{counted(len(files), 'file')} would count as new; the next run loads what it finds")
        say(ADD_YES)
        return
    record = returning.give_back(log, files, found)
    say(f"given back, as {log.location}/returned/{record.number:020}; the next run loads what it finds")


def _name(files: Sequence[str]) -> None:
    for file in files[:SHOWN_AT_MOST]:
        say(f"  {printable(file)}")
    if len(files) > SHOWN_AT_MOST:
        say(f"  and {len(files) - SHOWN_AT_MOST:,} more")


def _name_gone(files: Sequence[str], storage_conn_id: str | None) -> None:
    """Say which of the files are not there: a run loads what its listing has, and says nothing of them."""
    folders: dict[str, list[str]] = {}
    try:
        for file in files:
            folder = file.rpartition("/")[0]
            if folder not in folders:
                folders[folder] = store_of(folder, storage_conn_id).storage.names(folder)
    except (ScopeProviderError, AirflowException) as err:
        say(f"could not check whether they exist: {str(err).splitlines()[0]}")
        return
    there = {folder: set(names) for folder, names in folders.items()}
    gone = [file for file in files if base_name(file) not in there[file.rpartition("/")[0]]]
    if gone:
        do, later = ("does", "it once it does") if len(gone) == 1 else ("do", "them once they do")
        say(f"{len(gone):,} of them {do} not exist now: later runs load {later}")
        _name(gone)


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
            such = (
                f"the first of its {aside.records:,} is" if aside.record and aside.records > 1 else "such as"
            )
            say(f"  {such} {place}: {mask(aside.raw)[:RAW_SHOWN]}")
    if len(found) > SHOWN_AT_MOST:
        say(f"and {counted(len(found) - SHOWN_AT_MOST, 'file')} more: the table has them all")
