"""What somebody decided about a job goes before everything else."""

from __future__ import annotations

import pytest

from airflow_provider_scope.protocol.log import CheckpointLog
from airflow_provider_scope.protocol.records import Attempt, Settlement
from airflow_provider_scope.scope.fate import JobFates
from airflow_provider_scope.stores.local import LocalStorage

SETTLED = Settlement(seq=7, number=1, committed=False, table_version=20)


def test_the_first_decision_stays(tmp_path):
    log = CheckpointLog(LocalStorage(), f"file://{tmp_path}")
    committed = Settlement(seq=7, number=1, committed=True, table_version=21)

    decisions = [log.find(Settlement, seq=7, number=1), log.put(SETTLED), log.put(committed)]

    assert decisions == [None, SETTLED, SETTLED]
    assert log.find(Settlement, seq=7, number=1) == SETTLED
    assert log.find(Settlement, seq=7, number=0) is None


def test_a_decision_is_not_an_attempt(tmp_path):
    log = CheckpointLog(LocalStorage(), f"file://{tmp_path}")
    attempts = [Attempt(seq=7, number=number, table_version=3) for number in (0, 1)]
    for attempt in attempts:
        log.put(attempt)
    log.put(SETTLED)

    assert log.attempts(7) == attempts


@pytest.mark.parametrize(("committed", "expected"), [(True, "committed"), (False, "not committed")])
def test_a_decision_holds_without_a_look_at_service_and_table(tmp_path, committed, expected):
    log = CheckpointLog(LocalStorage(), f"file://{tmp_path}")
    log.put(Settlement(seq=7, number=1, committed=committed, table_version=9))
    fates = JobFates(None, log, "file:///t", "a pipeline", None)

    assert fates.investigate(Attempt(seq=7, number=1, table_version=3)).fate == expected
