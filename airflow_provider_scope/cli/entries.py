"""How the commands name batches and times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_scope.cli.output import SHOWN_AT_MOST, counted, say
from airflow_provider_scope.core import audit as audits
from airflow_provider_scope.core import cursor as cursors
from airflow_provider_scope.core.slices import FileSlice
from airflow_provider_scope.engines import clock
from airflow_provider_scope.exceptions import CheckpointCorruptError
from airflow_provider_scope.execution import repair

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_provider_scope.core.records import OffsetEntry
    from airflow_provider_scope.execution.view import LogView


def show(
    entries: Sequence[OffsetEntry],
    indent: str,
    view: LogView | None = None,
    more: Callable[[OffsetEntry], list[str]] = lambda _: [],
) -> None:
    """Say a line or more for each batch."""
    for entry in entries[:SHOWN_AT_MOST]:
        mode = entry.mode if entry.where is None else f"{entry.mode} where {entry.where}"
        say(f"{indent}{entry.seq}: {mode}{_size(entry)}: {entry.slice.text()}")
        committed = repair.settled(view, entry) if view else None
        if committed:
            where = (
                "its rows are no longer in the table"
                if committed.abandoned
                else f"in the table as version {committed.version}"
            )
            say(f"{' ' * len(indent)}   {where}; the next run records that")
        for line in more(entry):
            say(f"{' ' * len(indent)}   {line}")
    if len(entries) > SHOWN_AT_MOST:
        say(f"{indent}and {len(entries) - SHOWN_AT_MOST:,} more")


def _size(entry: OffsetEntry) -> str:
    """Say how much a batch reads, if it is files: of nothing else it is known before."""
    if not isinstance(entry.slice, FileSlice):
        return ""
    return f", {counted(len(entry.files), 'file')}, {counted(entry.size_bytes, 'byte')}"


def state_text(state: str | None, where: str) -> str:
    """Name the state of a source on one line.

    :param where: What errors name as its place.
    """
    if state is None:
        return "none: the next batch begins at the start (ranges have no state)"
    try:
        found = cursors.decode(state, where)
    except CheckpointCorruptError:
        return state  # of a source that is no cursor
    if found is None or found.last is None:
        return "no row with a value was loaded yet"
    version = "" if found.version is None else f", version {found.version} of the source"
    more = ", of which rows are left" if found.more else ""
    return f"{found.column} up to {found.last}{version}{more}"


def span(batches: Sequence[int]) -> str:
    """Name batches by the first and the last."""
    if not batches:
        return "nothing"
    if len(batches) == 1:
        return f"batch {batches[0]}"
    part = "" if batches[-1] - batches[0] < len(batches) else f"{len(batches):,} of "
    return f"{part}batches {batches[0]} to {batches[-1]}"


def when(milliseconds: int) -> str:
    """Give a time and how long ago it was, in its two largest units."""
    ago = audits.duration_text(clock.now_ms() - milliseconds)
    return f"{audits.iso_time(milliseconds)[:19]}Z ({ago} ago)"


def undecided(view: LogView) -> tuple[OffsetEntry, ...]:
    """Give the open batches that the table calls done, without a commit that shows it."""
    return view.outcomes(view.open).unclear
