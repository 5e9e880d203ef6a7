"""Deletes that keep older rows away: how long, and what a crash, an abandoned batch and a refresh leave."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from airflow_provider_scope.exceptions import MergeKeyError
from airflow_provider_scope.spark import app
from airflow_provider_scope.spark.commit import Commit
from airflow_provider_scope.spark.files import reading
from airflow_provider_scope.spark.target import Target
from tests.spark.merge_loads import load, merge, refused, stored
from tests.spark.test_sequence import changes

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.spark.conftest import Bench

pytestmark = pytest.mark.spark

WRITE = merge("upsert", primary_key=["id"], sequence_by="at", hard_delete="gone")


class Killed(BaseException):
    """The application is gone: nothing catches it."""


def tombstones(bench: Bench) -> list[tuple[str, int]]:
    """Return the sequence and the batch of each."""
    rows = DeltaTable(str(bench.table / "_tombstones")).to_pyarrow_table().to_pylist()
    return sorted((row["sequence"], row["batch"]) for row in rows)


def on_day(bench: Bench, seq: int, day: int, **columns: Any) -> None:
    """Load rows on a day of January."""
    entry = bench.batch(seq, bench.parquet(f"{seq}.parquet", **columns))
    plan = replace(bench.plan, write={**WRITE, "tombstone_retention_days": 10})
    target = Target(bench.spark, plan, datetime(2026, 1, day, tzinfo=UTC))
    app.run_batch(plan, target, entry, lambda: reading.read(bench.spark, plan, entry))


def test_a_delete_keeps_older_rows_away_and_an_older_delete_does_nothing(bench: Bench) -> None:
    bench.make(id=[1, 2, 3], at=[1, 5, 1], gone=[False] * 3)
    load(bench, 1, WRITE, id=[1, 2, 4], at=[9, 4, 9], gone=[True] * 3)
    assert stored(bench, "id", "at") == [(2, 5), (3, 1)]
    counts = {"inserted": 0, "updated": 0, "deleted": 1, "deduplicated": 0}
    assert changes(bench) == {**counts, "hard_deleted": 3, "unchanged": 2}

    # At the time of the delete, before it, and after it; 4 was never in the table.
    load(bench, 2, WRITE, id=[1, 2, 4, 4], at=[9, 6, 8, 10], gone=[False] * 4)

    assert stored(bench, "id", "at") == [(2, 6), (3, 1), (4, 10)]
    counts = {"inserted": 1, "updated": 1, "deleted": 0, "deduplicated": 1}
    assert changes(bench) == {**counts, "hard_deleted": 0, "unchanged": 1}


@pytest.mark.slow
def test_a_delete_in_the_first_load_counts_and_the_table_of_deletes_is_not_vacuumed(bench: Bench) -> None:
    load(bench, 0, WRITE, id=[1, 2], at=[9, 9], gone=[True, False])
    bench.spark.sql(f"VACUUM delta.`{bench.table}`")
    load(bench, 1, WRITE, id=[1, 2], at=[8, 8], gone=[False, False])

    assert stored(bench, "id", "at") == [(2, 9)]


@pytest.mark.slow
def test_a_delete_counts_for_its_days_and_is_removed_by_a_later_one_of_its_pipeline(bench: Bench) -> None:
    on_day(bench, 0, 1, id=[1, 2], at=[9, 9], gone=[True, False])
    on_day(bench, 1, 11, id=[1, 3], at=[8, 9], gone=[False, True])
    assert stored(bench, "id", "at") == [(2, 9)]
    assert tombstones(bench) == [("9", 0), ("9", 1)]

    # Another pipeline, whose batch has the number of one of ours, may keep its deletes for other days.
    ours, bench.plan = bench.plan, replace(bench.plan, pipeline="22222222-2222-2222-2222-222222222222")
    on_day(bench, 0, 12, id=[5], at=[7], gone=[True])
    assert tombstones(bench) == [("7", 0), ("9", 0), ("9", 1)]
    bench.plan = ours

    on_day(bench, 2, 12, id=[1, 4], at=[8, 9], gone=[False, True])

    assert stored(bench, "id", "at") == [(1, 8), (2, 9)]
    assert tombstones(bench) == [("7", 0), ("9", 1), ("9", 2)]


def die(*arguments: Any) -> int:
    raise Killed


def nothing_else(bench: Bench) -> None:
    load(bench, 1, WRITE, id=[1, 2], at=[5, 5], gone=[True, False])
    assert stored(bench, "id", "at") == [(2, 5)]


def other_rows(bench: Bench) -> None:
    """The SELECT was corrected: it no longer deletes the key."""
    load(bench, 1, WRITE, id=[2], at=[5], gone=[False])
    load(bench, 2, WRITE, id=[1], at=[4], gone=[False])
    assert stored(bench, "id", "at") == [(1, 4), (2, 5)]


def abandoned(bench: Bench) -> None:
    entry = bench.batch(1, bench.parquet("1.parquet", id=[1], at=[5], gone=[True]))
    bench.run(entry, write=WRITE, fence=True)
    load(bench, 2, WRITE, id=[1], at=[4], gone=[False])
    assert stored(bench, "id", "at") == [(1, 4), (2, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("after", [nothing_else, other_rows, abandoned])
def test_a_kill_between_the_deletes_and_the_rows_is_harmless(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, after: Callable[[Bench], None]
) -> None:
    bench.make(id=[1, 2], at=[1, 1], gone=[False, False])
    # After the deletes are committed, and before the rows are.
    monkeypatch.setattr(Commit, "execute", die)
    with pytest.raises(Killed):
        load(bench, 1, WRITE, id=[1, 2], at=[5, 5], gone=[True, False])
    assert stored(bench, "id", "at") == [(1, 1), (2, 1)]
    assert tombstones(bench) == [("5", 1)]
    monkeypatch.undo()

    after(bench)


@pytest.mark.slow
def test_a_refusal_after_the_deletes_were_written_leaves_the_table_as_it_was(bench: Bench) -> None:
    bench.make(id=[1, 2], at=[1, 1], text=["a", "b"], gone=[False, False])
    error = refused(bench, 1, WRITE, id=[1, 2], at=[5, 1], text=["a", "other"], gone=[True, False])

    assert isinstance(error, MergeKeyError)
    assert stored(bench, "id", "at") == [(1, 1), (2, 1)]


@pytest.mark.slow
@pytest.mark.parametrize(("column", "value"), [("rev", 2), ("day", date(2026, 1, 2))])
def test_a_delete_says_nothing_once_rows_are_ordered_by_another_column(
    bench: Bench, column: str, value: Any
) -> None:
    days = [date(2026, 1, 1)] * 2
    load(bench, 0, WRITE, id=[1, 2], at=[9, 9], rev=[1, 1], day=days, gone=[True, False])
    write = {**WRITE, "sequence_by": column}
    row = {"at": [9], "rev": [1], "day": days[:1], "gone": [False], column: [value]}
    load(bench, 1, write, id=[1], **row)

    assert stored(bench, "id", column) == [(1, value), (2, days[0] if column == "day" else 1)]


def test_a_refresh_starts_over(bench: Bench) -> None:
    load(bench, 0, WRITE, id=[1, 2], at=[9, 9], gone=[True, False])
    anew = bench.parquet("1.parquet", id=[1, 2], at=[1, 2], gone=[False, True])
    refresh = {"refresh_start": 1, "overwrite_start": 1}
    bench.run(bench.batch(1, anew, mode="overwrite", **refresh), write=WRITE)
    assert stored(bench, "id", "at") == [(1, 1)]
    assert tombstones(bench) == [("2", 1)]

    more = bench.parquet("2.parquet", id=[1, 2], at=[2, 1], gone=[False, False])
    bench.run(bench.batch(2, more, **refresh), write=WRITE)

    assert stored(bench, "id", "at") == [(1, 2)]


@pytest.mark.slow
def test_a_refresh_by_another_write_starts_over_and_an_abandoned_range_does_not(bench: Bench) -> None:
    load(bench, 0, WRITE, id=[1, 2], at=[9, 9], gone=[True, False])
    bench.run(bench.batch(1, mode="overwrite", where="id = 2", overwrite_start=1), fence=True, empties=True)
    assert tombstones(bench) == [("9", 0)]
    anew = bench.parquet("2.parquet", id=[2], at=[1], gone=[False])
    refresh = {"refresh_start": 2, "overwrite_start": 2}
    bench.run(bench.batch(2, anew, mode="overwrite", **refresh), write={})
    assert tombstones(bench) == []

    more = bench.parquet("3.parquet", id=[1], at=[2], gone=[False])
    bench.run(bench.batch(3, more, **refresh), write=WRITE)
    assert stored(bench, "id", "at") == [(1, 2), (2, 1)]


@pytest.mark.slow
def test_after_a_restore_the_statement_of_accept_table_lets_corrected_rows_in(bench: Bench) -> None:
    load(bench, 0, WRITE, id=[1], at=[1], gone=[False])
    load(bench, 1, WRITE, id=[1], at=[100], gone=[True])
    bench.spark.sql(f"RESTORE delta.`file://{bench.table}` TO VERSION AS OF 0")
    bench.spark.sql(
        f"DELETE FROM delta.`file://{bench.table}/_tombstones` "
        f"WHERE pipeline = '{bench.plan.pipeline}' AND batch IN (1)"
    )
    load(bench, 2, WRITE, id=[1], at=[100], gone=[False])

    assert stored(bench, "id", "at") == [(1, 100)]
