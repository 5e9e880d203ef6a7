"""What ``mode="data_interval"`` means for the other arguments."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, get_args

from airflow_provider_scope.core.interval import Window, milliseconds
from airflow_provider_scope.specs import validation
from airflow_provider_scope.specs.columns import INFER
from airflow_provider_scope.specs.engine import ScopeEngine
from airflow_provider_scope.specs.source import FileSource
from airflow_provider_scope.specs.write import Replace

if TYPE_CHECKING:
    from collections.abc import Mapping

Mode = Literal["incremental", "data_interval"]


def mode_from(value: Any) -> Mode:
    """Give the mode; None is ``"incremental"``.

    :raises InputError: There is no such mode.
    """
    mode = "incremental" if value is None else value
    if not isinstance(mode, str) or mode not in get_args(Mode):
        hint = "write 'incremental', its new name" if mode == "watermark" else ""
        raise validation.bad("mode", value, "one of 'incremental', 'data_interval'", hint)
    return "data_interval" if mode == "data_interval" else "incremental"


def window_from(mode: Mode, start: Any, end: Any) -> Window | None:
    """Give the window that was written out.

    :return: None if there is none, or if it is known only when the task runs.
    :raises InputError: One of the two is missing or not a time, or the window is empty.
    """
    given = {
        name: value for name, value in (("window_start", start), ("window_end", end)) if _is_given(value)
    }
    if not given:
        return None
    if mode != "data_interval":
        name, value = next(iter(given.items()))
        raise validation.bad(
            name, value, 'None with mode="incremental"', 'leave it out, or write mode="data_interval"'
        )
    moments = {name: _milliseconds(name, value) for name, value in given.items()}
    if any(validation.is_deferred(value) for value in (start, end)):
        return None
    for name in ("window_start", "window_end"):
        if name not in moments:
            raise validation.bad(
                name, None, "both ends of the window, or neither", "give window_start and window_end"
            )
    window = Window(moments["window_start"] or 0, moments["window_end"] or 0)
    if window.start_ms >= window.end_ms:
        raise validation.bad("window_end", end, f"a time after window_start={start!r}")
    return window


def check_interval(known: Mapping[str, Any]) -> None:
    """Refuse what a run of one interval cannot do without losing or doubling rows.

    :param known: The other arguments as far as they are known; None is not known yet.
    :raises InputError: With the argument and what to write instead.
    """
    source, write = known["source"], known["write"]
    if isinstance(known["engine"], ScopeEngine):
        raise validation.bad(
            "mode",
            "data_interval",
            "'incremental' with ScopeEngine",
            "load intervals with SparkEngine(): SCOPE jobs that write one table at the same time cannot be "
            "told apart in its log",
        )
    if known["full_refresh"]:
        raise validation.bad(
            "full_refresh",
            True,  # noqa: FBT003 - the value that is shown
            'False with mode="data_interval"',
            "leave it out: it would replace the whole table by the files of one interval. To load an "
            "interval anew, use write=Replace(where=…) with the interval's rows, and clear its run",
        )
    if isinstance(write, Replace) and write.where is None:
        raise validation.bad(
            "write",
            "replace",
            '"append" or Replace(where=…) with mode="data_interval"',
            "name the rows of the interval, with a template: Replace(where=\"day = '{{ ds }}'\")",
        )
    if known["max_batches_per_run"] is not None:
        raise validation.bad(
            "max_batches_per_run",
            known["max_batches_per_run"],
            'None with mode="data_interval"',
            "leave it out: no later run would load the rest of the interval",
        )
    if isinstance(source, FileSource):
        _check_source(source)


def _check_source(source: FileSource) -> None:
    if source.starting_timestamp is not None:
        raise validation.bad(
            "source.starting_timestamp",
            source.starting_timestamp,
            'None with mode="data_interval"',
            "leave it out: the interval says which files are taken",
        )
    if source.columns == INFER:
        raise validation.bad(
            "source.columns",
            INFER,
            'declared columns or None with mode="data_interval"',
            "declare them: the types would be inferred for each interval alone, and could disagree",
        )
    if source.late_files == "skip":
        raise validation.bad(
            "source.late_files",
            "skip",
            "'ingest' with mode=\"data_interval\"",
            "leave it out: a cleared run has to find the files that came late",
        )


def _is_given(value: Any) -> bool:
    """Tell whether there is a value; a template may render to nothing."""
    return not (value is None or (isinstance(value, str) and value.strip() in ("", "None")))


def _milliseconds(argument: str, value: Any) -> int | None:
    if validation.is_deferred(value):
        return None
    moment = value
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            moment = None
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise validation.bad(argument, value, "a time with its zone, such as '2026-01-01T00:00:00+00:00'")
    return milliseconds(moment)
