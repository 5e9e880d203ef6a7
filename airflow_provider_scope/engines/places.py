"""Where a pipeline reads and writes: as the Dag names it, and as links on the worker's disk lead there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from airflow_provider_scope.core import places
from airflow_provider_scope.core.discovery import Rules
from airflow_provider_scope.core.files import TEXT_FORMATS, is_below
from airflow_provider_scope.core.stores import place_of
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.specs.changes import CdfSource
from airflow_provider_scope.specs.cursor import TableSource
from airflow_provider_scope.specs.ingest import puts_bad_records_aside
from airflow_provider_scope.specs.source import FileSource
from airflow_provider_scope.specs.validation import is_deferred
from airflow_provider_scope.storage.local import SCHEME, local_path
from airflow_provider_scope.storage.opening import canonical_root, canonical_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_provider_scope.specs.ingest import Ingest


def check_literal_places(ingest: Ingest) -> None:
    """Do what ``check_places`` does while the Dag is parsed: without templates, and without the disk.

    :raises InputError: As said.
    """
    named = (ingest.checkpoint.location, ingest.table.quarantine)
    if not ingest.delta_location or any(map(is_deferred, (ingest.delta_location, *named))):
        return
    source = ingest.source
    roots: list[str] = []
    if isinstance(source, (TableSource, CdfSource)):
        if is_deferred(source.table) or is_deferred(getattr(source, "metadata_location", None)):
            return
    elif not isinstance(source, FileSource):
        pass
    elif not _is_late(source.patterns or ()) and not is_deferred(source.roots):
        roots = [root for root in source.roots if not is_deferred(root)]
    _check(ingest, roots, lambda uri: uri)


def _is_late(values: Sequence[str]) -> bool:
    return is_deferred(values) or any(map(is_deferred, values))


def check_places(ingest: Ingest) -> None:
    """Refuse a root in which runs would find their own output, and a checkpoint that VACUUM deletes.

    :raises InputError: As said.
    """
    named = ingest.source.roots if isinstance(ingest.source, FileSource) else ()
    _check(ingest, named, lambda uri: uri)
    _check(ingest, named, _real)
    roots = [canonical_root(root) for root in named]
    places.check_distinct(roots, [_real(root) for root in roots])


def _check(ingest: Ingest, roots: Sequence[str], resolved: Callable[[str], str]) -> None:
    table = canonical_uri(ingest.delta_location)
    tables = [table]
    source = ingest.source
    if puts_bad_records_aside(source):
        tables.append(quarantine_of(table, ingest.table.quarantine))
    tables = [resolved(uri) for uri in tables]
    location = ingest.checkpoint.location
    checkpoint = resolved(canonical_uri(location) if location else f"{table}/_checkpoint")
    places.check_checkpoint(checkpoint, tables)
    if not isinstance(source, FileSource):
        if isinstance(source, (TableSource, CdfSource)):
            _check_other_table(source, resolved, tables[0])
        if isinstance(source, CdfSource) and source.metadata_location is not None:
            _check_metadata(source, resolved, (tables[0], checkpoint))
        return
    rules = Rules(
        patterns=source.name_patterns if roots else (),
        young_after_ms=0,
        is_text=source.format in TEXT_FORMATS,
    )
    places.check_roots([resolved(canonical_root(root)) for root in roots], rules, tables, checkpoint)


def _check_other_table(source: TableSource | CdfSource, resolved: Callable[[str], str], table: str) -> None:
    if not source.is_named and resolved(canonical_uri(source.table)) == table:
        raise InputError(
            f"source.table is {source.table}, the table that is written to: each load would read what the "
            "last one wrote.",
            kept="everything; nothing was read or written",
            do="correct source.table or delta_location",
        )


def _check_metadata(source: CdfSource, resolved: Callable[[str], str], others: Sequence[str]) -> None:
    """Refuse a table for people in the place of another one, inside of it, or around it.

    :param others: URIs of the target and its checkpoint.
    """
    location = resolved(canonical_uri(source.metadata_location or ""))
    names = ("the source", "the target", "the checkpoint")
    for name, other in zip(names, (resolved(canonical_uri(source.table)), *others), strict=True):
        if location == other or is_below(location, (other,)) or is_below(other, (location,)):
            raise InputError(
                f"source.metadata_location is {location}, which is {name} {other}, inside it, or contains "
                "it.",
                kept="everything; nothing was read or written",
                do="name a separate folder, outside the source, the target and the checkpoint",
            )


def _real(uri: str) -> str:
    """Give where a path on the worker's disk leads; other stores have no links."""
    return SCHEME + os.path.realpath(local_path(uri)) if uri.startswith(SCHEME) else uri


def quarantine_of(table: str, named: str | None) -> str:
    """Give the URI of the table for what is put aside.

    :param table: URI of the target.
    :param named: What the user named; None is the table beside the target.
    :raises InputError: It cannot be there.
    """
    if named is None:
        return f"{table}_quarantine"
    found = canonical_uri(named)
    if place_of(found) != place_of(table) or is_below(found, (table,)) or is_below(table, (found,)):
        raise InputError(
            f"The quarantine {found} is inside the table {table}, contains it, or is on another store.",
            kept="everything; nothing was read or written",
            do="name a separate folder next to the table: table=TableSpec(quarantine=…)",
        )
    return found


def check_one_store(roots: tuple[str, ...]) -> None:
    """Refuse roots of which one client cannot list all.

    :raises InputError: As said.
    """
    if len({place_of(root) for root in roots}) > 1:
        raise InputError(
            f"The roots {', '.join(roots)} are on different stores.",
            kept="everything; nothing was read or written",
            do="use one task for each store",
        )
