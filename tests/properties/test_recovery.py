"""Recovery's decisions against a small model of a table's history."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_scope.protocol.records import OffsetEntry, TableIdentity
from airflow_provider_scope.protocol.recovery import (
    CommittedBatch,
    Restored,
    TableState,
    may_run,
    open_entries,
    outcomes,
    rolled_back,
)
from tests.support.values import a_refresh, an_entry


@dataclass(frozen=True)
class Version:
    """One version of a table: the versions whose rows it shows, and what it restored."""

    rows: frozenset[int]
    restored_to: int | None = None


@st.composite
def histories(draw: st.DrawFn) -> list[Version]:
    """Draw the versions of a table that commits and RESTOREs make."""
    versions = [Version(frozenset({0}))]
    for number in range(1, draw(st.integers(1, 14))):
        target = draw(st.none() | st.integers(0, number - 1))
        if target is None:
            versions.append(Version(versions[-1].rows | {number}))
        else:
            versions.append(Version(versions[target].rows, target))
    return versions


@given(histories())
def test_rows_are_gone_exactly_if_the_newest_version_does_not_show_them(history: list[Version]) -> None:
    restores = [
        Restored(number, version.restored_to)
        for number, version in enumerate(history)
        if version.restored_to is not None
    ]

    for number, version in enumerate(history):
        if version.restored_to is None:
            assert rolled_back(CommittedBatch(number, 1, 1), restores) is (number not in history[-1].rows)


@given(histories(), st.data())
def test_a_restore_to_an_unknown_version_never_gives_a_wrong_answer(
    history: list[Version], data: st.DataObject
) -> None:
    restores = [
        Restored(number, data.draw(st.sampled_from([None, version.restored_to])))
        for number, version in enumerate(history)
        if version.restored_to is not None
    ]

    for number, version in enumerate(history):
        if version.restored_to is None:
            assert rolled_back(CommittedBatch(number, 1, 1), restores) in (
                None,
                number not in history[-1].rows,
            )


@st.composite
def logs(draw: st.DrawFn) -> list[OffsetEntry]:
    """Draw a log of appends, full refreshes, and replacements of a range."""
    entries: list[OffsetEntry] = []
    refresh_start = overwrite_start = None
    for seq in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["append", "append", "refresh", "range"]))
        where = "day = 1" if kind == "range" else None
        if kind != "append":
            refresh_start = seq
            overwrite_start = overwrite_start if where else seq
        entries.append(
            an_entry(
                seq,
                mode="append" if kind == "append" else "overwrite",
                where=where,
                refresh_start=refresh_start,
                overwrite_start=overwrite_start,
            )
        )
    return entries


@given(logs(), st.data())
def test_running_the_open_batches_in_order_always_reaches_the_end_of_the_log(
    log: list[OffsetEntry], data: st.DataObject
) -> None:
    start = log[-1].overwrite_start or 0
    txn = data.draw(st.none() | st.integers(0, len(log) - 1))
    committed = {seq: CommittedBatch(seq + 1, 1, 1) for seq in range(-1 if txn is None else txn + 1)}

    found = TableState(TableIdentity("t"), 99, txn, committed)
    result = outcomes(open_entries(log, log[-1]), found)

    assert not result.unclear
    assert [entry.seq for entry, _ in result.committed] + [entry.seq for entry in result.waiting] == list(
        range(start, len(log))
    )
    for entry in result.waiting:
        assert may_run(entry, txn), (entry, txn)
        assert not may_run(entry, entry.seq)
        txn = entry.seq
    assert txn == log[-1].seq


@given(st.integers(1, 9), st.none() | st.integers(0, 9), st.booleans())
def test_a_batch_that_may_run_is_never_one_that_delta_would_skip(
    seq: int, txn: int | None, refresh: bool
) -> None:
    entry = a_refresh(seq) if refresh else an_entry(seq)

    if may_run(entry, txn):
        assert txn is None or txn < seq
