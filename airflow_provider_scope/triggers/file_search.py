"""Look for files once: where, for what, and what is there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_scope import validation
from airflow_provider_scope.engines.clock import now_ms
from airflow_provider_scope.exceptions import (
    InputError,
    SourceNotFoundError,
    SourceUnreadableError,
)
from airflow_provider_scope.sources.files.arrival import Requirements, absent, arrived
from airflow_provider_scope.sources.files.discovery import Tally
from airflow_provider_scope.sources.files.spec import starting_at_ms
from airflow_provider_scope.specs import Checkpoint
from airflow_provider_scope.stores.kinds import kind_of, place_of
from airflow_provider_scope.stores.opening import canonical_root, canonical_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from airflow.providers.common.compat.sdk import Connection

    from airflow_provider_scope.sources.files.arrival import Arrival
    from airflow_provider_scope.sources.files.discovery import History
    from airflow_provider_scope.values import FileEntry

PATTERNS = (r".*\.ss$",)
STABLE_FOR_SECONDS = 30.0

ARGUMENTS = (
    "source_roots",
    "source_patterns",
    "min_files",
    "min_bytes",
    "modified_after",
    "newer_than_checkpoint",
    "stable_for_seconds",
    "missing_root",
    "adls_gen1_conn_id",
)
"""What the sensor and the trigger have in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Where to look and for what: the arguments, checked."""

    roots: tuple[str, ...]
    """Canonical URIs, all on one store."""
    criteria: Requirements
    checkpoint: str | None
    """Canonical URI of a table or a checkpoint."""
    missing_root: Literal["wait", "fail"]
    conn_id: str

    @property
    def needs_connection(self) -> bool:
        """Whether one of the locations needs one."""
        return any(kind_of(uri).needs_connection for uri in (*self.roots, self.checkpoint or ""))


def check(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Check the arguments as far as they are known, and give them with texts of numbers made numbers.

    :param raw: The names in ``ARGUMENTS``.
    :raises InputError: A value is not valid.
    """
    texts = ("source_roots", "source_patterns", "newer_than_checkpoint", "modified_after")
    checked = {name: validation.as_text(value) if name in texts else value for name, value in raw.items()}
    for name in ("source_roots", "source_patterns"):
        checked[name] = validation.texts(name, checked[name], needed=True)
    if not validation.is_deferred(checked["source_patterns"]):
        for pattern in checked["source_patterns"]:
            _check_pattern(pattern)
    checked["min_files"] = validation.number("min_files", raw["min_files"], at_least=1)
    checked["min_bytes"] = validation.number("min_bytes", raw["min_bytes"], at_least=0)
    stable = validation.number("stable_for_seconds", raw["stable_for_seconds"], at_least=0, whole=False)
    checked["stable_for_seconds"] = stable
    _modified_after_ms(checked["modified_after"])
    if checked["newer_than_checkpoint"] is not None:
        validation.text("newer_than_checkpoint", checked["newer_than_checkpoint"])
    validation.one_of("missing_root", raw["missing_root"], ("wait", "fail"))
    validation.text("adls_gen1_conn_id", raw["adls_gen1_conn_id"])
    return checked


def search_from(raw: Mapping[str, Any]) -> Search:
    """Make a search out of arguments that are all known.

    :raises InputError: A value is not valid.
    """
    values = check(raw)
    roots = tuple(dict.fromkeys(canonical_root(root) for root in values["source_roots"]))
    if len({place_of(root) for root in roots}) > 1:
        raise InputError(
            f"The source_roots {', '.join(roots)} are on different stores.",
            kept="everything; nothing was listed",
            do="use one sensor for each store",
        )
    stable, checkpoint = values["stable_for_seconds"], values["newer_than_checkpoint"]
    return Search(
        roots=roots,
        criteria=Requirements(
            patterns=tuple(values["source_patterns"]),
            min_files=values["min_files"] or 1,
            min_bytes=values["min_bytes"] or 0,
            modified_after_ms=_modified_after_ms(values["modified_after"]),
            stable_for_ms=int((STABLE_FOR_SECONDS if stable is None else stable) * 1000),
        ),
        checkpoint=canonical_uri(checkpoint) if checkpoint else None,
        missing_root=values["missing_root"],
        conn_id=values["adls_gen1_conn_id"],
    )


def detect_arrival(
    search: Search, *, connection: Connection | None = None, stopped: Callable[[], bool] = lambda: False
) -> Arrival:
    """List the folders once and report which files have arrived.

    :param connection: The one that ``search`` names, where it was read before.
    :param stopped: Asked after each file; True ends the listing with an error.
    :raises ScopeProviderError: What has arrived is not known.
    """
    from airflow_provider_scope.hooks.stores import store_of

    began_ms = now_ms()
    loaded = NOTHING
    if search.checkpoint:
        loaded = loaded_files(search.checkpoint, search.roots, search.conn_id, connection)
    store = store_of(search.roots[0], search.conn_id, connection=connection)

    def listing() -> Iterator[FileEntry]:
        for root in search.roots:
            for file in store.storage.walk(root):
                if stopped():
                    raise SourceUnreadableError(f"The listing of {root} was stopped.")
                yield file

    try:
        return arrived(
            listing(),
            search.criteria,
            search.roots,
            now_ms=began_ms,
            loaded=loaded.seen,
            not_taken_over=loaded.not_taken_over,
        )
    except SourceNotFoundError as err:
        if search.missing_root == "fail":
            raise
        return absent(err.what)
    finally:
        if store.hook:
            store.hook.close()


@dataclass(frozen=True, slots=True)
class LoadedFiles:
    """What counts as loaded."""

    seen: History | None = None
    not_taken_over: Callable[[Sequence[FileEntry]], Sequence[FileEntry]] | None = None
    """Gives those of some files that dbt-scope has not loaded."""


NOTHING = LoadedFiles()


def loaded_files(
    location: str,
    roots: tuple[str, ...],
    conn_id: str | None = None,
    connection: Connection | None = None,
) -> LoadedFiles:
    """Read the log of a pipeline and give the files of its batches that are recorded as committed.

    The files of an open batch are not among them: they still have to be loaded, and a wait that comes
    before the load would hold it up. No log yet means that nothing is loaded, aside from what a run would
    take over from dbt-scope.

    :param location: Canonical URI of the checkpoint, or of the table with a checkpoint below it.
    :param roots: Canonical URIs of the folders that are searched.
    :param conn_id: The connection of the checkpoint's store; ``connection`` is itself, if it was read before.
    :raises ScopeProviderError: The log, or what dbt-scope left, could not be read.
    """
    from airflow_provider_scope.engines.assembly import audit_files, open_log
    from airflow_provider_scope.protocol import dbt_scope
    from airflow_provider_scope.sources.files.source import read_loaded

    log = open_log(location, Checkpoint(location=location), storage_conn_id=conn_id, connection=connection)
    if log.pipeline() is None:
        log = open_log(location, Checkpoint(), storage_conn_id=conn_id, connection=connection)
    view = read_loaded(log, audit_files(log, Checkpoint()), roots, now_ms())
    for entry in view.open:
        view.seen.remove(entry.slice.audited)
    return LoadedFiles(view.seen, lambda files: dbt_scope.not_loaded(log, view, files, Tally()))


def _check_pattern(pattern: str) -> None:
    if validation.is_deferred(pattern):
        return
    try:
        re.compile(pattern)
    except re.error as err:
        expected = f"a regular expression ({err})"
        do = r"regular expressions are searched in the file's name; for *.ss write r'.*\.ss$'"
        raise validation.bad("source_patterns", pattern, expected, do) from err


def _modified_after_ms(value: Any) -> int | None:
    """Give milliseconds since the epoch; a template of a date that there is not renders to ``None``."""
    if isinstance(value, str) and value.strip() in ("", "None"):
        return None
    try:
        return starting_at_ms(value)
    except InputError:
        expected = "a time with its zone, such as '2026-01-01T00:00:00+00:00'"
        raise validation.bad("modified_after", value, expected) from None
