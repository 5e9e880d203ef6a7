"""When to try again, by what went wrong; for ``retry_policy=`` of a task, from Airflow 3.3 on."""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_scope.exceptions import (
    ConnectionMissingError,
    EngineError,
    InputError,
    RecordsVacuumedError,
    ServiceAuthError,
    ServiceOutcomeUnknownError,
    ServiceUnavailableError,
    SourceError,
    StorageError,
    TableError,
)

try:
    from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule
except ImportError as err:
    raise InputError(
        f"SCOPE_RETRY_POLICY needs Airflow 3.3 or newer: {err}.",
        kept="everything; nothing was read or written",
        do="leave `retry_policy` out: `retries` and `retry_delay` remain",
    ) from err

SCOPE_RETRY_POLICY = ExceptionRetryPolicy(
    rules=[
        RetryRule(
            exception=ServiceAuthError,
            action=RetryAction.RETRY,
            retry_delay=timedelta(minutes=5),
            reason="rights and tokens take minutes to change",
        ),
        RetryRule(
            exception=[ServiceUnavailableError, ServiceOutcomeUnknownError],
            action=RetryAction.RETRY,
            retry_delay=timedelta(minutes=1),
            reason="the service did not answer",
        ),
        RetryRule(
            exception=[ConnectionMissingError, SourceError, StorageError, TableError],
            action=RetryAction.RETRY,
            retry_delay=timedelta(seconds=30),
            reason="something could not be read or written",
        ),
        RetryRule(
            exception=RecordsVacuumedError,
            action=RetryAction.RETRY,
            retry_delay=timedelta(seconds=30),
            reason="records were purged in the meantime; the next run reads the newer ones",
        ),
        RetryRule(
            exception=EngineError,
            action=RetryAction.RETRY,
            reason="what runs the batches failed; what is committed is not run again",
        ),
    ]
)
"""Waits as long as each kind of failure usually takes to pass. It cannot exceed the task's ``retries``.

Errors that no retry cures never come here: the operators raise ``AirflowFailException`` for them.
"""
