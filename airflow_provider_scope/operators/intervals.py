"""Which interval a run loads, and when it may begin."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.values import Window, iso_time, milliseconds

if TYPE_CHECKING:
    from collections.abc import Mapping

SHORTEST_DEFERRAL_SECONDS = 10.0
"""Airflow 3.3 fails a task that comes back from the triggerer sooner."""
CLOCKS_DIFFER_SECONDS = 60.0
"""The scheduler's clock says when an interval is over, the worker's says what time it is."""
_KEPT = "everything; nothing was read or written"


def window_of_run(context: Mapping[str, Any]) -> Window:
    """Return the data interval of a run.

    :raises InputError: The run has none, or an empty one.
    """
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if start is None or end is None:
        raise InputError(
            "This run was started manually or by an asset. It has no data interval, and "
            'mode="data_interval" loads the files of one.',
            kept=_KEPT,
            do="set window_start and window_end to say which files it loads. They may be templates: "
            'window_start="{{ params.window_start }}". A template that gives an empty text stands for the '
            "bound of the data interval",
        )
    if start >= end:
        raise InputError(
            f"The data interval of this run is empty: it begins and ends at {start.isoformat()}. A cron "
            "expression as the Dag's schedule gives such intervals; so can a manual run for a time at "
            "which clocks change.",
            kept=_KEPT,
            do='write schedule=CronDataIntervalTimetable("@daily", timezone="UTC"), from airflow.sdk, with '
            "catchup=True. Then delete the Dag's runs that failed like this one: Airflow continues after "
            "the last existing run, and would skip their intervals. For a manual run, set window_start and "
            "window_end",
        )
    return Window(milliseconds(start), milliseconds(end))


def seconds_until_over(window: Window, safety_buffer_seconds: float, now_ms: int) -> float:
    """Return how long no file of a window may be taken yet; 0 if all of them may.

    :raises InputError: The window ends in the future.
    """
    if window.end_ms - now_ms > CLOCKS_DIFFER_SECONDS * 1000:
        raise InputError(
            f"The interval ends at {iso_time(window.end_ms)}, in the future: what is still to come would be "
            "left out.",
            kept=_KEPT,
            do="run it when it is over, or give an earlier window_end",
        )
    return max(0.0, (window.end_ms - now_ms) / 1000 + safety_buffer_seconds)


def when(now_ms: int, seconds: float) -> datetime:
    """Return the time that is so many seconds from now."""
    return datetime.fromtimestamp(now_ms / 1000 + seconds, UTC)
