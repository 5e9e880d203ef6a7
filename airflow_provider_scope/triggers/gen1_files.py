"""Look for files that arrive, once or until there are enough of them; the triggerer does the waiting."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from airflow.providers.common.compat.connection import get_async_connection
from airflow.providers.common.compat.sdk import AirflowNotFoundException
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_provider_scope import validation
from airflow_provider_scope.engines.clock import now_ms
from airflow_provider_scope.exceptions import (
    InputError,
    ScopeProviderError,
    SourceNotFoundError,
    SourceUnreadableError,
)
from airflow_provider_scope.hooks.adls_gen1 import AdlsGen1Hook
from airflow_provider_scope.hooks.settings import connection_missing
from airflow_provider_scope.protocol.seen import Tally
from airflow_provider_scope.sources.files.discovery import Requirements, absent, arrived, check_one_store
from airflow_provider_scope.specs import Checkpoint
from airflow_provider_scope.stores.kinds import kind_of
from airflow_provider_scope.stores.protocol import canonical_root, canonical_uri
from airflow_provider_scope.triggers.job import SHORTEST_HOLD_SECONDS
from airflow_provider_scope.validation import Amount, Count, Several, Whole
from airflow_provider_scope.values import iso_time
from airflow_provider_scope.waiting import TRIES, next_look

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from airflow.providers.common.compat.sdk import Connection

    from airflow_provider_scope.protocol.seen import History
    from airflow_provider_scope.sources.files.discovery import Arrival
    from airflow_provider_scope.values import FileEntry
    from airflow_provider_scope.waiting import NextLook

PATTERNS = (r".*\.ss$",)
STABLE_FOR_SECONDS = 30.0


def _modified_after(argument: str, value: Any) -> Any:
    return validation.instant(argument, value) if validation.is_given(value) else None


@validation.checked
@dataclass(frozen=True, slots=True, kw_only=True)
class FileSearch:
    """Where to look, and for what: the arguments that the sensor and the trigger have in common."""

    source_roots: Several
    source_patterns: Annotated[Sequence[str], partial(validation.patterns, ending="ss")] = PATTERNS
    min_files: Count | str = 1
    min_bytes: Whole | str = 0
    modified_after: Annotated[datetime | str, _modified_after] | None = None
    newer_than_checkpoint: str | None = None
    stable_for_seconds: Amount | str = STABLE_FOR_SECONDS
    missing_root: Literal["wait", "fail"] = "wait"
    adls_gen1_conn_id: str = AdlsGen1Hook.default_conn_name

    @property
    def roots(self) -> tuple[str, ...]:
        """Canonical URIs.

        :raises InputError: They are on several stores, or one is not valid.
        """
        roots = tuple(dict.fromkeys(canonical_root(root) for root in self.source_roots))
        check_one_store(roots)
        return roots

    @property
    def checkpoint(self) -> str | None:
        """Canonical URI of a table or a checkpoint."""
        return canonical_uri(self.newer_than_checkpoint) if self.newer_than_checkpoint else None

    @property
    def requirements(self) -> Requirements:
        """What the files have to be; all arguments are known."""
        stable = self.stable_for_seconds
        return Requirements(
            patterns=tuple(self.source_patterns),
            min_files=int(self.min_files or 1),
            min_bytes=int(self.min_bytes or 0),
            modified_after_ms=validation.instant_ms("modified_after", self.modified_after),
            stable_for_ms=int(float(STABLE_FOR_SECONDS if stable is None else stable) * 1000),
        )

    @property
    def needs_connection(self) -> bool:
        """Whether one of the locations needs one."""
        return any(kind_of(uri).needs_connection for uri in (*self.roots, self.checkpoint or ""))


ARGUMENTS = tuple(field.name for field in fields(FileSearch))


def search_from(arguments: Mapping[str, Any]) -> FileSearch:
    """Check the arguments, as far as they are known; texts of numbers become numbers.

    :raises InputError: A value is not valid.
    """
    return validation.from_dict(FileSearch, "arguments", arguments)


def detect_arrival(
    search: FileSearch, *, connection: Connection | None = None, stopped: Callable[[], bool] = lambda: False
) -> Arrival:
    """List the folders once and report which files have arrived.

    :param connection: The one that ``search`` names, where it was read before.
    :param stopped: Asked after each file; True ends the listing with an error.
    :raises ScopeProviderError: What has arrived is not known.
    """
    from airflow_provider_scope.hooks.stores import store_of

    began_ms = now_ms()
    roots, checkpoint, conn_id = search.roots, search.checkpoint, search.adls_gen1_conn_id
    after_ms = search.requirements.modified_after_ms
    loaded, not_taken_over = (
        loaded_files(checkpoint, roots, after_ms, conn_id, connection) if checkpoint else (None, None)
    )
    store = store_of(roots[0], conn_id, connection=connection)

    def listing() -> Iterator[FileEntry]:
        for root in roots:
            for file in store.storage.walk(root):
                if stopped():
                    raise SourceUnreadableError(f"The listing of {root} was stopped.")
                yield file

    try:
        return arrived(
            listing(),
            search.requirements,
            roots,
            now_ms=began_ms,
            loaded=loaded,
            not_taken_over=not_taken_over,
        )
    except SourceNotFoundError as err:
        if search.missing_root == "fail":
            err.do = "check `source_roots`. If the folder appears later, set missing_root='wait'"
            raise
        return absent(err.what)
    finally:
        if store.hook:
            store.hook.close()


def loaded_files(
    location: str,
    roots: tuple[str, ...],
    after_ms: int | None,
    conn_id: str | None = None,
    connection: Connection | None = None,
) -> tuple[History, Callable[[Sequence[FileEntry]], Sequence[FileEntry]]]:
    """Read the log of a pipeline and give the files of its batches that are recorded as committed.

    The files of an open batch are not among them: they still have to be loaded, and a wait that comes
    before the load would hold it up. No log yet means that nothing is loaded, aside from what a run would
    take over from dbt-scope.

    :param location: Canonical URI of the checkpoint, or of the table with a checkpoint below it.
    :param roots: Canonical URIs of the folders that are searched.
    :param after_ms: ``modified_after``.
    :param conn_id: The connection of the checkpoint's store; ``connection`` is itself, if it was read before.
    :return: These files, and what gives those of some files that dbt-scope has not loaded either.
    :raises InputError: The files may be loaded by intervals.
    :raises ScopeProviderError: The log, or what dbt-scope left, could not be read.
    """
    from airflow_provider_scope.engines.assembly import audit_files, open_log
    from airflow_provider_scope.protocol import dbt_scope
    from airflow_provider_scope.protocol.intervals import known_intervals
    from airflow_provider_scope.sources.files.source import read_loaded

    log = open_log(location, Checkpoint(location=location), storage_conn_id=conn_id, connection=connection)
    if log.pipeline() is None and not known_intervals(log.storage, log.location):
        log = open_log(location, Checkpoint(), storage_conn_id=conn_id, connection=connection)
    last = max((window.end_ms for window in known_intervals(log.storage, log.location)), default=None)
    if last is not None and (after_ms is None or after_ms < last - 1):
        raise InputError(
            f"The intervals in {log.location} reach to {iso_time(last)}, and each has a log of its own: "
            "newer_than_checkpoint does not tell which of their files are loaded.",
            kept="everything; nothing was written",
            do="leave newer_than_checkpoint out, and set modified_after, such as '{{ data_interval_start }}'",
        )
    view = read_loaded(log, audit_files(log, Checkpoint()), roots)
    for entry in view.open:
        view.seen.remove(entry.slice.audited)
    return view.seen, lambda files: dbt_scope.not_loaded(log, view, files, Tally())


# ---- the wait ----

TEXT_LIMIT_BYTES = 1024
"""JSON of each text in an event."""


def described(err: Exception) -> dict[str, str]:
    """Describe an error in an event, shortened; of one that is not ours only its class, without its text."""
    if not isinstance(err, ScopeProviderError):
        err = SourceUnreadableError(
            f"The triggerer could not look for files: {type(err).__name__}.",
            kept="everything; nothing was written",
            do="see the triggerer's log; the next try looks again",
        )
    return {name: _short(text) for name, text in err.to_dict().items()}


class AdlsGen1FilesTrigger(BaseEventTrigger):
    r"""Fire when files have arrived.

    With a ``deadline`` it is the waiting part of ``AdlsGen1FileSensor``: it fires once, when the files are
    there, at the deadline, or when they cannot be looked for. Without one it is for an ``AssetWatcher``: it
    fires whenever the files that count are complete and differ from those that it fired for before. Failures
    are logged and tried again for ever. It never raises.

    The arguments are those of the sensor; they are checked when it runs, because an error here would hit
    the triggerer itself.

    :param poll_interval: Seconds between two listings, at least 10.
    :param deadline: Seconds since the epoch.
    """

    def __init__(
        self,
        *,
        source_roots: str | Sequence[str],
        source_patterns: str | Sequence[str] = PATTERNS,
        min_files: int = 1,
        min_bytes: int = 0,
        modified_after: datetime | str | None = None,
        newer_than_checkpoint: str | None = None,
        stable_for_seconds: float = STABLE_FOR_SECONDS,
        missing_root: str = "wait",
        adls_gen1_conn_id: str = AdlsGen1Hook.default_conn_name,
        poll_interval: float = 60.0,
        deadline: float | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # Airflow has no annotations here
        self.arguments: dict[str, Any] = {
            "source_roots": _plain(source_roots),
            "source_patterns": _plain(source_patterns),
            "min_files": min_files,
            "min_bytes": min_bytes,
            "modified_after": _plain(modified_after),
            "newer_than_checkpoint": newer_than_checkpoint,
            "stable_for_seconds": stable_for_seconds,
            "missing_root": missing_root,
            "adls_gen1_conn_id": adls_gen1_conn_id,
        }
        self.poll_interval = max(poll_interval, SHORTEST_HOLD_SECONDS)
        self.deadline = deadline

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the arguments: places, numbers and the connection's name; they are stored as plain text."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {**self.arguments, "poll_interval": self.poll_interval, "deadline": self.deadline},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until there is something to tell; without a deadline, again and again."""
        reported = await self._recall() if self.deadline is None else None
        while True:
            began = self._clock()
            event, reported = await self._wait(reported)
            await self._sleep(max(0.0, began + SHORTEST_HOLD_SECONDS - self._clock()))
            yield TriggerEvent(event)  # type: ignore[no-untyped-call]
            if self.deadline is not None:
                return
            # After the event: a triggerer that dies in between tells it twice, and never not at all.
            await self._remember(reported)

    async def _wait(self, reported: str | None) -> tuple[dict[str, Any], str]:
        """Look until there is something to tell.

        :param reported: The fingerprint of the files that were told last.
        :return: The event, and the fingerprint of its files.
        """
        failures = 0
        while True:
            arrival: Arrival | None = None
            problem: Exception | None = None
            fingerprint = ""
            try:
                arrival = await self._detect_arrival()
                fingerprint = await asyncio.to_thread(arrival.fingerprint)
                failures = 0
                self.log.info("%s", arrival.text)
            except Exception as err:  # noqa: BLE001 - a trigger that raises loses what happened
                failures += 1
                problem = err
                self.log.warning("Could not look for the files (%d): %s", failures, _shown(err))
            is_news = arrival is not None and arrival.is_complete and fingerprint != reported
            if is_news:
                return self._event("arrived", arrival, problem), fingerprint
            look = self._next(problem, failures)
            if look.status != "waiting":
                return self._event(look.status, arrival, problem), fingerprint
            await self._sleep(look.seconds)

    def _next(self, problem: Exception | None, failures: int) -> NextLook:
        return next_look(
            failures=failures,
            can_retry=can_retry(problem),
            # A watcher has nobody to tell of a failure: each of its events makes a Dag run.
            tries=None if self.deadline is None else TRIES,
            now=self._clock(),
            deadline=self.deadline,
            interval_seconds=self.poll_interval,
            jitter=random.random(),  # noqa: S311 - spreads looks, guards nothing
        )

    def _event(self, status: str, arrival: Arrival | None, problem: Exception | None) -> dict[str, Any]:
        if self.deadline is None and arrival:
            return arrival.to_xcom()
        event: dict[str, Any] = {"status": status}
        if status == "arrived" and arrival:
            event["arrival"] = arrival.to_xcom()
        if arrival:
            event["text"] = _short(arrival.text)
        if problem:
            event["error"] = described(problem)
        return event

    async def _detect_arrival(self) -> Arrival:
        search = search_from(self.arguments)
        # Read each time: a wait may be longer than the life of a secret.
        conn_id = search.adls_gen1_conn_id if search.needs_connection else None
        try:
            connection = await get_async_connection(conn_id) if conn_id else None
        except AirflowNotFoundException as err:
            raise connection_missing(conn_id or "") from err
        stop = threading.Event()
        try:
            return await asyncio.to_thread(detect_arrival, search, connection=connection, stopped=stop.is_set)
        finally:
            stop.set()  # on a cancellation: a triggerer that ends waits for its threads

    _clock = staticmethod(time.time)
    _sleep = staticmethod(asyncio.sleep)

    # ---- what a watcher has told, over restarts of the triggerer ------------------------------------

    @property
    def _key(self) -> str:
        arguments = json.dumps(self.arguments, sort_keys=True, default=str)
        return f"told_files_{hashlib.sha256(arguments.encode()).hexdigest()[:16]}"

    async def _recall(self) -> str | None:
        store = getattr(self, "asset_state_store", None)  # Airflow 3.3 and newer, one asset
        try:
            reported = None if store is None else await store.aget(self._key)
        except Exception as err:  # noqa: BLE001 - without it the same files are told once more
            self.log.warning("The files that were reported before cannot be read: %s", _shown(err))
            return None
        return reported if isinstance(reported, str) else None

    async def _remember(self, reported: str) -> None:
        store = getattr(self, "asset_state_store", None)
        try:
            if store is not None:
                await store.aset(self._key, reported)
        except Exception as err:  # noqa: BLE001 - as above
            self.log.warning("The files that were reported cannot be stored: %s", _shown(err))


def can_retry(problem: Exception | None) -> bool:
    """Whether another look may bring an answer; a folder that must be there is missing for good."""
    return (
        isinstance(problem, ScopeProviderError)
        and problem.is_retryable
        and not isinstance(problem, SourceNotFoundError)
    )


def _plain(value: Any) -> Any:
    """Convert a value to what JSON has: what the triggerer gets must be what was stored."""
    if isinstance(value, datetime):
        return value.isoformat()
    return list(value) if isinstance(value, tuple) else value


def _short(text: str) -> str:
    while len(json.dumps(text)) > TEXT_LIMIT_BYTES:
        text = text[: -max(1, len(text) // 20)]
    return text


def _shown(err: Exception) -> str:
    return str(err) if isinstance(err, ScopeProviderError) else type(err).__name__
