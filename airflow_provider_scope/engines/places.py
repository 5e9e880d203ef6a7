"""Where a pipeline reads and writes: as the Dag names it, and as links on the worker's disk lead there.

Folders that a run reads and folders that it writes may not hold each other.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.sources.files.discovery import Rules, candidates
from airflow_provider_scope.specs.ingest import files_of
from airflow_provider_scope.stores.kinds import place_of
from airflow_provider_scope.stores.local import SCHEME, local_path
from airflow_provider_scope.stores.protocol import canonical_root, canonical_uri
from airflow_provider_scope.validation import is_deferred
from airflow_provider_scope.values import TEXT_FORMATS, FileEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_provider_scope.specs.ingest import Ingest


def check_literal_places(ingest: Ingest) -> None:
    """Do what ``check_places`` does while the Dag is parsed: without templates, and without the disk.

    :raises InputError: As said.
    """
    source = ingest.source
    folders = (
        ingest.checkpoint.location,
        ingest.table.quarantine,
        source.table_folder,
        source.metadata_table,
    )
    if not ingest.delta_location or any(map(is_deferred, (ingest.delta_location, *folders))):
        return
    _check(ingest, source.literal_roots, lambda uri: uri)


def check_places(ingest: Ingest) -> None:
    """Refuse a root in which runs would find their own output, and a checkpoint that VACUUM deletes.

    :raises InputError: As said.
    """
    named = ingest.source.file_roots
    _check(ingest, named, lambda uri: uri)
    _check(ingest, named, _real)
    roots = [canonical_root(root) for root in named]
    check_distinct(roots, [_real(root) for root in roots])


def _check(ingest: Ingest, roots: Sequence[str], resolved: Callable[[str], str]) -> None:
    table = canonical_uri(ingest.delta_location)
    tables = [table]
    source = ingest.source
    if source.puts_bad_records_aside:
        tables.append(quarantine_of(table, ingest.table.quarantine))
    tables = [resolved(uri) for uri in tables]
    location = ingest.checkpoint.location
    checkpoint = resolved(canonical_uri(location) if location else f"{table}/_checkpoint")
    check_checkpoint(checkpoint, tables)
    if source.table_folder is not None:
        source_table = resolved(canonical_uri(source.table_folder))
        if source_table == tables[0]:
            raise InputError(
                f"source.table is {source.table_folder}, the table that is written to: each load would read "
                "what the last one wrote.",
                kept="everything; nothing was read or written",
                do="correct source.table or delta_location",
            )
        if source.metadata_table is not None:
            metadata_table = resolved(canonical_uri(source.metadata_table))
            _check_metadata(metadata_table, (source_table, tables[0], checkpoint))
    if roots:
        files = files_of(source)
        # Without the times that a run has, which may still be templates.
        rules = Rules(patterns=files.name_patterns, young_after_ms=1, is_text=files.format in TEXT_FORMATS)
        check_roots([resolved(canonical_root(root)) for root in roots], rules, tables, checkpoint)


def _check_metadata(location: str, folders: Sequence[str]) -> None:
    """Refuse a metadata table that overlaps with a folder of the load.

    :param folders: URIs of the source, the target and its checkpoint.
    """
    for name, folder in zip(("the source", "the target", "the checkpoint"), folders, strict=True):
        if _overlap(location, folder):
            raise InputError(
                f"source.metadata_location is {location}, which is {name} {folder}, inside it, or contains "
                "it.",
                kept="everything; nothing was read or written",
                do="name a separate folder, outside the source, the target and the checkpoint",
            )


def _real(uri: str) -> str:
    """Return where a path on the worker's disk leads; other stores have no links."""
    return SCHEME + os.path.realpath(local_path(uri)) if uri.startswith(SCHEME) else uri


def quarantine_of(table: str, named: str | None) -> str:
    """Return the URI of the table for what is put aside.

    :param table: URI of the target.
    :param named: What the user named; None is the table beside the target.
    :raises InputError: It cannot be there.
    """
    if named is None:
        return f"{table}_quarantine"
    quarantine = canonical_uri(named)
    if place_of(quarantine) != place_of(table) or _overlap(quarantine, table):
        raise InputError(
            f"The quarantine {quarantine} is inside the table {table}, contains it, or is on another store.",
            kept="everything; nothing was read or written",
            do="name a separate folder next to the table: table=TableSpec(quarantine=…)",
        )
    return quarantine


# ---- which folders may not hold each other ----

_ID = "0b5c7a9e-3f42-4d3f-a6a1-53b1b0d9c7e4"
_NUMBER = f"{4:020}"
DATA_FILES = (
    *(f"part-0000{n}-{_ID}.c000.{kind}parquet" for n in (0, 1, 7) for kind in ("", "snappy.", "zstd.")),
    *(f"part-0000{n}-{_ID}-c000.{kind}.parquet" for n in (0, 1, 7) for kind in ("snappy", "zstd")),
    f"{_ID}.parquet",
    f"deletion_vector_{_ID}.bin",
)
"""Names like those that writers give to a table's files: Spark's, those of delta-rs, and others'."""
_TABLE_FILES = (
    *DATA_FILES,
    *(f"_delta_log/{_NUMBER}{end}" for end in (".json", ".crc", ".checkpoint.parquet")),
    f"_delta_log/_sidecars/{_ID}.parquet",
    "_delta_log/_last_checkpoint",
    *(f"_change_data/cdc-{name.removeprefix('part-')}" for name in DATA_FILES if name.startswith("part-")),
)
_CHECKPOINT_FILES = (
    *(f"{folder}/{_NUMBER}" for folder in ("offsets", "commits", "accepted", "quarantines", "schemas")),
    *(f"attempts/{_NUMBER}.0{end}" for end in ("", ".settled")),
    *("pipeline.json", "watermark.json", "sources/4", "sources/4.parquet"),
    *(f"plans/{_ID}{end}" for end in ("", ".1", ".1.events")),
    *(f"taken_over/{_NUMBER}", f"taken_over/{_ID}.parquet", f"taken_over/{_ID}.decided"),
    "intervals/20130101T000000000Z_20130102T000000000Z.json",
)
_DELTA_FOLDERS = ("_delta_index", "_change_data", "_delta_log")
"""How hidden folders begin whose files VACUUM or the log's cleaning deletes."""


def check_roots(roots: Sequence[str], rules: Rules, tables: Sequence[str], checkpoint: str) -> None:
    """Refuse a root in which a later run would find what this one wrote.

    Discovery itself decides that, on names like those that a run writes.

    :param roots: Canonical URIs.
    :param rules: Which names count, at any time: one day every file is old enough.
    :param tables: The table, and that for what is put aside, if there is one.
    :raises InputError: As said; or a root lies where VACUUM deletes its files.
    """
    for table in tables:
        for root in roots:
            if is_cleaned(root, table):
                raise InputError(
                    f"The root {root} lies in the table {table}: a run would load its own output, and "
                    "VACUUM deletes every file there that is not the table's.",
                    kept="everything; nothing was read or written",
                    do="move the files out of the table's folder, and name their new folder in `roots`",
                )
    written = [f"{table}/{name}" for table in tables for name in _TABLE_FILES]
    written += [f"{checkpoint}/{name}" for name in _CHECKPOINT_FILES]
    for root in roots:
        inside = [FileEntry(1, path, 1) for path in written if _below(path, root)]
        paths_found = {file.path for file in candidates(inside, rules, (root,)).files}
        if paths_found:
            path = next(path for path in written if path in paths_found)
            place = next(p for p in (checkpoint, *tables) if _below(path, p))
            kind = "checkpoint" if place == checkpoint else "table"
            raise InputError(
                f"The root {root} contains the {kind} {place}, and the patterns match names of files "
                f"there, such as {path[len(place) + 1 :]}: a run would load its own output.",
                kept="everything; nothing was read or written",
                do="name the folders next to it in `roots`, or use patterns that match only your files",
            )


def check_distinct(roots: Sequence[str], real: Sequence[str]) -> None:
    """Refuse two roots that lead to the same files under two names: each file would be loaded twice.

    :param real: Where each root leads.
    :raises InputError: As said.
    """
    for root, real_root in zip(roots, real, strict=True):
        for alias, real_alias in zip(roots, real, strict=True):
            if _below(real_alias, real_root) is not None and _below(alias, root) is None:
                raise InputError(
                    f"The roots {root} and {alias} lead to the same files: {real_root}, {real_alias}. "
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
    """Return whether a place lies in a table where VACUUM deletes what is not the table's.

    Delta spares what is below a name that begins with ``_`` or ``.``, at any depth, unless it looks like a
    partition; delta-rs asks the first name alone. Delta's own folders are no place for others.
    """
    inside = _below(path, table)
    if inside is None:
        return False
    first = inside.partition("/")[0]
    is_hidden = first.startswith((".", "_")) and "=" not in first
    return not is_hidden or first.startswith(_DELTA_FOLDERS)


def _overlap(first: str, second: str) -> bool:
    """Whether two folders are one, or one of them lies in the other."""
    return _below(first, second) is not None or _below(second, first) is not None


def _below(path: str, folder: str) -> str | None:
    """Return the part of a path below a folder: empty for the folder itself, None if it is elsewhere."""
    if path == folder:
        return ""
    start = folder.rstrip("/") + "/"
    return path[len(start) :] if path.startswith(start) else None
