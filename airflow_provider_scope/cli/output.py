"""What all commands share: how they say things, and how they end."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_scope.exceptions import ScopeProviderError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

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


def counted(number: int, one: str, many: str = "") -> str:
    """Give a number and its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
