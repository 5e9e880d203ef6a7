"""Rows at the last value that change, and what changes of the cursor itself do to what is known of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from airflow_provider_scope.exceptions import CursorError
from airflow_provider_scope.sources.cursor.spec import Cursor
from tests.support.cursor_model import Replay

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark


def texts(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(row["t"] for row in rows)


def rows_at(*rows: tuple[float | None, str], kind: Any = None) -> pa.Table:
    return pa.table({"v": pa.array([v for v, _ in rows], kind or pa.int64()), "t": [t for _, t in rows]})


@pytest.mark.slow
@pytest.mark.parametrize("others", [0, 250])
def test_a_row_that_changed_and_changed_back_is_loaded_each_time(
    spark: Any, tmp_path: Path, others: int
) -> None:
    """With 250 further rows, what is known is too much for the state, and is in a folder."""
    replay = Replay(spark, tmp_path, Cursor(column="v", lag=2))
    more = [(9, f"other {number:03}") for number in range(others)]

    assert len(replay.load(rows_at((9, "open"), (8, "late"), *more))) == 2 + others
    assert texts(replay.load(rows_at((9, "closed"), (8, "late"), *more))) == ["closed"]
    assert texts(replay.load(rows_at((9, "closed"), (8, "late"), *more))) == []
    assert texts(replay.load(rows_at((9, "open"), (8, "late"), *more))) == ["open"]
    assert texts(replay.load(rows_at((9, "open"), (8, "early"), *more))) == ["early"]
    # A value of which no row was read keeps what is known of it.
    assert texts(replay.load(rows_at((9, "open"), (10, "new"), *more))) == ["new"]
    assert texts(replay.load(rows_at((9, "open"), (8, "early"), (10, "new"), *more))) == []


@pytest.mark.slow
@pytest.mark.parametrize("others", [0, 250])
@pytest.mark.parametrize(
    "kinds",
    [
        (pa.int32(), pa.float64(), pa.int64()),
        (pa.decimal128(12, 1), pa.decimal128(14, 4), pa.decimal128(38, 0), pa.float32()),
    ],
)
def test_rows_stay_known_when_the_number_is_of_another_type(
    spark: Any, tmp_path: Path, others: int, kinds: tuple[Any, ...]
) -> None:
    replay = Replay(spark, tmp_path, Cursor(column="v", lag=2))
    numbers = pa.array([9, 8] + [9] * others, pa.int32())
    names = ["a", "b"] + [f"other {number:03}" for number in range(others)]

    loads = [replay.load(pa.table({"v": numbers.cast(kind), "t": names})) for kind in kinds]
    assert [*map(len, loads)] == [2 + others] + [0] * (len(kinds) - 1)
    assert texts(replay.load(rows_at((9, "new"), (7, "late"), kind=kinds[-1]))) == ["late", "new"]
    replay.load(rows_at((1000, "c"), kind=kinds[-1]))
    with pytest.raises(CursorError, match="type tinyint, and its last value is of the type"):
        replay.load(rows_at((1, "d"), kind=pa.int8()))


@pytest.mark.slow
@pytest.mark.parametrize("others", [0, 250])
def test_rows_stay_known_when_a_date_becomes_a_time_and_a_date_again(
    spark: Any, tmp_path: Path, others: int
) -> None:
    replay = Replay(spark, tmp_path, Cursor(column="v", lag=2))
    day, time = pa.date32(), pa.timestamp("us")
    days = pa.array([9, 8] + [9] * others, pa.int32()).cast(day)
    names = ["a", "b"] + [f"other {number:03}" for number in range(others)]

    assert len(replay.load(pa.table({"v": days, "t": names}))) == 2 + others
    assert replay.load(pa.table({"v": days.cast(time), "t": names})) == []
    replay.cursor = Cursor(column="v")
    loads = [replay.load(pa.table({"v": days.cast(kind), "t": names})) for kind in (time, day, time)]
    assert loads == [[], [], []]
    later = pa.table({"v": pa.array([9 * 86_400_000_000 + 1], time), "t": ["a microsecond later"]})
    assert texts(replay.load(later)) == ["a microsecond later"]
    with pytest.raises(CursorError, match="type date, and its last value is of the type timestamp_ntz"):
        replay.load(later.set_column(0, "v", later["v"].cast(day, safe=False)))


@pytest.mark.parametrize("others", [0, 250])
@pytest.mark.parametrize("values", [(9.5, 8.0), (9.0, 8.5)])
def test_a_number_whose_new_type_cuts_what_is_known_is_refused(
    spark: Any, tmp_path: Path, others: int, values: tuple[float, ...]
) -> None:
    """By a last value of 9, rows of 9 that were 9.5 would be loaded twice."""
    replay = Replay(spark, tmp_path, Cursor(column="v", lag=2))
    more = [(9.0, f"other {number:03}") for number in range(others)]
    rows = rows_at(*((value, str(value)) for value in values), *more, kind=pa.float64())
    replay.load(rows)

    with pytest.raises(CursorError, match="type bigint, and its last value is of the type double"):
        replay.load(rows.set_column(0, "v", rows["v"].cast(pa.int64(), safe=False)))
    assert replay.load(rows) == []


@pytest.mark.parametrize("func", ["max", "min"])
def test_infinite_values_and_nan_are_missing_in_later_loads_too(
    spark: Any, tmp_path: Path, func: Any
) -> None:
    ends = [(math.inf, "inf"), (-math.inf, "-inf"), (math.nan, "nan"), (None, "null")]
    first, later = rows_at((5.0, "a"), kind=pa.float64()), rows_at((5.0, "a"), *ends, kind=pa.float64())
    included = Replay(
        spark, tmp_path / "i", Cursor(column="v", last_value_func=func, on_cursor_value_missing="include")
    )
    raised = Replay(spark, tmp_path / "r", Cursor(column="v", last_value_func=func))
    excluded = Replay(
        spark, tmp_path / "e", Cursor(column="v", last_value_func=func, on_cursor_value_missing="exclude")
    )
    for replay in (included, raised, excluded):
        replay.folder.mkdir()
        assert texts(replay.load(first)) == ["a"]

    assert texts(included.load(later)) == ["-inf", "inf", "nan", "null"]
    assert texts(excluded.load(later)) == []
    for end in ends:
        with pytest.raises(CursorError, match="1 row has no value"):
            raised.load(rows_at((5.0, "a"), end, kind=pa.float64()))


@pytest.mark.parametrize("func", ["max", "min"])
def test_a_lag_that_was_made_longer_looks_no_further_back_than_is_known(
    spark: Any, tmp_path: Path, func: Any
) -> None:
    sign = 1 if func == "max" else -1
    replay = Replay(spark, tmp_path, Cursor(column="v", last_value_func=func, lag=1))
    stored = [(sign * value, f"row {value}") for value in (14, 15, 18, 20)]
    replay.load(rows_at(*stored))
    replay.cursor = Cursor(column="v", last_value_func=func, lag=5)

    assert texts(replay.load(rows_at(*stored, (sign * 16, "not known"), (sign * 19, "late")))) == ["late"]
    stored += [(sign * 19, "late"), (sign * 26, "new")]
    assert texts(replay.load(rows_at(*stored))) == ["new"]
    # Now all of the longer lag is known.
    assert texts(replay.load(rows_at(*stored, (sign * 21, "later")))) == ["later"]


def test_rows_that_are_known_by_other_columns_are_refused_and_not_loaded_again(
    spark: Any, tmp_path: Path
) -> None:
    source = rows_at((5, "a"), (5, "b"))
    replay = Replay(spark, tmp_path, Cursor(column="v", dedup_key=["t"]))
    replay.load(source)
    replay.cursor = Cursor(column="v")
    with pytest.raises(
        CursorError, match=r"known with dedup_key=\(\"t\",\), and cursor.dedup_key is now None"
    ):
        replay.load(source)
    # With nothing to compare, rows with the last value are loaded in each load: that is what it says.
    replay.cursor = Cursor(column="v", dedup_key=())
    assert len(replay.load(source)) == 2
