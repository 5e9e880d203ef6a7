"""Wait for files on Azure Data Lake Storage Gen1, or on a disk."""

from __future__ import annotations

import random
import time
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    BaseSensorOperator,
    PokeReturnValue,
    conf,
)

from airflow_provider_scope.exceptions import ScopeProviderError, SourceUnreadableError
from airflow_provider_scope.hooks.adls_gen1 import AdlsGen1Hook
from airflow_provider_scope.templates import KeepsPlainTexts
from airflow_provider_scope.triggers.gen1_files import (
    ARGUMENTS,
    PATTERNS,
    STABLE_FOR_SECONDS,
    AdlsGen1FilesTrigger,
    FileSearch,
    can_retry,
    detect_arrival,
    search_from,
)
from airflow_provider_scope.waiting import next_look

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from airflow_provider_scope.sources.files.discovery import Arrival

DEFAULT_DEFERRABLE = conf.getboolean("operators", "default_deferrable", fallback=False)

BACKSTOP_SECONDS = 120.0
"""How long after the deadline Airflow itself ends the wait: there may be no triggerer."""


class AdlsGen1FileSensor(KeepsPlainTexts, BaseSensorOperator):
    """Wait until files have arrived: enough of them, and none that is still being written.

    What counts as a file is what ``DeltaIncrementalIngestOperator`` would load: names that match and are
    not hidden, of more than zero bytes, a structured stream together with its folder.

    A folder that does not exist, one that must not be listed and a listing that failed are three things.
    Only the first may mean "not yet". The others are tried again after 10, 20, 40 and 80 seconds, and
    then fail the task: they are never taken for "no files", not by ``soft_fail`` either.

    :param source_roots: Folders, listed recursively: ``adl://`` URIs, or absolute paths and ``file:///``
        URIs, which need no connection.
    :param source_patterns: Regular expressions, searched in the file's name; one match is enough.
    :param min_files: How many files there must be.
    :param min_bytes: How many bytes they must have together.
    :param modified_after: Only files modified after this time count: a datetime with time zone, or
        ISO-8601 text. A template that gives ``None`` is no limit.
    :param newer_than_checkpoint: Table or checkpoint of a pipeline: only files count that it has not
        loaded. Its log is read at each look.
    :param stable_for_seconds: The newest file that counts must be at least this old, by the service's
        time of the file and the clock of this machine.
    :param missing_root: ``"wait"``: a folder that does not exist is one that comes later. ``"fail"``.
    :param adls_gen1_conn_id: A connection of type ``adls_gen1``.
    :param deferrable: Look once, and then wait in the triggerer.
    :return: As XCom: ``names`` (URIs, the first 20), ``count``, ``bytes``, ``newest`` (ISO-8601 time).
    :raises InputError: An argument is not valid; when the Dag is parsed, as far as it is known then.
    """

    template_fields: Sequence[str] = ARGUMENTS
    ui_color = "#e6f1f2"

    def __init__(
        self,
        *,
        source_roots: str | Sequence[str],
        source_patterns: str | Sequence[str] = PATTERNS,
        min_files: int | str = 1,
        min_bytes: int | str = 0,
        modified_after: datetime | str | None = None,
        newer_than_checkpoint: str | None = None,
        stable_for_seconds: float | str = STABLE_FOR_SECONDS,
        missing_root: str = "wait",
        adls_gen1_conn_id: str = AdlsGen1Hook.default_conn_name,
        deferrable: bool = DEFAULT_DEFERRABLE,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.source_roots = source_roots
        self.source_patterns = source_patterns
        self.min_files = min_files
        self.min_bytes = min_bytes
        self.modified_after = modified_after
        self.newer_than_checkpoint = newer_than_checkpoint
        self.stable_for_seconds = stable_for_seconds
        self.missing_root = missing_root
        self.adls_gen1_conn_id = adls_gen1_conn_id
        self.deferrable = deferrable
        self._search()

    def _search(self) -> FileSearch:
        return search_from({name: getattr(self, name) for name in ARGUMENTS})

    def execute(self, context: Context) -> Any:
        """Wait in the worker; or look once and wait in the triggerer."""
        if not self.deferrable:
            return super().execute(context)
        began = time.time()
        arrival: Arrival | None = None
        try:
            arrival = self._detect_arrival()
        except ScopeProviderError as err:
            if not can_retry(err):
                self._fail(err)
            self.log.warning("Could not look for the files: %s", err)
        if arrival is None or not arrival.is_complete:
            self._defer(began + self._longest_wait())
        return arrival.to_xcom()

    def poke(self, context: Context) -> PokeReturnValue:  # noqa: ARG002 - Airflow calls it so
        """Look, again if there is no answer."""
        failures = 0
        while True:
            try:
                arrival = self._detect_arrival()
            except ScopeProviderError as err:
                failures += 1
                jitter = random.random()  # noqa: S311 - spreads looks, guards nothing
                step = next_look(failures=failures, can_retry=can_retry(err), jitter=jitter)
                if step.status == "failed":
                    self._fail(err)
                self.log.warning("Could not look for the files (%d): %s", failures, err)
                self._sleep(step.seconds)
            else:
                return PokeReturnValue(arrival.is_complete, arrival.to_xcom())

    def resume(self, context: Context, event: Mapping[str, Any] | None = None) -> Any:
        """Take over what the trigger found.

        :raises AirflowSensorTimeout: The files did not arrive in time.
        """
        result = event or {}
        match result.get("status"):
            case "arrived":
                self.log.info("%s", result["text"])
                return result["arrival"]
            case "timed out":
                self._time_out(result["text"])
            case "failed":
                self._fail(SourceUnreadableError.from_dict(result["error"]))
        return self.execute(context)  # the trigger said nothing

    def _detect_arrival(self) -> Arrival:
        arrival = detect_arrival(self._search())
        self.log.info("%s", arrival.text)
        return arrival

    def _defer(self, deadline: float) -> NoReturn:
        """Free the worker.

        :raises TaskDeferred: Always.
        """
        backstop = max(0.0, deadline - time.time()) + BACKSTOP_SECONDS
        arguments = asdict(self._search())
        self.defer(
            trigger=AdlsGen1FilesTrigger(**arguments, poll_interval=self.poke_interval, deadline=deadline),
            method_name="resume",
            timeout=timedelta(seconds=backstop),
        )

    def _longest_wait(self) -> float:
        """Return seconds; nothing else ends a task that waits in the triggerer at its execution timeout."""
        if self.execution_timeout is None:
            return self.timeout
        return min(self.timeout, self.execution_timeout.total_seconds())

    def _time_out(self, text: str) -> NoReturn:
        seconds = self._longest_wait()
        if seconds < self.timeout:
            msg = f"The files did not arrive within execution_timeout ({seconds:g} s): {text}."
            raise AirflowTaskTimeout(msg)
        raise AirflowSensorTimeout(f"The files did not arrive within timeout ({seconds:g} s): {text}.")

    def _fail(self, err: ScopeProviderError) -> NoReturn:
        """Fail as the user asked for.

        ``soft_fail`` is for files that do not come. Airflow would skip the task for an
        ``AirflowFailException`` as well, and hide that nobody knows whether they came.
        """
        if self.never_fail:
            raise AirflowSkipException(f"never_fail: {err}") from err
        self.log.error("%s: %s", type(err).__name__, err)
        if err.is_retryable or self.soft_fail:
            raise err
        raise AirflowFailException(f"{type(err).__name__}: {err}") from None

    _sleep = staticmethod(time.sleep)
