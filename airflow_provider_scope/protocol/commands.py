"""The commands that a message names: short where it is written, complete where it is shown.

Whoever raises an error writes ```airflow scope abandon```, with what it alone knows, such as ``--committed``.
Where the error leaves the package, the table, the batch and every option that the command needs are added.
"""

from __future__ import annotations

import re
import shlex
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import ScopeProviderError

if TYPE_CHECKING:
    from collections.abc import Iterator


RETAIN_BATCHES = 100
"""Committed batches whose records stay, as Structured Streaming's ``minBatchesToRetain``."""

RETAIN_AT_LEAST = 10
"""Fewer are refused: each run that is that many batches behind would have to begin again."""


_COMMAND = re.compile(r"`airflow\s+scope\s+([a-z-]+)([^`]*)`")
_PLACE = ("checkpoint", "storage_conn_id")
_ENGINES = ("engine", "spark_conn_id", "scope_conn_id")

OPTIONS = {
    "status": (*_PLACE, "interval", "engine", "scope_conn_id"),
    "quarantine": (*_PLACE, "interval"),
    "rebuild": _PLACE,
    "vacuum": (*_PLACE, "engine", "scope_conn_id"),
    "abandon": (*_PLACE, "interval", *_ENGINES),
    "accept-table": (*_PLACE, "interval", "all_intervals", *_ENGINES),
    "settle": (*_PLACE, "scope_conn_id"),
    "take-over": _PLACE,
    "plan": ("interval", "map_index"),
    "list": (),
    "cancel-jobs": ("tag", "scope_conn_id"),
}
"""Command -> the options that say which pipeline it means."""

_OF_A_BATCH = ("abandon", "settle")
_WITHOUT_TABLE = ("plan", "list", "cancel-jobs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """What names a pipeline in a command; what is None is the default, or not known yet."""

    table: str | None = None
    batch: int | None = None
    """The oldest open batch."""
    task: tuple[str, str] | None = None
    """The ids of the Dag and of the task."""
    map_index: int | None = None
    """The instance, of a mapped task."""
    checkpoint: str | None = None
    interval: str | None = None
    all_intervals: bool | None = None
    storage_conn_id: str | None = None
    engine: str | None = None
    spark_conn_id: str | None = None
    scope_conn_id: str | None = None
    tag: str | None = None
    """What the names of the pipeline's jobs begin with."""

    def complete(self, text: str) -> str:
        """Complete the commands in a message. To do it twice does no harm."""
        return _COMMAND.sub(self._completed, text)

    @contextmanager
    def completes_errors(self) -> Iterator[None]:
        """Complete the commands in the errors of the block."""
        try:
            yield
        except ScopeProviderError as err:
            err.do = self.complete(err.do)
            raise

    def _completed(self, match: re.Match[str]) -> str:
        name = match[1]
        try:
            words = shlex.split(match[2])
        except ValueError:  # it is complete, and the ` is one in the table's name
            return match[0]
        if name not in OPTIONS:
            return match[0]
        count = next((number for number, word in enumerate(words) if word.startswith("-")), len(words))
        named, options = words[:count], words[count:]
        if name == "plan" and not named and self.task:
            named = [*self.task]
        elif name not in _WITHOUT_TABLE:
            if self.table and (not named or named[0].isdecimal()):
                named.insert(0, self.table)
            if name in _OF_A_BATCH and self.batch is not None and not any(map(str.isdecimal, named)):
                named.append(str(self.batch))
        for option in OPTIONS[name]:
            value, flag = getattr(self, option), f"--{option.replace('_', '-')}"
            if value is not None and flag not in options:
                options = [flag, *([] if value is True else [str(value)]), *options]
        return f"`airflow scope {name}{''.join(f' {shlex.quote(word)}' for word in (*named, *options))}`"
