"""The logs of intervals: each is a pipeline of its own, below the checkpoint of the table."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.protocol.derived import AuditFiles
from airflow_provider_scope.protocol.log import CheckpointLog
from airflow_provider_scope.protocol.seen import History
from airflow_provider_scope.values import Window, iso_time, overlapping, window_of

if TYPE_CHECKING:
    from airflow_provider_scope.protocol.records import Pipeline
    from airflow_provider_scope.protocol.takeover import Epoch
    from airflow_provider_scope.stores.protocol import Storage

_SUFFIX = ".json"


class IntervalLog(CheckpointLog):
    """The log of one interval, in ``intervals/<start>_<end>/``.

    ``intervals/<start>_<end>.json`` beside it says that it exists: a storage lists files, not folders.

    :param checkpoint: Canonical URI of the checkpoint that the interval belongs to.
    """

    def __init__(self, storage: Storage, checkpoint: str, window: Window) -> None:
        super().__init__(storage, f"{_folder(checkpoint)}/{window.name}")
        self.checkpoint = checkpoint
        self.window = window

    def put_pipeline(self, pipeline: Pipeline) -> Pipeline:
        """Create the pipeline, after the note that it exists.

        :raises InputError: Another interval shares time with this one: its files would be loaded twice.
        """
        self._check_alone()
        note = json.dumps(
            {"end": self.window.end_ms, "format": 1, "start": self.window.start_ms}, separators=(",", ":")
        )
        self.storage.put_if_absent(f"{self.location}{_SUFFIX}", f"{note}\n".encode())
        self._check_alone()  # of two that begin at the same time, at least one sees the other's note
        return super().put_pipeline(pipeline)

    def vacuumed_below(self) -> int:
        """0: an interval keeps all of its records."""
        return 0

    def shares_table(self) -> bool:
        """Whether another interval was begun, or files were loaded incrementally."""
        if any(window != self.window for window in known_intervals(self.storage, self.checkpoint)):
            return True
        names = ("pipeline.json", "watermark.json")
        return any(self.storage.read(f"{self.checkpoint}/{name}") is not None for name in names)

    def _check_alone(self) -> None:
        begun = overlapping(self.window, known_intervals(self.storage, self.checkpoint))
        if begun:
            raise InputError(
                f"The interval {self.window.name} overlaps {begun.name}, which was begun in the same "
                "table: files in both would be loaded twice.",
                kept="the table and all records; no batch was logged",
                do="load intervals that do not overlap: after a change of the schedule, begin at the end of "
                "the last one. To load an interval again, clear its run. If the other one was begun by "
                f"mistake and has logged no batch, delete {_folder(self.checkpoint)}/{begun.name}{_SUFFIX}",
            )


class NoAuditFiles(AuditFiles):
    """Nothing beside the log: an interval has few batches, and its entries say what an audit would."""

    def __init__(self, log: CheckpointLog) -> None:
        super().__init__(log, compaction_interval=1, retention_files=1)

    def seen_files(self, epoch: Epoch) -> tuple[History, int]:
        """Find none: the entries tell which files are loaded."""
        return History(), epoch.start

    def bring_up_to_date(self, *_: object, **__: object) -> bool:
        """Write nothing."""
        return False


def known_intervals(storage: Storage, checkpoint: str) -> list[Window]:
    """List the intervals of a checkpoint, in order."""
    names = storage.names(_folder(checkpoint))
    windows = [window_of(name.removesuffix(_SUFFIX)) for name in names if name.endswith(_SUFFIX)]
    return sorted(window for window in windows if window)


def check_beside_intervals(
    storage: Storage,
    checkpoint: str,
    starting_at_ms: int | None,
    *,
    replaces_table: bool,
    argument: str = "starting_timestamp",
) -> None:
    """Refuse an incremental run that would load intervals again, or delete their rows.

    :param argument: What says where the run begins; empty if nothing does.
    :raises InputError: It begins before the end of the last interval, or replaces the whole table.
    """
    last = max((window.end_ms for window in known_intervals(storage, checkpoint)), default=None)
    if last is not None and replaces_table:
        raise InputError(
            f"Replacing the whole table would delete the rows of its intervals, which {checkpoint} would "
            "still list as loaded.",
            kept="the table and all records; nothing was written",
            do="replace a part of the table (write=Replace(where=…)), or load everything into another table",
        )
    if last is None or (starting_at_ms is not None and starting_at_ms >= last):
        return
    is_cursor = argument.startswith("cursor")
    # Of a text, only the column tells what it is.
    end = datetime.fromtimestamp(last / 1000, UTC).replace(tzinfo=None)
    numbers = (
        f" (of a column of numbers, {last / 1000:.15g} without quotes; of dates, {end.date()!r}; of text, "
        f"{end.isoformat()!r})"
    )
    forms = numbers if is_cursor else ""
    later = f"without {argument} at or after that time, " if argument else ""
    begin = f"set {argument}={iso_time(last)!r} in the source{forms}; or, " if argument else ""
    raise InputError(
        f"The table's intervals in {checkpoint} reach to {iso_time(last)}: {later}what they loaded would be "
        "loaded twice.",
        kept="the table and all records; nothing was written",
        do=f"{begin}if this task loads something else, give it a checkpoint of its own: "
        "checkpoint=Checkpoint(location=…)",
    )


def _folder(checkpoint: str) -> str:
    return f"{checkpoint}/intervals"
