"""How a task fails with an error of ours: by what it says, not by where it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowFailException

if TYPE_CHECKING:
    from airflow_provider_scope.exceptions import ScopeProviderError


def fail(err: ScopeProviderError, log: Any) -> NoReturn:
    """Fail the task; its log ends with the error's own words. Where it was raised is told at debug level.

    Airflow shows the stack of an exception, and that of each one behind it: sixty lines, none of which
    helps whoever reads them.

    :raises AirflowFailException: Another try cannot help.
    :raises ScopeProviderError: The error itself, if it can.
    """
    log.debug("The task fails with %s", type(err).__name__, exc_info=err)
    if err.is_retryable:
        raise err.with_traceback(None) from None
    raise AirflowFailException(f"{type(err).__name__}: {err}") from None
