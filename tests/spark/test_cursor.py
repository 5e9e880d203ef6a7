"""Rows of a Delta table by a cursor column, committed with the state behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.support import warm

if TYPE_CHECKING:
    from pathlib import Path

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


def test_each_load_takes_what_is_new(source: Source) -> None:
    source.add(n=[3, 1, 2], t=["c", "a", "b"])
    pipe = source.pipe()

    first = pipe.run()
    again = pipe.run()
    source.add(n=[5, 4], t=["e", "d"])
    second = pipe.run()

    assert pipe.rows("n", "t") == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]
    assert [first.rows, again.batches, second.rows] == [3, [], 2]
    assert pipe.state()["last"] == "5"


def test_a_row_with_the_last_value_that_comes_later_is_loaded_and_no_other_twice(source: Source) -> None:
    source.add(n=[1, 2, 2], t=["a", "b", "b"])
    pipe = source.pipe()
    pipe.run()
    source.add(n=[2, 2, 1], t=["b", "B", "late"])
    pipe.run()

    assert pipe.rows("n", "t") == [(1, "a"), (2, "B"), (2, "b"), (2, "b"), (2, "b")]
