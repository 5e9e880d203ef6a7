"""However time is cut into intervals, and however often each of them runs, each file is loaded once."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.values import Window, window_of
from tests.crash.judging import landed_rows
from tests.crash.world import NOW_MS, MemoryWorld

SPAN_SECONDS = 12
AGES = st.integers(1, SPAN_SECONDS)
CUTS = st.sets(st.integers(1, SPAN_SECONDS - 1), max_size=5)


def intervals(cuts: set[int]) -> list[Window]:
    """Cut the seconds before now into windows that touch each other."""
    ends = [NOW_MS - (SPAN_SECONDS - cut) * 1000 for cut in sorted({0, SPAN_SECONDS, *cuts})]
    return [Window(start, end) for start, end in pairwise(ends)]


@given(
    CUTS,
    st.lists(AGES, min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 5), st.lists(AGES, max_size=2)), max_size=10),
)
def test_each_file_is_loaded_once_in_any_order_of_any_number_of_runs(
    cuts: set[int], ages: list[int], runs: list[tuple[int, list[int]]]
) -> None:
    world = MemoryWorld()
    worlds = [world.of(window) for window in intervals(cuts)]
    for number, age in enumerate(ages):
        world.drop(f"first {number}", age)
    for run, (which, late) in enumerate(runs):
        for number, age in enumerate(late):
            world.drop(f"late {run} {number}", age)
        worlds[which % len(worlds)].run()

    for one in worlds:
        one.run()

    assert world.rows() == landed_rows(world)
    assert sum(len(one.run().batches) for one in worlds) == 0


@given(CUTS, st.lists(AGES, min_size=1, max_size=8), st.lists(st.integers(-3, SPAN_SECONDS), max_size=4))
def test_after_the_last_interval_the_watermark_goes_on_and_loads_each_file_once(
    cuts: set[int], ages: list[int], later: list[int]
) -> None:
    world = MemoryWorld()
    for number, age in enumerate([*ages, *later]):
        world.drop(f"f{number}", age)
    *filled, open_end = intervals(cuts)

    for window in filled:
        world.of(window).run()
    world.run(starting_at_ms=open_end.start_ms)
    world.run(starting_at_ms=open_end.start_ms)

    # Those that are dated in the future are too young.
    expected = Counter(
        {row: 1 for row in landed_rows(world) if world.memory.source[row[0]].modified_ms <= NOW_MS}
    )
    assert world.rows() == expected


@given(st.integers(-62_135_596_800_000, 253_402_300_799_998), st.integers(1, 400_000_000_000))
def test_a_window_comes_back_out_of_its_name_and_names_sort_as_windows_do(start: int, length: int) -> None:
    window = Window(start, min(start + length, 253_402_300_799_999))
    later = Window(window.start_ms + 1, 253_402_300_799_999)

    assert window_of(window.name) == window
    if later.start_ms < later.end_ms:
        assert window.name < later.name


@given(CUTS, st.integers(1, SPAN_SECONDS - 1), st.integers(1, SPAN_SECONDS))
def test_an_interval_that_shares_time_with_a_loaded_one_is_refused_before_it_writes(
    cuts: set[int], start: int, length: int
) -> None:
    world = MemoryWorld()
    for age in range(1, SPAN_SECONDS + 1):
        world.drop(f"f{age}", age)
    known = intervals(cuts)
    for window in known:
        world.of(window).run()
    begin = NOW_MS - (SPAN_SECONDS - start) * 1000
    window = Window(begin, begin + length * 1000)
    before, control = world.rows(), dict(world.memory.control)

    if window in known:
        assert world.of(window).run().batches == []
    else:
        with pytest.raises(InputError, match="overlaps"):
            world.of(window).run()

    assert world.rows() == before
    assert world.memory.control == control
