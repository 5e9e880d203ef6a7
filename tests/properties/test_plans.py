"""What a plan says is what the next run does, whatever happened before."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hypothesis import event, given
from hypothesis import strategies as st

from airflow_provider_scope.exceptions import ScopeProviderError
from airflow_provider_scope.values import Window
from tests.crash.number_world import NumberWorld
from tests.crash.table_world import CursorWorld, FeedWorld, name_of
from tests.crash.world import NOW_MS, MemoryWorld
from tests.support.faulty_storage import DiedError, dies_after, open_gate

if TYPE_CHECKING:
    from airflow_provider_scope.protocol.dry_run import Preview
    from airflow_provider_scope.protocol.records import OffsetEntry

WORLDS: tuple[type[MemoryWorld], ...] = (
    MemoryWorld,
    MemoryWorld,
    NumberWorld,
    FeedWorld,
    CursorWorld,
)
"""Files come twice: most that can happen to a source happens to them."""
WHOLE_DAY = Window(NOW_MS - 86_400_000, NOW_MS + 1)


asked = st.fixed_dictionaries(
    {},
    optional={
        "refresh": st.booleans(),
        "where": st.just("day = 1"),
        "max_batches": st.integers(1, 2),
        "late_files": st.sampled_from(["ingest", "skip"]),
    },
)
plain = st.just(dict[str, Any]())


class Night:
    """A pipeline, and what may happen to it."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.world = draw(st.sampled_from(WORLDS))()
        if type(self.world) is MemoryWorld and draw(st.booleans()):
            self.world = self.world.of(WHOLE_DAY)
        self.number = 0

    def a_file(self) -> None:
        """Let files come, some of them late."""
        for _ in range(self.draw(st.integers(1, 3))):
            self.number += 1
            late = self.draw(st.integers(0, 900))
            self.world.drop(f"f{self.number}", 1_000 + late)

    def damaged_source(self) -> None:
        """Delete, repair or rename something of the source; drop and recreate a table."""
        memory = self.world.memory
        if isinstance(self.world, FeedWorld):
            versions = memory.names(name_of(0).rpartition("/")[0])
            if versions:
                memory.delete(name_of(self.draw(st.integers(0, len(versions) - 1))))
            return
        if type(self.world) is not MemoryWorld:
            lines = (memory.control.get(f"{self.world.root}/numbers.txt") or b"").splitlines(keepends=True)
            if lines:
                memory.replace(f"{self.world.root}/numbers.txt", b"".join(lines[:-1]))
            return
        if not memory.source:
            return
        log = self.world.log()
        done = set(log.committed())
        waiting = [f.path for seq in log.logged() if seq not in done for f in log.offset(seq).files]
        path = self.draw(st.sampled_from(sorted({*waiting} & {*memory.source}) or sorted(memory.source)))
        what = self.draw(st.sampled_from(["deleted", "repaired", "touched"]))
        if what == "deleted":
            del memory.source[path]
        else:
            file = memory.source[path]
            size = file.size_bytes + (what == "repaired")
            memory.source[path] = file._replace(size_bytes=size, modified_ms=file.modified_ms + 1)

    def restored(self) -> None:
        if self.world.delta.versions:
            self.world.restore(self.draw(st.integers(0, self.world.version())))
            self.perhaps_accepted()

    def recreated(self) -> None:
        self.world.recreate()
        self.perhaps_accepted()

    def perhaps_accepted(self) -> None:
        if self.draw(st.booleans()):
            self.accepted()

    def dropped(self) -> None:
        self.world.delta.versions.clear()

    def run(self) -> None:
        self.world.run(**self.draw(plain | asked))

    def killed(self) -> None:
        gate = dies_after(self.draw(st.integers(1, 60)))
        self.world.run(gate, **self.draw(plain | asked))

    def failed(self) -> None:
        """Let the application fail at a batch."""
        engine = self.world.engine(open_gate)
        bad, read = self.draw(st.integers(0, 2)), engine.read

        def read_others(entry: OffsetEntry) -> Any:
            if entry.seq >= bad:
                raise DiedError
            return read(entry)

        engine.read = read_others  # type: ignore[method-assign]
        with suppress(DiedError):
            self.world.run(engine=engine)
        if self.draw(st.booleans()):
            self.damaged_source()

    def abandoned(self) -> None:
        log = self.world.log()
        done = set(log.committed())
        still_open = [seq for seq in log.logged() if seq not in done]
        if still_open:
            self.world.abandon(still_open[0])

    def accepted(self) -> None:
        self.world.accept(reload_undecidable=self.draw(st.booleans()))

    def vacuumed(self) -> None:
        self.world.vacuum()

    def happen(self) -> None:
        """Let something happen; that it fails is fine."""
        usual = [self.a_file, self.run, self.killed, self.failed]
        rare = [
            self.damaged_source,
            self.damaged_source,
            self.restored,
            self.recreated,
            self.dropped,
            self.abandoned,
            self.accepted,
            self.vacuumed,
        ]
        what = self.draw(st.sampled_from([*usual, *usual, *rare]))
        with suppress(ScopeProviderError, DiedError):
            what()


@st.composite
def nights(draw: st.DrawFn) -> Night:
    night = Night(draw)
    night.a_file()
    for _ in range(draw(st.integers(1, 8))):
        night.happen()
    return night


def numbers(entries: tuple[OffsetEntry, ...]) -> list[int]:
    return [entry.seq for entry in entries]


def state_of(world: MemoryWorld) -> Any:
    return dict(world.memory.control), list(world.delta.versions)


def run(world: MemoryWorld, how: dict[str, Any]) -> tuple[list[int], str | None]:
    """Run, and give the batches that got a commit record and were not abandoned, and the error."""
    log = world.log()
    before = set(log.committed())
    error = None
    try:
        world.run(**how)
    except ScopeProviderError as err:
        error = type(err).__name__
    return [seq for seq in log.committed() if seq not in before], error


@given(nights(), plain | asked)
def test_the_next_run_does_what_the_plan_says(night: Night, how: dict[str, Any]) -> None:
    world = night.world
    before = state_of(world)

    plan: Preview = world.plan(**how)

    assert state_of(world) == before
    committed, error = run(world, how)
    said = sorted(numbers((*plan.recorded, *plan.opened, *plan.new)))
    event(f"{type(plan.error).__name__}, {len(said)} batches")
    for entry in (*plan.opened, *plan.new, *plan.recorded, *plan.blocked):
        assert world.log().offset(entry.seq) == entry
    if plan.is_complete:
        assert (committed, error) == (said, plan.error and type(plan.error).__name__)
    else:
        assert committed[: len(said)] == said
    assert not {*committed} & {*numbers((*plan.superseded, *plan.blocked))}
