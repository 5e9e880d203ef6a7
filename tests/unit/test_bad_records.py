"""How much of a batch is in the quarantine, as people read it."""

from __future__ import annotations

import pytest

from airflow_provider_scope.protocol import bad_records
from airflow_provider_scope.protocol.bad_records import Quarantined


def test_units_are_told_in_one_order_whether_a_run_counted_them_or_a_record_of_the_log_has_them() -> None:
    counted = {
        "records": Quarantined(3, {"°C is not int": 1}),
        "rows": Quarantined(2, {"on earth": 1}),
        "files": Quarantined(2, {"it cannot be read": 1}),
    }
    logged = {unit: counted[unit] for unit in sorted(counted)}

    told = "1 of 3 records, 1 of 2 rows, 1 of 2 files"
    assert (bad_records.text(counted), bad_records.text(logged)) == (told, told)


@pytest.mark.parametrize(
    ("most", "share", "limit"),
    [
        (None, None, None),
        (3, 0.5, None),
        (2, None, "max_bad_records=2"),
        (None, 0.4, "max_bad_share=0.4"),
        (3, 0, "max_bad_share=0"),
        (0, 0, "max_bad_records=0"),
    ],
)
def test_the_limit_that_a_batch_exceeds_is_told_as_it_was_written(
    most: int | None, share: float | None, limit: str | None
) -> None:
    counts = {
        "records": Quarantined(4, {"nr is not int": 1}),
        "rows": Quarantined(3, {"positive": 1}),
        "files": Quarantined(2, {"it cannot be read": 1}),
    }

    assert bad_records.exceeded(counts, most, share) == limit
