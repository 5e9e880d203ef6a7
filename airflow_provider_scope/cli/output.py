"""What all commands share: how they print, also batches and states, and how they end."""

from __future__ import annotations

import functools
import io
import json
import logging
import os
import sys
from contextlib import contextmanager, nullcontext, redirect_stdout
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog
from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_scope.exceptions import CheckpointCorruptError, ScopeProviderError
from airflow_provider_scope.protocol import recovery, repair
from airflow_provider_scope.protocol.commands import Address
from airflow_provider_scope.sources.cursor import state as cursor_state
from airflow_provider_scope.values import FileSlice, counted, window_of

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.view import LogView

SHOWN_AT_MOST = 10

_LINES: ContextVar[Callable[[str], object] | None] = ContextVar("lines", default=None)
"""What takes the lines of the running command; standard output if nothing does."""
_ADDRESS: ContextVar[Address] = ContextVar("address", default=Address())  # noqa: B039 - it is frozen
"""The pipeline that the running command is about; `say` adds it to the commands that are printed."""


def set_address(address: Address) -> None:
    """Set the pipeline that the running command is about, once more is known than its arguments say."""
    _ADDRESS.set(address)


def set_batch(seq: int) -> None:
    """Set the oldest open batch of that pipeline."""
    set_address(replace(_ADDRESS.get(), batch=seq))


def say(text: str = "") -> None:
    """Write a line, and complete the commands in it with their arguments."""
    line, write = _ADDRESS.get().complete(text), _LINES.get()
    if write:
        write(line)
    else:
        sys.stdout.write(line + "\n")


def show(name: str, lines: Iterable[str]) -> None:
    """Write lines, with a name before the first; nothing if there are none."""
    for number, line in enumerate(lines):
        say(f"{'' if number else name:12}{line}")


def first_of(lines: Sequence[str], remaining: str = "more") -> list[str]:
    """Return the first lines, and one that counts the remaining ones."""
    count = len(lines) - SHOWN_AT_MOST
    return [*lines[:SHOWN_AT_MOST], f"and {count:,} {remaining}"] if count > 0 else [*lines]


@contextmanager
def lines_to(write: Callable[[str], object]) -> Iterator[None]:
    """Let the commands of the block write their lines elsewhere than to standard output."""
    token = _LINES.set(write)
    try:
        yield
    finally:
        _LINES.reset(token)


def facts_of(error: ScopeProviderError) -> dict[str, str]:
    """Complete the commands in the advice of an error, and return it as it appears in the JSON output."""
    error.do = _ADDRESS.get().complete(error.do)
    return error.to_dict()


def show_rows(rows: list[dict[str, Any]], output: str) -> None:
    """Print rows in a format that all of Airflow's commands have."""
    from airflow.cli.simple_table import AirflowConsole  # noqa: PLC0415 - slow to load
    from rich.markup import escape  # noqa: PLC0415

    if output == "table":  # in which a text in brackets is markup
        rows = [
            {name: escape(value) if isinstance(value, str) else value for name, value in row.items()}
            for row in rows
        ]
    AirflowConsole().print_as(rows, output)


def show_error(error: Exception) -> None:
    sys.stderr.write(f"{type(error).__name__}: {error}\n")


def is_confirmed(args: Namespace, *consequences: str) -> bool:
    """Whether the user wants it to be done; if not, say what it would do, and that nothing was done."""
    if not args.yes:
        # A task has no command line, and says what is to be set instead.
        for line in (*consequences, f"nothing was written; {getattr(args, 'consent', 'add --yes')} to do it"):
            say(line)
    return bool(args.yes)


def command(function: Callable[[Namespace], None]) -> Callable[[Namespace], None]:
    """End with the error's own words and exit code 1 instead of a stack trace.

    With ``--output json``, standard output is one object: what the command put into ``args.facts``, and
    ``error``, which is null or the error's ``type``, ``what``, ``kept`` and ``do``.
    """

    @functools.wraps(function)
    def run(args: Namespace) -> None:
        # Without it, Airflow looks for connections only in the environment and in a secrets backend.
        os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
        set_address(address_of(args))
        is_json = getattr(args, "output_format", None) == "json"
        args.facts = {"error": None}
        error: Exception | None = None
        try:
            if is_json or hasattr(args, "output"):  # that of `list`
                _log_to_stderr()
            # What Airflow writes to standard output would spoil the JSON, too.
            with redirect_stdout(io.StringIO()) if is_json else nullcontext():
                function(args)
        except (ScopeProviderError, AirflowException) as err:
            parts = err if isinstance(err, ScopeProviderError) else ScopeProviderError(str(err))
            args.facts["error"] = {**facts_of(parts), "type": type(err).__name__}
            error = err
        # Not if the command broke down: the object would say that there was no error.
        if is_json:
            sys.stdout.write(json.dumps(args.facts, indent=2, default=str) + "\n")
        if error and args.verbose:
            raise error
        if error:
            show_error(error)
            raise SystemExit(1)

    return run


def _log_to_stderr() -> None:
    """Do what newer command lines of Airflow do for commands with ``--output``; that of 3.1 does not."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stdout:
            handler.setStream(sys.stderr)


def address_of(args: Namespace) -> Address:
    """Read from the arguments of a command what names its pipeline."""
    names = ("checkpoint", "storage_conn_id", "engine", "spark_conn_id", "scope_conn_id", "tag")
    interval = getattr(args, "interval", None)
    return Address(
        table=getattr(args, "delta_location", None),
        batch=getattr(args, "seq", None),
        task=(args.dag_id, args.task_id) if hasattr(args, "dag_id") else None,
        interval=interval if interval and window_of(interval) else None,
        **{name: getattr(args, name, None) for name in names},
    )


@contextmanager
def quiet(*, verbose: bool = False) -> Iterator[None]:
    """Let what Airflow says go to standard error: among the lines of a command it would spoil its JSON.

    :param verbose: Drop nothing; otherwise, what is logged below a warning is.
    """
    # Airflow logs by structlog and by logging. Loggers of structlog that exist already share this very list.
    processors: list[Any] = structlog.get_config()["processors"]
    logger = logging.getLogger("airflow")
    level = logger.level
    if not verbose:
        processors.insert(0, _without_chatter)
        logger.setLevel(logging.WARNING)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if not verbose:
            processors.remove(_without_chatter)
            logger.setLevel(level)


def _without_chatter(_: Any, method: str, event: Any) -> Any:
    if method in ("debug", "info"):
        raise structlog.DropEvent
    return event


def show_batches(
    entries: Sequence[OffsetEntry],
    indent: str,
    view: LogView | None = None,
    details: Callable[[OffsetEntry], list[str]] = lambda _: [],
) -> None:
    """Print a line for each batch, and below it what ``view`` and ``details`` say about the batch."""
    for entry in entries[:SHOWN_AT_MOST]:
        mode = entry.mode if entry.where is None else f"{entry.mode} where {entry.where}"
        say(f"{indent}{entry.seq}: {mode}{_size_text(entry)}: {entry.slice.text()}")
        commit = repair.settled(view, entry) if view else None
        if commit:
            outcome = (
                "its rows are no longer in the table"
                if commit.abandoned
                else f"in the table as version {commit.version}"
            )
            say(f"{' ' * len(indent)}   {outcome}; the next run records that")
        for line in details(entry):
            say(f"{' ' * len(indent)}   {line}")
    if len(entries) > SHOWN_AT_MOST:
        say(f"{indent}and {len(entries) - SHOWN_AT_MOST:,} more")


def _size_text(entry: OffsetEntry) -> str:
    """Say how much a batch of files reads; of other batches this is not known before they run."""
    if not isinstance(entry.slice, FileSlice):
        return ""
    return f", {counted(len(entry.files), 'file')}, {counted(entry.slice.size_bytes, 'byte')}"


def state_text(state: str | None, where: str) -> str:
    """Describe the state of a source in one line.

    :param where: The place of the state, as errors name it.
    """
    if state is None:
        return "none: the next batch begins at the start (ranges have no state)"
    try:
        cursor = cursor_state.decode(state, where)
    except CheckpointCorruptError:
        return state  # of a source that is no cursor
    reached = cursor_state.reached_text(cursor) if cursor else None
    if cursor is None or reached is None:
        return "no row with a value was loaded yet"
    version = "" if cursor.version is None else f", version {cursor.version} of the source"
    remaining = ", of which rows are left" if cursor.more else ""
    return f"{cursor.column} up to {reached}{version}{remaining}"


def only_refresh(checkpoint: str) -> str:
    """Say how a pipeline goes on if its state is lost.

    :param checkpoint: The folder of the log.
    """
    return recovery.load_again(checkpoint, "only a run with full_refresh=True can go on")


def span(batches: Sequence[int]) -> str:
    """Name batches by the first and the last one."""
    if not batches:
        return "nothing"
    if len(batches) == 1:
        return f"batch {batches[0]}"
    part = "" if batches[-1] - batches[0] < len(batches) else f"{len(batches):,} of "
    return f"{part}batches {batches[0]} to {batches[-1]}"
