"""Wait in the triggerer for files that arrive."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import threading
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.connection import get_async_connection
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_provider_scope import exceptions
from airflow_provider_scope.exceptions import ScopeProviderError, SourceNotFoundError, SourceUnreadableError
from airflow_provider_scope.hooks.adls_gen1 import AdlsGen1Hook
from airflow_provider_scope.sources.files.arrival import TRIES, next_look
from airflow_provider_scope.triggers.file_search import (
    PATTERNS,
    STABLE_FOR_SECONDS,
    detect_arrival,
    search_from,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from airflow_provider_scope.sources.files.arrival import Arrival, NextLook

SHORTEST_HOLD_SECONDS = 10.0
"""See ``triggers.scope_job``: a trigger that fires sooner makes Airflow 3.3 fail the task."""

TEXT_LIMIT_BYTES = 1024
"""JSON of each text in an event."""


def described(err: Exception) -> dict[str, str]:
    """Give an error as texts for an event; of one that is not ours the kind alone, it may hold secrets."""
    if not isinstance(err, ScopeProviderError):
        return {"error": type(err).__name__, "what": "", "kept": "", "do": ""}
    texts = {"what": err.what, "kept": err.kept, "do": err.do}
    return {"error": type(err).__name__, **{name: _short(text) for name, text in texts.items()}}


def error_of(event: Mapping[str, str]) -> ScopeProviderError:
    """Give the error that ``described`` described."""
    kind = getattr(exceptions, event["error"], None)
    if isinstance(kind, type) and issubclass(kind, ScopeProviderError):
        return kind(event["what"], kept=event["kept"], do=event["do"])
    return SourceUnreadableError(
        f"The triggerer could not look for files: {event['error']}.",
        kept="everything; nothing was written",
        do="see the triggerer's log; the next try looks again",
    )


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
        """Give the arguments: places, numbers and the connection's name; they are stored as plain text."""
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
            step = self._next(problem, failures, is_news=is_news)
            if step.status == "waiting":
                await self._sleep(step.seconds)
                continue
            return self._event(step, arrival, problem), fingerprint

    def _next(self, problem: Exception | None, failures: int, *, is_news: bool) -> NextLook:
        return next_look(
            is_complete=is_news,
            failures=failures,
            can_retry=can_retry(problem),
            # A watcher has nobody to tell of a failure: each of its events makes a Dag run.
            tries=None if self.deadline is None else TRIES,
            now=self._clock(),
            deadline=self.deadline,
            interval_seconds=self.poll_interval,
            jitter=random.random(),  # noqa: S311 - spreads looks, guards nothing
        )

    def _event(self, step: NextLook, arrival: Arrival | None, problem: Exception | None) -> dict[str, Any]:
        if self.deadline is None and arrival:
            return arrival.to_xcom()
        event: dict[str, Any] = {"status": step.status}
        if step.status == "arrived" and arrival:
            event["found"] = arrival.to_xcom()
        if arrival:
            event["text"] = _short(arrival.text)
        if problem:
            event.update(described(problem))
        return event

    async def _detect_arrival(self) -> Arrival:
        search = search_from(self.arguments)
        # Read each time: a wait may be longer than the life of a secret.
        connection = await get_async_connection(search.conn_id) if search.needs_connection else None
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
    """Tell whether another look may bring an answer; a folder that must be there is missing for good."""
    return (
        isinstance(problem, ScopeProviderError)
        and problem.is_retryable
        and not isinstance(problem, SourceNotFoundError)
    )


def _plain(value: Any) -> Any:
    """Give a value as what JSON has: what the triggerer gets must be what was stored."""
    if isinstance(value, datetime):
        return value.isoformat()
    return list(value) if isinstance(value, tuple) else value


def _short(text: str) -> str:
    while len(json.dumps(text)) > TEXT_LIMIT_BYTES:
        text = text[: -max(1, len(text) // 20)]
    return text


def _shown(err: Exception) -> str:
    return str(err) if isinstance(err, ScopeProviderError) else type(err).__name__
