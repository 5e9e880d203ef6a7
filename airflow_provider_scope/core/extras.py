"""Packages that only some users need, and so are not installed with this one."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator


def how_to_install(extra: str) -> str:
    """Give what installs the packages of an extra."""
    return f"pip install 'airflow-provider-scope[{extra}]'"


@contextmanager
def of_extra(extra: str, wanted: str) -> Iterator[None]:
    """Import the packages of an extra inside of it.

    :param extra: Its name in ``pyproject.toml``.
    :param wanted: What needs it, as the begin of a sentence.
    :raises InputError: One of them is not installed.
    """
    try:
        yield
    except ImportError as err:
        raise InputError(
            f"{wanted} needs a package that is not installed here: {err}.",
            kept="everything; nothing was read or written",
            do=f"install it on the workers and on the triggerer: {how_to_install(extra)}",
        ) from err
