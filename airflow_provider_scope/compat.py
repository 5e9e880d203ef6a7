"""What differs between the versions of Airflow that this package runs with."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import InputError

try:
    from airflow.sdk.exceptions import TaskDeferralError, TaskDeferralTimeout
except ImportError:  # Airflow 3.1
    from airflow.exceptions import TaskDeferralError, TaskDeferralTimeout  # type: ignore[no-redef]

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["TaskDeferralError", "TaskDeferralTimeout", "of_airflow"]


@contextmanager
def of_airflow(version: str, feature: str, do: str) -> Iterator[None]:
    """Wrap an import that older versions of Airflow do not have, and explain its failure.

    :param version: The first version of Airflow that has it.
    :param feature: What needs it.
    :param do: How to do without.
    :raises InputError: Airflow is older.
    """
    try:
        yield
    except ImportError as err:
        raise InputError(
            f"{feature} needs Airflow {version} or newer: {err}.",
            kept="everything; nothing was read or written",
            do=do,
        ) from err
