"""The mode, and the window of ``mode="data_interval"``."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, get_args

from airflow_provider_scope.core.interval import Window, milliseconds
from airflow_provider_scope.specs import validation

if TYPE_CHECKING:
    from collections.abc import Mapping

Mode = Literal["incremental", "data_interval"]


def mode_from(value: Any) -> Mode:
    """Give the mode; None is ``"incremental"``.

    :raises InputError: There is no such mode.
    """
    mode = "incremental" if value is None else value
    if not isinstance(mode, str) or mode not in get_args(Mode):
        hint = "use 'incremental', its new name" if mode == "watermark" else ""
        raise validation.bad("mode", value, "one of 'incremental', 'data_interval'", hint)
    return "data_interval" if mode == "data_interval" else "incremental"


def window_from(given: Mapping[str, Any]) -> Window | None:
    """Give the window that was written out.

    :param given: ``window_start`` and ``window_end``, as far as there are values.
    :return: None if there is none, or if it is known only when the task runs.
    :raises InputError: One of the two is missing or not a time, or the window is empty.
    """
    moments = {name: _milliseconds(name, value) for name, value in given.items()}
    if not given or any(validation.is_deferred(value) for value in given.values()):
        return None
    for name in ("window_start", "window_end"):
        if name not in moments:
            raise validation.bad(
                name, None, "both ends of the window, or neither", "give window_start and window_end"
            )
    window = Window(moments["window_start"] or 0, moments["window_end"] or 0)
    if window.start_ms >= window.end_ms:
        start, end = given["window_start"], given["window_end"]
        raise validation.bad("window_end", end, f"a time after window_start={start!r}")
    return window


def is_given(value: Any) -> bool:
    """Tell whether one end of a window is there; a template may render to nothing."""
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
