from __future__ import annotations

from datetime import timedelta

import pytest
from airflow.sdk import RetryAction

from airflow_provider_scope import exceptions
from airflow_provider_scope.operators.retry_policy import SCOPE_RETRY_POLICY


@pytest.mark.parametrize(
    ("error", "delay"),
    [
        ("ServiceAuthError", timedelta(minutes=5)),
        ("ServiceUnavailableError", timedelta(minutes=1)),
        ("ServiceOutcomeUnknownError", timedelta(minutes=1)),
        ("SourceUnreadableError", timedelta(seconds=30)),
        ("StorageError", timedelta(seconds=30)),
        ("TableUnreadableError", timedelta(seconds=30)),
        ("ScopeJobFailedError", None),
        ("SparkJobFailedError", None),
    ],
)
def test_an_error_is_tried_again_after_the_time_it_takes_to_pass(error, delay):
    decision = SCOPE_RETRY_POLICY.evaluate(getattr(exceptions, error)("x"), 1, 3)

    assert (decision.action, decision.retry_delay) == (RetryAction.RETRY, delay)


def test_every_error_that_a_retry_can_mend_has_a_rule():
    errors = [c for c in vars(exceptions).values() if isinstance(c, type) and issubclass(c, Exception)]

    for error in errors:
        if error.is_retryable:
            assert SCOPE_RETRY_POLICY.evaluate(error("x"), 1, 3).action is RetryAction.RETRY, error


def test_an_error_of_another_kind_is_left_to_the_task():
    assert SCOPE_RETRY_POLICY.evaluate(ValueError("x"), 1, 3).action is RetryAction.DEFAULT
