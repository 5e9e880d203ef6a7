"""What all commands share: how they say things, and how they end."""

from __future__ import annotations

import functools
import logging
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import structlog
from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_scope.exceptions import ScopeProviderError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator

SHOWN_AT_MOST = 10
ADD_YES = "nothing was written; add --yes to do it"


def say(text: str = "") -> None:
    """Write a line to standard output."""
    sys.stdout.write(text + "\n")


def command(function: Callable[[Namespace], None]) -> Callable[[Namespace], None]:
    """End with the error's own words and exit code 1 instead of a stack trace."""

    @functools.wraps(function)
    def run(args: Namespace) -> None:
        try:
            function(args)
        except (ScopeProviderError, AirflowException) as err:
            if args.verbose:
                raise
            sys.stderr.write(f"{type(err).__name__}: {err}\n")
            raise SystemExit(1) from None

    return run


@contextmanager
def quiet(*, but: bool = False) -> Iterator[None]:
    """Leave out what Airflow logs below a warning: it goes to standard output, and hides ours there.

    :param but: Leave nothing out.
    """
    if but:
        yield
        return
    # Airflow has loggers of both kinds, some of them made already: those share this very list.
    processors: list[Any] = structlog.get_config()["processors"]
    logger = logging.getLogger("airflow")
    level = logger.level
    processors.insert(0, _without_chatter)
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        processors.remove(_without_chatter)
        logger.setLevel(level)


def _without_chatter(_: Any, method: str, event: Any) -> Any:
    if method in ("debug", "info"):
        raise structlog.DropEvent
    return event


def counted(number: int, one: str, many: str = "") -> str:
    """Give a number and its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
