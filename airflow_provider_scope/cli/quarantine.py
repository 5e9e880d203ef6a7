"""The command that shows what could not be loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.cli import targets
from airflow_provider_scope.cli.output import SHOWN_AT_MOST, command, counted, say
from airflow_provider_scope.cli.targets import opened
from airflow_provider_scope.core.files import printable
from airflow_provider_scope.core.sql import literal, quoted
from airflow_provider_scope.exceptions import mask
from airflow_provider_scope.execution import repair
from airflow_provider_scope.hooks.stores import store_of
from airflow_provider_scope.table.quarantine import read_quarantine

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from airflow_provider_scope.checkpoint.log import CheckpointLog
    from airflow_provider_scope.table.quarantine import Aside


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
