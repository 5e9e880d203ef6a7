"""Which folders may not hold each other: those that a run reads, those that it writes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_scope.core.discovery import candidates
from airflow_provider_scope.core.files import FileEntry
from airflow_provider_scope.exceptions import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_scope.core.discovery import Rules

_ID = "0b5c7a9e-3f42-4d3f-a6a1-53b1b0d9c7e4"
_NUMBER = f"{4:020}"
DATA_FILES = (
    *(f"part-0000{n}-{_ID}.c000.{kind}parquet" for n in (0, 1, 7) for kind in ("", "snappy.", "zstd.")),
    *(f"part-0000{n}-{_ID}-c000.{kind}.parquet" for n in (0, 1, 7) for kind in ("snappy", "zstd")),
    f"{_ID}.parquet",
    f"deletion_vector_{_ID}.bin",
)
"""Names like those that writers give to a table's files: Spark's, those of delta-rs, and others'."""
_OF_TABLE = (
    *DATA_FILES,
    *(f"_delta_log/{_NUMBER}{end}" for end in (".json", ".crc", ".checkpoint.parquet")),
    f"_delta_log/_sidecars/{_ID}.parquet",
    "_delta_log/_last_checkpoint",
    *(f"_change_data/cdc-{rest.removeprefix('part-')}" for rest in DATA_FILES if rest.startswith("part-")),
)
_OF_CHECKPOINT = (
    *(f"{folder}/{_NUMBER}" for folder in ("offsets", "commits", "accepted", "quarantines")),
    *(f"attempts/{_NUMBER}.0{end}" for end in ("", ".settled")),
    *("pipeline.json", "watermark.json", "sources/4", "sources/4.parquet"),
    *(f"plans/{_ID}{end}" for end in ("", "-1")),
    *(f"taken_over/{_NUMBER}", f"taken_over/{_ID}.files", f"taken_over/{_ID}.decided"),
    "intervals/20130101T000000000Z_20130102T000000000Z.json",
)
_DELTAS_OWN = ("_delta_index", "_change_data", "_delta_log")
"""How hidden folders begin whose files VACUUM or the log's cleaning deletes."""


def check_roots(roots: Sequence[str], rules: Rules, tables: Sequence[str], checkpoint: str) -> None:
    """Refuse a root in which a later run would find what this one wrote.

    Whether it would is asked of discovery itself, with names like those that are written.

    :param roots: Canonical URIs.
    :param tables: The table, and that for what is put aside, if there is one.
    :raises InputError: As said; or a root lies where VACUUM deletes its files.
    """
    # Time is no reason to leave one out: they will be old enough.
    rules = replace(rules, young_after_ms=1, starting_at_ms=None, window=None)
    for table in tables:
        for root in roots:
            if is_cleaned(root, table):
                raise InputError(
                    f"The root {root} lies in the table {table}: a run would load its own output, and "
                    "VACUUM deletes every file there that is not the table's.",
                    kept="everything; nothing was read or written",
                    do="move the files out of the table's folder, and name their new folder in `roots`",
                )
    written = [f"{table}/{name}" for table in tables for name in _OF_TABLE]
    written += [f"{checkpoint}/{name}" for name in _OF_CHECKPOINT]
    for root in roots:
        inside = [FileEntry(1, path, 1) for path in written if _below(path, root)]
        found = {file.path for file in candidates(inside, rules, (root,)).files}
        if found:
            path = next(path for path in written if path in found)
            place = next(p for p in (checkpoint, *tables) if _below(path, p))
            what = "checkpoint" if place == checkpoint else "table"
            raise InputError(
                f"The root {root} contains the {what} {place}, and the patterns match names of files "
                f"there, such as {path[len(place) + 1 :]}: a run would load its own output.",
                kept="everything; nothing was read or written",
                do="name the folders next to it in `roots`, or use patterns that match only your files",
            )


def check_distinct(roots: Sequence[str], real: Sequence[str]) -> None:
    """Refuse two roots that lead to the same files under two names: each file would be loaded twice.

    :param real: Where each root leads.
    :raises InputError: As said.
    """
    for root, there in zip(roots, real, strict=True):
        for other, beyond in zip(roots, real, strict=True):
            if _below(beyond, there) is not None and _below(other, root) is None:
                raise InputError(
                    f"The roots {root} and {other} lead to the same files: {there}, {beyond}. "
                    "They would be loaded twice, under two names.",
                    kept="everything; nothing was read or written",
                    do="name only one of them",
                )


def check_checkpoint(checkpoint: str, tables: Sequence[str]) -> None:
    """Refuse a checkpoint that VACUUM deletes: one in a folder of a table that it does not spare.

    :raises InputError: As said.
    """
    for table in tables:
        if is_cleaned(checkpoint, table):
            raise InputError(
                f"The checkpoint {checkpoint} lies in the table {table}, in a folder that VACUUM cleans: "
                "without the records the next run would load every file again.",
                kept="everything; nothing was read or written",
                do=f"use {tables[0]}/_checkpoint (the default: VACUUM spares names that begin with _), or "
                "a folder next to the table. If there are records already, move their whole folder there "
                "while no run is active",
            )


def is_cleaned(path: str, table: str) -> bool:
    """Tell whether a place lies in a table where VACUUM deletes what is not the table's.

    Delta spares what is below a name that begins with ``_`` or ``.``, at any depth, unless it looks like a
    partition; delta-rs asks the first name alone. Delta's own folders are no place for others.
    """
    inside = _below(path, table)
    if inside is None:
        return False
    first = inside.partition("/")[0]
    is_hidden = first.startswith((".", "_")) and "=" not in first
    return not is_hidden or first.startswith(_DELTAS_OWN)


def _below(path: str, folder: str) -> str | None:
    """Give the part of a path below a folder: empty for the folder itself, None if it is elsewhere."""
    if path == folder:
        return ""
    start = folder.rstrip("/") + "/"
    return path[len(start) :] if path.startswith(start) else None
