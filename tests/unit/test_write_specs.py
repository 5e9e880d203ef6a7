"""Merge and Scd2 as values: what is refused alone, and as a dict."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.protocol.report import changes_text
from airflow_provider_scope.specs import Merge, Scd2
from airflow_provider_scope.specs.write import write_from, write_to_dict


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"strategy": "insert"}, "strategy='insert' is not valid"),
        ({"strategy": "upsert"}, "expected at least one column with strategy='upsert'"),
        ({"strategy": "upsert", "merge_key": "day"}, "expected at least one column"),
        ({"strategy": "upsert", "primary_key": "id", "merge_key": "day"}, "expected none with strategy"),
        ({"primary_key": "id", "dedup_sort": "at"}, "expected one column and 'asc' or 'desc'"),
        ({"primary_key": "id", "dedup_sort": ("at", "down")}, "expected one of 'asc', 'desc'"),
        ({"primary_key": "id", "dedup_sort": ("at", "asc", "on", "asc")}, "expected one column"),
        ({"merge_key": "day", "dedup_sort": ("at", "asc")}, "None without primary_key"),
        ({"merge_key": "day", "sequence_by": "at"}, "None without primary_key"),
        ({"primary_key": "id", "merge_key": "day", "sequence_by": "at"}, "None with merge_key"),
        (
            {"strategy": "insert-only", "primary_key": "id", "sequence_by": "at"},
            "None with strategy='insert-only'",
        ),
        (
            {"primary_key": "id", "hard_delete": "gone", "tombstone_retention_days": 7},
            "None without sequence_by",
        ),
        (
            {"primary_key": "id", "sequence_by": "at", "tombstone_retention_days": 30},
            "None without hard_delete",
        ),
    ],
)
def test_what_a_merge_cannot_do_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        Merge(**fields)

    assert said in caught.value.what


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-01-31", "2026-01-31T00:00:00+00:00"),
        ("2026-01-31T10:00:00", "2026-01-31T10:00:00+00:00"),
        ("2026-01-31T10:00:00+02:00", "2026-01-31T08:00:00+00:00"),
        (date(9999, 12, 31), "9999-12-31T00:00:00+00:00"),
        (datetime(2026, 1, 31, 10, tzinfo=UTC), "2026-01-31T10:00:00+00:00"),
        ("tomorrow", None),
        (7, None),
    ],
)
def test_an_instant_is_one_of_utc_or_refused(value: Any, expected: str | None) -> None:
    for name in ("active_record_timestamp", "boundary_timestamp"):
        if expected is None:
            with pytest.raises(InputError, match=f"{name}=.* is not valid: expected a date or a timestamp"):
                Scd2(**{name: value})
        else:
            assert getattr(Scd2(**{name: value}), name) == expected


@pytest.mark.parametrize(
    "write", [Merge(primary_key="id", dedup_sort=("at", "desc")), Scd2(merge_key=["a", "b"]), Merge()]
)
def test_a_write_is_the_same_as_its_dict(write: Any) -> None:
    assert write_from(write_to_dict(write)) == write


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            {"kind": "upsert", "primary_key": "id"},
            "kind='upsert' is not valid: expected one of 'replace', 'merge'",
        ),
        ({"kind": ["merge"]}, "kind=['merge'] is not valid"),
        ({"primary_key": "id"}, "kind=None is not valid: expected one of 'replace', 'merge', 'scd2'"),
        ({"where": "day = 1"}, "kind=None is not valid"),
        ({}, "kind=None is not valid"),
        (
            {"kind": "merge", "primary_keys": "id"},
            "write has unknown keys: primary_keys. Merge has strategy,",
        ),
    ],
)
def test_a_dict_that_is_no_write_is_refused(value: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        write_from(value)

    assert said in caught.value.what


def test_what_a_write_changed_is_one_line() -> None:
    changes = {"hard_deleted": 3, "deduplicated": 4, "deleted": 0, "inserted": 2_000, "updated": 1}

    told = "rows: 2,000 inserted, 1 updated, 0 deleted; in the batch: 4 deduplicated, 3 marked as deleted"
    assert changes_text(changes) == told
    assert (
        changes_text({"inserted": 1, "deduplicated": 0}) == "rows: 1 inserted; in the batch: 0 deduplicated"
    )
