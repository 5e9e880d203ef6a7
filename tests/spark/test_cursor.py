"""Rows of a Delta table by a cursor column, committed with the state after them."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.exceptions import (
    CursorError,
    InputError,
    StorageError,
    TableGoneError,
    UnknownRowsError,
)
from airflow_provider_scope.protocol import repair, vacuum
from airflow_provider_scope.sources.cursor import state as cursor_state
from airflow_provider_scope.sources.cursor.state import CursorState
from airflow_provider_scope.spark import settings as core_settings
from airflow_provider_scope.spark.cursor import Reading, reading_of
from airflow_provider_scope.specs import Cursor, TableSource
from airflow_provider_scope.values import CursorSlice, Window
from tests.support import warm

if TYPE_CHECKING:
    from contextlib import ExitStack

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _warm(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    warm.use(monkeypatch, spark)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


class Source:
    """A Delta table that another writer fills, and a pipeline that loads it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "source"

    def add(self, **columns: Any) -> None:
        write_deltalake(str(self.path), pa.table(columns), mode="append")

    def pipe(self, column: str = "n", **more: Any) -> warm.Pipe:
        arguments = {name: more.pop(name) for name in ("write", "sql", "mode") if name in more}
        outer = {k: more.pop(k) for k in ("pre_filter_sql", "max_rows_per_batch") if k in more}
        source = {"table": str(self.path), "cursor": {"column": column, **more}, **outer}
        return warm.Pipe(self.folder, {"source": source, **arguments})


def test_a_small_load_is_one_file(source: Source) -> None:
    """New rows and those at the last value are two parts of what is read."""
    source.add(n=[1, 2])
    pipe = source.pipe()
    pipe.run()
    source.add(n=[2, 3])
    source.add(n=[4])
    pipe.run()

    assert pipe.rows("n") == [(1,), (2,), (2,), (3,), (4,)]
    assert len(DeltaTable(str(pipe.table)).file_uris()) == 2


def test_a_range_is_loaded_once_and_one_that_overlaps_it_is_not_added(source: Source) -> None:
    source.add(n=[1, 2, 3, 4, 5], t=list("abcde"))
    source.pipe(initial_value=1, end_value=4).run()
    again = source.pipe(initial_value=1, end_value=4).run()
    with pytest.raises(CursorError, match="from 3 to 6 overlaps that from 1 to 4, which batch 0 loads"):
        source.pipe(initial_value=3, end_value=6).run()
    with pytest.raises(CursorError, match="from 1 to 0 overlaps that from 1 to 4"):
        source.pipe(initial_value=1, end_value=0, last_value_func="min").run()
    with pytest.raises(CursorError, match="from 2 to 10 overlaps that from 1 to 4"):
        source.pipe(initial_value="2", end_value="10").run()  # as a template gives it
    late = {"initial_value": 3, "end_value": 5}
    source.pipe(write={"kind": "merge", "strategy": "upsert", "primary_key": ["n"]}, **late).run()
    pipe = source.pipe(initial_value=5)  # ranges leave the state alone
    pipe.run()

    assert again.batches == []
    assert "loaded before" in again.why_nothing()
    assert pipe.rows("n") == [(1,), (2,), (3,), (4,), (5,)]


def test_ranges_may_share_an_end_that_only_one_of_them_has(source: Source) -> None:
    source.add(n=[1, 2, 3, 4, 5], t=list("abcde"))
    source.pipe(initial_value=1, end_value=3, range_start="open", range_end="closed").run()
    with pytest.raises(CursorError, match="from 3 to 5 overlaps that from 1 to 3, which batch 0 loads"):
        source.pipe(initial_value=3, end_value=5).run()
    pipe = source.pipe(initial_value=3, end_value=5, range_start="open", range_end="closed")
    pipe.run()
    again = pipe.run()

    assert (pipe.rows("n"), again.batches) == ([(2,), (3,), (4,), (5,)], [])


def test_a_range_has_no_lag(source: Source) -> None:
    source.add(n=[1, 2, 3], t=list("abc"))
    pipe = source.pipe("t", initial_value="b", end_value="z", lag=3)  # which text does not know
    pipe.run()

    assert pipe.rows("n") == [(2,), (3,)]


@pytest.mark.slow
def test_ranges_and_a_load_without_an_end_do_not_add_rows_of_each_other(source: Source) -> None:
    source.add(n=[1, 2, 3, 4, 5])
    source.pipe(initial_value=2, end_value=4).run()
    with pytest.raises(
        CursorError, match="of all rows overlaps that from 2 to 4, which batch 0 loads"
    ) as caught:
        source.pipe().run()
    assert "with cursor.initial_value=4;" in caught.value.do
    pipe = source.pipe(initial_value=4)
    pipe.run()
    with pytest.raises(CursorError, match="from 1 to 5 overlaps that from 4 on, which batch 1 loads"):
        source.pipe(initial_value=1, end_value=5).run()
    source.pipe(initial_value=1, end_value=2).run()
    source.pipe().run()

    assert pipe.rows("n") == [(1,), (2,), (3,), (4,), (5,)]


@pytest.mark.slow
@pytest.mark.parametrize("func", ["max", "min"])
def test_a_lag_may_reach_beyond_what_the_type_has(source: Source, func: str) -> None:
    source.add(n=pa.array([1, 2], pa.int16()))
    pipe = source.pipe(lag=40_000, last_value_func=func)
    pipe.run()
    source.add(n=pa.array([-5, 7], pa.int16()))
    pipe.run()
    with pytest.raises(CursorError, match=r"initial_value is 100000 .* the column has the type smallint"):
        warm.Pipe(source.folder / "other", source.pipe(initial_value=100_000).arguments).run()

    assert pipe.rows("n") == [(-5,), (1,), (2,), (7,)]


@pytest.mark.slow
@pytest.mark.parametrize("func", ["max", pytest.param("min", marks=pytest.mark.loads)])
def test_a_lag_of_more_digits_than_its_decimals_reads_no_row_that_is_not_known(
    source: Source, func: str
) -> None:
    """2.00 - 0.09999999999999998 is more than 1.90, and is 1.90 as a decimal."""
    source.add(n=pa.array(map(Decimal, ("1.90", "2.00")), pa.decimal128(10, 2)))
    pipe = source.pipe(lag=0.3 - 0.2, last_value_func=func)
    pipe.run()
    for n in ("1.91", "1.99"):
        source.add(n=pa.array([Decimal(n)], pa.decimal128(10, 2)))
        pipe.run()

    assert [str(n) for (n,) in pipe.rows("n")] == ["1.90", "1.91", "1.99", "2.00"]


@pytest.mark.slow
def test_a_range_that_replaces_a_part_leaves_the_state_and_the_ranges_of_before(source: Source) -> None:
    source.add(n=[1, 2, 3, 4, 5, 6])
    source.pipe(initial_value=1, end_value=3).run()
    pipe = source.pipe(initial_value=3)
    pipe.run()
    state = pipe.state()
    part = {"kind": "replace", "where": "n >= 3 AND n < 5"}
    source.pipe(initial_value=3, end_value=5, write=part).run(max_batches_per_run=None)
    again = source.pipe(initial_value=1, end_value=3).run()
    pipe.run()

    assert (pipe.rows("n"), again.batches) == ([(1,), (2,), (3,), (4,), (5,), (6,)], [])
    assert pipe.state() == state


@pytest.mark.slow
def test_after_a_part_was_replaced_vacuum_keeps_the_records_of_the_ranges_of_before(source: Source) -> None:
    source.add(n=[1, 2, 3, 4])
    source.pipe(initial_value=1, end_value=3).run()
    part = {"kind": "replace", "where": "n >= 3 AND n < 5"}
    for _ in range(2):
        source.pipe(initial_value=3, end_value=5, write=part).run(max_batches_per_run=None)
    pipe = source.pipe(initial_value=1, end_value=3)
    execution, request = pipe.execution()
    purge = vacuum.purge_of(
        execution.log, execution.audit, execution.engine, request.table, retain=1, now_ms=execution.now_ms()
    )
    vacuum.run(execution.log, purge)

    assert pipe.run().batches == []
    assert pipe.rows("n") == [(1,), (2,), (3,), (4,)]


@pytest.mark.slow
def test_ranges_of_two_columns_are_told_apart_and_a_column_has_any_letter_case(source: Source) -> None:
    source.add(a=[1, 2, 9], b=[9, 9, 1])
    source.pipe("a", initial_value=1, end_value=4).run()
    with pytest.raises(CursorError, match="from 2 to 5 overlaps that from 1 to 4"):
        source.pipe("A", initial_value=2, end_value=5).run()
    pipe = source.pipe("b", initial_value=1, end_value=4)
    pipe.run()

    assert pipe.rows("a") == [(1,), (2,), (9,)]


def test_an_interval_that_was_loaded_by_another_column_is_not_added_again(source: Source) -> None:
    source.add(created=[1, 2], updated=[2, 4000])
    hour = Window(0, 3_600_000)
    source.pipe("created").run(window=hour, max_batches_per_run=None)
    pipe = source.pipe("updated")
    again = pipe.run(window=hour, max_batches_per_run=None)

    assert (pipe.rows("created"), again.batches) == ([(1,), (2,)], [])
    assert "loaded before" in again.why_nothing()


def test_an_interval_is_not_added_to_rows_of_others(source: Source) -> None:
    source.add(n=[0, 10])
    pipe = source.pipe()
    write_deltalake(str(pipe.table), pa.table({"n": [0, 10]}))
    with pytest.raises(UnknownRowsError, match="holds rows, and there is no record"):
        pipe.run(window=Window(0, 3_600_000), max_batches_per_run=None)


def test_dates_go_on_after_intervals_that_end_within_a_day(source: Source) -> None:
    """As those of a day in Berlin do, in UTC."""
    source.add(d=[date(2026, 1, day) for day in (29, 30, 31)])
    end = int(datetime(2026, 1, 31, 23, tzinfo=UTC).timestamp()) * 1000
    source.pipe("d").run(window=Window(end - 86_400_000, end), max_batches_per_run=None)
    pipe = source.pipe("d", initial_value=date(2026, 1, 31))
    pipe.run()

    assert pipe.rows("d") == [(date(2026, 1, 30),), (date(2026, 1, 31),)]


_LAST_OF_JANUARY = int(datetime(2026, 1, 31, tzinfo=UTC).timestamp()) * 1000


@pytest.mark.slow
def test_an_interval_of_text_and_what_comes_after_it_load_each_spelling_once(source: Source) -> None:
    source.add(
        at=[*(f"2026-01-31T00:00:00{zone}" for zone in ("", ".5", "Z", "+00:00")), "2026-01-30T23:59:59.9Z"]
    )
    window = Window(_LAST_OF_JANUARY - 86_400_000, _LAST_OF_JANUARY)
    source.pipe("at").run(window=window, max_batches_per_run=None)
    with pytest.raises(InputError) as caught:
        source.pipe("at").run()
    assert "of text, '2026-01-31T00:00:00'" in caught.value.do
    pipe = source.pipe("at", initial_value="2026-01-31T00:00:00")
    first_rows = len(pipe.rows("at"))
    pipe.run()

    assert (first_rows, len(pipe.rows("at"))) == (1, 5)


def test_an_interval_of_text_refuses_times_that_it_would_not_find(source: Source) -> None:
    source.add(at=["2026-01-30 05:00:00"])
    window = Window(_LAST_OF_JANUARY, _LAST_OF_JANUARY + 86_400_000)
    with pytest.raises(CursorError, match="'at' is text, and its largest value is '2026-01-30 05:00:00'"):
        source.pipe("at").run(window=window, max_batches_per_run=None)


@pytest.mark.slow
def test_intervals_load_their_rows_alone_and_an_incremental_load_goes_on_behind_them(source: Source) -> None:
    hour = 3_600_000
    source.add(n=[0, 3599, 3600, 7199, 7200, 9000], t=list("abcdef"))
    for number in (1, 0):
        source.pipe().run(window=Window(number * hour, (number + 1) * hour), max_batches_per_run=None)
    again = source.pipe().run(window=Window(0, hour), max_batches_per_run=None)
    with pytest.raises(InputError, match="initial_value"):
        source.pipe().run()

    pipe = source.pipe(initial_value=7200)
    pipe.run()

    assert [n for (n,) in pipe.rows("n")] == [0, 3599, 3600, 7199, 7200, 9000]
    assert again.batches == []
    with pytest.raises(InputError, match="loaded before"):
        source.pipe().run(window=Window(2 * hour, 3 * hour), max_batches_per_run=None)


@pytest.mark.slow
def test_a_full_refresh_begins_at_the_initial_value_and_replace_does_so_each_time(source: Source) -> None:
    source.add(n=[1, 2, 3], t=list("abc"))
    pipe = source.pipe(initial_value=2.0)  # a float, as pandas has it beside missing values
    pipe.run()
    source.add(n=[2], t=["late"])
    pipe.run(full_refresh=True)

    assert pipe.rows("n", "t") == [(2, "b"), (2, "late"), (3, "c")]

    source.add(n=[0, 2], t=["old", "x"])
    pipe.run(write="replace", max_batches_per_run=None)

    assert pipe.rows("n", "t") == [(2, "b"), (2, "late"), (2, "x"), (3, "c")]


def test_of_a_key_that_was_loaded_no_row_comes_again_whatever_else_is_in_it(source: Source) -> None:
    source.add(n=[7] * 60, id=[*range(60)], r=[0] * 60)
    pipe = source.pipe(dedup_key=["id"])
    pipe.run()
    source.add(n=[7] * 61, id=[*range(61)], r=[1] * 61)
    pipe.run()

    assert pipe.rows("id", "r") == sorted([*((n, 0) for n in range(60)), (60, 1)], key=repr)


@pytest.mark.slow
def test_days_before_1582_are_the_days_that_another_writer_meant(source: Source) -> None:
    first, last = date(1, 1, 1), date(1500, 2, 28)
    source.add(n=[1, 2], d=pa.array([first, last], pa.date32()))
    pipe = source.pipe("d")
    pipe.run()
    source.add(n=[3], d=pa.array([date(1582, 10, 10)], pa.date32()))
    pipe.run()

    assert pipe.rows("n", "d") == [(1, first), (2, last), (3, date(1582, 10, 10))]


@pytest.mark.slow
def test_a_source_that_was_created_again_another_column_and_another_end_are_refused(source: Source) -> None:
    source.add(n=[1], m=[5], t=["a"])
    pipe = source.pipe()
    pipe.run()
    with pytest.raises(CursorError, match=r"'n'.*'m'"):
        source.pipe("m").run()
    with pytest.raises(CursorError, match="last_value_func='max', and it is now 'min'"):
        source.pipe(last_value_func="min").run()
    shutil.rmtree(source.path)
    source.add(n=[1], m=[5], t=["a"])

    with pytest.raises(CursorError, match="not the one that was loaded before"):
        pipe.run()
    assert pipe.rows("n") == [(1,)]

    pipe.run(full_refresh=True)
    assert pipe.rows("n") == [(1,)]


def test_a_batch_that_died_reads_the_version_that_it_was_logged_with(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.add(n=[1, 2], t=["a", "b"])
    pipe = source.pipe()

    def dies(*_: Any, **__: Any) -> None:
        raise StorageError("the disk is away")

    with monkeypatch.context() as broken:
        broken.setattr(Reading, "held", dies)
        with pytest.raises(StorageError):
            pipe.run()
    source.add(n=[3], t=["c"])
    write_deltalake(str(source.path), pa.table({"n": [9], "t": ["z"]}), mode="overwrite")
    report = pipe.run()

    assert [batch.record.rows for batch in report.batches] == [2, 1]
    assert pipe.rows("n") == [(1,), (2,), (9,)]


@pytest.mark.parametrize(("before", "now"), [("open", "closed"), ("closed", "open")])
def test_a_first_batch_that_died_begins_as_it_was_logged(
    source: Source, monkeypatch: pytest.MonkeyPatch, before: str, now: str
) -> None:
    """Of whole numbers, a value and more and the one before it and no more are the same."""
    source.add(n=[1, 2, 3])
    first = {"open": 1, "closed": 2}

    def dies(*_: Any, **__: Any) -> None:
        raise StorageError("the disk is away")

    with monkeypatch.context() as broken:
        broken.setattr(Reading, "held", dies)
        with pytest.raises(StorageError):
            source.pipe(initial_value=first[before], range_start=before).run()
    pipe = source.pipe(initial_value=first[now], range_start=now)
    pipe.run()

    assert pipe.rows("n") == [(2,), (3,)]


@pytest.mark.slow
def test_a_cursor_that_the_source_renamed_goes_on_by_its_old_name(source: Source) -> None:
    source.add(n=[1, 2])
    pipe = source.pipe()
    pipe.run()
    renamed = pa.table({"m": [1, 2, 3]})
    write_deltalake(str(source.path), renamed, mode="overwrite", schema_mode="overwrite")
    for column, problem in (("m", "'n'.*'m'"), ("n", "no such column: m")):
        with pytest.raises(CursorError, match=problem) as caught:
            source.pipe(column).run()
        assert "pre_filter_sql or `query`" in caught.value.do
    source.pipe(pre_filter_sql="SELECT m AS n FROM @data").run()

    assert pipe.rows("n") == [(1,), (2,), (3,)]


@pytest.mark.slow
def test_the_rows_of_a_large_boundary_are_known_when_the_table_was_moved(source: Source) -> None:
    ids = [*range(cursor_state.MOST_BOUNDARY_ROWS + 1)]
    source.add(n=[1] * len(ids), id=ids)
    pipe = source.pipe()
    pipe.run()
    pipe.table = pipe.table.rename(source.folder / "moved")
    source.add(n=[1], id=[-1])
    pipe.run()

    assert pipe.rows("id") == sorted(((i,) for i in (-1, *ids)), key=repr)


@pytest.mark.slow
def test_a_version_that_was_vacuumed_is_given_up_and_the_next_batch_begins_at_the_same_state(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.add(n=[1, 2], t=["a", "b"])
    pipe = source.pipe()
    pipe.run()
    source.add(n=[2, 3], t=["c", "d"])

    def dies(*_: Any, **__: Any) -> None:
        raise StorageError("the disk is away")

    with monkeypatch.context() as broken:
        broken.setattr(Reading, "held", dies)
        with pytest.raises(StorageError):
            pipe.run()
    rows = pa.table({"n": [1, 2, 2, 3], "t": ["a", "b", "c", "D"]})
    write_deltalake(str(source.path), rows, mode="overwrite")
    DeltaTable(str(source.path)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(CursorError, match=r"version 1 of .* can no longer be read") as caught:
        pipe.run()
    assert "airflow scope abandon" in caught.value.do

    execution, request = pipe.execution()
    repair.abandon(
        execution.log, execution.audit, execution.engine, request.table, 1, now_ms=execution.now_ms
    )
    pipe.run()

    assert pipe.rows("n", "t") == [(1, "a"), (2, "b"), (2, "c"), (3, "D")]


@pytest.mark.slow
def test_a_large_first_load_is_not_held_and_what_is_behind_it_is_exact(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []

    def seen(self: Reading, rows: Any, stack: ExitStack) -> Any:
        before = len(stack._exit_callbacks)  # type: ignore[attr-defined]
        found = look(self, rows, stack)
        held.append(len(stack._exit_callbacks) - before)  # type: ignore[attr-defined]
        return found

    look = Reading._read_once
    monkeypatch.setattr(Reading, "_read_once", seen)
    monkeypatch.setattr(core_settings, "SMALL_ROWS", 10)
    values = [0.5, None, 9.0, -1e300, 9.0, 3.25, float("nan"), 7.0, -0.0, None, 2.0, 9.0, 4.0]
    source.add(n=values, id=[*range(13)], t=list("abcdefghijklm"))
    pipe = source.pipe(on_cursor_value_missing="include")
    pipe.run()
    assert sorted(pipe.rows("id", "t")) == [*enumerate("abcdefghijklm")]
    assert (pipe.state()["last"], len(pipe.state()["boundary_rows"])) == ("9.0", 3)

    source.add(n=[9.0, 9.5, 1.0], id=[20, 21, 22], t=["new", "newer", "too late"])
    pipe.run()
    ids = [row[0] for row in pipe.rows("id")]
    again = [1, 6, 9]  # rows without a value come with every load
    assert sorted(ids) == sorted([*range(13), 20, 21, *again])
    assert held == [0, 1, 1]  # one of the rows with the last value is new


@pytest.mark.slow
@pytest.mark.parametrize("func", ["max", pytest.param("min", marks=pytest.mark.loads)])
def test_decimals_are_compared_exactly_whatever_the_statistics_say(source: Source, func: str) -> None:
    """delta-rs writes them as floats: all of these are 1e19 then."""
    first = [Decimal(f"{10**19 + n}.000000000000000001") for n in (20, 25)]
    source.add(n=pa.array(first, pa.decimal128(38, 18)))
    pipe = source.pipe(last_value_func=func)
    pipe.run()
    step = 1 if func == "max" else -1
    later = [Decimal(f"{10**19 + 22 + step * n}.000000000000000001") for n in (15, 5, 11, 7)]
    source.add(n=pa.array(later, pa.decimal128(38, 18)))
    pipe.run()
    assert sorted(n for (n,) in pipe.rows("n")) == sorted([*first, *later])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("func", "more"),
    [
        ("min", {"max_rows_per_batch": 2}),
        pytest.param("max", {"lag": "0.0000000002"}, marks=pytest.mark.loads),
        pytest.param("min", {"initial_value": True}, marks=pytest.mark.loads),
        pytest.param("max", {"initial_value": True, "max_rows_per_batch": 3}, marks=pytest.mark.loads),
    ],
)
def test_decimals_of_all_38_digits_are_told_apart(source: Source, func: str, more: dict[str, Any]) -> None:
    def values(*last: int) -> list[Decimal]:
        return [Decimal(f"1234567890123456789012345678.{n:010}") for n in last]

    first = values(3, 1, 5, 3, 4, 2)
    if "initial_value" in more:
        more = {**more, "initial_value": str(values(3)[0])}
    source.add(n=pa.array(first, pa.decimal128(38, 10)), id=[*range(6)])
    pipe = source.pipe(last_value_func=func, **more)
    pipe.run(max_batches_per_run=None)
    wanted = {0, 2, 3, 4} if func == "max" else {0, 1, 3, 5}
    wanted = wanted if "initial_value" in more else {*range(6)}
    assert {row for (row,) in pipe.rows("id")} == wanted

    edge, step = (5, 1) if func == "max" else (1, -1)
    later = [Decimal(n) for n in values(edge, edge + step)]
    source.add(n=pa.array(later, pa.decimal128(38, 10)), id=[10, 11])
    pipe.run(max_batches_per_run=None)
    assert sorted(row for (row,) in pipe.rows("id")) == sorted([*wanted, 10, 11])


def test_a_row_without_a_value_fails_the_load_before_its_first_batch(source: Source) -> None:
    source.add(n=[1, None, 2], id=[0, 1, 2])
    pipe = source.pipe(max_rows_per_batch=1)
    with pytest.raises(CursorError, match="1 row has no value"):
        pipe.run()
    assert not DeltaTable.is_deltatable(str(pipe.table))


def test_rows_without_a_value_come_once_with_each_load_of_many_batches(source: Source) -> None:
    source.add(n=[2.0, None, 1.0, float("nan")], id=[*range(4)])
    pipe = source.pipe(max_rows_per_batch=1, on_cursor_value_missing="include")
    assert len(pipe.run(max_batches_per_run=1).batches) == 1
    assert pipe.state()["more"]
    source.add(n=[None, 3.0], id=[4, 5])  # amid the load
    pipe.run(max_batches_per_run=None)
    assert Counter(row for (row,) in pipe.rows("id")) == Counter([*range(6)])
    assert "more" not in pipe.state()
    source.add(n=[4.0], id=[6])
    pipe.run(max_batches_per_run=None)
    assert Counter(row for (row,) in pipe.rows("id")) == Counter([*range(7), 1, 3, 4])


@pytest.mark.slow
def test_rows_that_all_look_like_others_since_the_last_load_are_told(
    source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    source.add(n=[1, 2, 2], id=[1, 2, 3], more=["a", "b", "c"])
    pipe = source.pipe()
    pipe.run()
    source.add(n=[2], id=[4], more=["d"])
    pipe.run()
    assert "is known from the last load" not in capsys.readouterr().out
    source.add(n=[3], id=[5], more=["e"])
    source.pipe(pre_filter_sql="SELECT n, id, more || '' || id AS more FROM @data").run()
    assert "of the 3 rows up to the last value, none is known" in capsys.readouterr().out
    assert sorted(pipe.rows("id")) == [(1,), (2,), (2,), (3,), (3,), (4,), (4,), (5,)]


@pytest.mark.slow
@pytest.mark.parametrize("others", [0, pytest.param(150, marks=pytest.mark.loads)])
def test_rows_that_cannot_be_compared_since_a_column_is_gone_are_told(
    source: Source, capsys: pytest.CaptureFixture[str], others: int
) -> None:
    source.add(n=[2] * (3 + others), id=[*range(3 + others)], Gone=["a", None, "b", *[None] * others])
    pipe = source.pipe()
    pipe.run()
    source.add(n=[3], id=[999], Gone=["e"])
    source.pipe(pre_filter_sql="SELECT n, id FROM @data", sql="SELECT *, '' AS Gone FROM @data").run()
    assert "2 rows up to the last value are loaded, and were" in (out := capsys.readouterr().out)
    assert "the source no longer has 'Gone'." in out
    assert sorted(pipe.rows("id")) == sorted([(0,), (2,), (999,), *((n,) for n in range(3 + others))])


@pytest.mark.slow
def test_a_nested_cursor_a_select_before_it_and_one_behind_it(source: Source) -> None:
    rows = [{"at": datetime(2024, 1, 1, tzinfo=UTC)}, {"at": datetime(2024, 1, 2, tzinfo=UTC)}]
    source.add(**{"m.x": rows, "id": [1, 2], "keep": [True, False]})
    pipe = source.pipe(
        "meta.at",
        pre_filter_sql="SELECT `m.x` AS meta, id, keep FROM @data",
        sql="SELECT id, meta.at AS at FROM @data WHERE keep",
    )
    pipe.run()
    source.add(**{"m.x": [{"at": datetime(2024, 1, 2, tzinfo=UTC)}], "id": [3], "keep": [True]})
    pipe.run()

    assert pipe.rows("id", "at") == [(1, rows[0]["at"]), (3, rows[1]["at"])]
    assert pipe.state()["last"] == "2024-01-02 00:00:00Z"


@pytest.mark.parametrize("kind", ["bigint", "decimal(38,18)"])
def test_files_that_cannot_hold_new_rows_are_not_read(source: Source, spark: Any, kind: str) -> None:
    for start in range(0, 50, 10):
        values = pa.array(range(start, start + 10), pa.int64())
        source.add(n=values if kind == "bigint" else values.cast(pa.decimal128(38, 18)), t=["x"] * 10)
    before = CursorState(column="n", kind=kind, last="39").encode()
    found = CursorSlice(before, "n", None, None, None, None)
    plan = TableSource(table="/t", cursor=Cursor(column="n"))
    data = spark.read.format("delta").load(str(source.path))
    reading = reading_of(plan, found, f"file://{source.folder}/b", data, checkpoint=None, is_repeatable=True)
    new = reading._candidates()

    assert {Path(name).name for name in new.inputFiles()} <= {Path(name).name for name in data.inputFiles()}
    scanned = new._jdf.queryExecution().executedPlan()
    new.collect()
    read = [int(n) for n in re.findall(r"number of files read: (\d+)", metrics(scanned))]
    assert sum(read) <= 2


def metrics(plan: Any) -> str:
    """Return the metrics of all nodes of a plan as text."""
    told, waiting = [], [plan]
    while waiting:
        node = waiting.pop()
        if node.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
            waiting.append(node.executedPlan())
        if node.metrics().contains("numFiles"):
            told.append(f"number of files read: {node.metrics().apply('numFiles').value()}")
        children = node.children()
        waiting += [children.apply(n) for n in range(children.size())]
    return "\n".join(told)


@pytest.mark.slow
def test_a_full_refresh_makes_a_table_again_that_is_gone_while_its_checkpoint_is_elsewhere(
    source: Source,
) -> None:
    source.add(n=[1, 2])
    pipe = source.pipe()
    pipe.arguments["checkpoint"] = {"location": str(source.folder / "elsewhere")}
    pipe.run()
    shutil.rmtree(pipe.table)
    source.add(n=[3])

    with pytest.raises(TableGoneError, match="There is no table at"):
        pipe.run()
    pipe.run(full_refresh=True)
    source.add(n=[4])
    pipe.run()

    assert pipe.rows("n") == [(1,), (2,), (3,), (4,)]
