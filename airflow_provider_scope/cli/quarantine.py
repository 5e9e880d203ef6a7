"""The command that shows what could not be loaded and is in the quarantine; it writes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from airflow_provider_scope.cli.output import SHOWN_AT_MOST, command, say
from airflow_provider_scope.cli.targets import open_pipeline
from airflow_provider_scope.delta.log import read_table
from airflow_provider_scope.exceptions import mask
from airflow_provider_scope.sql import literal, quoted
from airflow_provider_scope.stores.kinds import place_of
from airflow_provider_scope.values import counted, encodable, printable

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.stores.protocol import Storage


RAW_SHOWN = 200


@command
def quarantine(args: Namespace) -> None:
    target, pipeline = open_pipeline(args)
    log = target.log
    in_store = (table for table in log.quarantines() if place_of(table) == place_of(target.table))
    tables = list(dict.fromkeys(in_store))
    parts = [read_quarantine(table, target.storage_of(table), pipeline.pipeline) for table in tables]
    files = in_effect(log, [file for part in parts for file in part])
    args.facts.update(
        pipeline=pipeline.pipeline,
        tables=tables,
        quarantined=[
            {
                "batch": file.batch,
                "file": file.path and encodable(file.path),
                "whole_file": file.whole,
                "records": file.records,
                "rules": dict(file.rules),
            }
            for file in files
        ],
    )
    for table in tables:
        say(f"quarantine  {table}")
    if not tables:
        say('quarantine  none: no run with the table in this store had bad_records="quarantine"')
        return
    if not files:
        say("            is empty")
        return
    _show_files(files)
    for table in tables:
        sql = f"SELECT * FROM delta.{quoted(table)}"  # noqa: S608 - it is shown, not run
        name = literal(pipeline.pipeline)
        say(f"all of them, with all their records: {sql} WHERE pipeline = {name}")


def _show_files(files: Sequence[QuarantinedFile]) -> None:
    records = counted(sum(file.records for file in files), "record")
    say(f"            {records}, and {counted(sum(bool(file.whole) for file in files), 'file')} as a whole")
    for file in files[:SHOWN_AT_MOST]:
        say(f"batch {file.batch}: {printable(file.path or 'rows of the SELECT')}")
        if file.whole:
            say(f"  the whole file: {printable(file.whole)}")
        for rule, count in sorted(file.rules.items(), key=lambda item: (-item[1], item[0])):
            say(f"  {counted(count, 'record')}: {rule}")
        if file.raw is not None:
            place = f"record {file.record:,}" if file.record else "a row"
            is_first = file.record and file.records > 1
            label = f"the first of its {file.records:,} is" if is_first else "such as"
            say(f"  {label} {place}: {printable(mask(file.raw)[:RAW_SHOWN])}")
    if len(files) > SHOWN_AT_MOST:
        say(f"and {counted(len(files) - SHOWN_AT_MOST, 'file')} more: the table has them all")


def in_effect(log: CheckpointLog, files: Sequence[QuarantinedFile]) -> list[QuarantinedFile]:
    """Collect what was quarantined by batches that are in the table and that no full refresh has replaced."""
    committed = log.committed()
    start = (log.offset(committed[-1]).refresh_start or 0) if committed else 0
    batches = {file.batch for file in files}
    in_table = {seq for seq in committed if seq in batches and not log.commit(seq).abandoned}
    in_table |= set(log.vacuumed().quarantined)
    return [file for file in files if file.batch in in_table and file.batch >= start]


# ---- the records and files in it ----

_COLUMNS = ["pipeline", "batch", "file", "record", "rule", "raw"]


@dataclass(slots=True)
class QuarantinedFile:
    """The part of one file, in one batch, that is in the quarantine."""

    batch: int
    path: str | None
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
    return sorted(files.values(), key=lambda file: (file.batch, file.path or ""))


def _add(files: dict[tuple[int, str | None], QuarantinedFile], row: dict[str, Any]) -> None:
    batch, path, record = row["batch"], row["file"], row["record"]
    file = files.setdefault((batch, path), QuarantinedFile(batch, path))
    rule = str(row["rule"])
    if record is None and row["raw"] is None:
        file.whole = rule
        return
    file.rules[rule] = file.rules.get(rule, 0) + 1
    if file.raw is None or (record is not None and record < (file.record or record + 1)):
        file.record, file.raw = record, str(row["raw"])
