"""Another writer commits while rows are merged: what it adds is seen by the next try, and never missed."""

from __future__ import annotations

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from delta.tables import DeltaMergeBuilder
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.exceptions import BatchNotInTableError
from airflow_provider_scope.spark.writes.merge import Staged
from tests.spark.conftest import Bench
from tests.support.meanwhile import meanwhile

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.spark

MERGE = {"kind": "merge", "strategy": "delete-insert", "primary_key": ["id"]}
BOTH = {**MERGE, "merge_key": ["day"]}
SCD2 = {"kind": "scd2", "row_version_column_name": "day"}


MOMENTS = ("before its transaction", "in its transaction")
LATE = pytest.mark.parametrize(
    "appended", [pytest.param(MOMENTS[0], marks=pytest.mark.loads), MOMENTS[1]], indirect=True
)


@pytest.fixture(params=MOMENTS)
def appended(request: Any, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let another writer append rows once: after the source of a MERGE is analysed, or in its run."""

    def arm(rows: list[dict[str, Any]]) -> None:
        remaining = [rows]

        def append_once() -> None:
            if remaining:
                table = DeltaTable(str(bench.table))
                new = pa.Table.from_pylist(remaining.pop(), pa.schema(table.schema().to_arrow()))
                write_deltalake(table, new, mode="append")

        if request.param == "before its transaction":
            execute = DeltaMergeBuilder.execute

            def late(builder: DeltaMergeBuilder) -> None:
                append_once()
                execute(builder)

            monkeypatch.setattr(DeltaMergeBuilder, "execute", late)
            return
        source, slow = Staged.source, F.udf(meanwhile(append_once), "boolean", useArrow=False)
        monkeypatch.setattr(
            Staged, "source", lambda staged, rows: source(staged, rows.where(slow(F.lit(col=True))))
        )

    return arm


def load(bench: Bench, seq: int, write: dict[str, Any], **columns: Any) -> int | None:
    return bench.run(bench.batch(seq, bench.parquet(f"{seq}.parquet", **columns)), write=write)


def commit(bench: Bench, version: int) -> list[dict[str, Any]]:
    text = (bench.table / "_delta_log" / f"{version:020}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def ids(bench: Bench, version: int) -> tuple[list[Any], Any]:
    """Return the transactions of a commit, and what it says for people."""
    actions = commit(bench, version)
    (info,) = [action["commitInfo"] for action in actions if "commitInfo" in action]
    return [action["txn"]["version"] for action in actions if "txn" in action], info.get("userMetadata")


@pytest.mark.slow
def test_rows_with_either_key_that_are_added_meanwhile_are_deleted(bench: Bench, appended: Any) -> None:
    bench.make(id=[1, 2], day=["mon", "tue"])
    appended([{"id": 9, "day": "tue"}, {"id": 3, "day": "sun"}, {"id": 8, "day": "sat"}])

    assert load(bench, 1, BOTH, id=[3], day=["tue"]) == 2

    assert bench.rows() == [{"id": 1, "day": "mon"}, {"id": 3, "day": "tue"}, {"id": 8, "day": "sat"}]


@LATE
def test_a_row_with_the_key_that_is_added_meanwhile_is_replaced(bench: Bench, appended: Any) -> None:
    write = {**MERGE, "strategy": "upsert"}
    bench.make(id=[1, 2], day=["mon", "tue"])
    appended([{"id": 3, "day": "old"}])

    assert load(bench, 1, write, id=[3], day=["new"]) == 2

    assert [row for row in bench.rows() if row["id"] == 3] == [{"id": 3, "day": "new"}]


@pytest.mark.slow
@LATE
def test_a_row_that_is_added_meanwhile_is_not_inserted_again(bench: Bench, appended: Any) -> None:
    write = {**MERGE, "strategy": "insert-only"}
    bench.make(id=[1], day=["mon"])
    appended([{"id": 3, "day": "old"}])

    assert load(bench, 1, write, id=[3], day=["new"]) == 2

    assert bench.rows() == [{"id": 1, "day": "mon"}, {"id": 3, "day": "old"}]


@pytest.mark.slow
@LATE
def test_versions_that_are_added_meanwhile_are_retired_or_stay_once(bench: Bench, appended: Any) -> None:
    load(bench, 0, SCD2, id=[1], day=["a"])
    appended([{"id": 2, "day": "b"}, {"id": 3, "day": "c"}])

    assert load(bench, 1, SCD2, id=[1, 2], day=["a", "b"]) == 2

    found = [(row["id"], row["_valid_to"] is None) for row in bench.rows()]
    assert found == [(1, True), (2, True), (3, False)]


@pytest.mark.slow
@pytest.mark.parametrize("batches", [1, pytest.param(3, marks=pytest.mark.loads)])
def test_two_pipelines_that_merge_the_same_keys_at_once_converge(
    spark: Any, bench: Bench, batches: int
) -> None:
    """Each batch is in the table as a whole, after tries that are refused by name."""
    bench.make(id=[1, 2, 3], day=["mon", "tue", "wed"])

    def pipeline(name: str) -> int:
        ours = Bench(spark.newSession(), bench.folder)
        tries = 0
        for seq in range(batches):
            entry = ours.batch(seq, ours.parquet(f"{name}{seq}", id=[2, 3, 4], day=[name + str(seq)] * 3))
            while DeltaTable(str(ours.table)).transaction_version(name * 8) != seq:
                tries += 1
                assert tries < 20
                with contextlib.suppress(BatchNotInTableError):  # another writer committed in between
                    ours.run(entry, pipeline=name * 8, write=BOTH)
        return tries

    with ThreadPoolExecutor() as threads:
        assert all(threads.map(pipeline, "ab"))

    assert bench.version() == 2 * batches
    rows = bench.rows()
    assert [row["id"] for row in rows] == [1, 2, 3, 4]
    assert {row["day"] for row in rows[1:]} in ({f"a{batches - 1}"}, {f"b{batches - 1}"})


def test_a_merge_that_changes_nothing_is_a_commit_with_the_number(bench: Bench) -> None:
    write = {**MERGE, "strategy": "upsert"}
    bench.make(id=[1], day=["mon"])
    before = bench.rows()

    assert load(bench, 1, write, id=pa.array([], "int64"), day=pa.array([], "string")) == 1

    assert bench.rows() == before
    assert ids(bench, 1)[0] == [1]
    assert json.loads(ids(bench, 1)[1])["seq"] == 1
