"""What a run finds at its start, and what has to be done about it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_provider_scope.exceptions import (
    AbandonedBatchError,
    TableAheadOfLogError,
    TableBehindLogError,
    TableDivergedError,
    TableError,
    TableRecreatedError,
    TableRestoredError,
)
from airflow_provider_scope.protocol import acceptance
from airflow_provider_scope.protocol.records import Acceptance, OffsetEntry, Pipeline, TableIdentity
from airflow_provider_scope.protocol.recovery import (
    MISSING_TABLE,
    NO_BASELINE,
    Baseline,
    CommittedBatch,
    Outcomes,
    Restored,
    TableState,
    baseline,
    check_given_up,
    check_identity,
    check_transaction,
    first_in_table,
    may_run,
    open_entries,
    out_of_order,
    outcomes,
    predecessor,
    rolled_back,
)
from tests.support.values import a_commit, a_file, a_refresh, an_entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_scope.protocol.records import CommitRecord

AT = "file:///delta/t"
LOG = f"{AT}/_checkpoint"
T = TableIdentity("t")
U = TableIdentity("u")
T_RESTORED = TableIdentity("t", 7)

# ---- the table that is expected ---------------------------------------------------------------------


def accepted(after_commit: int, table: TableIdentity = U, version: int = 40) -> Acceptance:
    return Acceptance(number=0, after_commit=after_commit, table=table, table_version=version)


@pytest.mark.parametrize(
    ("pipeline", "commit", "acceptance", "expected"),
    [
        pytest.param(
            Pipeline(pipeline="p", table=None), None, None, NO_BASELINE, id="new pipeline, no table"
        ),
        pytest.param(
            Pipeline(pipeline="p", table=T, table_version=5),
            None,
            None,
            Baseline(T, 5),
            id="new pipeline, old table",
        ),
        pytest.param(
            Pipeline(pipeline="p", table=T, table_version=0),
            None,
            None,
            Baseline(T, 0),
            id="a table at version 0",
        ),
        pytest.param(
            Pipeline(pipeline="p", table=None),
            a_commit(3, table=T_RESTORED, table_version=9),
            None,
            Baseline(T_RESTORED, 9),
            id="the newest commit wins over the pipeline",
        ),
        pytest.param(
            Pipeline(pipeline="p", table=T, table_version=5),
            None,
            accepted(-1),
            Baseline(U, 40),
            id="before any commit",
        ),
        pytest.param(
            Pipeline(pipeline="p", table=T, table_version=5),
            a_commit(3, table=T, table_version=9),
            accepted(3),
            Baseline(U, 40),
            id="accepted after the newest commit",
        ),
        pytest.param(
            Pipeline(pipeline="p", table=T, table_version=5),
            a_commit(4, table=U, table_version=41),
            accepted(3),
            Baseline(U, 41),
            id="committed after it was accepted",
        ),
        pytest.param(
            Pipeline(pipeline="p", table=T, table_version=5),
            a_commit(0, table=T, table_version=6),
            accepted(-1),
            Baseline(T, 6),
            id="the first commit came after it was accepted",
        ),
    ],
)
def test_the_newest_record_says_which_table_is_expected(
    pipeline: Pipeline,
    commit: CommitRecord | None,
    acceptance: Acceptance | None,
    expected: Baseline,
) -> None:
    assert baseline(pipeline, commit, acceptance) == expected


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param(MISSING_TABLE, None, id="no table is expected and there is none"),
        pytest.param(TableState(T, 0, None, {}), None, id="created since, by anybody"),
        pytest.param(TableState(T, 9, 3, {}), T, id="the same"),
        pytest.param(TableState(T_RESTORED, 9, 3, {}), T_RESTORED, id="restored before, and that is known"),
    ],
)
def test_a_table_that_is_the_recorded_one_goes_on(state: TableState, expected: TableIdentity | None) -> None:
    check_identity(state, expected, AT, LOG)


@pytest.mark.parametrize(
    ("state", "expected", "what"),
    [
        pytest.param(
            TableState(U, 0, None, {}),
            T,
            "The table file:///delta/t was dropped and created again, or replaced: its id is u, the newest "
            "record says t.",
            id="recreated",
        ),
        pytest.param(
            TableState(T_RESTORED, 9, 3, {}),
            T,
            "The table file:///delta/t was restored (RESTORE at version 7; the newest record says none).",
            id="restored",
        ),
        pytest.param(
            TableState(TableIdentity("t", 12), 12, 3, {}),
            T_RESTORED,
            "The table file:///delta/t was restored (RESTORE at version 12; the newest record says 7).",
            id="restored again",
        ),
    ],
)
def test_another_table_is_refused_with_the_command_that_accepts_it(
    state: TableState, expected: TableIdentity, what: str
) -> None:
    with pytest.raises(TableDivergedError) as caught:
        check_identity(state, expected, AT, LOG)

    assert type(caught.value) is (TableRestoredError if "was restored" in what else TableRecreatedError)
    assert caught.value.what == what
    assert "`airflow scope accept-table`" in caught.value.do
    assert not caught.value.is_retryable


@pytest.mark.parametrize(
    ("txn", "newest_commit", "newest_entry"),
    [(None, -1, -1), (None, -1, 0), (0, -1, 0), (0, 0, 0), (3, 2, 3), (3, 0, 9), (2, 2, 5)],
)
def test_a_transaction_between_the_commits_and_the_log_goes_on(
    txn: int | None, newest_commit: int, newest_entry: int
) -> None:
    check_transaction(TableState(T, 9, txn, {}), newest_commit, newest_entry, AT, "/log")


def test_a_table_without_the_transactions_of_spark_is_accepted_for_spark() -> None:
    """Without a name, the command would take the jobs that loaded it for the engine, and find nothing."""
    with pytest.raises(TableBehindLogError) as caught:
        check_transaction(TableState(T, 9, None, {}), 0, 0, AT, "/log")

    assert "run `airflow scope accept-table --engine spark`: it shows" in caught.value.do


@pytest.mark.parametrize(
    ("txn", "newest_commit", "newest_entry", "what"),
    [
        pytest.param(
            None, 0, 0, "holds batch none as its newest, but batch 0 was committed to it.", id="none at all"
        ),
        pytest.param(
            2, 3, 5, "holds batch 2 as its newest, but batch 3 was committed to it.", id="behind the commits"
        ),
        pytest.param(
            4,
            3,
            3,
            "holds batch 4, but the log in /log ends at batch 3: "
            "it is an older copy, or records were deleted.",
            id="ahead of the log",
        ),
        pytest.param(
            0,
            -1,
            -1,
            "holds batch 0, but the log in /log ends at batch -1: "
            "it is an older copy, or records were deleted.",
            id="ahead of an empty log",
        ),
    ],
)
def test_a_transaction_that_the_log_does_not_explain_is_refused(
    txn: int | None, newest_commit: int, newest_entry: int, what: str
) -> None:
    with pytest.raises(TableDivergedError) as caught:
        check_transaction(TableState(T, 9, txn, {}), newest_commit, newest_entry, AT, "/log")

    assert type(caught.value) is (TableAheadOfLogError if "older copy" in what else TableBehindLogError)
    assert caught.value.what == f"The table {AT} {what}"


# ---- what has to run --------------------------------------------------------------------------------

APPEND_3 = an_entry(3, a_file("3"))
APPEND_4 = an_entry(4, a_file("4"))
REFRESH_5 = a_refresh(5, a_file("5"))
AFTER_6 = an_entry(6, a_file("6"), refresh_start=5, overwrite_start=5)
RANGE_7 = a_refresh(7, a_file("7"), where="day = 7")


@pytest.mark.parametrize(
    ("uncommitted", "newest", "expected"),
    [
        pytest.param([], None, (), id="an empty log"),
        pytest.param([], APPEND_4, (), id="all committed"),
        pytest.param([APPEND_3, APPEND_4], APPEND_4, (APPEND_3, APPEND_4), id="appends"),
        pytest.param(
            [APPEND_3, APPEND_4, REFRESH_5], REFRESH_5, (REFRESH_5,), id="a refresh kills what is below"
        ),
        pytest.param(
            [APPEND_4, REFRESH_5, AFTER_6], AFTER_6, (REFRESH_5, AFTER_6), id="and the batches after it stay"
        ),
        pytest.param([APPEND_4, AFTER_6], AFTER_6, (AFTER_6,), id="also once the refresh is committed"),
        pytest.param(
            [APPEND_4, RANGE_7], RANGE_7, (APPEND_4, RANGE_7), id="the replacement of a range kills none"
        ),
    ],
)
def test_open_batches_below_an_overwrite_of_the_whole_table_are_dead(
    uncommitted: list[OffsetEntry], newest: OffsetEntry | None, expected: tuple[OffsetEntry, ...]
) -> None:
    assert open_entries(uncommitted, newest) == expected


@pytest.mark.parametrize(
    ("entry", "needed"),
    [(an_entry(0), -1), (APPEND_3, 2), (RANGE_7, 6), (REFRESH_5, None), (a_refresh(0), None)],
)
def test_only_an_overwrite_of_the_whole_table_needs_no_predecessor(
    entry: OffsetEntry, needed: int | None
) -> None:
    assert predecessor(entry) == needed


@pytest.mark.parametrize(
    ("entry", "txn", "expected"),
    [
        pytest.param(an_entry(0), None, True, id="the first batch"),
        pytest.param(an_entry(0), 0, False, id="the first batch is done"),
        pytest.param(APPEND_3, 2, True, id="the next one"),
        pytest.param(APPEND_3, None, False, id="overtakes three"),
        pytest.param(APPEND_3, 1, False, id="overtakes one"),
        pytest.param(APPEND_3, 3, False, id="done"),
        pytest.param(APPEND_3, 4, False, id="superseded"),
        pytest.param(RANGE_7, 6, True, id="a range after its predecessor"),
        pytest.param(RANGE_7, 5, False, id="a range overtakes one"),
        pytest.param(REFRESH_5, None, True, id="a refresh of an empty table"),
        pytest.param(REFRESH_5, 1, True, id="a refresh jumps over the dead"),
        pytest.param(REFRESH_5, 4, True, id="a refresh after its predecessor"),
        pytest.param(REFRESH_5, 5, False, id="a refresh that is done"),
        pytest.param(REFRESH_5, 6, False, id="a refresh that is superseded"),
    ],
)
def test_a_batch_runs_only_on_top_of_its_predecessor(
    entry: OffsetEntry, txn: int | None, expected: bool
) -> None:
    assert may_run(entry, txn) is expected


# ---- what became of the open batches ----------------------------------------------------------------

L3 = CommittedBatch(11, 30, 300)
L4 = CommittedBatch(12, 40, 400)


@pytest.mark.parametrize(
    ("state", "rolled_back", "expected"),
    [
        pytest.param(MISSING_TABLE, (), Outcomes((), (APPEND_3, APPEND_4), ()), id="no table"),
        pytest.param(TableState(T, 9, 2, {}), (), Outcomes((), (APPEND_3, APPEND_4), ()), id="none ran"),
        pytest.param(
            TableState(T, 11, 3, {3: L3}), (), Outcomes(((APPEND_3, L3),), (APPEND_4,), ()), id="one ran"
        ),
        pytest.param(
            TableState(T, 12, 4, {3: L3, 4: L4}),
            (),
            Outcomes(((APPEND_3, L3), (APPEND_4, L4)), (), ()),
            id="both ran",
        ),
        pytest.param(
            TableState(T, 12, 4, {4: L4}),
            (),
            Outcomes(((APPEND_4, L4),), (), (APPEND_3,)),
            id="one is not shown",
        ),
        pytest.param(
            TableState(T, 30, 9, {}), (), Outcomes((), (), (APPEND_3, APPEND_4)), id="none is shown"
        ),
        pytest.param(
            TableState(T, 12, 3, {3: L3, 4: L4}),
            (),
            Outcomes(((APPEND_3, L3),), (APPEND_4,), ()),
            id="the transaction decides, not what the history shows",
        ),
        pytest.param(
            TableState(T_RESTORED, 13, 4, {3: L3, 4: L4}),
            (4,),
            Outcomes(((APPEND_3, L3), (APPEND_4, CommittedBatch(-1, 0, 0, abandoned=True))), (), ()),
            id="one was taken out by a RESTORE",
        ),
        pytest.param(
            TableState(T_RESTORED, 13, 4, {4: L4}),
            [3],
            Outcomes(((APPEND_3, CommittedBatch(-1, 0, 0, abandoned=True)), (APPEND_4, L4)), (), ()),
            id="one that was taken out needs no commit to be shown",
        ),
        pytest.param(
            TableState(T, 11, 3, {3: L3}),
            (4,),
            Outcomes(((APPEND_3, L3),), (APPEND_4,), ()),
            id="one that never ran was not taken out",
        ),
    ],
)
def test_open_batches_are_sorted_by_what_the_table_shows(
    state: TableState, rolled_back: tuple[int, ...], expected: Outcomes
) -> None:
    assert outcomes([APPEND_3, APPEND_4], state, rolled_back) == expected


@pytest.mark.parametrize(
    ("committed_at", "restores", "expected"),
    [
        pytest.param(5, [], False, id="never restored"),
        pytest.param(5, [(10, 4)], True, id="to just before"),
        pytest.param(5, [(10, 5)], False, id="to the very commit"),
        pytest.param(5, [(6, 4), (7, 5)], False, id="the second brings it back"),
        pytest.param(3, [(6, 2), (9, 4), (12, 10)], False, id="lost, brought back, kept"),
        pytest.param(3, [(9, 4), (6, 2), (12, 10)], False, id="in any order"),
        pytest.param(5, [(10, None)], None, id="to a time"),
        pytest.param(11, [(10, None)], False, id="committed after one to a time"),
        pytest.param(5, [(6, None), (9, 5)], False, id="one to a time was undone"),
        pytest.param(5, [(6, None), (9, 7)], None, id="one to a time is below what is visible"),
        pytest.param(8, [(6, None), (9, 7)], True, id="lost above one to a time"),
        pytest.param(8, [(6, None), (9, 8)], False, id="kept above one to a time"),
        pytest.param(5, [(6, 4), (9, None)], None, id="whatever came before one to a time"),
    ],
)
def test_a_batch_is_gone_if_the_versions_that_restores_lead_to_lack_it(
    committed_at: int, restores: list[tuple[int, int | None]], expected: bool | None
) -> None:
    assert (
        rolled_back(CommittedBatch(committed_at, 1, 1), [Restored(*restore) for restore in restores])
        is expected
    )


# ---- batches that were given up before there was a table -----------------------------------------------


@pytest.mark.parametrize(
    ("seq", "txn", "expected"),
    [
        (2, None, True),
        (2, 0, False),
        (2, 1, False),
        (2, 2, False),
        (1, None, False),
        (3, None, False),
        (3, 2, True),
    ],
)
def test_the_first_batch_of_a_table_needs_one_without_transactions(seq, txn, expected):
    assert may_run(an_entry(seq, a_file("a")), txn, 2) is expected


@pytest.mark.parametrize(
    ("commit", "acceptance", "expected"),
    [
        (None, None, 0),
        (a_commit(3, table=T), None, 0),
        (a_commit(3, table=None, abandoned=True), None, 4),
        (a_commit(3, table=None, abandoned=True), accepted(3), 0),
    ],
)
def test_batches_below_the_first_were_given_up_before_there_was_a_table(commit, acceptance, expected):
    assert first_in_table(commit, acceptance) == expected


def test_a_batch_that_is_there_although_it_was_given_up_is_refused():
    state = TableState(T, 1, 1, {0: CommittedBatch(0, 1, 1), 1: CommittedBatch(1, 1, 1)})

    check_given_up(state, 0, AT, LOG)
    check_given_up(replace(state, committed={0: CommittedBatch(0, 0, 0, abandoned=True)}), 1, AT, LOG)
    with pytest.raises(AbandonedBatchError, match="batch 0"):
        check_given_up(state, 1, AT, LOG)


@pytest.mark.parametrize(
    "refuse",
    [
        lambda log: check_given_up(TableState(T, 1, 0, {0: CommittedBatch(0, 1, 1)}), 1, AT, log),
        lambda log: check_identity(MISSING_TABLE, T, AT, log),
        lambda log: check_transaction(TableState(T, 9, 4, {}), 3, 3, AT, log),
        lambda log: _raise(acceptance._undecided("…", acceptance.refresh_next(log))),
    ],
)
def test_no_way_out_of_an_interval_is_a_full_refresh_that_it_refuses(
    refuse: Callable[[str], None],
) -> None:
    interval = f"{LOG}/intervals/20260101T000000000Z_20260102T000000000Z"

    with pytest.raises(TableError) as of_all:
        refuse(LOG)
    with pytest.raises(TableError) as of_interval:
        refuse(interval)

    assert "full_refresh=True" in of_all.value.do
    assert "full_refresh" not in of_interval.value.do
    assert f"{LOG}/intervals" in of_interval.value.do
    assert "away while nothing runs, and clear" in of_interval.value.do


def _raise(err: Exception) -> None:
    raise err


def test_a_batch_out_of_order_is_told_by_what_the_table_has():
    """Transactions before the first batch are of batches that were given up before there was a table."""
    assert out_of_order(0, APPEND_3) is TableBehindLogError
    assert out_of_order(None, APPEND_3, 3) is TableBehindLogError
    assert out_of_order(2, APPEND_3, 3) is AbandonedBatchError
