"""The command that shows what could not be loaded and is in the quarantine; it writes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from airflow_provider_scope.cli.output import SHOWN_AT_MOST, command, say
from airflow_provider_scope.cli.targets import open_pipeline
from airflow_provider_scope.delta.log import read_table
from airflow_provider_scope.exceptions import mask
from airflow_provider_scope.sql import literal, quoted
from airflow_provider_scope.stores.kinds import place_of
from airflow_provider_scope.values import counted, printable

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
    used = [table for table in log.quarantines() if place_of(table) == place_of(target.table)]
    tables = list(dict.fromkeys(used))
    asides = []
    for table in tables:
        asides += read_quarantine(table, target.storage_of(table), pipeline.pipeline)
    effective = in_effect(log, asides)
    args.facts.update(
        pipeline=pipeline.pipeline,
        tables=tables,
        quarantined=[
            {
                "batch": aside.batch,
                "file": aside.file and printable(aside.file),
                "whole_file": aside.whole,
                "records": aside.records,
                "rules": dict(aside.rules),
            }
            for aside in effective
        ],
    )
    for table in tables:
        say(f"quarantine  {table}")
    if not tables:
        say('quarantine  none: no run with the table in this store had bad_records="quarantine"')
        return
    _show_quarantined(effective)
    if effective:
        for table in tables:
            sql = f"SELECT * FROM delta.{quoted(table)}"  # noqa: S608 - it is shown, not run
            name = literal(pipeline.pipeline)
            say(f"all of them, with all their records: {sql} WHERE pipeline = {name}")


def _show_quarantined(asides: list[QuarantinedFile]) -> None:
    if not asides:
        say("            is empty")
        return
    files = sum(1 for aside in asides if aside.whole)
    rows = sum(aside.records for aside in asides)
    say(f"            {counted(rows, 'record')}, and {counted(files, 'file')} as a whole")
    for aside in asides[:SHOWN_AT_MOST]:
        say(f"batch {aside.batch}: {printable(aside.file or 'rows of the SELECT')}")
        if aside.whole:
            say(f"  the whole file: {printable(aside.whole)}")
        for rule, count in sorted(aside.rules.items(), key=lambda item: (-item[1], item[0])):
            say(f"  {counted(count, 'record')}: {rule}")
        if aside.raw is not None:
            place = f"record {aside.record:,}" if aside.record else "a row"
            label = (
                f"the first of its {aside.records:,} is" if aside.record and aside.records > 1 else "such as"
            )
            say(f"  {label} {place}: {printable(mask(aside.raw)[:RAW_SHOWN])}")
    if len(asides) > SHOWN_AT_MOST:
        say(f"and {counted(len(asides) - SHOWN_AT_MOST, 'file')} more: the table has them all")


def in_effect(log: CheckpointLog, asides: Sequence[QuarantinedFile]) -> list[QuarantinedFile]:
    """Collect what was quarantined by batches that are in the table and that no full refresh has replaced."""
    committed = log.committed()
    start = (log.offset(committed[-1]).refresh_start or 0) if committed else 0
    batches = {aside.batch for aside in asides}
    in_table = {seq for seq in committed if seq in batches and not log.commit(seq).abandoned}
    in_table |= set(log.vacuumed().quarantined)
    return [aside for aside in asides if aside.batch in in_table and aside.batch >= start]


# ---- the records and files in it ----

_COLUMNS = ["pipeline", "batch", "file", "record", "rule", "raw"]


@dataclass(slots=True)
class QuarantinedFile:
    """The part of one file, in one batch, that is in the quarantine."""

    batch: int
    file: str | None
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
    return sorted(files.values(), key=lambda quarantined: (quarantined.batch, quarantined.file or ""))


def _add(files: dict[tuple[int, str | None], QuarantinedFile], row: dict[str, object]) -> None:
    batch, file, record = row["batch"], row["file"], row["record"]
    quarantined = files.setdefault((batch, file), QuarantinedFile(batch, file))  # type: ignore[arg-type] # as its columns are
    if record is None and row["raw"] is None:
        quarantined.whole = str(row["rule"])
        return
    rule = str(row["rule"])
    quarantined.rules[rule] = quarantined.rules.get(rule, 0) + 1
    if quarantined.raw is None or (isinstance(record, int) and record < (quarantined.record or record + 1)):
        quarantined.record, quarantined.raw = record, str(row["raw"])  # type: ignore[assignment] # a number or None
