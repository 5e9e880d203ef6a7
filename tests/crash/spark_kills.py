"""Kill real runs of real Spark at named places, run again, compare with an undisturbed run.

The runner and its ``spark-submit`` are killed with -9 from outside, when the file system shows that
they are where they should die; nothing in the product knows of it. What is on the disk after the kill
says where it really hit: a kill that missed its place is repeated, and not counted.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import (
    SourceFileGoneError,
    TableDivergedError,
    TableRecreatedError,
    TableRestoredError,
)
from tests.crash.exhaustive import State, compare
from tests.crash.scenarios import land
from tests.crash.spark_places import (
    ASIDE_PLACES,
    IN_ORDER_PLACES,
    MERGE_PLACES,
    PLACES,
    SOURCE_PLACES,
    Place,
    Seen,
)
from tests.crash.spark_sources import WORLDS, SourceWorld, world_of
from tests.crash.spark_world import ASIDE, MAX_FILES, WRITES, Runner, SparkWorld, any_in
from tests.crash.tally import Tally
from tests.crash.world import DeltaWorld, fast_folder
from tests.support.faulty_storage import Counting

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ATTEMPTS = 6


class SparkStage:
    """The two states that runs start from, and the states that undisturbed runs lead to.

    :param kind: ``aside`` if some of the rows, and a file, cannot be loaded and go to the quarantine; or the
        name of a row-level write.
    """

    def __init__(self, folder: Path, kind: str = "") -> None:
        aside = kind == ASIDE
        self.place = folder / "world"
        self.starts = {"run": folder / "nothing", "refresh": folder / "loaded"}
        self.ends: dict[str, State] = {}
        if kind:
            self.place.mkdir(parents=True)
            (self.place / kind).touch()
        world = SparkWorld(self.place)
        land(world, 2, 3, 4, 5, 6, 8, 9)
        if aside:
            spoil(world, "f04.parquet")
        shutil.copytree(self.place, self.starts["run"])
        self.ends["run"] = self._undisturbed("run")
        land(world, 1, 7)
        shutil.copytree(self.place, self.starts["refresh"])
        self.ends["refresh"] = self._undisturbed("refresh")

    def _undisturbed(self, step: str) -> State:
        error = Runner(world_of(self.place), step).wait()
        if error:
            raise AssertionError(f"the undisturbed run ended with: {error}")
        world = world_of(self.place)
        if world.is_in_order:
            world.check_model()
        return state(world)

    def reset(self, step: str) -> SparkWorld:
        shutil.rmtree(self.place)
        shutil.copytree(self.starts[step], self.place)
        return world_of(self.place)


class SourceStage(SparkStage):
    """A source that is no files, from which nothing was loaded yet."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.place = folder / "world"
        self.starts = {"run": folder / "nothing"}
        self.place.mkdir(parents=True)
        (self.place / kind).touch()
        world = world_of(self.place)
        assert isinstance(world, SourceWorld)
        world.fill()
        shutil.copytree(self.place, self.starts["run"])
        self.ends = {"run": self._undisturbed("run")}


def spoil(world: DeltaWorld, name: str) -> None:
    """Cut the end of a file off."""
    path = world.folder / "landing" / name
    times = path.stat()
    path.write_bytes(path.read_bytes()[:-20])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def state(world: DeltaWorld) -> State:
    """Return rows, records and audit, without the sizes of files that Spark wrote and the time."""
    records = world.records()
    for lines in records.values():
        for value in lines:
            value.pop("written_bytes", None)
    return State(world.rows(), records, world.audit())


class Disk:
    """Looks at the table's folder and the log without reading any file."""

    def __init__(self, world: SparkWorld) -> None:
        self.table = world.folder / "table"
        self.aside = world.beside
        self.before = self._counts()
        self.named = self._data_files()
        self.newest = self.before[1]

    def _counts(self) -> tuple[int, int, int, int]:
        checkpoint = self.table / "_checkpoint"
        return (
            _count(checkpoint / "offsets", ""),
            _count(self.table / "_delta_log", ".json"),
            _count(checkpoint / "commits", ""),
            _count(self.aside / "_delta_log", ".json"),
        )

    def _data_files(self) -> set[str]:
        if not self.table.exists():
            return set()
        return {path.name for path in self.table.iterdir() if path.name.endswith(".parquet")}

    def look(self) -> Seen:
        counts = zip(self._counts(), self.before, strict=True)
        logged, versions, recorded, aside = (new - old for new, old in counts)
        files = self._data_files() - self.named
        if versions + self.before[1] != self.newest:
            # A commit came since: whatever is there now may be its, and what comes after is not.
            self.newest = versions + self.before[1]
            self.named |= {name for name in files if self._is_named(name)}
            files -= self.named
        is_begun = aside == self.before[3] == 0 and _count(self.aside, ".parquet") > 0
        return Seen(logged, versions, bool(files), recorded, aside, is_begun)

    def _is_named(self, name: str) -> bool:
        logs = sorted((self.table / "_delta_log").glob("*.json"))[self.before[1] :]
        return any(name in log.read_text() for log in logs)


def _count(folder: Path, suffix: str) -> int:
    try:
        return sum(
            1 for path in folder.iterdir() if path.name.endswith(suffix) and not path.name.startswith(".")
        )
    except FileNotFoundError:
        return 0


def kill_at(stage: SparkStage, place: Place, tally: Tally) -> str:
    """Kill a run at a place, run again, compare; say what was hit, after how many attempts."""
    attempts, seen = 0, None
    while seen is None or not place.hit(seen):
        if attempts == ATTEMPTS:
            tally.failures.append(f"{place.name}: not hit in {ATTEMPTS} attempts; the last one left {seen}")
            return "never hit"
        attempts += 1
        world = stage.reset(place.step)
        disk = Disk(world)
        runner = Runner(world, place.step, *place.die_at)
        living = _wait_and_kill(runner, place, disk)
        seen = disk.look()
        if not place.hit(seen):
            _wait_for(living)
    tally.kill_points += 1
    # A refresh that is in the log is taken up by a run that does not ask for one.
    error = Runner(world, "run").wait()
    if error:
        tally.failures.append(f"{place.name}: the rerun ended with: {error}")
    _wait_for(living)
    finish(world, stage.ends[place.step], place.name, tally)
    stray = ", data files without commit" if seen.stray else ""
    return (
        f"hit with {seen.logged} batches logged, {seen.versions} in the table, "
        f"{seen.recorded} recorded{stray} (attempt {attempts})"
    )


def _wait_for(groups: list[int]) -> None:
    for group in groups:
        while any_in(group):
            time.sleep(0.05)


def _wait_and_kill(runner: Runner, place: Place, disk: Disk) -> list[int]:
    if place.now is None:
        runner.wait()
        return []
    while runner.is_alive and not place.now(disk.look()):
        time.sleep(0.002)  # looking all the time would take half of two cores from Spark
    return runner.kill(application=place.application) if runner.is_alive else []


def finish(world: DeltaWorld, expected: State, where: str, tally: Tally) -> None:
    """Compare, and see that another run finds nothing to do (which takes no Spark)."""
    compare(state(world), expected, where, tally)
    if isinstance(world, SourceWorld) and world.always_looks:
        error = Runner(world, "run").wait()
        compare(state(world), expected, f"{where}, run once more: {error or 'no error'}", tally)
        return
    gate = Counting()
    world.run(gate)
    if gate.writes:
        tally.failures.append(f"{where}: a run with nothing to do wrote {gate.writes}")


def diverge(stage: SparkStage, how: str, tally: Tally) -> str:
    """RESTORE the table or drop and create it again between two runs.

    The runs must refuse it, and go on once it was accepted; the same is done with the engine on
    ``deltalake`` for comparison.
    """
    world: DeltaWorld = stage.reset("refresh")
    _change(world, how)
    before = state(world)
    aside = stage.place.with_name("aside")
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(stage.place, aside)

    twin = DeltaWorld(stage.place)
    twin.max_files = MAX_FILES
    _refused(twin)
    twin.accept()
    twin.run()
    expected = state(twin)

    shutil.rmtree(stage.place)
    shutil.copytree(aside, stage.place)
    error = Runner(world, "run").wait()
    if not error.startswith((TableRestoredError.__name__, TableRecreatedError.__name__)):
        tally.failures.append(f"{how}: the run ended with {error or 'no error'}")
    compare(state(world), before, f"{how}, refused", tally)
    for step in ("accept", "run"):
        if error := Runner(world, step).wait():
            tally.failures.append(f"{how}: {step} ended with: {error}")
    finish(world, expected, how, tally)
    tally.kill_points += 1
    return "refused, accepted, loaded"


def _change(world: DeltaWorld, how: str) -> None:
    if how == "RESTORE between runs":
        world.restore(1)
    else:
        world.recreate()


def _refused(world: DeltaWorld) -> None:
    try:
        world.run()
    except TableDivergedError:
        return
    raise AssertionError("a table that diverged was not refused")


def unreadable_refresh(stage: SparkStage, tally: Tally) -> str:
    """Kill a refresh before it is submitted, let a file of its first batch vanish, and refresh anew."""
    world = stage.reset("refresh")
    Runner(world, "refresh", "replace plans/", "after").wait()
    tally.kill_points += 1
    world.hide("f02.parquet")
    error = Runner(world, "run").wait()
    if not error.startswith(SourceFileGoneError.__name__):
        tally.failures.append(f"unreadable refresh: the rerun ended with {error or 'no error'}")
    if error := Runner(world, "refresh").wait():
        tally.failures.append(f"unreadable refresh: the second refresh ended with: {error}")
    rows = stage.ends["refresh"].rows
    still_there = Counter({row: n for row, n in rows.items() if not row[0].endswith("/f02.parquet")})
    found = state(world)
    compare(found, replace(found, rows=still_there), "unreadable refresh", tally)
    return "refused as long as a file was missing, loaded by a new refresh"


def kinds() -> dict[str, tuple[Place, ...]]:
    """Return the places of each kind of run; ``files`` is the plain one."""
    others = {ASIDE: ASIDE_PLACES, **dict.fromkeys(WRITES, MERGE_PLACES), "merge_in_order": IN_ORDER_PLACES}
    return {"files": PLACES, **others, **dict.fromkeys((world.name for world in WORLDS), SOURCE_PLACES)}


def all_places(report: Callable[[str, Tally, str, float], None], only: str | None = None) -> Tally:
    """Do everything; ``report`` takes name, what was found, where it hit, and the seconds.

    :param only: Of ``kinds``, the one to do.
    """
    total = Tally()

    def part(name: str, work: Callable[[Tally], str]) -> None:
        began, tally = time.monotonic(), Tally()
        text = work(tally)
        total.add(tally)
        report(name, tally, text, time.monotonic() - began)

    for kind, places in kinds().items():
        if only not in (None, kind):
            continue
        with fast_folder() as folder:
            stages: list[SparkStage] = []

            def set_up(
                _tally: Tally,
                kind: str = kind,
                folder: Path = folder,
                places: tuple[Place, ...] = places,
                stages: list[SparkStage] = stages,
            ) -> str:
                stage_of = SourceStage if places is SOURCE_PLACES else SparkStage
                stages.append(stage_of(folder, "" if kind == "files" else kind))
                return "undisturbed runs to compare with"

            part(f"undisturbed, {kind}", set_up)
            stage = stages[0]
            for place in places:
                part(f"{kind}: {place.name}", lambda tally, at=place, of=stage: kill_at(of, at, tally))  # type: ignore[misc]
            if kind == "files":
                for how in ("RESTORE between runs", "table recreated between runs"):
                    part(how, lambda tally, how=how, of=stage: diverge(of, how, tally))  # type: ignore[misc]
                part("refresh whose file vanished", lambda tally, of=stage: unreadable_refresh(of, tally))  # type: ignore[misc]
    return total


def line(name: str, tally: Tally, text: str, seconds: float) -> str:
    """Return the line that is printed for a part."""
    return f"spark: {name:36} {tally.kill_points:5} kill points {seconds:6.1f} s  {text}"
