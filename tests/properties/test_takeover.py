"""Whatever dbt-scope did and left, after a takeover each file is loaded by exactly one of the two."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_scope.exceptions import BatchOutcomeUnknownError, InputError, WatermarkChangedError
from airflow_provider_scope.protocol import dbt_scope
from airflow_provider_scope.protocol.seen import NAMED_AT_MOST
from airflow_provider_scope.protocol.takeover import Decision, digest
from airflow_provider_scope.values import FileEntry
from tests.crash.world import NOW_MS, MemoryWorld
from tests.support.dbt_scope import CrashedError, DbtScopeOnMemory
from tests.support.faulty_storage import DiedError, dies_after, open_gate

if TYPE_CHECKING:
    from airflow_provider_scope.protocol.report import RunReport

START = NOW_MS - 1_000_000
TIMES = st.integers(0, 30)
"""Milliseconds, so few that many files have the same one."""

STEPS = st.one_of(
    st.tuples(st.just("files"), st.lists(TIMES, min_size=1, max_size=5)),
    st.tuples(st.just("run"), st.integers(1, 3)),
    st.tuples(st.just("batch"), st.integers(1, 3)),
    st.tuples(st.just("lose the record"), st.integers(1, 3)),
)


class Story:
    """Files arrive, one of the two programs loads them, and the other one goes on."""

    def __init__(self, *, interval: int, retention: int, times: Any) -> None:
        self.world = MemoryWorld(interval=interval)
        self.theirs = DbtScopeOnMemory(self.world, interval=interval, retention=retention, times=times)

    def arrive(self, at: int) -> None:
        path = f"{self.world.root}/{len(self.world.memory.source):03}"
        self.world.memory.source[path] = FileEntry(START + at, path, 1)
        self.world.memory.content[path] = [(path, 0, 1)]

    def do(self, what: str, detail: Any) -> None:
        match what:
            case "files":
                for at in detail:
                    self.arrive(at)
            case "run":
                with suppress(CrashedError):
                    self.theirs.run(max_files=detail)
            case "batch":
                with suppress(CrashedError):
                    self.theirs.run(max_files=detail, max_batches=1)
            case "lose the record":
                with suppress(CrashedError):
                    self.theirs.run(max_files=detail, max_batches=1, crash="before the sources")

    def loaded_by_dbt_scope(self) -> set[str]:
        return {row[0] for row in self.world.rows()}

    def watermark_ms(self) -> int | None:
        known = self.theirs.watermark()
        files = [f.modified_ms for f in self.world.memory.source.values()]
        new = [ms for _, ms in self.theirs.unprocessed((str(ms), ms) for ms in files)]
        return max((ms for ms in files if ms not in new), default=None) if known else None


def check(story: Story, report: RunReport, before: set[str], mark: int | None) -> None:
    """Every file is there once; one that is not is older than the watermark, and named in the report."""
    world = story.world
    rows = world.rows()
    assert set(rows.values()) <= {1}, "no file is loaded twice"
    left = set(world.memory.source) - {row[0] for row in rows}
    counted = report.left_out.counts.get("before the watermark taken over", 0)
    named = report.left_out.names.get("before the watermark taken over", [])
    assert left <= set(named) or len(left) <= counted > len(named) == NAMED_AT_MOST
    assert all(mark is not None and world.memory.source[path].modified_ms < mark for path in left)
    assert all(path in {row[0] for row in rows} for path in before)


@given(
    steps=st.lists(STEPS, min_size=1, max_size=14),
    interval=st.integers(1, 4),
    retention=st.integers(1, 6) | st.just(100),
    times=st.sampled_from(["text", "timestamp"]),
    after=st.lists(TIMES, max_size=6),
    late_files=st.sampled_from(["ingest", "ingest", "skip"]),
)
def test_each_file_is_loaded_by_exactly_one_of_the_two(steps, after, late_files, **left):
    story = Story(**left)
    story.arrive(0)
    for what, detail in steps:
        story.do(what, detail)
    for at in after:
        story.arrive(at)
    before, mark = story.loaded_by_dbt_scope(), story.watermark_ms()
    world = story.world
    untouched = world.rows()

    try:
        report = world.run(late_files=late_files)
    except BatchOutcomeUnknownError:
        # Several files have the watermark's time, and the record of the newest batch is lost.
        assert (world.log().newest_offset(), world.rows()) == (None, untouched)
        ties = {path for path, file in world.memory.source.items() if file.modified_ms == mark}
        assert len(ties) > 1
        assert not story.theirs.batch(story.theirs.watermark()[2])  # type: ignore[index]
        in_table = ties & before
        if in_table != ties:
            return  # neither answer is right: rows have to be deleted first, as the error says
        watermark = digest(world.read("watermark.json"))
        world.log().put(Decision(watermark=watermark, loaded=True))
        report = world.run(late_files=late_files)

    if late_files == "skip":
        rows = world.rows()
        assert set(rows.values()) <= {1}
        assert all(
            path in {row[0] for row in rows}
            for path, f in world.memory.source.items()
            if f.modified_ms > (mark or 0)
        )
    else:
        check(story, report, before, mark)
    assert world.run(late_files=late_files).batches == []


@given(
    steps=st.lists(STEPS, min_size=1, max_size=8),
    interval=st.integers(1, 4),
    ours=st.lists(st.integers(31, 60), min_size=1, max_size=8),
    back=st.lists(st.integers(61, 90), min_size=1, max_size=8, unique=True),
)
def test_the_table_can_go_back_to_dbt_scope_when_nothing_is_pending(steps, interval, ours, back):
    story = Story(interval=interval, retention=100, times="text")
    story.arrive(0)
    for what, detail in steps:
        if what != "lose the record":
            story.do(what, detail)
    for at in ours:
        story.arrive(at)
    story.world.run()
    before = story.world.rows()
    number = story.theirs.watermark()[2]  # type: ignore[index]

    for at in back:
        story.arrive(at)
    story.theirs.run(max_files=1)

    assert set(story.world.rows().values()) == {1}
    assert len(story.world.rows()) == len(before) + len(back)
    assert story.theirs.watermark()[2] == number + len(back)  # type: ignore[index]
    known = Counter(row["path"] for row in story.theirs.history())
    assert known == Counter(row[0].removeprefix("file://") for row in story.world.rows())


class InTurn(Story):
    """Both programs load one table in turn; ours dies anywhere, and dbt-scope waits until that is mended."""

    def __init__(self, interval: int) -> None:
        super().__init__(interval=interval, retention=100, times="text")
        self.is_clean = True
        """Whether the last run of ours ended without an error."""
        self.is_passed_by = False
        """Whether dbt-scope loaded files that our log does not know of."""

    def overwrite_start(self) -> int | None:
        newest = self.world.log().newest_offset()
        return newest.overwrite_start if newest else None

    def dbt_scope(self) -> None:
        before = self.world.rows()
        if self.is_clean:
            self.theirs.run()
        self.is_passed_by |= self.world.rows() != before and self.world.log().pipeline() is not None

    def take_over(self) -> None:
        log = self.world.log()
        if log.pipeline() is None or dbt_scope.is_first(log):
            return
        with suppress(InputError, WatermarkChangedError):  # a batch is open, or dbt-scope ran beside one
            if later_runs := dbt_scope.continuation(log, NOW_MS):
                dbt_scope.write(log, *later_runs)
                self.is_passed_by = False

    def run(self, *, refresh: bool, dies_at: int | None = None) -> None:
        before = self.overwrite_start()
        try:
            self.world.run(open_gate if dies_at is None else dies_after(dies_at), refresh=refresh)
        except WatermarkChangedError:
            assert self.is_passed_by, "dbt-scope was noticed, and has not run"
        except DiedError:
            self.is_clean = False
            self.is_passed_by &= self.overwrite_start() == before
        else:
            assert refresh or not self.is_passed_by, "dbt-scope was not noticed"
            self.is_clean, self.is_passed_by = True, False
            assert self.world.rows() == Counter({(path, 0, 1): 1 for path in self.world.memory.source})
        assert set(self.world.rows().values()) <= {1}


@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from(["dbt-scope", "dbt-scope", "run", "run", "refresh", "take over"]),
            st.integers(-60, 40).map(lambda number: None if number < 0 else number),
        ),
        min_size=3,
        max_size=14,
    ),
    interval=st.sampled_from([1, 3, 10]),
    is_theirs=st.booleans(),
)
def test_both_in_turn_load_each_file_once_and_neither_passes_by_the_other(steps, interval, is_theirs):
    story = InTurn(interval)
    story.arrive(0)
    if is_theirs:
        story.dbt_scope()
    for files, what, dies_at in steps:
        for _ in range(files):
            story.arrive(len(story.world.memory.source))
        match what:
            case "dbt-scope":
                story.dbt_scope()
            case "take over":
                story.take_over()
            case _:
                story.run(refresh=what == "refresh", dies_at=dies_at)

    story.run(refresh=story.is_passed_by)
    assert story.world.run().batches == []
