"""Random histories of a source, loaded by a cursor, are what a plain model of it says, row by row."""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from airflow_provider_scope.exceptions import CursorError
from airflow_provider_scope.sources.cursor.state import CursorState
from airflow_provider_scope.spark.cursor import reading_of
from airflow_provider_scope.specs import Cursor, TableSource
from airflow_provider_scope.values import CursorSlice
from tests.spark.cursor_cases import KINDS, SEEDS, counted, lag_of
from tests.support.cursor_model import Model, Replay

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.compiled]
LOADS = 4


@pytest.mark.parametrize("seed", SEEDS)
def test_the_rows_of_each_load_are_those_of_the_model(spark: Any, tmp_path: Path, seed: int) -> None:
    rng = random.Random(f"cursor {seed}")
    kind = [*KINDS][seed % len(KINDS)] if seed < len(KINDS) else rng.choice([*KINDS])
    arrow, value_of, shift = KINDS[kind]
    func = rng.choice(["max", "min"])
    missing = rng.choice(["raise", "include", "exclude"])
    dedup = rng.choice([None, None, ("id",), ()])
    lag = shift if shift is not None and rng.random() < 0.5 else None
    initial = value_of(rng.randrange(6)) if rng.random() < 0.4 else None
    is_open = seed % 2 == 1 and lag is None and not dedup
    schema = pa.schema([("t", pa.string()), ("The Cursor", arrow), ("id", pa.int64())])
    model = Model("The Cursor", func, lag, missing, dedup, initial, is_open)
    replay = Replay(
        spark,
        tmp_path,
        Cursor(
            column="the cursor",
            last_value_func=func,
            lag=None if lag is None else lag_of(lag),
            on_cursor_value_missing=missing,
            dedup_key=dedup,
            initial_value=initial,
            range_start="open" if is_open else "closed",
        ),
    )
    rows: list[dict[str, Any]] = []
    for load in range(LOADS):
        change(
            rng,
            rows,
            lambda load=load: value_of(rng.randrange(8) + load),
            nulls=missing != "raise" or rng.random() < 0.1,
        )
        rng.shuffle(rows)
        source = pa.Table.from_pylist(rows, schema)
        try:
            expected = model.load(rows)
        except ValueError:
            with pytest.raises(CursorError, match="no value in"):
                replay.load(source)
            rows = [row for row in rows if row["The Cursor"] is not None]
            continue
        found = replay.load(source)

        drawn = (seed, kind, load, func, missing, dedup, lag, initial, is_open)
        assert counted(found) == counted(expected), drawn


def change(rng: random.Random, rows: list[dict[str, Any]], value: Any, *, nulls: bool) -> None:
    """Insert, change and delete rows, with equal rows, equal values and late ones among them."""
    for _ in range(rng.randrange(8)):
        given = None if nulls and rng.random() < 0.15 else value()
        rows.append({"t": rng.choice(["a", "b", None, "ä\n"]), "The Cursor": given, "id": rng.randrange(5)})
    for row in rng.sample(rows, len(rows) // 4):
        rows.append(dict(row)) if rng.random() < 0.4 else row.update(t=rng.choice(["c", "d"]))
    for row in rng.sample(rows, len(rows) // 8):
        rows.remove(row)


@pytest.mark.parametrize("kind", KINDS)
def test_ranges_whose_ends_fit_take_each_row_once(spark: Any, tmp_path: Path, kind: str) -> None:
    """Wherever a range is cut, and to whichever side the value of the cut belongs."""
    rng = random.Random(f"ranges {kind}")
    arrow, value_of, _ = KINDS[kind]
    values = sorted({value_of(n) for n in range(10)}, reverse=(is_falling := rng.random() < 0.5))
    first, cut, end = (values[n] for n in sorted(rng.sample(range(len(values)), 3)))
    sides = [rng.choice(["open", "closed"]) for _ in range(3)]
    ranges = [
        (first, sides[0], cut, sides[1]),
        (cut, "open" if sides[1] == "closed" else "closed", end, sides[2]),
    ]
    rows = [{"n": value, "id": id_} for id_, value in enumerate([*values, *values, None])]
    rng.shuffle(rows)
    source = pa.Table.from_pylist(rows, pa.schema([("n", arrow), ("id", pa.int64())]))

    loaded = []
    for start, start_side, stop, stop_side in ranges:
        cursor = Cursor(
            column="n",
            initial_value=start,
            range_start=start_side,
            end_value=stop,
            range_end=stop_side,
            last_value_func="min" if is_falling else "max",
            on_cursor_value_missing="exclude",
        )
        loaded += Replay(spark, tmp_path, cursor).load(source)

    within = values[values.index(first) : values.index(end) + 1]
    within = within[sides[0] == "open" : len(within) - (sides[2] == "open")]
    assert counted(loaded) == counted([row for row in rows if row["n"] in within]), (sides, ranges)


def test_an_open_start_takes_only_rows_beyond_it(spark: Any, tmp_path: Path) -> None:
    replay = Replay(spark, tmp_path, Cursor(column="n", initial_value=1, range_start="open"))

    first = replay.load(pa.table({"n": [1, 2, 2, 3], "id": [0, 1, 2, 3]}))
    second = replay.load(pa.table({"n": [1, 3, 3, 4], "id": [4, 3, 5, 6]}))

    assert [sorted(row["id"] for row in rows) for rows in (first, second)] == [[1, 2, 3], [6]]
    replay.cursor = Cursor(column="n")
    with pytest.raises(CursorError, match='known with dedup_key=\\(\\) or range_start="open"'):
        replay.load(pa.table({"n": [4], "id": [6]}))


def test_a_range_is_read_as_it_was_logged_whatever_the_user_has_written_since(
    spark: Any, tmp_path: Path
) -> None:
    data = spark.createDataFrame([(1,), (2,), (3,)], "n int")
    now = TableSource(table="/t", cursor=Cursor(column="n", initial_value=1, end_value=3))
    logged = CursorSlice(None, "n", "open number:1", "closed number:3", None, None)

    with ExitStack() as block:
        new = reading_of(now, logged, f"file://{tmp_path}", data, checkpoint=None).held(block)
        assert sorted(row.n for row in new.rows.collect()) == [2, 3]
    assert logged.text() == "n after 1 up to 3"


def test_batches_of_so_many_rows_load_each_row_once(spark: Any, tmp_path: Path) -> None:
    rng = random.Random(1)
    values = [rng.randrange(40) for _ in range(150)]
    source = pa.table({"n": pa.array(values, pa.int32()), "id": range(150)})
    replay = Replay(spark, tmp_path, Cursor(column="n"), max_rows=50)

    sizes, loaded = [], []
    for _ in range(20):
        rows = replay.load(source)
        assert not loaded or not rows or min(r["n"] for r in rows) > max(r["n"] for r in loaded)
        loaded += rows
        sizes.append(len(rows))
        if not replay.more:
            break

    assert sorted(row["id"] for row in loaded) == [*range(150)]
    assert len(sizes) > 2
    assert max(sizes) < 120


@pytest.mark.slow
def test_a_boundary_that_is_too_large_for_the_state_is_as_exact(spark: Any, tmp_path: Path) -> None:
    source = pa.table({"n": [7] * 250, "id": range(250)})
    replay = Replay(spark, tmp_path, Cursor(column="n"))

    first = replay.load(source)
    again = replay.load(pa.table({"n": [7] * 253, "id": [*range(251), 3, 4]}))
    third = replay.load(pa.table({"n": [7] * 253, "id": [*range(251), 3, 4]}))
    state = replay.state or ""
    moved = replay.load(pa.table({"n": [7, 8], "id": [1, 1]}))

    assert len(first) == 250
    assert sorted(row["id"] for row in again) == [3, 4, 250]
    assert third == []
    assert len(state) < 500
    assert "boundary_folder" in state
    assert [row["n"] for row in moved] == [8]
    assert "boundary_folder" not in (replay.state or "")


def test_rows_that_differ_each_time_they_are_read_are_read_once(spark: Any, tmp_path: Path) -> None:
    # Not Spark's rand(): it has one seed for a query.
    toss = "CAST(CAST(reflect('java.lang.Math', 'random') AS double) * 2 AS int)"
    data = spark.range(400).selectExpr("id", f"{toss} AS n")
    before = CursorState(column="n", kind="int", last="0").encode()
    found = CursorSlice(before, "n", None, None, None, None)
    plan = TableSource(table="/t", cursor=Cursor(column="n"))
    with ExitStack() as block:
        new = reading_of(plan, found, f"file://{tmp_path}/b", data, checkpoint=None).held(block)
        ids = [row["id"] for row in new.rows.collect()]

    assert sorted(ids) == [*range(400)]
