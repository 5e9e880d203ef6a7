"""A new write gets all of this from the transaction around it: "Add a write" of CONTRIBUTING.md, followed."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import delta
import pytest
from deltalake import DeltaTable, Transaction

from airflow_provider_scope.exceptions import BatchNotInTableError, TableDivergedError, UnknownRowsError
from airflow_provider_scope.protocol.probe import probe
from airflow_provider_scope.protocol.recovery import NO_BASELINE
from airflow_provider_scope.spark import settings as core_settings
from airflow_provider_scope.spark.commit import commit_once
from airflow_provider_scope.spark.files.reading import over, read
from airflow_provider_scope.spark.session import with_settings
from airflow_provider_scope.spark.target import Target
from airflow_provider_scope.spark.writes import WRITES, rows
from airflow_provider_scope.stores.local import LocalStorage
from tests.docs.pages import ROOT, blocks, section
from tests.spark.neighbour import append, with_deed

if TYPE_CHECKING:
    from airflow_provider_scope.spark.commit import Batch, Commit

pytestmark = pytest.mark.spark

NEW = "new ids"
IDS = {
    "spark.databricks.delta.write.txnAppId",
    "spark.databricks.delta.write.txnVersion",
    "spark.databricks.delta.commitInfo.userMetadata",
}


def of_the_page() -> Any:
    """Return the write that the page shows: it adds the rows whose id is not in the table."""
    (block,) = blocks(section(ROOT / "CONTRIBUTING.md", "### Add a write"), "python")
    names: dict[str, Any] = {}
    exec(compile(block.text, "CONTRIBUTING.md", "exec"), names)
    return names["write"]


@pytest.fixture(autouse=True)
def registered(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WRITES, NEW, of_the_page())
    bench.plan = dataclasses.replace(bench.plan, write={"kind": NEW})


FIRST = {"id": [1, 2], "text": ["a", "a"]}


def two_batches(bench: Any) -> tuple[Any, Any]:
    """Return a batch that makes the table, and one that brings one of its ids again, with another text."""
    first = bench.batch(0, bench.parquet("a.parquet", **FIRST))
    second = bench.batch(1, bench.parquet("b.parquet", id=[2, 3], text=["b", "b"]))
    return first, second


BOTH = [{"id": 1, "text": "a"}, {"id": 2, "text": "a"}, {"id": 3, "text": "b"}]


def said(bench: Any) -> list[tuple[str, int | None]]:
    """Return operation and batch of each commit, oldest first."""
    history = reversed(DeltaTable(str(bench.table)).history())
    return [(one["operation"], json.loads(one.get("userMetadata") or "{}").get("seq")) for one in history]


def test_a_batch_is_one_commit_with_its_number_and_is_committed_once(bench: Any) -> None:
    first, second = two_batches(bench)

    versions = [bench.run(one) for one in (first, second, second, first)]

    assert versions == [0, 1, None, None]
    assert bench.rows() == BOTH
    assert said(bench) == [("WRITE", 0), ("MERGE", 1)]
    table = DeltaTable(str(bench.table))
    assert table.transaction_version(bench.plan.pipeline) == 1
    assert json.loads(table.history(1)[0]["userMetadata"]) == {
        "abandoned": False,
        "pipeline": bench.plan.pipeline,
        "seq": 1,
    }


def test_a_batch_that_changes_nothing_is_committed_too(bench: Any) -> None:
    first, _ = two_batches(bench)
    bench.make(**FIRST)

    version = bench.run(bench.batch(1, *first.files))

    assert version == 1
    assert bench.rows() == BOTH[:2]
    assert DeltaTable(str(bench.table)).transaction_version(bench.plan.pipeline) == 1


def test_a_batch_runs_after_its_predecessor_alone(bench: Any) -> None:
    _, second = two_batches(bench)
    bench.make(**FIRST)

    with pytest.raises(TableDivergedError, match="holds batch 0 as its newest, not 2"):
        bench.run(bench.batch(3, *second.files))

    assert bench.rows() == BOTH[:2]


def test_a_batch_that_was_given_up_or_overtaken_writes_nothing(bench: Any) -> None:
    first, second = two_batches(bench)
    bench.run(first)
    bench.run(second, fence=True)

    assert bench.run(second) is None
    assert bench.rows() == BOTH[:2]
    assert said(bench) == [("WRITE", 0), ("WRITE", 1)]
    assert json.loads(DeltaTable(str(bench.table)).history(1)[0]["userMetadata"])["abandoned"] is True

    refresh = bench.batch(3, *second.files, mode="overwrite", overwrite_start=3, refresh_start=3)
    bench.run(refresh)

    assert bench.run(bench.batch(2, *first.files)) is None
    assert bench.rows() == [{"id": 2, "text": "b"}, {"id": 3, "text": "b"}]


def test_a_batch_that_another_run_commits_meanwhile_is_not_in_the_table_twice(bench: Any) -> None:
    bench.make(**FIRST)
    second = bench.batch(1, bench.parquet("c.parquet", id=[3], text=["b"]))
    same = Transaction(bench.plan.pipeline, 1)

    def commit_the_same(table: DeltaTable) -> None:
        if table.transaction_version(bench.plan.pipeline) == 0:  # Spark may compute the value twice
            append(table, {"id": [3], "text": ["b"]}, app_transactions=[same])

    sql = with_deed(bench, commit_the_same).replace("(a) a", "(id) id").replace("EXCEPT (a)", "EXCEPT (id)")

    assert bench.run(second, sql=sql) is None
    assert bench.rows() == BOTH


@pytest.mark.slow
def test_nothing_leaks_to_the_next_write_of_the_session(bench: Any) -> None:
    first, second = two_batches(bench)
    elsewhere = f"{bench.table}_elsewhere"
    bench.run(first)
    bench.run(second)

    bench.spark.range(1).write.format("delta").save(elsewhere)
    bench.spark.sql(f"INSERT INTO delta.`{elsewhere}` VALUES (7)")
    bench.run(bench.batch(2, bench.parquet("c.parquet", id=[1], text=["c"])), write={})

    other = DeltaTable(elsewhere)
    assert other.transaction_version(bench.plan.pipeline) is None
    assert [one.get("userMetadata") for one in other.history()] == [None, None]
    assert said(bench) == [("WRITE", 0), ("MERGE", 1), ("WRITE", 2)]
    assert len(bench.rows()) == 4
    assert not IDS & {*bench.spark.conf.getAll}
    assert not IDS & {*type(bench.spark).getActiveSession().conf.getAll}


@pytest.mark.slow
def test_the_log_of_a_small_table_is_looked_at_in_one_job(bench: Any, monkeypatch: Any) -> None:
    """Delta reconstructs a table's state for each commit with a number."""
    for seq in range(2):
        bench.run(bench.batch(seq, bench.parquet(f"{seq}.parquet", id=[seq])))

    def jobs(seq: int) -> int:
        context, group = bench.spark.sparkContext, f"{bench.folder}-{seq}"
        context.setJobGroup(group, "an append")
        try:
            bench.run(bench.batch(seq, bench.parquet(f"{seq}.parquet", id=[seq])))
        finally:
            context.setLocalProperty("spark.jobGroup.id", None)
        return len(context.statusTracker().getJobIdsForGroup(group))

    active = type(bench.spark).active()
    with with_settings(active, {"spark.sql.adaptive.enabled": "true"}):
        few = jobs(2)
        monkeypatch.setattr(core_settings, "is_small_log", lambda _: False)
        assert 0 < few < jobs(3)
        assert active.conf.get("spark.sql.adaptive.enabled") == "true"

    assert DeltaTable(str(bench.table)).count() == 4


@pytest.mark.slow
def test_a_failed_merge_leaves_the_table_and_the_session_as_they_were(bench: Any) -> None:
    _, second = two_batches(bench)
    bench.make(**FIRST)

    error = bench.failure(second, sql="SELECT id, raise_error('no') AS text FROM @data")

    assert "no" in error.what
    assert bench.version() == 0
    assert not IDS & {*bench.spark.conf.getAll}
    assert bench.run(second) == 1


def test_a_session_of_its_own_has_the_settings_of_the_application(bench: Any, monkeypatch: Any) -> None:
    found: dict[str, str] = {}

    def look(batch: Batch, commit: Commit) -> int | None:
        def merge(session: Any) -> None:
            found.update(session.conf.getAll)
            found["id"] = str(id(session))

        commit.execute(merge)
        return rows.write(batch, commit)

    monkeypatch.setitem(WRITES, "look", look)
    bench.run(bench.batch(0, bench.parquet("a.parquet", id=[1])), write={"kind": "look"})

    usual = bench.spark.conf.getAll
    version = "spark.databricks.delta.lastCommitVersionInSession"
    assert {name: found[name] for name in usual if name != version} == {
        name: value for name, value in usual.items() if name != version
    }
    assert found["id"] != str(id(bench.spark))
    assert {*found} >= IDS


STATE = '{"last": "2026-01-02", "keys": ["a \\"b\\"", "é ${spark.app.name}\\n"]}'


@pytest.mark.parametrize("kind", ["append", NEW])
def test_the_state_of_a_source_is_in_the_commit_of_its_rows(bench: Any, kind: str) -> None:
    _, second = two_batches(bench)
    bench.make(**FIRST)
    entry = second
    target = Target(bench.spark, dataclasses.replace(bench.plan, write={"kind": kind}))
    found = over(bench.spark, bench.plan, entry, read(bench.spark, bench.plan, entry))

    commit_once(bench.plan, target.log, entry, lambda given: target.write(given, found, {"state": STATE}))

    found = probe(bench.plan.table, bench.plan.pipeline, NO_BASELINE, LocalStorage()).committed
    assert {seq: batch.state for seq, batch in found.items()} == {0: None, 1: STATE}


def forgetful(batch: Batch, commit: Commit) -> int | None:
    batch.writer().mode("append").save(commit.log.table)
    return 1


def delete_nothing(batch: Batch, commit: Commit) -> int | None:
    return commit.execute(
        lambda session: delta.DeltaTable.forPath(session, commit.log.table).delete("id = 99"),
    )


@pytest.mark.parametrize(
    ("write", "error", "message"),
    [
        pytest.param(forgetful, UnknownRowsError, "Version 1 of .* without its number", id="no number"),
        pytest.param(delete_nothing, BatchNotInTableError, "did not commit it", id="an empty DELETE"),
    ],
)
def test_a_write_that_does_not_record_the_number_is_an_error(
    bench: Any, monkeypatch: pytest.MonkeyPatch, write: Any, error: Any, message: str
) -> None:
    _, second = two_batches(bench)
    bench.make(**FIRST)
    monkeypatch.setitem(WRITES, NEW, write)

    with pytest.raises(error, match=message) as caught:
        bench.run(second)

    assert caught.value.is_retryable == (error is BatchNotInTableError)
    assert DeltaTable(str(bench.table)).transaction_version(bench.plan.pipeline) == 0
