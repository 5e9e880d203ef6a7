"""What the runs that are killed are doing: each kind of run that writes something."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.exceptions import SourceFileGoneError, TableDivergedError
from airflow_provider_scope.values import Window
from tests.crash.cluster_world import ClusterInTurnWorld, ClusterWorld
from tests.crash.exhaustive import Stage
from tests.crash.table_world import CursorDeltaWorld, numbers_of, without_three
from tests.crash.world import NOW_MS, DeltaWorld
from tests.support.delta_engine import DeltaEngine
from tests.support.faulty_storage import DiedError, Gate, before, die, open_gate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_provider_scope.protocol.engine import Work
    from airflow_provider_scope.protocol.records import OffsetEntry


@dataclass(frozen=True)
class Scenario:
    """A state, what is done in it and killed, and what is done afterwards."""

    name: str
    prepare: Callable[[DeltaWorld], None]
    act: Callable[[DeltaWorld, Gate], None]
    again: Callable[[DeltaWorld, Gate], None]
    """What a retry does; it must lead to the state that ``act`` leads to."""
    interval: int = 3
    retention: int = 100
    renumbered: bool = False
    """The retry starts over under new numbers: rows and audit are the same, records are not."""

    segments_vary: bool = False
    """The retry brings the audit up to date less often: a segment ends at another batch."""

    window: Window | None = None
    """Everything is done by the pipeline of this interval; None is by that of the table."""

    kind: type[DeltaWorld] = DeltaWorld

    def world(self, folder: Path) -> DeltaWorld:
        world = self.kind(folder, interval=self.interval, retention=self.retention)
        return world.of(self.window) if self.window else world

    def stage(self, folder: Path) -> Stage:
        return Stage(self, folder)


def land(world: DeltaWorld, *numbers: int) -> None:
    """Put numbered files into the source; the numbers are their order in time."""
    for number in numbers:
        world.drop(f"f{number:02}.parquet", at=1000 - number)


def run(world: DeltaWorld, gate: Gate = open_gate) -> None:
    world.run(gate)


# ---- the states ------------------------------------------------------------------------------------


def nothing_loaded(world: DeltaWorld) -> None:
    land(world, 1, 2, 3, 4, 5)


def something_loaded(world: DeltaWorld) -> None:
    land(world, 1, 3, 5)
    world.run()
    land(world, 2, 6, 7)  # the first of them is late


def much_loaded(world: DeltaWorld) -> None:
    for number in range(1, 6):
        land(world, number)
        world.run()
    land(world, 6, 7, 8, 9)


def to_be_refreshed(world: DeltaWorld) -> None:
    land(world, 2, 3, 4, 5, 6)
    world.run()
    land(world, 1, 7)


def range_replaced_before(world: DeltaWorld) -> None:
    """Make a table of another writer, in which every run replaces the rows of day 1."""
    (world.folder / "table").mkdir(parents=True)
    world.add_foreign_rows(1, 2)
    land(world, 1, 2, 3)
    world.run(where="day = 1")
    land(world, 4)


def one_batch_open(world: DeltaWorld) -> None:
    something_loaded(world)
    leave_open(world, "f02.parquet")
    world.show("f02.parquet")
    land(world, 8)


def one_batch_unreadable(world: DeltaWorld) -> None:
    """Leave a batch open of which a file vanished for good; its other file is still there."""
    something_loaded(world)
    leave_open(world, "f02.parquet")
    land(world, 8)


def first_batch_unreadable(world: DeltaWorld) -> None:
    """Leave the batches of a first run open; of the first one a file vanished for good."""
    land(world, 2, 3, 4, 5, 6)
    leave_open(world, "f02.parquet")
    land(world, 8)


def refresh_unreadable(world: DeltaWorld) -> None:
    to_be_refreshed(world)
    leave_open(world, "f02.parquet", refresh=True)


def restored(world: DeltaWorld) -> None:
    """RESTORE the table to before its last batch, with files waiting."""
    something_loaded(world)
    world.restore(world.version() - 1)


def recreated(world: DeltaWorld) -> None:
    something_loaded(world)
    world.recreate()


def gone(world: DeltaWorld) -> None:
    something_loaded(world)
    world.drop_table()


def restored_between_open_batches(world: DeltaWorld) -> None:
    """Leave two batches in the table without records, with a RESTORE between them.

    The runner died; its application went on after the RESTORE took the first batch's rows out.
    """
    something_loaded(world)
    try:
        world.run(engine=RestoringEngine(world))
    except TableDivergedError:
        return
    raise AssertionError("the RESTORE was not noticed")


class RestoringEngine(DeltaEngine):
    """After its first batch somebody RESTOREs the table to the version before."""

    def __init__(self, world: DeltaWorld) -> None:
        super().__init__()
        self.world = world
        self.restored = False

    def commit(self, work: Work, handle: Any, entry: OffsetEntry, rows: Any, *, abandoned: bool) -> None:
        super().commit(work, handle, entry, rows, abandoned=abandoned)
        if not self.restored:
            self.world.restore(self.world.version() - 1)
        self.restored = True


class VanishingFile(DeltaEngine):
    """A file vanishes just before it is read."""

    def __init__(self, world: DeltaWorld, name: str) -> None:
        super().__init__()
        self.world = world
        self.name = name

    def read(self, entry: OffsetEntry) -> Any:
        if any(file.path.endswith(self.name) for file in entry.files):
            self.world.hide(self.name)
        return super().read(entry)


def leave_open(world: DeltaWorld, vanishing: str, *, refresh: bool = False) -> None:
    """Let a run log its batches and fail at the one with a file that vanishes."""
    try:
        world.run(engine=VanishingFile(world, vanishing), refresh=refresh)
    except SourceFileGoneError:
        return
    raise AssertionError("the run did not miss the file")


def days(first: int, behind: int) -> Window:
    """Return the window of the files with these numbers; the second one is the first that is not in it."""
    return Window(NOW_MS - (1000 - first) * 1000, NOW_MS - (1000 - behind) * 1000)


def interval_before_loaded(world: DeltaWorld) -> None:
    """Let the interval before make the table, and begin the one after."""
    land(world, 1, 2, 3, 4, 5, 6, 7)
    world.of(days(1, 3)).run()
    world.of(days(6, 8)).run(max_batches=1)


def interval_with_a_late_file(world: DeltaWorld) -> None:
    """Load an interval; one of its files comes later, and another one belongs to the next interval."""
    land(world, 1, 3, 4, 6)
    world.run()
    land(world, 5, 7)


def row_three_unreadable(world: CursorDeltaWorld) -> None:
    """Leave the batches with row 3, and behind it, open."""
    land(world, 1, 2, 3, 4, 5)
    try:
        world.run(engine=without_three(world))
    except SourceFileGoneError:
        return
    raise AssertionError("the run read what cannot be read")


def restored_beside_an_open_batch(world: CursorDeltaWorld) -> None:
    """RESTORE the table to before its last batch, with the next one logged and not run."""
    row_three_unreadable(world)
    world.run()
    land(world, 6)
    _die_at(world, "open 3")
    world.restore(world.version() - 1)


def restored_beside_an_open_refresh(world: CursorDeltaWorld) -> None:
    something_loaded(world)
    _die_at(world, "open 2", refresh=True)
    world.restore(world.version() - 1)


def _die_at(world: DeltaWorld, name: str, **asked: Any) -> None:
    with suppress(DiedError):
        world.run(before(name, die), **asked)
        raise AssertionError(f"the run did not come to '{name}'")


# ---- what is done ----------------------------------------------------------------------------------


def refresh(world: DeltaWorld, gate: Gate) -> None:
    world.run(gate, refresh=True)


def finish_refresh(world: DeltaWorld, gate: Gate) -> None:
    """Run without asking for a refresh, unless it was not even logged."""
    log = world.log()
    world.run(gate, refresh=log.offset(log.logged()[-1]).refresh_start is None)


def replace_range(world: DeltaWorld, gate: Gate) -> None:
    world.run(gate, where="day = 1")


def abandon_and_run(world: DeltaWorld, gate: Gate) -> None:
    """Return up the batch with the file that is gone, unless that was done."""
    log = world.log()
    done = log.committed()
    for seq in log.logged():
        if seq not in done and any("f02" in file.path for file in log.offset(seq).files):
            world.abandon(seq, gate)
    world.run(gate)


def accept_and_run(world: DeltaWorld, gate: Gate) -> None:
    """Run, and accept the table if the run says so."""
    try:
        world.run(gate)
    except TableDivergedError:
        world.accept(gate)
        world.run(gate)


def give_up_and_run(world: DeltaWorld, gate: Gate) -> None:
    """Give up the batch with row 3, unless that was done."""
    log = world.log()
    done = log.committed()
    if not any(log.commit(seq).abandoned for seq in done):
        for seq in log.logged():
            if seq not in done and 3 in numbers_of(log.offset(seq).slice):
                world.abandon(seq, gate)
    world.run(gate)


def vacuum_run_vacuum(world: DeltaWorld, gate: Gate) -> None:
    """Purge, load, and purge again: how much is purged follows from the newest batch at that time."""
    world.vacuum(gate)
    world.run(gate)
    world.vacuum(gate)


SCENARIOS = [
    Scenario("first run", nothing_loaded, run, run),
    Scenario("later run", something_loaded, run, run),
    Scenario("compaction and retention", much_loaded, run, run, interval=2, retention=3),
    Scenario("vacuum", much_loaded, vacuum_run_vacuum, vacuum_run_vacuum, interval=2, retention=3),
    Scenario("full refresh", to_be_refreshed, refresh, finish_refresh),
    Scenario("full refresh of a table that is gone", gone, refresh, finish_refresh),
    Scenario("full refresh, asked for again", to_be_refreshed, refresh, refresh, renumbered=True),
    Scenario(
        "replaced range, asked for again",
        range_replaced_before,
        replace_range,
        replace_range,
        renumbered=True,
    ),
    Scenario("open batch", one_batch_open, run, run),
    Scenario("abandoned batch", one_batch_unreadable, abandon_and_run, abandon_and_run, segments_vary=True),
    Scenario(
        "abandoned before there is a table",
        first_batch_unreadable,
        abandon_and_run,
        abandon_and_run,
        segments_vary=True,
    ),
    Scenario("refresh that cannot be read", refresh_unreadable, refresh, refresh, renumbered=True),
    Scenario("accepted after RESTORE", restored, accept_and_run, accept_and_run),
    Scenario("accepted after recreation", recreated, accept_and_run, accept_and_run),
    Scenario(
        "accepted with open batches",
        restored_between_open_batches,
        accept_and_run,
        accept_and_run,
        segments_vary=True,
    ),
    Scenario("interval beside others", interval_before_loaded, run, run, window=days(3, 6)),
    Scenario("cleared interval", interval_with_a_late_file, run, run, window=days(3, 6)),
    Scenario(
        "interval with a replaced range",
        interval_with_a_late_file,
        replace_range,
        replace_range,
        renumbered=True,
        window=days(3, 6),
    ),
]
SCENARIOS += [
    Scenario(
        f"cursor: {name}", prepare, act, again, segments_vary=act is give_up_and_run, kind=CursorDeltaWorld
    )
    for name, prepare, act, again in (
        ("first run", nothing_loaded, run, run),
        ("later run", something_loaded, run, run),
        ("full refresh", to_be_refreshed, refresh, finish_refresh),
        ("full refresh of a table that is gone", gone, refresh, finish_refresh),
        ("open batch", row_three_unreadable, run, run),
        ("abandoned batch", row_three_unreadable, give_up_and_run, give_up_and_run),
        ("accepted after RESTORE", restored, accept_and_run, accept_and_run),
        ("accepted after recreation", recreated, accept_and_run, accept_and_run),
        ("accepted with an open batch", restored_beside_an_open_batch, accept_and_run, accept_and_run),
        ("accepted with an open refresh", restored_beside_an_open_refresh, accept_and_run, accept_and_run),
    )
]
SCENARIOS += [
    Scenario("cluster: first run", nothing_loaded, run, run, kind=ClusterWorld),
    Scenario("cluster: later run", something_loaded, run, run, kind=ClusterWorld),
    Scenario("cluster: full refresh", to_be_refreshed, refresh, finish_refresh, kind=ClusterWorld),
    Scenario("cluster, in turn: first run", nothing_loaded, run, run, kind=ClusterInTurnWorld),
    Scenario("cluster, in turn: later run", something_loaded, run, run, kind=ClusterInTurnWorld),
]
